typedef struct { int a; float b[3]; long c; } S;
__constant float table[4] = {1, 2, 3, 4};

__kernel void vector_add(__global const float* a, __global const float* b, __global float* c) {
  size_t i = get_global_id(0);
  c[i] = a[i] + b[i];
}

__kernel void reduce(__global const float* in, __global float* out, __local float* tmp, int n) {
  __local float extra[64];
  int l = get_local_id(0);
  extra[l & 63] = 1;
  tmp[l] = in[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = get_local_size(0) / 2; k > 0; k >>= 1) {
    if (l < k)
      tmp[l] += tmp[l + k];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == 0)
    out[get_group_id(0)] = tmp[0] + extra[n & 63];
}

__kernel void struct_arg(__global float* out, S s, int k) {
  size_t i = get_global_id(0);
  out[i] = s.a + s.b[k] * table[k] + (float)s.c;
}

__kernel void subgroup_sum(__global const float* in, __global float* out) {
  float s = sub_group_reduce_add(in[get_global_id(0)]);
  out[get_global_id(0)] = s + 1000.0f * get_sub_group_id();
}
