// Two work-groups that are there at the same time see each other; on one thread the first has gone before the second comes.
kernel void meet(global volatile atomic_int* arrived, global int* met) {
  atomic_fetch_add(arrived, 1);
  for (int i = 0; i < 200000000 && !met[get_group_id(0)]; ++i)
    if (atomic_load(arrived) == 2)
      met[get_group_id(0)] = 1;
}
