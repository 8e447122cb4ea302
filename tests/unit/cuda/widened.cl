// bf16 in f32, as zefuse's kernels say it.
kernel void widened(global const ushort8* x, global float8* out) {
  size_t i = get_global_id(0);
  out[i] = as_float8(convert_uint8(x[i]) << 16u);
}
