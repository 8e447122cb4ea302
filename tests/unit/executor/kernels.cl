// Kernels as the compiler would make them (plan.fbs, table Launch), in OpenCL C.

// out[i] = x[i] + y[i] + bias, chunked: a group takes ceil(extent / groups) elements.
__kernel void add(__global const float* restrict x, __global const float* restrict y,
                  __global float* restrict out, long extent) {
  long groups = get_num_groups(0), chunk = (extent + groups - 1) / groups;
  long begin = get_group_id(0) * chunk, end = min(begin + chunk, extent);
  for (long i = begin; i < end; ++i)
    out[i] = x[i] + y[i];
}

// Static size: 1024 elements.
__kernel void twice1024(__global const float* restrict x, __global float* restrict out) {
  long groups = get_num_groups(0), chunk = (1024 + groups - 1) / groups;
  long begin = get_group_id(0) * chunk, end = min(begin + chunk, 1024L);
  for (long i = begin; i < end; ++i)
    out[i] = 2 * x[i];
}

// Exact distribution: one work-item an element, groups of 16.
__kernel void square(__global const float* restrict x, __global float* restrict out, long extent) {
  long i = get_global_id(0);
  if (i < extent)
    out[i] = x[i] * x[i];
}

// out[i] = table[index[i]], checked: check 1 below zero, check 2 too large. Extent elements, table of `rows`.
__kernel void gather(__global const float* restrict table, __global const long* restrict index,
                     __global float* restrict out, __global volatile uint* status, long extent,
                     long rows) {
  long groups = get_num_groups(0), chunk = (extent + groups - 1) / groups;
  long begin = get_group_id(0) * chunk, end = min(begin + chunk, extent);
  for (long i = begin; i < end; ++i) {
    long at = index[i];
    if (at < 0 || at >= rows) {
      *status = at < 0 ? 1 : 2;
      at = 0;
    }
    out[i] = table[at];
  }
}

// out[i] = x[i] + i; each of a group's 1024 items keeps 48 KiB across a barrier, so that the group needs 48 MiB.
__attribute__((reqd_work_group_size(1024, 1, 1))) __kernel void keep(__global const float* restrict x,
                                                                     __global float* restrict out) {
  int kept[12288];
  long i = get_global_id(0);
  for (int at = 0; at < 12288; ++at)
    kept[at] = (int)i + at;
  barrier(CLK_GLOBAL_MEM_FENCE);
  out[i] = (float)kept[(int)x[i] % 12288];
}

// out[i] = sum of x's row i, through scratch memory of its group: 8 floats.
__kernel void row_sum(__global const float* restrict x, __global float* restrict out,
                      __global float* scratch, long extent) {
  __global float* mine = scratch + get_group_id(0) * 8;
  long groups = get_num_groups(0), chunk = (extent + groups - 1) / groups;
  long begin = get_group_id(0) * chunk, end = min(begin + chunk, extent);
  for (long i = begin; i < end; ++i) {
    for (int j = 0; j < 8; ++j)
      mine[j] = x[i * 8 + j];
    float sum = 0;
    for (int j = 0; j < 8; ++j)
      sum += mine[j];
    out[i] = sum;
  }
}

// Touches nothing, so that no argument of a damaged plan can be wrong for it.
__kernel void ignore(__global const float* restrict x, __global float* restrict out, __global volatile uint* status,
                     __global float* scratch, long first, long second) {}
