// Modules: building, logs, native binaries, constants, globals; and what hostile input gets.
#include "tests/unit/driver/expected_refusals.h"
#include "tests/unit/driver/ze_test.h"

#include <algorithm>
#include <cstring>

namespace zefuse::test {
namespace {

using Modules = ZeTest;

#define SKIP_WITHOUT_FAILURE_LOGS()                                                                                    \
  if (loaderWrapsHandles())                                                                                            \
  GTEST_SKIP() << "the loader does not wrap the log of a failed build"

std::vector<uint8_t> withWord(std::vector<uint8_t> spirv, size_t word, uint32_t value) {
  std::memcpy(spirv.data() + word * 4, &value, 4);
  return spirv;
}

TEST_F(Modules, KernelNamesAreCountedThenListedInAStableOrder) {
  auto m = module();
  uint32_t count = 0;
  ZE_OK(zeModuleGetKernelNames(m, &count, nullptr));
  ASSERT_EQ(10u, count);
  std::vector<const char*> names(count), again(count);
  ZE_OK(zeModuleGetKernelNames(m, &count, names.data()));
  ZE_OK(zeModuleGetKernelNames(m, &count, again.data()));
  EXPECT_STREQ("vector_add", names[0]);
  for (uint32_t i = 0; i < count; ++i)
    EXPECT_STREQ(names[i], again[i]);
  ze_module_properties_t properties = {ZE_STRUCTURE_TYPE_MODULE_PROPERTIES, nullptr, 0};
  ZE_OK(zeModuleGetProperties(m, &properties));
  EXPECT_EQ(0u, properties.flags & ZE_MODULE_PROPERTY_FLAG_IMPORTS);
}

TEST_F(Modules, ABadKernelNameIsRefused) {
  ze_kernel_desc_t desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, "no_such_kernel"};
  ze_kernel_handle_t k = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_KERNEL_NAME, zeKernelCreate(module(), &desc, &k));
  EXPECT_EQ(nullptr, k);
}

TEST_F(Modules, AModuleMayGoBeforeItsKernels) {
  auto made = createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, readKernelFile("basic.spv"));
  ZE_OK(made.result);
  auto k = kernel(made.module, "increment");
  ZE_OK(zeModuleDestroy(made.module));
  auto* value = allocate<int>(1);
  *value = 1;
  setPointer(k, 0, value);
  ze_group_count_t one = {1, 1, 1};
  ZE_OK(
      zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), k, &one, nullptr, 0, nullptr));
  EXPECT_EQ(2, *value);
}

TEST_F(Modules, SpecialisationConstantsAndGlobals) {
  auto spirv = readKernelFile("specialise.spv");
  const uint32_t narrow = 50;
  const uint64_t wide = uint64_t{60} << 40;
  const uint8_t flag = 1;
  const uint32_t ids[3] = {7, 8, 9};
  const void* values[3] = {&narrow, &wide, &flag};
  ze_module_constants_t constants = {3, ids, values};
  for (bool specialised : {false, true}) {
    auto made =
        createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, spirv, nullptr, specialised ? &constants : nullptr);
    ASSERT_EQ(ZE_RESULT_SUCCESS, made.result) << made.log;
    auto k = kernel(made.module, "specialise");
    auto* out = allocate<uint64_t>(4);
    setPointer(k, 0, out);

    size_t size = 0;
    void* global = nullptr;
    ZE_OK(zeModuleGetGlobalPointer(made.module, "global_variable", &size, &global));
    ASSERT_EQ(8u, size);
    auto list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    uint64_t value = 0;  // copied: the variable may lie where the host does not reach it
    ZE_OK(zeCommandListAppendMemoryCopy(list, &value, global, sizeof value, nullptr, 0, nullptr));
    EXPECT_EQ(123u, value);
    value = 77;
    ZE_OK(zeCommandListAppendMemoryCopy(list, global, &value, sizeof value, nullptr, 0, nullptr));

    ze_group_count_t one = {1, 1, 1};
    ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
    EXPECT_EQ(specialised ? narrow : 5, out[0]);
    EXPECT_EQ(specialised ? wide : 6, out[1]);
    EXPECT_EQ(specialised ? 1u : 0u, out[2]);
    EXPECT_EQ(77u, out[3]) << "what the host wrote; the initialiser is applied once";
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_NAME, zeModuleGetGlobalPointer(made.module, "nothing", &size, &global));
    ZE_OK(zeModuleDestroy(made.module));
  }
}

TEST_F(Modules, ExportedFunctionsHaveAddresses) {
  void* address = nullptr;
  ZE_OK(zeModuleGetFunctionPointer(module(), "exported_function", &address));
  EXPECT_NE(nullptr, address);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_FUNCTION_NAME, zeModuleGetFunctionPointer(module(), "nothing", &address));
}

TEST_F(Modules, TwoModulesOfOneSourceHaveTheirOwnGlobals) {
  auto first = module("specialise.spv"), second = module("specialise.spv");
  void *a = nullptr, *b = nullptr;
  ZE_OK(zeModuleGetGlobalPointer(first, "global_variable", nullptr, &a));
  ZE_OK(zeModuleGetGlobalPointer(second, "global_variable", nullptr, &b));
  EXPECT_NE(a, b);
}

TEST_F(Modules, TheNativeBinaryLoadsAgainAndIsStable) {
  auto native = nativeBinary(module());
  ASSERT_FALSE(native.empty());
  auto made = createModule(context, device, ZE_MODULE_FORMAT_NATIVE, native);
  ASSERT_EQ(ZE_RESULT_SUCCESS, made.result) << made.log;
  EXPECT_EQ(native, nativeBinary(made.module));
  uint32_t count = 0;
  ZE_OK(zeModuleGetKernelNames(made.module, &count, nullptr));
  EXPECT_EQ(10u, count);
  size_t too_small = 3;
  uint8_t bytes[3];
  EXPECT_NE(ZE_RESULT_SUCCESS, zeModuleGetNativeBinary(made.module, &too_small, bytes));
  ZE_OK(zeModuleDestroy(made.module));
}

TEST_F(Modules, ADamagedNativeBinaryIsRefusedWithALog) {
  SKIP_WITHOUT_FAILURE_LOGS();
  auto native = nativeBinary(module());
  size_t step = std::max<size_t>(native.size() / 40, 1);
  for (size_t at = 0; at < native.size(); at += step) {
    auto damaged = native;
    damaged[at] ^= 0x20;
    auto made = createModule(context, device, ZE_MODULE_FORMAT_NATIVE, damaged);
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, made.result) << "byte " << at << " of " << native.size();
    EXPECT_FALSE(made.log.empty());
    if (made.module)
      zeModuleDestroy(made.module);
  }
  for (size_t size : {size_t{1}, size_t{16}, native.size() / 2, native.size() - 1}) {
    auto made = createModule(context, device, ZE_MODULE_FORMAT_NATIVE, {native.begin(), native.begin() + size});
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, made.result) << size << " bytes";
    EXPECT_FALSE(made.log.empty());
  }
}

TEST_F(Modules, AnUnknownInstructionIsNamedInTheLog) {
  SKIP_WITHOUT_FAILURE_LOGS();
  // After the header: an instruction of one word with an opcode nobody has assigned.
  auto spirv = readKernelFile("basic.spv");
  const uint32_t unknown = 1u << 16 | 0xfffe;
  spirv.insert(spirv.begin() + 20, reinterpret_cast<const uint8_t*>(&unknown),
               reinterpret_cast<const uint8_t*>(&unknown) + 4);
  auto made = createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, spirv);
  EXPECT_EQ(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, made.result);
  EXPECT_EQ(nullptr, made.module);
  EXPECT_NE(std::string::npos, made.log.find("65534")) << made.log;
}

TEST_F(Modules, AnInstructionThatIsNotImplementedIsNamedInTheLog) {
  SKIP_WITHOUT_FAILURE_LOGS();
  auto made = createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, readKernelFile("unsupported.spv"));
  EXPECT_EQ(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, made.result);
  EXPECT_TRUE(made.log.find("OpTypeQueue") != std::string::npos ||
              made.log.find("OpGetDefaultQueue") != std::string::npos)
      << made.log;
}

TEST_F(Modules, HostileSpirvFailsWithALog) {
  SKIP_WITHOUT_FAILURE_LOGS();
  auto spirv = readKernelFile("basic.spv");
  std::vector<std::vector<uint8_t>> inputs = {
      {1, 2, 3},
      {spirv.begin(), spirv.begin() + 4},
      {spirv.begin(), spirv.begin() + 22},
      {spirv.begin(), spirv.begin() + static_cast<ptrdiff_t>(spirv.size() / 2 / 4 * 4)},
      withWord(spirv, 0, 0x12345678),
      withWord(spirv, 5, 0),
      withWord(spirv, 5, 0xffff0011),
      std::vector<uint8_t>(4096, 0xff),
      std::vector<uint8_t>(4096, 0),
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto made = createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, inputs[i]);
    EXPECT_EQ(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, made.result) << "input " << i;
    EXPECT_FALSE(made.log.empty()) << "input " << i;
  }
  std::vector<uint8_t> empty;
  empty.reserve(4);  // a pointer, but no bytes
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE, createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, empty).result);
}

TEST_F(Modules, BuildFlagsAreReadAndStored) {
  SKIP_WITHOUT_FAILURE_LOGS();
  auto spirv = readKernelFile("basic.spv");
  auto build = [&](const char* flags) {
    return createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, spirv, flags);
  };
  auto made = build("-ze-opt-level=1 -cl-fast-relaxed-math");
  ASSERT_EQ(ZE_RESULT_SUCCESS, made.result) << made.log;
  auto native = nativeBinary(made.module);
  const std::string text = "-ze-opt-level=O1";
  EXPECT_NE(native.end(), std::search(native.begin(), native.end(), text.begin(), text.end()));
  ZE_OK(zeModuleDestroy(made.module));

  made = build("-ze-opt-disable -no-such-flag");
  ASSERT_EQ(ZE_RESULT_SUCCESS, made.result) << made.log;
  EXPECT_NE(std::string::npos, made.log.find("-no-such-flag")) << "ignored, but not silently";
  ZE_OK(zeModuleDestroy(made.module));

  made = build("-ze-opt-level=banana");
  EXPECT_EQ(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, made.result);
  EXPECT_NE(std::string::npos, made.log.find("banana"));
}

TEST_F(Modules, ImportsMustBeLinkedBeforeKernelsAreCreated) {
  SKIP_WITHOUT_FAILURE_LOGS();
  auto made = createModule(context, device, ZE_MODULE_FORMAT_IL_SPIRV, readKernelFile("import.spv"));
  ASSERT_EQ(ZE_RESULT_SUCCESS, made.result) << made.log;
  ze_module_properties_t properties = {ZE_STRUCTURE_TYPE_MODULE_PROPERTIES, nullptr, 0};
  ZE_OK(zeModuleGetProperties(made.module, &properties));
  EXPECT_TRUE(properties.flags & ZE_MODULE_PROPERTY_FLAG_IMPORTS);
  ze_kernel_desc_t desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, "calls_out"};
  ze_kernel_handle_t k = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED, zeKernelCreate(made.module, &desc, &k));
  ze_module_build_log_handle_t log = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_MODULE_LINK_FAILURE, zeModuleDynamicLink(1, &made.module, &log));
  size_t size = 0;
  ZE_OK(zeModuleBuildLogGetString(log, &size, nullptr));
  std::string text(size, '\0');
  ZE_OK(zeModuleBuildLogGetString(log, &size, text.data()));
  EXPECT_NE(std::string::npos, text.find("elsewhere")) << text;
  ZE_OK(zeModuleBuildLogDestroy(log));
  ZE_OK(zeModuleDestroy(made.module));
}

// calls_out of import.cl stores 3 * 7, where `elsewhere` is that of export.cl.
void expectItCallsOut(ze_kernel_handle_t kernel, ze_command_list_handle_t list, int* out) {
  *out = 0;
  setPointer(kernel, 0, out);
  ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, kernel, &one, nullptr, 0, nullptr));
  EXPECT_EQ(21, *out);
}

TEST_F(Modules, DynamicLinkBindsImportsToExports) {
  if (loaderWrapsHandles())
    GTEST_SKIP() << "loader 1.8.12 takes the array of modules for a module";
  auto importing = module("import.spv"), exporting = module("export.spv");
  ze_module_handle_t both[] = {importing, exporting};
  ze_module_build_log_handle_t log = nullptr;
  ZE_OK(zeModuleDynamicLink(2, both, &log));
  ZE_OK(zeModuleBuildLogDestroy(log));
  ze_module_properties_t properties = {ZE_STRUCTURE_TYPE_MODULE_PROPERTIES, nullptr, 0};
  ZE_OK(zeModuleGetProperties(importing, &properties));
  EXPECT_EQ(0u, properties.flags & ZE_MODULE_PROPERTY_FLAG_IMPORTS);
  expectItCallsOut(kernel(importing, "calls_out"), immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), allocate<int>(1));
}

TEST_F(Modules, LinkageIsInspected) {
  if (loaderWrapsHandles())
    GTEST_SKIP() << "loader 1.8.12 takes the array of modules for a module";
  ze_module_handle_t both[] = {module("import.spv"), module("export.spv")};
  ze_linkage_inspection_ext_desc_t desc = {ZE_STRUCTURE_TYPE_LINKAGE_INSPECTION_EXT_DESC, nullptr,
                                           ZE_LINKAGE_INSPECTION_EXT_FLAG_IMPORTS |
                                               ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS |
                                               ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS};
  auto inspected = [&](uint32_t modules) {
    ze_module_build_log_handle_t log = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleInspectLinkageExt(&desc, modules, both, &log));
    size_t size = 0;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleBuildLogGetString(log, &size, nullptr));
    std::string text(size, '\0');
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleBuildLogGetString(log, &size, text.data()));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleBuildLogDestroy(log));
    return std::string(text.c_str());
  };
  EXPECT_EQ("module 0: imports 'elsewhere'\nmodule 0: unresolvable imports 'elsewhere'\nmodule 0: exports none\n",
            inspected(1));
  // A driver that does not link modules has no function to bind an import to.
  const bool links = !whyRefused(driver, "Modules.DynamicLinkBindsImportsToExports");
  const std::string found = links ? "none" : "'elsewhere'", exported = links ? "'elsewhere'" : "none";
  EXPECT_EQ("module 0: imports 'elsewhere'\nmodule 0: unresolvable imports " + found +
                "\nmodule 0: exports none\nmodule 1: imports none\nmodule 1: unresolvable imports none\n"
                "module 1: exports " +
                exported + "\n",
            inspected(2));
  desc.flags = ZE_BIT(3);
  ze_module_build_log_handle_t log = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeModuleInspectLinkageExt(&desc, 2, both, &log));
}

TEST_F(Modules, SeveralInputsAreLinked) {
  const std::vector<uint8_t> inputs[] = {readKernelFile("import.spv"), readKernelFile("export.spv")};
  const size_t sizes[] = {inputs[0].size(), inputs[1].size()};
  const uint8_t* data[] = {inputs[0].data(), inputs[1].data()};
  const char* flags[] = {"-ze-opt-level=2", "-ze-opt-level=2"};
  ze_module_program_exp_desc_t program = {
      ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC, nullptr, 2, sizes, data, flags, nullptr};
  ze_module_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  desc.pNext = &program;
  desc.format = ZE_MODULE_FORMAT_IL_SPIRV;
  ze_module_handle_t made = nullptr;
  ZE_OK(zeModuleCreate(context, device, &desc, &made, nullptr));
  expectItCallsOut(kernel(made, "calls_out"), immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), allocate<int>(1));
  ZE_OK(zeModuleDestroy(made));

  program.count = 1;  // what it imports is missing then
  ZE_OK(zeModuleCreate(context, device, &desc, &made, nullptr));
  ze_module_properties_t properties = {ZE_STRUCTURE_TYPE_MODULE_PROPERTIES, nullptr, 0};
  ZE_OK(zeModuleGetProperties(made, &properties));
  EXPECT_NE(0u, properties.flags & ZE_MODULE_PROPERTY_FLAG_IMPORTS);
  ZE_OK(zeModuleDestroy(made));
}

}  // namespace
}  // namespace zefuse::test
