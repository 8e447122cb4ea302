// The driver's tables as a loader or our own runtime sees them: opened by path, without a loader.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <level_zero/ze_ddi.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {

class Tables : public ::testing::Test {
protected:
  void SetUp() override {
    library = dlopen(ZEFUSE_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
  }
  void* library = nullptr;

  ze_result_t get(const char* name, unsigned version, void* table) {
    std::string symbol = std::string("zeGet") + name + "ProcAddrTable";
    auto getter = reinterpret_cast<ze_result_t (*)(ze_api_version_t, void*)>(dlsym(library, symbol.c_str()));
    EXPECT_TRUE(getter) << symbol;
    return getter ? getter(static_cast<ze_api_version_t>(version), table) : ZE_RESULT_ERROR_UNKNOWN;
  }
  // How many slots of a table with room for 64 are written for a version.
  std::vector<bool> written(const char* name, unsigned version) {
    void* table[64];
    void* untouched = &table;
    for (void*& slot : table)
      slot = untouched;
    EXPECT_EQ(ZE_RESULT_SUCCESS, get(name, version, table));
    std::vector<bool> result;
    for (void* slot : table)
      result.push_back(slot != untouched);
    return result;
  }
  size_t count(const std::vector<bool>& slots) {
    return static_cast<size_t>(std::count(slots.begin(), slots.end(), true));
  }
};

constexpr unsigned version(unsigned minor) { return ZE_MAKE_VERSION(1, minor); }

TEST_F(Tables, EveryVersionGetsItsSlotsAndNoMore) {
  struct Case {
    const char* table;
    size_t sizes[4];  // slots of the table in 1.0, 1.4, 1.9 and 1.17, as far as the driver fills them
  };
  const Case cases[] = {
      {"Global", {1, 1, 1, 2}},          {"Driver", {5, 6, 7, 7}},        {"Device", {14, 18, 19, 19}},
      {"Context", {8, 9, 9, 9}},         {"CommandQueue", {4, 4, 6, 6}},  {"CommandList", {26, 28, 34, 34}},
      {"Image", {3, 4, 4, 4}},           {"Fence", {5, 5, 5, 5}},         {"EventPool", {5, 5, 8, 8}},
      {"Event", {7, 7, 11, 11}},         {"Module", {8, 9, 9, 9}},        {"ModuleBuildLog", {2, 2, 2, 2}},
      {"Kernel", {12, 12, 12, 12}},      {"KernelExp", {0, 2, 2, 3}},     {"Sampler", {2, 2, 2, 2}},
      {"Mem", {9, 10, 11, 13}},          {"PhysicalMem", {2, 2, 2, 2}},   {"VirtualMem", {7, 7, 7, 7}},
      {"DeviceExp", {0, 1, 1, 1}},       {"ImageExp", {0, 2, 2, 2}},      {"EventExp", {0, 1, 1, 1}},
      {"FabricVertexExp", {0, 4, 4, 4}}, {"FabricEdgeExp", {0, 3, 3, 3}}, {"CommandListExp", {0, 0, 2, 2}},
  };
  const unsigned minors[4] = {0, 4, 9, 17};
  for (const Case& each : cases)
    for (int i = 0; i < 4; ++i) {
      auto slots = written(each.table, version(minors[i]));
      for (size_t slot = each.sizes[i]; slot < slots.size(); ++slot)
        EXPECT_FALSE(slots[slot]) << each.table << " 1." << minors[i] << ": slot " << slot << " is past the table";
      // Nothing of a loader's own table is left empty, so every refusal has its reason.
      if (minors[i] == 4)
        EXPECT_EQ(each.sizes[i], count(slots)) << each.table;
    }
}

TEST_F(Tables, OtherMajorVersionsAndNullAreRefused) {
  void* table[64] = {};
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_VERSION, get("Driver", ZE_MAKE_VERSION(2, 0), table));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_POINTER, get("Driver", version(4), nullptr));
  EXPECT_EQ(nullptr, table[0]);
}

TEST_F(Tables, AbsentEntriesRefuseWithAReason) {
  ze_mem_dditable_t mem = {};
  ASSERT_EQ(ZE_RESULT_SUCCESS, get("Mem", version(4), &mem));
  ze_image_exp_dditable_t image = {};
  ASSERT_EQ(ZE_RESULT_SUCCESS, get("ImageExp", version(4), &image));
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, image.pfnViewCreateExp(nullptr, nullptr, nullptr, nullptr, nullptr));

  ze_driver_dditable_t table[2] = {};  // room for the newer slots
  ASSERT_EQ(ZE_RESULT_SUCCESS, get("Driver", version(6), table));
  uint32_t one = 1;
  ze_driver_handle_t driver = nullptr;
  ASSERT_EQ(ZE_RESULT_SUCCESS, table->pfnGet(&one, &driver));
  using Describe = ze_result_t (*)(ze_driver_handle_t, const char**);
  Describe describe = nullptr;
  std::memcpy(&describe, reinterpret_cast<void**>(table) + 6, sizeof describe);
  const char* reason = nullptr;
  ASSERT_EQ(ZE_RESULT_SUCCESS, describe(driver, &reason));
  EXPECT_NE(std::string::npos, std::string(reason).find("views of images")) << reason;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, mem.pfnFree(nullptr, &one));
  ASSERT_EQ(ZE_RESULT_SUCCESS, describe(driver, &reason));
  EXPECT_EQ(0u, std::string(reason).find("zeMemFree: hContext")) << reason;
}

TEST_F(Tables, OnlyGettersAreExported) {
  for (const char* name : {"zeInit", "zeDriverGet", "zeCommandListAppendLaunchKernel", "_ZN6zefuse3cpu4initEj"})
    EXPECT_EQ(nullptr, dlsym(library, name)) << name;
  for (const char* name : {"zetGetDeviceProcAddrTable", "zesGetDiagnosticsProcAddrTable"})
    EXPECT_NE(nullptr, dlsym(library, name)) << name;
}

TEST_F(Tables, NewLoadersFindTheDriverWhenTheyAskForGpus) {
  void* table[2] = {};
  ASSERT_EQ(ZE_RESULT_SUCCESS, get("Global", version(10), table));
  struct Desc {
    ze_structure_type_t stype;
    const void* pNext;
    uint32_t flags;
  } desc = {static_cast<ze_structure_type_t>(0x00020021), nullptr, UINT32_MAX};
  using InitDrivers = ze_result_t (*)(uint32_t*, ze_driver_handle_t*, Desc*);
  auto init_drivers = reinterpret_cast<InitDrivers>(table[1]);
  uint32_t count = 0;
  EXPECT_EQ(ZE_RESULT_SUCCESS, init_drivers(&count, nullptr, &desc));
  EXPECT_EQ(1u, count);
  desc.flags = 2;  // NPUs
  EXPECT_EQ(ZE_RESULT_ERROR_UNINITIALIZED, init_drivers(&count, nullptr, &desc));
}

}  // namespace
