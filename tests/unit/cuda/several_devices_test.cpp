// Several devices of the tests' own libcuda, and which of them ZE_AFFINITY_MASK lists (FAKE_CUDA_DEVICES=90,75,86: the
// one of 7.5 is too old for the driver).
#include <chrono>

#include "tests/unit/cuda/cuda_driver_test.h"

namespace zefuse::test {
namespace {

class CudaDevices : public CudaDriver {
protected:
  void SetUp() override {
    CudaDriver::SetUp();
    uint32_t count = 0;
    ZE_OK(zeDeviceGet(driver, &count, nullptr));
    devices.resize(count);
    ZE_OK(zeDeviceGet(driver, &count, devices.data()));
  }
  std::string name(ze_device_handle_t of) {
    ze_device_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGetProperties(of, &properties));
    return properties.name;
  }
  ze_event_handle_t event() {
    ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, next_event++, 0, 0};
    ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 8};
    if (!pool)
      EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventPoolCreate(context, &pool_desc, 0, nullptr, &pool));
    ze_event_handle_t made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventCreate(pool, &desc, &made));
    return made;
  }

  std::vector<ze_device_handle_t> devices;
  ze_event_pool_handle_t pool = nullptr;
  uint32_t next_event = 0;
};

// A kernel with its argument, an asynchronous list, and how to give them back.
struct Work {
  ze_module_handle_t code;
  ze_kernel_handle_t kernel;
  ze_command_list_handle_t list;
  float* memory;
};

TEST_F(CudaDevices, AreListedInCudasOrderWithoutTheOld) {
  ASSERT_EQ(2u, devices.size());
  EXPECT_EQ("Fake GPU", name(devices[0]));
  EXPECT_EQ("Fake GPU 2", name(devices[1]));
  ze_bool_t reached = 1;
  ZE_OK(zeDeviceCanAccessPeer(devices[0], devices[1], &reached));
  EXPECT_FALSE(reached);
}

TEST_F(CudaDevices, EachWorksInItsOwnContext) {
  ASSERT_EQ(2u, devices.size());
  Work work[2];
  for (size_t i = 0; i < 2; ++i) {
    device = devices[i];
    Work& w = work[i];
    w.code = module();
    w.kernel = kernel(w.code, "moved", 32);
    w.list = immediate();
    w.memory = memory(64);
    ZE_OK(zeKernelSetArgumentValue(w.kernel, 0, sizeof w.memory, &w.memory));
    launch(w.list, w.kernel, 1);
    ZE_OK(synchronize(w.list, UINT64_MAX));
  }
  EXPECT_EQ(1, alive("device memory"));
  EXPECT_EQ(1, alive("device memory 2"));
  EXPECT_EQ(0u, happened().find("launch moved")) << happened();
  EXPECT_NE(happened().find("gpu 2: launch moved"), std::string::npos) << happened();
  ze_group_count_t one = {1, 1, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendLaunchKernel(work[0].list, work[1].kernel, &one, nullptr, 0, nullptr));
  EXPECT_NE(lastError().find("kernel 'moved' is of another device than the list"), std::string::npos) << lastError();
  for (Work& w : work) {
    ZE_OK(zeMemFree(context, w.memory));
    ZE_OK(zeCommandListDestroy(w.list));
    ZE_OK(zeKernelDestroy(w.kernel));
    ZE_OK(zeModuleDestroy(w.code));
  }
  EXPECT_EQ(0, alive("device memory 2"));
}

TEST_F(CudaDevices, AContextForOneRefusesTheOther) {
  ASSERT_EQ(2u, devices.size());
  zeContextDestroy(context);
  ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ZE_OK(zeContextCreateEx(driver, &desc, 1, &devices[1], &context));
  device = devices[1];
  ze_module_handle_t code = module();
  ZE_OK(zeModuleDestroy(code));
  uint8_t byte = 0;
  ze_module_desc_t module_desc = {};
  module_desc.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  module_desc.inputSize = 1;
  module_desc.pInputModule = &byte;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeModuleCreate(context, devices[0], &module_desc, &code, nullptr));
  EXPECT_NE(lastError().find("zeModuleCreate: the context is not for the device 'Fake GPU'"), std::string::npos)
      << lastError();
}

// The last one: a device that is lost stays lost for the process.
TEST_F(CudaDevices, ZALostOneLeavesTheOtherAlone) {
  ASSERT_EQ(2u, devices.size());
  Work work[2];
  ze_event_handle_t done[2];
  for (size_t i = 0; i < 2; ++i) {
    device = devices[i];
    Work& w = work[i];
    w.code = module();
    w.kernel = kernel(w.code, i ? "fail_here" : "hang_here", 1);
    w.list = immediate();
    w.memory = memory(64);
    ZE_OK(zeKernelSetArgumentValue(w.kernel, 0, sizeof w.memory, &w.memory));
    done[i] = event();
  }
  launch(work[0].list, work[0].kernel, 1, done[0]);  // runs for a while
  launch(work[1].list, work[1].kernel, 1, done[1]);
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(done[1], UINT64_MAX));
  EXPECT_NE(lastError().find("device 'Fake GPU 2' is lost"), std::string::npos) << lastError();
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeDeviceGetStatus(devices[1]));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGetStatus(devices[0]));
  ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t of_the_first = nullptr;
  ZE_OK(zeContextCreateEx(driver, &desc, 1, &devices[0], &of_the_first));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeContextGetStatus(of_the_first));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeContextGetStatus(context)) << "which is for both";
  ZE_OK(zeContextDestroy(of_the_first));
  // What the first does is waited for, with the deadline that was given.
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(done[0], 10'000'000));
  EXPECT_EQ(ZE_RESULT_NOT_READY, synchronize(work[0].list, 10'000'000));
  // But a wait for the lost one's event would never end.
  ze_event_handle_t after = event();
  ZE_OK(zeCommandListAppendBarrier(work[0].list, after, 1, &done[1]));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(after, UINT64_MAX));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, synchronize(work[0].list, UINT64_MAX));
  EXPECT_NE(lastError().find("device 'Fake GPU 2' is lost"), std::string::npos) << lastError();
  // The host signals in its stead: all of it ends.
  fake<void (*)()>("fake_cuda_release")();
  ZE_OK(zeEventHostSignal(done[1]));
  ZE_OK(zeEventHostSynchronize(done[0], UINT64_MAX));
  ZE_OK(zeEventHostSynchronize(after, UINT64_MAX));
  ZE_OK(synchronize(work[0].list, UINT64_MAX));
  for (Work& w : work) {
    ZE_OK(zeMemFree(context, w.memory));
    ZE_OK(zeCommandListDestroy(w.list));
    ZE_OK(zeKernelDestroy(w.kernel));
    ZE_OK(zeModuleDestroy(w.code));
  }
  for (ze_event_handle_t each : {done[0], done[1], after})
    ZE_OK(zeEventDestroy(each));
  ZE_OK(zeEventPoolDestroy(pool));
}

// ctest entries of their own set the mask.
class CudaMask : public CudaDevices {};

TEST_F(CudaMask, ListsTheSecondAlone) {  // ZE_AFFINITY_MASK=1.0,7
  ASSERT_EQ(1u, devices.size());
  EXPECT_EQ("Fake GPU 2", name(devices[0])) << "numbers are those of the list without a mask";
  ze_module_handle_t code = module();
  ZE_OK(zeModuleDestroy(code));
}

TEST_F(CudaMask, ThatIsNoneListsAll) {  // ZE_AFFINITY_MASK=first
  EXPECT_EQ(2u, devices.size());
}

TEST(NoCudaMask, LeavesNoDriver) {  // ZE_AFFINITY_MASK=5, ZEFUSE_CUDA_DRIVER_LOG=1
  testing::internal::CaptureStderr();
  EXPECT_NE(ZE_RESULT_SUCCESS, zeInit(0));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("zeInit: no device: ZE_AFFINITY_MASK lists none of the 2 devices that there are"),
            std::string::npos)
      << told;
}

}  // namespace
}  // namespace zefuse::test
