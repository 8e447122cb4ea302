#include "tests/unit/driver/ze_test.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/unit/driver/expected_refusals.h"

namespace zefuse::test {

std::string nameOf(ListKind kind) {
  switch (kind) {
  case ListKind::synchronous: return "Synchronous";
  case ListKind::asynchronous: return "Asynchronous";
  case ListKind::default_mode: return "Default";
  case ListKind::regular: return "Regular";
  }
  return "";
}

namespace {

// "Suite.Test", without what a parameter adds.
std::string nameOfTest() {
  const testing::TestInfo& info = *testing::UnitTest::GetInstance()->current_test_info();
  std::string suite = info.test_suite_name(), name = info.name();
  if (const size_t slash = suite.rfind('/'); slash != std::string::npos)
    suite.erase(0, slash + 1);
  return suite + "." + name.substr(0, name.find('/'));
}

}  // namespace

void ZeTest::SetUp() {
  ZE_OK(zeInit(0));
  uint32_t count = 1;
  ZE_OK(zeDriverGet(&count, &driver));
  count = 1;
  ZE_OK(zeDeviceGet(driver, &count, &device));
  ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ZE_OK(zeContextCreate(driver, &desc, &context));
  if (const char* reason = whyRefused(driver, nameOfTest()))  // at the end: the SetUp of who derives goes on
    GTEST_SKIP() << reason;
}

void ZeTest::TearDown() {
  for (auto list : lists_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListDestroy(list));
  for (auto fence : fences_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeFenceDestroy(fence));
  for (auto queue : queues_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandQueueDestroy(queue));
  for (auto event : events_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventDestroy(event));
  for (auto pool : pools_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventPoolDestroy(pool));
  for (auto kernel : kernels_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelDestroy(kernel));
  for (auto module : modules_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleDestroy(module));
  for (void* pointer : memory_)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemFree(context, pointer));
  if (context)
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeContextDestroy(context));
}

void* ZeTest::allocateBytes(size_t bytes) {
  ze_device_mem_alloc_desc_t on_device = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
  ze_host_mem_alloc_desc_t on_host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  void* pointer = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocShared(context, &on_device, &on_host, bytes, 0, device, &pointer));
  memory_.push_back(pointer);
  return pointer;
}

ze_event_pool_handle_t ZeTest::pool(uint32_t count, ze_event_pool_flags_t flags) {
  ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, flags, count};
  ze_event_pool_handle_t pool = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventPoolCreate(context, &desc, 0, nullptr, &pool));
  pools_.push_back(pool);
  return pool;
}

ze_event_handle_t ZeTest::event(ze_event_pool_handle_t pool, uint32_t index) {
  ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, index, ZE_EVENT_SCOPE_FLAG_HOST,
                          ZE_EVENT_SCOPE_FLAG_HOST};
  ze_event_handle_t event = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventCreate(pool, &desc, &event));
  events_.push_back(event);
  return event;
}

ze_command_queue_handle_t ZeTest::queue(ze_command_queue_mode_t mode, uint32_t ordinal) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.ordinal = ordinal;
  desc.mode = mode;
  ze_command_queue_handle_t queue = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandQueueCreate(context, device, &desc, &queue));
  queues_.push_back(queue);
  return queue;
}

ze_fence_handle_t ZeTest::fence(ze_command_queue_handle_t queue, ze_fence_flags_t flags) {
  ze_fence_desc_t desc = {ZE_STRUCTURE_TYPE_FENCE_DESC, nullptr, flags};
  ze_fence_handle_t fence = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeFenceCreate(queue, &desc, &fence));
  fences_.push_back(fence);
  return fence;
}

ze_command_list_handle_t ZeTest::regularList(uint32_t ordinal) {
  ze_command_list_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  desc.commandQueueGroupOrdinal = ordinal;
  ze_command_list_handle_t list = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListCreate(context, device, &desc, &list));
  lists_.push_back(list);
  return list;
}

ze_command_list_handle_t ZeTest::immediateList(ze_command_queue_mode_t mode, uint32_t ordinal) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.ordinal = ordinal;
  desc.mode = mode;
  ze_command_list_handle_t list = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListCreateImmediate(context, device, &desc, &list));
  lists_.push_back(list);
  return list;
}

ze_module_handle_t ZeTest::module(const char* spirv_file) {
  // Compiled once per process; a test gets a module of its own all the same.
  static std::map<std::string, std::vector<uint8_t>> native;
  auto known = native.find(spirv_file);
  ModuleResult made = known == native.end()
                          ? createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, readKernelFile(spirv_file))
                          : createModule(context, device, ZE_MODULE_FORMAT_NATIVE, known->second);
  EXPECT_EQ(ZE_RESULT_SUCCESS, made.result) << made.log;
  if (!made.module)
    return nullptr;
  modules_.push_back(made.module);
  if (known == native.end())
    native[spirv_file] = nativeBinary(made.module);
  return made.module;
}

ze_kernel_handle_t ZeTest::kernel(ze_module_handle_t module, const char* name, uint32_t x, uint32_t y, uint32_t z) {
  ze_kernel_desc_t desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name};
  ze_kernel_handle_t kernel = nullptr;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelCreate(module, &desc, &kernel));
  if (kernel) {
    kernels_.push_back(kernel);
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetGroupSize(kernel, x, y, z));
  }
  return kernel;
}

bool loaderWrapsHandles() {
  const char* intercept = std::getenv("ZE_ENABLE_LOADER_INTERCEPT");
  return intercept && std::string(intercept) == "1";
}

ModuleResult createModule(ze_context_handle_t context, ze_device_handle_t device, ze_module_format_t format,
                          const std::vector<uint8_t>& bytes, const char* flags,
                          const ze_module_constants_t* constants) {
  ze_module_desc_t desc = {
      ZE_STRUCTURE_TYPE_MODULE_DESC, nullptr, format, bytes.size(), bytes.data(), flags, constants};
  ModuleResult made = {ZE_RESULT_SUCCESS, nullptr, ""};
  ze_module_build_log_handle_t log = nullptr;
  made.result = zeModuleCreate(context, device, &desc, &made.module, &log);
  if (log && (made.result == ZE_RESULT_SUCCESS || !loaderWrapsHandles())) {
    size_t size = 0;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleBuildLogGetString(log, &size, nullptr));
    std::string text(size, '\0');
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleBuildLogGetString(log, &size, text.data()));
    made.log = text.c_str();
    EXPECT_EQ(made.log.size() + 1, size);
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleBuildLogDestroy(log));
  }
  return made;
}

std::vector<uint8_t> readKernelFile(const char* name) {
  std::ifstream file(std::string(ZEFUSE_TEST_KERNELS "/") + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<uint8_t> nativeBinary(ze_module_handle_t module) {
  size_t size = 0;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleGetNativeBinary(module, &size, nullptr));
  std::vector<uint8_t> bytes(size);
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleGetNativeBinary(module, &size, bytes.data()));
  return bytes;
}

void setPointer(ze_kernel_handle_t kernel, uint32_t index, const void* pointer) {
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetArgumentValue(kernel, index, sizeof pointer, &pointer));
}

}  // namespace zefuse::test
