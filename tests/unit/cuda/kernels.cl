kernel void scale(global float* x, float by, uint n) {
  size_t i = get_group_id(0) * get_local_size(0) + get_local_id(0);
  if (i < n)
    x[i] *= by;
}
kernel void moved(global uint* out) { out[get_global_id(0)] = get_global_id(0); }
kernel void with_local(global float* x, local float* first, local float* second) {
  local float own[8];
  size_t i = get_local_id(0);
  own[i % 8] = first[i] = second[i] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[i] = own[(i + 1) % 8] + first[i] + second[0];
}
kernel void fail_here(global int* x) { *x = 1; }
kernel void hang_here(global int* x) { *x = 1; }
kernel void _to_copy(global int* x) { *x = 1; }
kernel void zf_mine(global int* x) { *x = 1; }
