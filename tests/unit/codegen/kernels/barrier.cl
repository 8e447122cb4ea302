// Barriers in awkward places, atomics, group operations.
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

__kernel void barrier_in_uniform_branch(__global int* data, __local int* tmp, int take) {
  int l = get_local_id(0), n = get_local_size(0);
  int mine = data[get_global_id(0)];
  tmp[l] = mine;
  if (take > 0) {
    barrier(CLK_LOCAL_MEM_FENCE);
    mine += tmp[n - 1 - l] * take;
    barrier(CLK_LOCAL_MEM_FENCE);
    tmp[l] = mine;
  } else {
    mine = -mine;
    tmp[l] = mine;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  data[get_global_id(0)] = tmp[(l + 1) % n] * 2 + mine;
}

// Two nested loops with barriers, values live across, private array across.
__kernel void nested(__global int* data, int rounds) {
  __local int tmp[256];
  int l = get_local_id(0), n = get_local_size(0);
  int history[4] = {0, 0, 0, 0};
  int v = data[get_global_id(0)];
  for (int r = 0; r < rounds; ++r) {
    for (int s = 1; s < n; s *= 2) {
      tmp[l] = v;
      barrier(CLK_LOCAL_MEM_FENCE);
      int other = tmp[(l + s) % n];
      barrier(CLK_LOCAL_MEM_FENCE);
      v = v * 3 + other;
      if (v & 1)
        history[s & 3] += other;
    }
    history[r & 3] ^= v;
  }
  data[get_global_id(0)] = v + history[0] + 5 * history[1] + 7 * history[2] + 11 * history[3];
}

__kernel void barrier_3d(__global int* out) {
  __local int tmp[4][3][2];
  int x = get_local_id(0), y = get_local_id(1), z = get_local_id(2);
  tmp[x][y][z] = x + 10 * y + 100 * z;
  barrier(CLK_LOCAL_MEM_FENCE);
  out[get_global_linear_id()] = tmp[3 - x][2 - y][1 - z];
}

__kernel void atomics(__global int* counters, __global ulong* wide, __global float* f) {
  int g = get_global_id(0);
  atomic_add(&counters[0], g);
  atomic_inc(&counters[1]);
  atomic_max(&counters[2], g * 7 % 31);
  atomic_min(&counters[3], -g);
  atomic_or(&counters[4], 1 << (g % 30));
  atomic_xor(&counters[5], g);
  atomic_and(&counters[6], ~(1 << (g % 8)));
  int old = counters[7], seen;
  while ((seen = atomic_cmpxchg(&counters[7], old, old + 2)) != old)
    old = seen;
  atom_add(&wide[0], (ulong)g << 20);
  __local int local_counter;
  if (get_local_id(0) == 0)
    local_counter = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&local_counter, 2);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0)
    atomic_add(&counters[8], local_counter);
  union { uint u; float f; } a, b;
  volatile __global uint* p = (volatile __global uint*)f;
  do {
    a.u = *p;
    b.f = a.f + 1.5f;
  } while (atomic_cmpxchg(p, a.u, b.u) != a.u);
}

__kernel void group_ops(__global const int* in, __global int* out) {
  size_t g = get_global_id(0);
  int v = in[g];
  out[8 * g + 0] = work_group_reduce_add(v);
  out[8 * g + 1] = work_group_scan_inclusive_max(v);
  out[8 * g + 2] = work_group_scan_exclusive_add(v);
  out[8 * g + 3] = work_group_broadcast(v, 3);
  out[8 * g + 4] = work_group_all(v > 0);
  out[8 * g + 5] = work_group_any(v > 90);
  out[8 * g + 6] = work_group_reduce_min(v);
  out[8 * g + 7] = get_local_id(0);
}

// The usual block reduction: only the first sub-group runs the last step.
__kernel void block_reduce(__global const float* in, __global float* out) {
  __local float partial[64];
  float s = sub_group_reduce_add(in[get_global_id(0)]);
  if (get_sub_group_local_id() == 0)
    partial[get_sub_group_id()] = s;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_sub_group_id() == 0) {
    float p = get_sub_group_local_id() < get_num_sub_groups() ? partial[get_sub_group_local_id()] : 0;
    p = sub_group_reduce_add(p);
    if (get_sub_group_local_id() == 0)
      out[get_group_id(0)] = p;
  }
}

__attribute__((intel_reqd_sub_group_size(8)))
__kernel void subgroups(__global const int* in, __global int* out) {
  size_t g = get_global_linear_id();
  int v = in[g];
  out[8 * g + 0] = sub_group_scan_inclusive_add(v);
  out[8 * g + 1] = sub_group_scan_exclusive_max(v);
  out[8 * g + 2] = sub_group_broadcast(v, 2);
  out[8 * g + 3] = sub_group_all(v > 0) + 2 * sub_group_any(v > 90);
  out[8 * g + 4] = get_sub_group_size() + 100 * get_max_sub_group_size() + 10000 * get_num_sub_groups();
  out[8 * g + 5] = get_sub_group_id();
  out[8 * g + 6] = get_sub_group_local_id();
  int s = v;
  for (int k = 0; k < get_sub_group_id() + 1; ++k)  // sub-groups take different turns
    s = sub_group_reduce_max(s) + k;
  out[8 * g + 7] = s + get_local_id(1);
}

__kernel void async_copy(__global const float* in, __global float* out, __local float* tmp, int n) {
  event_t e = async_work_group_copy(tmp, in + get_group_id(0) * n, n, 0);
  e = async_work_group_strided_copy(tmp + n, in, n / 2, 2, e);
  wait_group_events(1, &e);
  out[get_global_id(0)] = tmp[n - 1 - get_local_id(0)] + tmp[n + get_local_id(0) % (n / 2)];
}

__kernel void shuffles(__global const int* in, __global int* out) {
  size_t g = get_global_id(0);
  int v = in[g];
  out[3 * g] = sub_group_shuffle(v, (get_sub_group_local_id() * 5 + 1) % 16);
  out[3 * g + 1] = sub_group_shuffle_xor(v, 3);
  out[3 * g + 2] = sub_group_ballot(v > 40).x;
}

__kernel void c11_atomics(volatile __global atomic_int* a, volatile __global atomic_uint* b) {
  atomic_fetch_add_explicit(&a[0], 3, memory_order_relaxed, memory_scope_device);
  atomic_fetch_max(&a[1], (int)get_global_id(0) - 20);
  int expected = 0;
  atomic_compare_exchange_strong(&a[2], &expected, 5);
  atomic_store(&a[3], atomic_load(&a[0]) > 0 ? 9 : 8);
  atomic_fetch_min_explicit(&b[0], (uint)-5 - (uint)get_global_id(0), memory_order_acq_rel, memory_scope_device);
  atomic_exchange(&b[1], 77u);
}

__kernel void print(__global const int* x, float f) {
  float4 v = (float4)(1, 2, 3, f);
  printf("%d items, %5.2f%% [%.1v4hlf] %s %ld\n", x[0], f, v, "text", (long)x[1] << 33);
}
