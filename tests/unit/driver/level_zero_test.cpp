// drivers/level_zero under another driver than ours: a device table of two entries, and what it says of itself.
#include <gtest/gtest.h>
#include <level_zero/ze_ddi.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "drivers/level_zero/driver.h"
#include "drivers/level_zero/entries.h"
#include "drivers/level_zero/handle.h"
#include "drivers/level_zero/traits.h"

namespace zefuse::level_zero {
namespace {

ze_result_t getNone(ze_driver_handle_t, uint32_t* pCount, ze_device_handle_t*) {
  *pCount = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t rootOfNone(ze_device_handle_t, ze_device_handle_t*) { return ZE_RESULT_ERROR_INVALID_NULL_HANDLE; }

void ownFunction() {}

constexpr Extension extensions[] = {{"ZE_test_extension", 7}};
const ExtensionFunction functions[] = {{"zeTestOwn", reinterpret_cast<void*>(ownFunction)}};

}  // namespace

const Traits& traits() {
  static const Traits made = {.log_name = "test driver",
                              .log_refusals = false,
                              .uuid = "zefuse-test-drv-",
                              .version = [] { return uint32_t{42}; },
                              .free_policies = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE,
                              .ipc = 0,
                              .extensions = extensions,
                              .functions = functions};
  return made;
}

const Entries& entries() {
  static const Entries made = [] {
    Entries entries;
    entries.device.pfnGet = getNone;
    entries.device.pfnCanAccessPeer = ZEFUSE_ABSENT("peers: there is one device");
    entries.newer.deviceGetRootDevice = rootOfNone;
    return entries;
  }();
  return made;
}

namespace {

// A table with room for newer slots, each of which says whether it was written.
struct LongTable {
  std::array<void*, 32> slots;
  LongTable() { slots.fill(untouched); }
  ze_device_dditable_t* device() { return reinterpret_cast<ze_device_dditable_t*>(slots.data()); }
  static inline void* const untouched = reinterpret_cast<void*>(uintptr_t{0xabcd});
};

ze_driver_dditable_t driverTable() {
  ze_driver_dditable_t table{};
  EXPECT_EQ(zeGetDriverProcAddrTable(ZE_API_VERSION_1_4, &table), ZE_RESULT_SUCCESS);
  return table;
}

ze_driver_handle_t theDriver() {
  uint32_t count = 1;
  ze_driver_handle_t driver = nullptr;
  EXPECT_EQ(driverTable().pfnGet(&count, &driver), ZE_RESULT_SUCCESS);
  EXPECT_EQ(count, 1u);
  return driver;
}

std::string lastError() {
  const char* text = nullptr;
  EXPECT_EQ(driverGetLastErrorDescription(theDriver(), &text), ZE_RESULT_SUCCESS);
  return text;
}

TEST(LevelZero, TablesAreTheDriversAsFarAsTheVersionKnows) {
  LongTable first;
  ASSERT_EQ(zeGetDeviceProcAddrTable(ZE_API_VERSION_1_0, first.device()), ZE_RESULT_SUCCESS);
  EXPECT_EQ(first.device()->pfnGet, getNone);
  EXPECT_EQ(first.device()->pfnGetProperties, nullptr);                                          // the driver has none
  EXPECT_EQ(reinterpret_cast<void*>(first.device()->pfnReserveCacheExt), LongTable::untouched);  // since 1.2
  LongTable before, after;
  ASSERT_EQ(zeGetDeviceProcAddrTable(static_cast<ze_api_version_t>(ZE_MAKE_VERSION(1, 6)), before.device()),
            ZE_RESULT_SUCCESS);
  ASSERT_EQ(zeGetDeviceProcAddrTable(static_cast<ze_api_version_t>(ZE_MAKE_VERSION(1, 7)), after.device()),
            ZE_RESULT_SUCCESS);
  EXPECT_EQ(before.slots[18], LongTable::untouched);
  EXPECT_EQ(after.slots[18], reinterpret_cast<void*>(rootOfNone));
  EXPECT_EQ(after.slots[19], LongTable::untouched);
  EXPECT_EQ(zeGetDeviceProcAddrTable(static_cast<ze_api_version_t>(ZE_MAKE_VERSION(2, 0)), after.device()),
            ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
}

TEST(LevelZero, AbsentEntriesSayWhy) {
  LongTable table;
  ASSERT_EQ(zeGetDeviceProcAddrTable(ZE_API_VERSION_1_4, table.device()), ZE_RESULT_SUCCESS);
  EXPECT_EQ(table.device()->pfnCanAccessPeer(nullptr, nullptr, nullptr), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  EXPECT_EQ(lastError(), "peers: there is one device");
}

TEST(LevelZero, TheDriverSaysWhatItsTraitsSay) {
  const ze_driver_dditable_t table = driverTable();
  ze_driver_properties_t properties{ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES, nullptr, {}, 0};
  ASSERT_EQ(table.pfnGetProperties(theDriver(), &properties), ZE_RESULT_SUCCESS);
  EXPECT_EQ(properties.driverVersion, 42u);
  EXPECT_EQ(std::memcmp(properties.uuid.id, "zefuse-test-drv-", sizeof properties.uuid.id), 0);

  uint32_t count = 0;
  ASSERT_EQ(table.pfnGetExtensionProperties(theDriver(), &count, nullptr), ZE_RESULT_SUCCESS);
  std::vector<ze_driver_extension_properties_t> listed(count);
  ASSERT_EQ(table.pfnGetExtensionProperties(theDriver(), &count, listed.data()), ZE_RESULT_SUCCESS);
  ASSERT_GT(count, 1u);
  EXPECT_STREQ(listed.back().name, "ZE_test_extension");
  EXPECT_EQ(listed.back().version, 7u);
  for (const auto& extension : listed)
    EXPECT_STRNE(extension.name, ZE_FLOAT_ATOMICS_EXT_NAME) << "the CPU's own";

  void* function = nullptr;
  EXPECT_EQ(table.pfnGetExtensionFunctionAddress(theDriver(), "zeTestOwn", &function), ZE_RESULT_SUCCESS);
  EXPECT_EQ(function, reinterpret_cast<void*>(ownFunction));
  EXPECT_EQ(table.pfnGetExtensionFunctionAddress(theDriver(), "zeDriverGetLastErrorDescription", &function),
            ZE_RESULT_SUCCESS);
  EXPECT_EQ(table.pfnGetExtensionFunctionAddress(theDriver(), "zeNone", &function), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(lastError().find("no function 'zeNone'"), std::string::npos);
}

struct Thing : Object<Thing> {
  static constexpr uint32_t kMagic = magicOf("THNG");
};
struct Other : Object<Other> {
  static constexpr uint32_t kMagic = magicOf("OTHR");
};

TEST(LevelZero, HandlesKnowTheirKindAndLife) {
  auto* thing = new Thing;
  const Ref<Thing> held(thing);
  const auto handle = toHandle<ze_fence_handle_t>(thing);
  EXPECT_EQ(fromHandle<Thing>(handle), thing);
  EXPECT_EQ(fromHandle<Other>(handle), nullptr);
  EXPECT_EQ(fromHandle<Thing>(ze_fence_handle_t{}), nullptr);
  thing->destroy();
  EXPECT_EQ(fromHandle<Thing>(handle), nullptr) << "destroyed, though still referenced";
}

}  // namespace
}  // namespace zefuse::level_zero
