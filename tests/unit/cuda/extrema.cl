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

// The larger of two: of numbers widened from bf16 the compiler chooses the bits.
float larger_of(float x, float y) {
  float larger = x > y ? x : y;
  return isnan(x) ? x : larger;
}

kernel void largest_of_four(global const ushort4* a, global float* out) {
  size_t i = get_global_id(0);
  uint4 bits = convert_uint4(a[i]) << 16;
  out[i] = larger_of(larger_of(larger_of(as_float(bits.x), as_float(bits.y)), as_float(bits.z)), as_float(bits.w));
}
