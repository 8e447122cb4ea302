// The driver over CUDA against a libcuda of the tests' own (fake_cuda.cpp), through the system's loader: orders, errors
// and lifetimes. What kernels compute is for a machine with a GPU: driver_api_tests runs there as it does on the CPU.
#include "tests/unit/cuda/cuda_driver_test.h"

#include <level_zero/ze_ddi.h>

#include <chrono>
#include <cstring>
#include <functional>

#include "common/ze_extension/stream.h"
#include "drivers/cuda/cuda_api.h"

namespace zefuse::test {
namespace {

// Profilers show CUDA's name of a kernel. Those that begin as the driver's own do are numbered.
TEST_F(CudaDriver, KernelsKeepTheirNames) {
  ze_module_handle_t code = module();
  ze_command_list_handle_t list = immediate();
  for (const char* name : {"moved", "_to_copy", "zf_mine"}) {
    ze_kernel_handle_t made = kernel(code, name, 1);
    float* x = memory(sizeof(float));
    ZE_OK(zeKernelSetArgumentValue(made, 0, sizeof x, &x));
    launch(list, made, 1);
    ZE_OK(zeMemFree(context, x));
    ZE_OK(zeKernelDestroy(made));
  }
  ZE_OK(synchronize(list, 1'000'000'000));
  const std::string log = happened();
  EXPECT_NE(log.find("launch moved "), std::string::npos) << log;
  EXPECT_NE(log.find("launch _to_copy "), std::string::npos) << log;
  EXPECT_NE(log.find("launch zf_kernel_"), std::string::npos) << log;
  EXPECT_EQ(log.find("zf_mine"), std::string::npos) << log;
  ZE_OK(zeCommandListDestroy(list));
  ZE_OK(zeModuleDestroy(code));
}

TEST_F(CudaDriver, ALaunchTakesWhatWasSet) {
  ze_module_handle_t code = module();
  ze_kernel_handle_t scale = kernel(code, "scale", 64);
  ze_command_list_handle_t list = immediate();
  float* x = memory(4096);
  uint32_t n = 1000, by = 0;
  ZE_OK(zeKernelSetArgumentValue(scale, 0, sizeof x, &x));
  ZE_OK(zeKernelSetArgumentValue(scale, 1, sizeof by, &by));
  ze_group_count_t groups = {16, 1, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendLaunchKernel(list, scale, &groups, nullptr, 0, nullptr));
  EXPECT_NE(lastError().find("kernel 'scale': argument 2 was never set"), std::string::npos) << lastError();
  ZE_OK(zeKernelSetArgumentValue(scale, 2, sizeof n, &n));
  launch(list, scale, 16);
  n = 7;
  ZE_OK(zeKernelSetArgumentValue(scale, 2, sizeof n, &n));  // of the next launch
  EXPECT_EQ(happened(), "launch scale 16x1x1 of 64x1x1 local 0 arguments memory 0 1000\n");
  zeMemFree(context, x);
  zeCommandListDestroy(list);
  zeKernelDestroy(scale);
  zeModuleDestroy(code);
}

TEST_F(CudaDriver, LocalMemoryIsOneRegionOfTheLaunch) {
  ze_module_handle_t code = module();
  ze_kernel_handle_t with_local = kernel(code, "with_local", 32);
  ze_kernel_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  ZE_OK(zeKernelGetProperties(with_local, &properties));
  EXPECT_EQ(properties.localMemSize, 128u);  // 32 bytes, aligned
  ze_command_list_handle_t list = immediate();
  float* x = memory(4096);
  ZE_OK(zeKernelSetArgumentValue(with_local, 0, sizeof x, &x));
  ZE_OK(zeKernelSetArgumentValue(with_local, 1, 132, nullptr));
  ZE_OK(zeKernelSetArgumentValue(with_local, 2, 100 << 10, nullptr));
  launch(list, with_local, 1);
  // 128 of its own, then 132 aligned to 256, then 100 KiB.
  EXPECT_EQ(happened(), "launch with_local 1x1x1 of 32x1x1 local 102784 arguments memory 128 384\n");
  ZE_OK(zeKernelSetArgumentValue(with_local, 1, 200 << 10, nullptr));
  ze_group_count_t groups = {1, 1, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
            zeCommandListAppendLaunchKernel(list, with_local, &groups, nullptr, 0, nullptr));
  zeMemFree(context, x);
  zeCommandListDestroy(list);
  zeKernelDestroy(with_local);
  zeModuleDestroy(code);
}

TEST_F(CudaDriver, AGlobalOffsetIsThreeMoreParameters) {
  ze_module_handle_t code = module();
  ze_kernel_handle_t moved = kernel(code, "moved", 32);
  ze_command_list_handle_t list = immediate();
  float* x = memory(4096);
  ZE_OK(zeKernelSetArgumentValue(moved, 0, sizeof x, &x));
  void* address = nullptr;
  ZE_OK(zeDriverGetExtensionFunctionAddress(driver, "zeKernelSetGlobalOffsetExp", &address));
  ZE_OK((reinterpret_cast<ze_result_t (*)(ze_kernel_handle_t, uint32_t, uint32_t, uint32_t)>(address)(moved, 5, 6, 7)));
  launch(list, moved, 2);
  EXPECT_EQ(happened(), "launch moved 2x1x1 of 32x1x1 local 0 arguments memory 5 6 7\n");
  zeMemFree(context, x);
  zeCommandListDestroy(list);
  zeKernelDestroy(moved);
  zeModuleDestroy(code);
}

TEST_F(CudaDriver, AnEventIsWaitedForBeforeAnybodySignalsIt) {
  ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr,
                               ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, 2};
  ze_event_pool_handle_t pool;
  ZE_OK(zeEventPoolCreate(context, &desc, 0, nullptr, &pool));
  ze_event_handle_t go, done;
  ze_event_desc_t first = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0}, second = first;
  second.index = 1;
  ZE_OK(zeEventCreate(pool, &first, &go));
  ZE_OK(zeEventCreate(pool, &second, &done));
  ze_module_handle_t code = module();
  ze_kernel_handle_t hang = kernel(code, "fail_here", 1), scale = kernel(code, "scale", 1);
  (void)hang;
  float* x = memory(64);
  float by = 0;
  uint32_t n = 1;
  ZE_OK(zeKernelSetArgumentValue(scale, 0, sizeof x, &x));
  ZE_OK(zeKernelSetArgumentValue(scale, 1, sizeof by, &by));
  ZE_OK(zeKernelSetArgumentValue(scale, 2, sizeof n, &n));
  ze_command_list_handle_t waits = immediate(), signals = immediate();
  launch(waits, scale, 1, done, go);
  EXPECT_EQ(happened(), "");
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(done, 1'000'000));
  ze_kernel_timestamp_result_t times;
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryKernelTimestamp(done, &times));
  ZE_OK(zeCommandListAppendSignalEvent(signals, go));  // another stream
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  // Timestamps of the waiting event are those of its command: after the wait.
  const std::string all = happened();
  EXPECT_NE(all.find("waited\nclock\nlaunch scale 1x1x1 of 1x1x1 local 0 arguments memory 0 1\nclock\nwrote 1\n"),
            std::string::npos)
      << all;
  ZE_OK(zeEventQueryKernelTimestamp(done, &times));
  EXPECT_GT(times.global.kernelEnd, times.global.kernelStart);
  ZE_OK(zeEventHostReset(done));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(done));
  zeMemFree(context, x);
  zeEventDestroy(go);
  zeEventDestroy(done);
  zeEventPoolDestroy(pool);
  zeCommandListDestroy(waits);
  zeCommandListDestroy(signals);
  zeKernelDestroy(hang);
  zeKernelDestroy(scale);
  zeModuleDestroy(code);
}

TEST_F(CudaDriver, AClosedListIsReplayedAsAGraph) {
  ze_command_list_desc_t list_desc = {};
  list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  ze_command_queue_desc_t queue_desc = {};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  queue_desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t list;
  ze_command_queue_handle_t queue;
  ZE_OK(zeCommandListCreate(context, device, &list_desc, &list));
  ZE_OK(zeCommandQueueCreate(context, device, &queue_desc, &queue));
  float *x = memory(64), *y = memory(64);
  const uint64_t pattern[2] = {1, 2};
  ZE_OK(zeCommandListAppendMemoryFill(list, x, pattern, sizeof pattern, 64, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, y, x, 64, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
  ZE_OK(zeCommandListClose(list));
  const std::string once = "graph launch\nfill 16\nfill 16\nfill 16\nfill 16\ncopy 64\n";
  ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
  EXPECT_EQ(happened(), "graph of 5\n" + once);
  ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
  EXPECT_EQ(happened(), "graph of 5\n" + once + once);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(std::memcmp(reinterpret_cast<char*>(y) + 16 * i, pattern, 16), 0);
  // The application's own device memory as well: torch's tensors.
  fake<void (*)()>("fake_cuda_clear")();
  cuda::CUcontext torchs_context = nullptr;
  cuda::CUdeviceptr torchs = 0;
  fake<int (*)(cuda::CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&torchs_context, 0);
  fake<int (*)(cuda::CUcontext)>("cuCtxPushCurrent_v2")(torchs_context);
  ASSERT_EQ(fake<int (*)(cuda::CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&torchs, 64), 0);
  ZE_OK(zeCommandListReset(list));
  ZE_OK(zeCommandListAppendMemoryCopy(list, reinterpret_cast<void*>(torchs), x, 64, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, y, reinterpret_cast<void*>(torchs), 64, nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
  EXPECT_EQ(happened(), "graph of 2\ngraph launch\ncopy 64\ncopy 64\n");
  // What CUDA would have to stage on the host goes command by command.
  fake<void (*)()>("fake_cuda_clear")();
  char on_stack[64];
  ZE_OK(zeCommandListReset(list));
  ZE_OK(zeCommandListAppendMemoryCopy(list, on_stack, x, 64, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, y, on_stack, 64, nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
  EXPECT_EQ(happened(), "copy 64\ncopy 64\n");
  EXPECT_EQ(alive("graph"), 0);
  fake<int (*)(cuda::CUdeviceptr)>("cuMemFree_v2")(torchs);
  fake<int (*)(cuda::CUcontext*)>("cuCtxPopCurrent_v2")(&torchs_context);
  zeMemFree(context, x);
  zeMemFree(context, y);
  zeCommandListDestroy(list);
  zeCommandQueueDestroy(queue);
}

TEST_F(CudaDriver, AnAdoptedStreamTakesTheWorkAndStays) {
  void* ordinal_of = nullptr;
  ZE_OK(zeDriverGetExtensionFunctionAddress(driver, ze_extension::device_ordinal_name, &ordinal_of));
  int32_t ordinal = -1;
  ZE_OK(reinterpret_cast<ze_extension::DeviceOrdinal>(ordinal_of)(device, &ordinal));
  EXPECT_EQ(ordinal, 0);

  using ze_extension::AdoptedStream;
  void *primary = nullptr, *stream = nullptr;  // the application's
  ASSERT_EQ(0, fake<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&primary, ordinal));
  ASSERT_EQ(0, fake<int (*)(void*)>("cuCtxPushCurrent_v2")(primary));
  ASSERT_EQ(0, fake<int (*)(void**, unsigned)>("cuStreamCreate")(&stream, 1));
  ze_extension::StreamIsCapturing is_capturing = nullptr;
  find(is_capturing, ze_extension::stream_is_capturing_name);
  bool capturing = true;
  ZE_OK(is_capturing(stream, &capturing));
  EXPECT_FALSE(capturing);
  ASSERT_EQ(0, fake<int (*)(void*, int)>("cuStreamBeginCapture_v2")(stream, 1));
  ZE_OK(is_capturing(stream, &capturing));
  EXPECT_TRUE(capturing);
  void* captured = nullptr;
  ASSERT_EQ(0, fake<int (*)(void*, void**)>("cuStreamEndCapture")(stream, &captured));
  ASSERT_EQ(0, fake<int (*)(void*)>("cuGraphDestroy")(captured));
  ZE_OK(is_capturing(nullptr, &capturing));
  EXPECT_FALSE(capturing);
  const int streams = alive("stream");
  AdoptedStream adopted = {AdoptedStream::kType, nullptr, stream};
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.pNext = &adopted;
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t list = nullptr, recorded = nullptr;
  ze_command_queue_handle_t queue = nullptr;
  ZE_OK(zeCommandListCreateImmediate(context, device, &desc, &list));
  ZE_OK(zeCommandQueueCreate(context, device, &desc, &queue));
  EXPECT_EQ(alive("stream"), streams);

  float *a = memory(256), *b = memory(256);
  ZE_OK(zeCommandListAppendMemoryCopy(list, b, a, 256, nullptr, 0, nullptr));
  // What is captured goes through a stream beside it; what was made of it runs in the adopted one.
  ze_command_list_desc_t regular = {ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, nullptr, 0, 0};
  ZE_OK(zeCommandListCreate(context, device, &regular, &recorded));
  for (int i = 0; i < 2; ++i)
    ZE_OK(zeCommandListAppendMemoryCopy(recorded, a, b, 256, nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(recorded));
  for (int i = 0; i < 2; ++i)
    ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &recorded, nullptr));
  ZE_OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
  EXPECT_EQ(alive("stream"), streams + 1);
  EXPECT_EQ(0, fake<int (*)(void*)>("cuStreamQuery")(stream));
  ZE_OK(zeCommandListDestroy(list));
  ZE_OK(zeCommandListDestroy(recorded));
  ZE_OK(zeCommandQueueDestroy(queue));
  EXPECT_EQ(alive("stream"), streams);
  ZE_OK(zeMemFree(context, a));
  ZE_OK(zeMemFree(context, b));

  ASSERT_EQ(0, fake<int (*)(void*)>("cuStreamDestroy_v2")(stream));
  EXPECT_NE(ZE_RESULT_SUCCESS, zeCommandQueueCreate(context, device, &desc, &queue));
  EXPECT_NE(lastError().find("cuStreamIsCapturing, of the stream to adopt: CUDA_ERROR"), std::string::npos)
      << lastError();
  ASSERT_EQ(0, fake<int (*)(void**)>("cuCtxPopCurrent_v2")(&primary));
}

TEST_F(CudaDriver, MemoryThatIsNotThereIsTold) {
  fake<void (*)(const char*, int)>("fake_cuda_fail_next")("cuMemAlloc_v2", 2);
  ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
  void* made = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zeMemAllocDevice(context, &desc, 4096, 0, device, &made));
  EXPECT_EQ(lastError(), "zeMemAllocDevice: no memory left for 4096 bytes");
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocDevice(context, &desc, 4096, 1 << 20, device, &made));  // nothing is lost
  EXPECT_EQ(reinterpret_cast<uintptr_t>(made) % (1 << 20), 0u);
  zeMemFree(context, made);
}

TEST_F(CudaDriver, CopiesAndFillsEndWithTheirAllocation) {
  ze_command_list_handle_t list = immediate();
  constexpr size_t bytes = 256;
  auto* x = reinterpret_cast<std::byte*>(memory(bytes));
  std::vector<std::byte> host(2 * bytes);
  const int zero = 0;
  ze_copy_region_t region = {0, 0, 0, bytes, 2, 1}, row = {0, 0, 0, bytes / 2, 2, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendMemoryCopy(list, host.data(), x + 4, bytes, nullptr, 0, nullptr));
  EXPECT_NE(lastError().find("srcptr: 256 bytes"), std::string::npos) << lastError();
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendMemoryCopy(list, x + 4, host.data(), bytes, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendMemoryFill(list, x + 4, &zero, sizeof zero, bytes, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE, zeCommandListAppendMemoryCopyRegion(list, x, &region, 0, 0, host.data(),
                                                                              &region, 0, 0, nullptr, 0, nullptr));
  EXPECT_EQ(happened(), "") << "refused before CUDA is called";
  ZE_OK(zeCommandListAppendMemoryCopy(list, x, host.data(), bytes, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryFill(list, x + 4, &zero, sizeof zero, bytes - 4, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopyRegion(list, x, &row, 0, 0, host.data(), &row, 0, 0, nullptr, 0, nullptr));
  ZE_OK(zeMemFree(context, x));
  ZE_OK(zeCommandListDestroy(list));
}

// CUDA's own functions would wait for the stream, which waits for an event that this thread signals last.
TEST_F(CudaDriver, NothingThatIsReleasedWaitsForAnEvent) {
  const int memory_before = alive("device memory"), modules = alive("module"), streams = alive("stream");
  ze_command_list_handle_t list = immediate(), other = immediate();
  ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t pool = nullptr, dropped = nullptr;
  ZE_OK(zeEventPoolCreate(context, &pool_desc, 0, nullptr, &pool));
  ZE_OK(zeEventPoolCreate(context, &pool_desc, 0, nullptr, &dropped));
  ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t go = nullptr;
  ZE_OK(zeEventCreate(pool, &event_desc, &go));
  float* x = memory(64);
  ze_module_handle_t code = module();
  const auto start = std::chrono::steady_clock::now();
  ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
  ZE_OK(zeMemFree(context, x));
  ZE_OK(zeModuleDestroy(code));
  ZE_OK(zeEventPoolDestroy(dropped));
  ZE_OK(zeCommandListDestroy(list));
  EXPECT_EQ(alive("device memory"), memory_before + 1) << "put off";
  EXPECT_EQ(alive("module"), modules + 1);
  EXPECT_EQ(alive("stream"), streams + 2);
  ZE_OK(zeEventHostSignal(go));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  ZE_OK(zeCommandListDestroy(other));  // as any release, this looks after those put off
  EXPECT_EQ(alive("device memory"), memory_before);
  EXPECT_EQ(alive("module"), modules);
  EXPECT_EQ(alive("stream"), streams);
  ZE_OK(zeEventDestroy(go));
  ZE_OK(zeEventPoolDestroy(pool));
}

// CUDA's own copies from host memory to host memory are done by the caller, after the wait in the stream.
TEST_F(CudaDriver, CopiesOnTheHostKeepNobodyWaiting) {
  ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr,
                                    ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP, 2};
  ze_event_pool_handle_t pool = nullptr;
  ZE_OK(zeEventPoolCreate(context, &pool_desc, 0, nullptr, &pool));
  ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t go = nullptr, timed = nullptr;
  ZE_OK(zeEventCreate(pool, &event_desc, &go));
  event_desc.index = 1;
  ZE_OK(zeEventCreate(pool, &event_desc, &timed));
  ze_host_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  auto host = [&](size_t bytes) {
    void* made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocHost(context, &desc, bytes, 0, &made));
    return static_cast<char*>(std::memset(made, '-', bytes));
  };
  char *from = host(16), *to = host(16), *region = host(16);
  auto* times = reinterpret_cast<ze_kernel_timestamp_result_t*>(host(2 * sizeof(ze_kernel_timestamp_result_t)));
  std::memcpy(from, "0123456789abcdef", 16);
  ze_command_list_handle_t list = immediate();
  const auto start = std::chrono::steady_clock::now();
  const ze_copy_region_t at_second = {1, 0, 0, 2, 2, 2}, at_first = {0, 0, 0, 2, 2, 2};
  ZE_OK(zeCommandListAppendMemoryCopy(list, to + 1, from, 10, timed, 1, &go));
  ZE_OK(
      zeCommandListAppendMemoryCopyRegion(list, region, &at_first, 4, 8, from, &at_second, 3, 6, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendQueryKernelTimestamps(list, 1, &timed, times, nullptr, nullptr, 0, nullptr));
  ZE_OK(zeMemFree(context, from));  // once it was read
  EXPECT_EQ(std::string(to, 16), "----------------");
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(synchronize(list, UINT64_MAX));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(std::string(to, 16), "-0123456789-----");
  EXPECT_EQ(std::string(region, 16), "12--45--78--ab--");
  ze_kernel_timestamp_result_t span;
  ZE_OK(zeEventQueryKernelTimestamp(timed, &span));
  EXPECT_EQ(std::memcmp(&span, times, sizeof span), 0);
  EXPECT_EQ(happened(), "waited\nclock\nhost function\nclock\nwrote 1\nhost function\nhost function\n");

  // A closed list of such copies goes command by command each time.
  fake<void (*)()>("fake_cuda_clear")();
  ze_command_list_desc_t list_desc = {};
  list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  ze_command_queue_desc_t queue_desc = {};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  queue_desc.mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  ze_command_list_handle_t closed = nullptr;
  ze_command_queue_handle_t queue = nullptr;
  ZE_OK(zeCommandListCreate(context, device, &list_desc, &closed));
  ZE_OK(zeCommandQueueCreate(context, device, &queue_desc, &queue));
  ZE_OK(zeCommandListAppendMemoryCopy(closed, region, to, 4, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(closed, region + 4, region, 4, nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(closed));
  for (const char* expected : {"-012-01278--ab--", "x012x01278--ab--"}) {
    ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &closed, nullptr));
    EXPECT_EQ(std::string(region, 16), expected);
    to[0] = 'x';
  }
  EXPECT_EQ(happened(), "host function\nhost function\nhost function\nhost function\n");
  ZE_OK(zeCommandQueueDestroy(queue));
  ZE_OK(zeCommandListDestroy(closed));
  ZE_OK(zeCommandListDestroy(list));
  ZE_OK(zeEventDestroy(go));
  ZE_OK(zeEventDestroy(timed));
  ZE_OK(zeEventPoolDestroy(pool));
  for (void* each : {static_cast<void*>(to), static_cast<void*>(region), static_cast<void*>(times)})
    ZE_OK(zeMemFree(context, each));
}

TEST_F(CudaDriver, AnErrorOfACallNamesItAndTheKernel) {
  ze_module_handle_t code = module();
  ze_kernel_handle_t moved = kernel(code, "moved", 32);
  ze_command_list_handle_t list = immediate();
  float* x = memory(64);
  ZE_OK(zeKernelSetArgumentValue(moved, 0, sizeof x, &x));
  fake<void (*)(const char*, int)>("fake_cuda_fail_next")("cuLaunchKernel", 701);
  ze_group_count_t groups = {1, 1, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
            zeCommandListAppendLaunchKernel(list, moved, &groups, nullptr, 0, nullptr));
  EXPECT_EQ(lastError(),
            "zeCommandListAppendLaunchKernel: cuLaunchKernel: CUDA_ERROR (701): as the fake says; kernel 'moved'");
  launch(list, moved, 1);  // the device is not lost
  zeMemFree(context, x);
  zeCommandListDestroy(list);
  zeKernelDestroy(moved);
  zeModuleDestroy(code);
}

TEST_F(CudaDriver, NothingOutlivesItsHandles) {
  const int streams = alive("stream"), modules = alive("module"), host = alive("host memory");
  {
    ze_module_handle_t code = module();
    ze_kernel_handle_t moved = kernel(code, "moved", 32);
    ze_command_list_handle_t list = immediate();
    memory(64);  // freed with the context
    EXPECT_EQ(alive("stream"), streams + 1);
    EXPECT_EQ(alive("module"), modules + 1);
    zeModuleDestroy(code);
    EXPECT_EQ(alive("module"), modules + 1) << "the kernel needs it";
    zeKernelDestroy(moved);
    zeCommandListDestroy(list);
  }
  EXPECT_EQ(alive("stream"), streams);
  EXPECT_EQ(alive("module"), modules);
  EXPECT_EQ(alive("host memory"), host);
  EXPECT_EQ(alive("device memory"), 1);
  zeContextDestroy(context);
  context = nullptr;
  EXPECT_EQ(alive("device memory"), 0);
  ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ZE_OK(zeContextCreate(driver, &desc, &context));
}

TEST_F(CudaDriver, AWaitEndsAtItsDeadline) {
  ze_module_handle_t code = module();
  ze_kernel_handle_t hang = kernel(code, "hang_here", 1);
  ze_command_list_handle_t list = immediate();
  float* x = memory(64);
  ZE_OK(zeKernelSetArgumentValue(hang, 0, sizeof x, &x));
  launch(list, hang, 1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ZE_RESULT_NOT_READY, synchronize(list, 20'000'000));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(ZE_RESULT_NOT_READY, synchronize(list, 0));
  // The same of a queue, its fence, and the event of what runs there.
  Executed executed = execute(hang);
  for (uint64_t timeout : {uint64_t{0}, uint64_t{20'000'000}}) {
    EXPECT_EQ(ZE_RESULT_NOT_READY, zeCommandQueueSynchronize(executed.queue, timeout));
    EXPECT_EQ(ZE_RESULT_NOT_READY, zeFenceHostSynchronize(executed.fence, timeout));
    EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(executed.done, timeout));
  }
  fake<void (*)()>("fake_cuda_release")();
  EXPECT_EQ(ZE_RESULT_SUCCESS, synchronize(list, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandQueueSynchronize(executed.queue, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeFenceHostSynchronize(executed.fence, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventHostSynchronize(executed.done, UINT64_MAX));
  destroy(executed);
  zeMemFree(context, x);
  zeCommandListDestroy(list);
  zeKernelDestroy(hang);
  zeModuleDestroy(code);
}

// The last one: a device that is lost stays lost for the process.
TEST_F(CudaDriver, ZAKernelThatFailsLosesTheDevice) {
  ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t pool;
  ZE_OK(zeEventPoolCreate(context, &desc, 0, nullptr, &pool));
  ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t done;
  ZE_OK(zeEventCreate(pool, &event_desc, &done));
  ze_module_handle_t code = module();
  ze_kernel_handle_t fails = kernel(code, "fail_here", 1);
  ze_command_list_handle_t list = immediate();
  float* x = memory(64);
  ZE_OK(zeKernelSetArgumentValue(fails, 0, sizeof x, &x));
  Executed before = execute(fails);  // which fails as soon as somebody asks
  launch(list, fails, 1, done);
  // Nobody will signal it: the wait ends with the reason all the same.
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_NE(
      lastError().find("zeEventHostSynchronize: device 'Fake GPU' is lost: cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS "
                       "(700): as the fake says; launched last, the newest first: 'fail_here'"),
      std::string::npos)
      << lastError();
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, synchronize(list, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeCommandQueueSynchronize(before.queue, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeFenceHostSynchronize(before.fence, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(before.done, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST,
            zeCommandQueueExecuteCommandLists(before.queue, 1, &before.list, before.fence));
  ze_group_count_t groups = {1, 1, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeCommandListAppendLaunchKernel(list, fails, &groups, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeDeviceGetStatus(device));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeContextGetStatus(context));
  // All can be given back.
  destroy(before);
  ZE_OK(zeMemFree(context, x));
  ZE_OK(zeCommandListDestroy(list));
  ZE_OK(zeKernelDestroy(fails));
  ZE_OK(zeModuleDestroy(code));
  ZE_OK(zeEventDestroy(done));
  ZE_OK(zeEventPoolDestroy(pool));
}

// With ZEFUSE_CUDA_LIBRARY naming a library that is not there.
TEST(NoCuda, TheReasonIsTold) {
  void* library = dlopen(ZEFUSE_DRIVER_LIBRARY, RTLD_NOW);
  ASSERT_TRUE(library) << dlerror();
  auto global = reinterpret_cast<ze_result_t (*)(ze_api_version_t, ze_global_dditable_t*)>(
      dlsym(library, "zeGetGlobalProcAddrTable"));
  ze_global_dditable_t table = {};
  ASSERT_EQ(ZE_RESULT_SUCCESS, global(ZE_API_VERSION_1_4, &table));
  testing::internal::CaptureStderr();
  EXPECT_EQ(ZE_RESULT_ERROR_UNINITIALIZED, table.pfnInit(0));
  const std::string told = testing::internal::GetCapturedStderr();  // ZEFUSE_CUDA_DRIVER_LOG=1
  EXPECT_NE(told.find("zeInit: no device: no NVIDIA driver: libnone.so: cannot open"), std::string::npos) << told;
  EXPECT_NE(ZE_RESULT_SUCCESS, zeInit(0));  // through the loader, which has no other driver
}

}  // namespace
}  // namespace zefuse::test
