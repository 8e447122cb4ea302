// Sub-groups of every size that this driver has; see subgroups_test.cpp.
#define KERNEL(size)                                                                                                   \
  __attribute__((intel_reqd_sub_group_size(size))) kernel void lanes_##size(global const int *in, global int *out) {   \
    size_t g = get_global_id(0);                                                                                       \
    int v = in[g], lane = get_sub_group_local_id();                                                                    \
    global int *o = out + 8 * g;                                                                                       \
    o[0] = sub_group_shuffle(v, (lane * 5 + 1) % get_sub_group_size());                                                \
    o[1] = sub_group_shuffle_xor(v, 1);                                                                                \
    o[2] = sub_group_ballot(v > 40).x;                                                                                 \
    o[3] = sub_group_reduce_add(v);                                                                                    \
    o[4] = sub_group_scan_exclusive_add(v);                                                                            \
    o[5] = sub_group_broadcast(v, 1);                                                                                  \
    o[6] = get_sub_group_id() * 100 + get_num_sub_groups();                                                            \
    o[7] = get_sub_group_size() * 100 + lane;                                                                          \
    double wide = sub_group_broadcast((double)v, 0);                                                                   \
    o[7] += wide == sub_group_broadcast(v, 0) ? 0 : 1000000;                                                           \
  }
KERNEL(2)
KERNEL(8)
KERNEL(16)
KERNEL(32)
