// Code for one architecture alone: wgmma's (drivers/cuda/codegen/warpgroup.h).
#define FUNCTION __attribute__((overloadable)) void
FUNCTION zefuse_warpgroup_begin(void);
FUNCTION zefuse_warpgroup_commit(void);
FUNCTION zefuse_warpgroup_multiply_bf16(private float* sums, local ushort* a, int at_a, local ushort* b, int at_b,
                                        int columns, int more);
FUNCTION zefuse_warpgroup_wait(private float* sums, int count, private int* rows, int count_of_rows, int batches);
__attribute__((reqd_work_group_size(128, 1, 1))) kernel void own(global float* x) {
  local ushort a[64 * 64], b[64 * 64];
  float sums[32];
  int rows[1];
  zefuse_warpgroup_begin();
  zefuse_warpgroup_multiply_bf16(sums, a, 0, b, 0, 64, 0);
  zefuse_warpgroup_commit();
  zefuse_warpgroup_wait(sums, 32, rows, 0, 0);
  for (int i = 0; i < 32; ++i)
    x[get_local_id(0) * 32 + i] = sums[i];
}
