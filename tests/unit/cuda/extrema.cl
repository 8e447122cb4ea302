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

// The larger of two by their bits, which is what the compiler makes of numbers that are widened from bf16.
uint larger_of(uint x, uint y) {
  uint larger = as_float(x) > as_float(y) ? x : y;
  return isnan(as_float(x)) ? x : larger;
}

kernel void largest_of_four(global const ushort* a, global uint* out) {
  size_t i = get_global_id(0);
  uint largest = (uint)a[4 * i] << 16;
  for (size_t k = 1; k < 4; ++k)
    largest = larger_of(largest, (uint)a[4 * i + k] << 16);
  out[i] = largest;
}
