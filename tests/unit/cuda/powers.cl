kernel void powers(global const float* x, global float* out) {
  size_t i = get_global_id(0);
  out[3 * i] = exp(x[i]);
  out[3 * i + 1] = exp2(x[i]);
  out[3 * i + 2] = exp10(x[i]);
}
