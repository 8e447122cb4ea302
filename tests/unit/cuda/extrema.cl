// The larger and the smaller, with a NaN kept and with one dropped, as zefuse's kernels say them.
kernel void extrema(global const float* a, global const float* b, global float* out) {
  size_t i = get_global_id(0);
  float x = a[i], y = b[i];
  float larger = x > y ? x : y, smaller = x < y ? x : y;
  out[4 * i] = isnan(x) ? x : larger;
  out[4 * i + 1] = isnan(x) ? x : smaller;
  out[4 * i + 2] = isnan(y) ? x : larger;
  out[4 * i + 3] = isnan(y) ? x : smaller;
}

// The largest of four numbers of bf16.
kernel void largest_of_four(global const ushort* a, global float* out) {
  size_t i = get_global_id(0);
  float largest = as_float((uint)a[4 * i] << 16);
  for (int k = 1; k < 4; ++k) {
    float x = as_float((uint)a[4 * i + k] << 16);
    largest = isnan(largest) ? largest : largest > x ? largest : x;
  }
  out[i] = largest;
}
