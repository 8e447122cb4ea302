// Several threads on one module, and a forked child.
#include "tests/unit/driver/ze_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace zefuse::test {
namespace {

using Concurrency = ZeTest;

constexpr uint32_t kManyItems = 2048;

// vector_add over several groups, with lists of its own; true if every result is right.
bool addRepeatedly(ze_context_handle_t context, ze_device_handle_t device, ze_module_handle_t module,
                   ze_command_queue_mode_t mode, float scale, int rounds) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.mode = mode;
  ze_command_list_handle_t list = nullptr;
  ze_kernel_handle_t kernel = nullptr;
  ze_kernel_desc_t kernel_desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, "vector_add"};
  ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t pool = nullptr;
  ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t done = nullptr;
  ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  float* data = nullptr;
  if (zeCommandListCreateImmediate(context, device, &desc, &list) || zeKernelCreate(module, &kernel_desc, &kernel) ||
      zeKernelSetGroupSize(kernel, 64, 1, 1) || zeEventPoolCreate(context, &pool_desc, 0, nullptr, &pool) ||
      zeEventCreate(pool, &event_desc, &done) ||
      zeMemAllocHost(context, &host, 3 * kManyItems * sizeof(float), 0, reinterpret_cast<void**>(&data)))
    return false;
  for (uint32_t i = 0; i < kManyItems; ++i) {
    data[i] = scale * static_cast<float>(i);
    data[kManyItems + i] = 1;
  }
  bool right = true;
  for (int round = 0; round < rounds && right; ++round) {
    std::memset(data + 2 * kManyItems, 0, kManyItems * sizeof(float));
    for (uint32_t i = 0; i < 3; ++i) {
      const float* pointer = data + i * kManyItems;
      right &= zeKernelSetArgumentValue(kernel, i, sizeof pointer, &pointer) == ZE_RESULT_SUCCESS;
    }
    ze_group_count_t groups = {kManyItems / 64, 1, 1};
    right &= zeCommandListAppendLaunchKernel(list, kernel, &groups, done, 0, nullptr) == ZE_RESULT_SUCCESS;
    right &= zeEventHostSynchronize(done, UINT64_MAX) == ZE_RESULT_SUCCESS;
    right &= zeEventHostReset(done) == ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; i < kManyItems; ++i)
      right &= data[2 * kManyItems + i] == scale * static_cast<float>(i) + 1;
  }
  zeMemFree(context, data);
  zeEventDestroy(done);
  zeEventPoolDestroy(pool);
  zeKernelDestroy(kernel);
  zeCommandListDestroy(list);
  return right;
}

class EightThreads : public ZeTest, public ::testing::WithParamInterface<ze_command_queue_mode_t> {};

TEST_P(EightThreads, ShareOneModule) {
  auto m = module();
  bool right[8] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back(
        [&, i] { right[i] = addRepeatedly(context, device, m, GetParam(), 0.5f * static_cast<float>(i), 100); });
  for (auto& thread : threads)
    thread.join();
  for (int i = 0; i < 8; ++i)
    EXPECT_TRUE(right[i]) << "thread " << i;
}

INSTANTIATE_TEST_SUITE_P(Modes, EightThreads,
                         ::testing::Values(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                                           ZE_COMMAND_QUEUE_MODE_DEFAULT));

TEST_F(Concurrency, ModulesAreBuiltByThreadsAtOnce) {
  auto spirv = readKernelFile("basic.spv");
  std::vector<std::thread> threads;
  ze_result_t results[4];
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      auto made = createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, spirv);
      results[i] = made.result;
      if (made.module)
        zeModuleDestroy(made.module);
    });
  for (auto& thread : threads)
    thread.join();
  for (ze_result_t result : results)
    EXPECT_EQ(ZE_RESULT_SUCCESS, result);
}

TEST_F(Concurrency, AllocationsByThreadsAreFoundByAll) {
  std::vector<std::thread> threads;
  bool right[8];
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      right[i] = true;
      ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
      for (int round = 0; round < 500; ++round) {
        void* pointer = nullptr;
        void* base = nullptr;
        right[i] &= zeMemAllocHost(context, &host, 100, 0, &pointer) == ZE_RESULT_SUCCESS;
        right[i] &=
            zeMemGetAddressRange(context, static_cast<char*>(pointer) + 50, &base, nullptr) == ZE_RESULT_SUCCESS;
        right[i] &= base == pointer;
        right[i] &= zeMemFree(context, pointer) == ZE_RESULT_SUCCESS;
      }
    });
  for (auto& thread : threads)
    thread.join();
  for (bool each : right)
    EXPECT_TRUE(each);
}

// A team and a worker have run in the parent, so both are missing in the child.
TEST_F(Concurrency, AForkedChildLaunches) {
  auto m = module();
  ASSERT_TRUE(addRepeatedly(context, device, m, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, 1, 2));
  auto inherited = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto signalled = event();
  ZE_OK(zeCommandListAppendSignalEvent(inherited, signalled));
  ZE_OK(zeEventHostSynchronize(signalled, UINT64_MAX));
  ZE_OK(zeEventHostReset(signalled));
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang must not outlive the test
    bool right = addRepeatedly(context, device, m, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, 2, 3) &&
                 addRepeatedly(context, device, m, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, 3, 3);
    right = right && zeCommandListAppendSignalEvent(inherited, signalled) == ZE_RESULT_SUCCESS &&
            zeEventHostSynchronize(signalled, UINT64_MAX) == ZE_RESULT_SUCCESS;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  EXPECT_EQ(0, WEXITSTATUS(status));
  EXPECT_TRUE(addRepeatedly(context, device, m, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, 4, 2)) << "the parent goes on";
}

TEST_F(Concurrency, AnAsynchronousListHasATeamWhileNobodyElseHas) {
  const char* threads = std::getenv("ZEFUSE_CPU_DRIVER_THREADS");
  const char* openmp = std::getenv("OMP_NUM_THREADS");
  if (std::thread::hardware_concurrency() < 2 || (threads && std::string(threads) == "1") ||
      (openmp && std::string(openmp) == "1"))
    GTEST_SKIP() << "one thread";
  auto* memory = allocate<int>(3);
  std::fill(memory, memory + 3, 0);
  auto k = kernel(module("meet.spv"), "meet");
  setPointer(k, 0, memory);
  setPointer(k, 1, memory + 1);
  ze_group_count_t groups = {2, 1, 1};
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto done = event();
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &groups, done, 0, nullptr));
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(2, memory[0]);
  EXPECT_EQ(1, memory[1]);
  EXPECT_EQ(1, memory[2]);
}

}  // namespace
}  // namespace zefuse::test
