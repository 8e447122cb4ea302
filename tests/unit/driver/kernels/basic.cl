// Kernels of the driver's tests: one for each thing a launch has to get right.

__kernel void vector_add(__global const float *a, __global const float *b, __global float *c) {
  size_t i = get_global_id(0);
  c[i] = a[i] + b[i];
}

// Tree reduction over one group: barriers and static local memory. Group size 64.
__kernel void reduce_static(__global const float *in, __global float *out) {
  __local float scratch[64];
  size_t l = get_local_id(0);
  scratch[l] = in[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = 32; step > 0; step >>= 1) {
    if (l < step)
      scratch[l] += scratch[l + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0)
    out[get_group_id(0)] = scratch[0];
}

// The same with local memory given as arguments; two of them, to see that they do not overlap.
__kernel void reduce_argument(__global const int *in, __global int *out, __local int *sums, __local int *maxima) {
  size_t l = get_local_id(0);
  sums[l] = in[get_global_id(0)];
  maxima[l] = in[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (size_t step = get_local_size(0) / 2; step > 0; step >>= 1) {
    if (l < step) {
      sums[l] += sums[l + step];
      maxima[l] = max(maxima[l], maxima[l + step]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0) {
    out[2 * get_group_id(0)] = sums[0];
    out[2 * get_group_id(0) + 1] = maxima[0];
  }
}

__kernel void count_atomically(volatile __global int *counters, int modulus) {
  atomic_add(&counters[get_global_id(0) % modulus], 1);
}

// Every id and size of each item of a 3-D launch: 12 words per item.
__kernel void write_ids(__global uint *out) {
  size_t item = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
  item = ((item * get_local_size(2) + get_local_id(2)) * get_local_size(1) + get_local_id(1)) * get_local_size(0) +
         get_local_id(0);
  for (uint d = 0; d < 3; ++d) {
    out[item * 12 + d] = get_global_id(d);
    out[item * 12 + 3 + d] = get_group_id(d);
    out[item * 12 + 6 + d] = get_local_id(d);
    out[item * 12 + 9 + d] = get_global_size(d);
  }
}

__attribute__((reqd_work_group_size(8, 2, 1))) __kernel void fixed_group(__global int *out) {
  out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = 1;
}

struct Pair {
  int first;
  long second;
};

__kernel void take_values(__global long *out, char small, double wide, float4 vector, struct Pair pair) {
  out[0] = small;
  out[1] = (long)wide;
  out[2] = (long)(vector.x + 10 * vector.y + 100 * vector.z + 1000 * vector.w);
  out[3] = pair.first;
  out[4] = pair.second;
}

// Serial work that takes a while, so that something can happen in the meantime.
__kernel void spin(__global uint *out, uint rounds) {
  uint x = (uint)get_global_id(0) + 1;
  for (uint i = 0; i < rounds; ++i)
    x = x * 1664525u + 1013904223u;
  out[get_global_id(0)] = x;
}

__attribute__((work_group_size_hint(4, 1, 1))) __kernel void increment(__global int *values) {
  values[get_global_id(0)] += 1;
}

// Sub-group reduction and shuffle-free ids: the width is the kernel's own.
__attribute__((intel_reqd_sub_group_size(8))) __kernel void subgroup_sums(__global const int *in, __global int *out) {
  int sum = sub_group_reduce_add(in[get_global_id(0)]);
  out[get_global_id(0)] = sum * 100 + (int)get_sub_group_size();
}

// Not a kernel, but exported.
int exported_function(int value) { return value + 1; }
