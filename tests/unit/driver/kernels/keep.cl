// Each item keeps 48 KiB across a barrier, so that a group of 1024 needs a block of 48 MiB. out[i] becomes i + out[i].
__kernel void keep_much(__global int *out) {
  int kept[12288];
  size_t i = get_global_id(0);
  for (int at = 0; at < 12288; ++at)
    kept[at] = (int)i + at;
  barrier(CLK_GLOBAL_MEM_FENCE);
  out[i] = kept[out[i] % 12288];
}
