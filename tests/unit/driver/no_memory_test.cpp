// The driver's threads find no memory. The driver uses the program's operator new too, so it is a program of its own.
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tests/unit/driver/ze_test.h"
#include "tests/unit/replaced_new.h"

namespace {

std::atomic<bool> workers_get_none{false};
std::atomic<int> refused{0};

}  // namespace

bool zefuse::test::mayAllocate() {
  if (!workers_get_none)
    return true;
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  if (std::strcmp(name, "zefuse-queue") != 0)
    return true;
  ++refused;
  return false;
}

namespace zefuse::test {
namespace {

using NoMemory = ZeTest;

TEST_F(NoMemory, OnAWorkerIsToldToWhoWaits) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto go = event(), done = event();
  auto* values = allocate<int>(1);
  values[0] = 0;
  ze_kernel_handle_t k = kernel(module(), "increment");
  setPointer(k, 0, values);
  const ze_group_count_t one = {1, 1, 1};
  auto run = [&] {
    ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
    for (int i = 0; i < 8; ++i)
      ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
    ZE_OK(zeCommandListAppendBarrier(list, done, 0, nullptr));
    ZE_OK(zeEventHostSignal(go));
  };
  workers_get_none = true;
  run();
  const ze_result_t result = zeEventHostSynchronize(done, UINT64_MAX);
  workers_get_none = false;
  // A worker that needs no memory for its work needs none for anything else.
  EXPECT_EQ(result, refused ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_SUCCESS);
  EXPECT_EQ(values[0], refused ? 0 : 8);
  if (const char* as = std::getenv("ZEFUSE_CPU_DRIVER_AS"); as && !std::strcmp(as, "gpu"))
    EXPECT_GT(refused, 0) << "translated arguments are allocated: this test shows nothing without";
  ZE_OK(zeEventHostReset(done));
  ZE_OK(zeEventHostReset(go));
  values[0] = 0;
  run();
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(values[0], 8);
}

}  // namespace
}  // namespace zefuse::test
