// Drivers, devices and contexts: what programs and the conformance suite insist on.
#include "tests/unit/driver/ze_test.h"

#include <cstdlib>
#include <ctime>

namespace zefuse::test {
namespace {

using Properties = ZeTest;

TEST_F(Properties, DriverIsOneWithAVersionAndAUuid) {
  uint32_t count = 0;
  ZE_OK(zeDriverGet(&count, nullptr));
  EXPECT_GE(count, 1u);
  ze_api_version_t version;
  ZE_OK(zeDriverGetApiVersion(driver, &version));
  EXPECT_EQ(version, static_cast<ze_api_version_t>(ZE_MAKE_VERSION(1, 11)));
  ze_driver_properties_t properties = {ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES, nullptr, {}, 0};
  ZE_OK(zeDriverGetProperties(driver, &properties));
  EXPECT_NE(0u, properties.driverVersion);
}

TEST_F(Properties, ExtensionsAreCountedThenFilled) {
  uint32_t count = 0;
  ZE_OK(zeDriverGetExtensionProperties(driver, &count, nullptr));
  std::vector<ze_driver_extension_properties_t> extensions(count);
  ZE_OK(zeDriverGetExtensionProperties(driver, &count, extensions.data()));
  bool found = false;
  for (const auto& extension : extensions)
    found |= std::string(extension.name) == ZE_GLOBAL_OFFSET_EXP_NAME;
  EXPECT_TRUE(found);
  void* address = &count;
  EXPECT_NE(ZE_RESULT_SUCCESS, zeDriverGetExtensionFunctionAddress(driver, "zeNoSuchFunction", &address));
}

TEST_F(Properties, WritesToReadonlyMemoryFault) {
  struct Readonly {
    ze_structure_type_t stype;
    void* pNext;
    uint32_t capability;
  } readonly = {static_cast<ze_structure_type_t>(0x00010015), nullptr, 77};
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  properties.pNext = &readonly;
  ZE_OK(zeDeviceGetProperties(device, &properties));
  EXPECT_EQ(2u, readonly.capability) << "enforced";
}

TEST_F(Properties, ACountOfZeroIsAQueryEvenWithAnArray) {
  std::vector<ze_driver_extension_properties_t> extensions(64);
  extensions[0].name[0] = '?';
  uint32_t count = 0;
  ZE_OK(zeDriverGetExtensionProperties(driver, &count, extensions.data()));
  EXPECT_GT(count, 0u);
  EXPECT_EQ('?', extensions[0].name[0]);
  const char* name = nullptr;
  auto m = module();
  count = 0;
  ZE_OK(zeModuleGetKernelNames(m, &count, &name));
  EXPECT_EQ(nullptr, name);
  count = 1;
  ZE_OK(zeModuleGetKernelNames(m, &count, &name));
  EXPECT_EQ(1u, count);
  EXPECT_STREQ("vector_add", name);
}

TEST_F(Properties, DeviceTimerUnitDependsOnTheStructureType) {
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ZE_OK(zeDeviceGetProperties(device, &properties));
  ze_device_properties_t newer = {};
  newer.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
  ZE_OK(zeDeviceGetProperties(device, &newer));
  EXPECT_GT(properties.timerResolution, 0u);
  EXPECT_GT(newer.timerResolution, 0u);
  EXPECT_NE(properties.timerResolution, newer.timerResolution);
  EXPECT_GT(properties.maxMemAllocSize, 0u);
  EXPECT_NE('\0', properties.name[0]);
}

TEST_F(Properties, ComputeLimitsArePositive) {
  ze_device_compute_properties_t compute = {};
  compute.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES;
  ZE_OK(zeDeviceGetComputeProperties(device, &compute));
  EXPECT_GT(compute.maxTotalGroupSize, 0u);
  EXPECT_GT(compute.maxGroupSizeX, 0u);
  EXPECT_GT(compute.maxGroupSizeY, 0u);
  EXPECT_GT(compute.maxGroupSizeZ, 0u);
  EXPECT_GT(compute.maxGroupCountX, 0u);
  EXPECT_GT(compute.maxSharedLocalMemory, 0u);
  ASSERT_GT(compute.numSubGroupSizes, 0u);
  for (uint32_t i = 0; i < compute.numSubGroupSizes; ++i)
    EXPECT_GT(compute.subGroupSizes[i], 0u);
}

TEST_F(Properties, QueueGroupsAndMemoriesAreListed) {
  uint32_t count = 0;
  ZE_OK(zeDeviceGetCommandQueueGroupProperties(device, &count, nullptr));
  ASSERT_GE(count, 1u);
  ze_command_queue_group_properties_t group = {};
  group.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
  count = 1;
  ZE_OK(zeDeviceGetCommandQueueGroupProperties(device, &count, &group));
  EXPECT_TRUE(group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
  EXPECT_GT(group.numQueues, 0u);
  EXPECT_GT(group.maxMemoryFillPatternSize, 0u);

  ze_device_memory_properties_t memory = {};
  memory.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  count = 1;
  ZE_OK(zeDeviceGetMemoryProperties(device, &count, &memory));
  EXPECT_GT(memory.totalSize, 0u);
  EXPECT_GT(memory.maxBusWidth, 0u);

  count = 0;
  ZE_OK(zeDeviceGetCacheProperties(device, &count, nullptr));
  EXPECT_GE(count, 1u);
}

TEST_F(Properties, TheHostsTimestampIsItsRawClock) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
  };
  uint64_t host = 0, on_device = 0;
  const uint64_t before = now();
  ZE_OK(zeDeviceGetGlobalTimestamps(device, &host, &on_device));
  EXPECT_GE(host, before);
  EXPECT_LE(host, now());
  EXPECT_NE(host, on_device);
}

// A ctest entry of its own sets the mask; the CPU poses as a GPU, which is listed first.
TEST_F(Properties, AMaskHidesDevices) {
  const char* mask = std::getenv("ZE_AFFINITY_MASK");
  if (!mask || std::string(mask) != "1,5")
    GTEST_SKIP() << "needs ZE_AFFINITY_MASK=1,5";
  uint32_t count = 0;
  ZE_OK(zeDeviceGet(driver, &count, nullptr));
  ASSERT_EQ(1u, count);
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ZE_OK(zeDeviceGetProperties(device, &properties));
  EXPECT_EQ(ZE_DEVICE_TYPE_CPU, properties.type);
}

TEST_F(Properties, BothTimestampsAdvance) {
  uint64_t host[2], on_device[2];
  ZE_OK(zeDeviceGetGlobalTimestamps(device, &host[0], &on_device[0]));
  // A host's clock may tick slower than two calls follow each other.
  for (int round = 0; round < 10'000'000; ++round) {
    ZE_OK(zeDeviceGetGlobalTimestamps(device, &host[1], &on_device[1]));
    ASSERT_GE(host[1], host[0]);
    ASSERT_GE(on_device[1], on_device[0]);
    if (host[1] > host[0] && on_device[1] > on_device[0])
      break;
  }
  EXPECT_GT(host[1], host[0]);
  EXPECT_GT(on_device[1], on_device[0]);
}

TEST_F(Properties, ADeviceIsItsOwnPeerAndHasNoSubDevices) {
  ze_bool_t access = 0;
  ZE_OK(zeDeviceCanAccessPeer(device, device, &access));
  EXPECT_TRUE(access);
  uint32_t count = 0;
  ZE_OK(zeDeviceGetSubDevices(device, &count, nullptr));
  EXPECT_EQ(0u, count);
  ZE_OK(zeDeviceGetStatus(device));
  ZE_OK(zeContextGetStatus(context));
  ZE_OK(zeContextSystemBarrier(context, device));
}

TEST_F(Properties, ImagesThatAreReportedAsAbsentAreRefused) {
  ze_device_image_properties_t images = {};
  images.stype = ZE_STRUCTURE_TYPE_DEVICE_IMAGE_PROPERTIES;
  ZE_OK(zeDeviceGetImageProperties(device, &images));
  if (images.maxImageDims2D != 0)
    GTEST_SKIP() << "this device has images";
  ze_sampler_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_SAMPLER_DESC;
  ze_sampler_handle_t sampler = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, zeSamplerCreate(context, device, &desc, &sampler));
}

TEST_F(Properties, ResidencyIsAccepted) {
  auto* memory = allocate(4096);
  ZE_OK(zeContextMakeMemoryResident(context, device, memory, 4096));
  ZE_OK(zeContextEvictMemory(context, device, memory, 4096));
}

}  // namespace
}  // namespace zefuse::test
