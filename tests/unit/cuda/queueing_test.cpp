// What queueing one launch costs the host besides CUDA's own launch, as counts: times are tests/gpu_cuda/queueing.c's.
// Counts operator new and locks, so it is a program of its own.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

#include "tests/unit/cuda/cuda_driver_test.h"
#include "tests/unit/replaced_new.h"

namespace {
std::atomic<int> allocations{0}, locks{0};
}  // namespace

bool zefuse::test::mayAllocate() {
  ++allocations;
  return true;
}

// Before glibc's own for all libraries of the process.
extern "C" [[gnu::visibility("default")]] int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto lock = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++locks;
  return lock(mutex);
}

namespace zefuse::test {
namespace {

struct Counts {
  int launches = 0, contexts = 0;
};

TEST_F(CudaDriver, ALaunchIsOneCallOfCudas) {
  const auto counts = fake<Counts (*)()>("fake_cuda_count");
  const auto push = fake<int (*)(void*)>("cuCtxPushCurrent_v2");
  const auto pop = fake<int (*)(void**)>("cuCtxPopCurrent_v2");
  const auto retain = fake<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  ze_module_handle_t code = module();
  ze_kernel_handle_t scale = kernel(code, "scale", 64);
  float* x = memory(4096);
  const uint32_t by = 2, n = 1000;
  ZE_OK(zeKernelSetArgumentValue(scale, 0, sizeof x, &x));
  ZE_OK(zeKernelSetArgumentValue(scale, 1, sizeof by, &by));
  ZE_OK(zeKernelSetArgumentValue(scale, 2, sizeof n, &n));
  ze_command_list_handle_t list = immediate();
  launch(list, scale, 1);
  counts();
  // Of ten launches, each with an argument set before.
  auto cost = [&](int contexts) {
    const Counts before = counts();
    const ze_group_count_t groups = {1, 1, 1};
    const int allocated = allocations, locked = locks;
    bool all = true;
    for (int i = 0; i < 10; ++i)
      all &= zeKernelSetArgumentValue(scale, 0, sizeof x, &x) == ZE_RESULT_SUCCESS &&
             zeCommandListAppendLaunchKernel(list, scale, &groups, nullptr, 0, nullptr) == ZE_RESULT_SUCCESS;
    const int then_allocated = allocations, then_locked = locks;
    EXPECT_TRUE(all);
    EXPECT_GT(allocated, 0);  // both are counted
    EXPECT_GT(locked, 0);
    EXPECT_EQ(then_allocated - allocated, 0);
    EXPECT_EQ(then_locked - locked, 0);
    const Counts after = counts();
    EXPECT_EQ(after.launches - before.launches, 10);
    EXPECT_EQ(after.contexts - before.contexts, 10 * contexts);
  };
  cost(3);  // looks, pushes and pops
  void* primary = nullptr;
  ASSERT_EQ(retain(&primary, 0), 0);
  ASSERT_EQ(push(primary), 0);
  cost(1);  // it is current, as in a thread that uses CUDA's runtime
  ASSERT_EQ(pop(&primary), 0);
  ZE_OK(zeMemFree(this->context, x));
  ZE_OK(zeCommandListDestroy(list));
  ZE_OK(zeKernelDestroy(scale));
  ZE_OK(zeModuleDestroy(code));
}

}  // namespace
}  // namespace zefuse::test
