#include "runtime/ze/api.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "common/toolchain/companion.h"
#include "common/toolchain/subprocess.h"
#include "runtime/ze/loader_trial.h"

#include "common/base/fork.h"

namespace zefuse::ze {
namespace {

// Our driver's tables, in the order ze_ddi.h declares them.
#define ZEFUSE_ZE_TABLES(X)                                                                                            \
  X(Global, global)                                                                                                    \
  X(Driver, driver)                                                                                                    \
  X(Device, device)                                                                                                    \
  X(Context, context)                                                                                                  \
  X(CommandQueue, command_queue)                                                                                       \
  X(CommandList, command_list)                                                                                         \
  X(Event, event)                                                                                                      \
  X(EventPool, event_pool)                                                                                             \
  X(Module, module)                                                                                                    \
  X(ModuleBuildLog, module_build_log)                                                                                  \
  X(Kernel, kernel)                                                                                                    \
  X(Mem, mem)

constexpr const char* immediate_append_lists_name = "zeCommandListImmediateAppendCommandListsExp";

Status bindTables(void* library, Api& api) {
#define ZEFUSE_ZE_TABLE(Table, table)                                                                                  \
  ze_##table##_dditable_t Table{};                                                                                     \
  {                                                                                                                    \
    auto getter =                                                                                                      \
        reinterpret_cast<decltype(&::zeGet##Table##ProcAddrTable)>(dlsym(library, "zeGet" #Table "ProcAddrTable"));    \
    if (!getter)                                                                                                       \
      return {Code::damaged, api.library + ": no zeGet" #Table "ProcAddrTable; not a Level Zero "                      \
                                           "driver"};                                                                  \
    if (ze_result_t result = getter(ZE_API_VERSION_CURRENT, &Table); result != ZE_RESULT_SUCCESS)                      \
      return callError(api, "zeGet" #Table "ProcAddrTable", result, api.library);                                      \
  }
  ZEFUSE_ZE_TABLES(ZEFUSE_ZE_TABLE)
#undef ZEFUSE_ZE_TABLE
#define ZEFUSE_ZE_BIND(table, member, name)                                                                            \
  api.name = table.pfn##member;                                                                                        \
  if (!api.name)                                                                                                       \
    return {Code::unsupported, api.library + ": the driver has no " #name};
  ZEFUSE_ZE_FUNCTIONS(ZEFUSE_ZE_BIND)
#undef ZEFUSE_ZE_BIND
  return {};
}

Status bindFlat(void* library, Api& api) {
#define ZEFUSE_ZE_BIND(table, member, name)                                                                            \
  api.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name));                                               \
  if (!api.name)                                                                                                       \
    return {Code::unsupported, api.library + ": the loader has no " #name};
  ZEFUSE_ZE_FUNCTIONS(ZEFUSE_ZE_BIND)
#undef ZEFUSE_ZE_BIND
  api.immediateAppendLists =
      reinterpret_cast<decltype(api.immediateAppendLists)>(dlsym(library, immediate_append_lists_name));
  return {};
}

// What the trial program says of a loader.
struct Verdict {
  std::string word, detail;
};

// `name` is for messages, `path` what is loaded.
Result<Verdict> runTrial(const std::string& name, const std::string& path, std::chrono::milliseconds limit) {
  ToolLimits limits;
  limits.deadline = limit;
  limits.any_exit_code =
      true;  // its answer is in what it prints, so that it is known where the host reaps all children
  const Result<ToolOutput> output = runTool({companionProgram(loader_trial_program), path}, limits);
  const std::string remedy = "; repair the vendor's driver or use device 'cpu'\n  ";
  if (!output.ok()) {
    const Status& status = output.status();
    switch (status.code()) {
    case Code::deadline:
      return Status{Code::deadline, name + ": zeInit did not return within " + std::to_string(limit.count()) +
                                        " ms in a trial process" + remedy + status.message()};
    case Code::device:
      return Status{Code::device, name + ": zeInit crashed in a trial process" + remedy + status.message()};
    default: return Status{status.code(), name + " cannot be tried: " + status.message()};
    }
  }
  const std::string& text = output->text;
  const size_t at = text.rfind(trial_prefix);
  if (at == std::string::npos)
    return Status{Code::device, name + ": zeInit ended the trial process" + remedy +
                                    (text.empty() ? "it printed nothing" : "it printed:\n" + text)};
  const size_t begin = at + std::strlen(trial_prefix), end = text.find('\n', begin);
  const std::string answer = text.substr(begin, end == std::string::npos ? end : end - begin);
  const size_t space = answer.find(' ');
  return Verdict{answer.substr(0, space), space == std::string::npos ? std::string() : answer.substr(space + 1)};
}

// Where this process finds a library; empty when it does not.
std::string pathHere(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  link_map* map = nullptr;
  std::string path;
  if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map)
    path = map->l_name;
  if (library)
    dlclose(library);
  return path;
}

Result<const Api*> loadLoader(const char* name) {
  ZEFUSE_RETURN_IF_ERROR(tryLoader(name, std::chrono::seconds(20)));
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status{Code::not_found, std::string("cannot load ") + name + ": " + dlerror()};
  auto api = std::make_unique<Api>();
  api->library = name;
  ZEFUSE_RETURN_IF_ERROR(bindFlat(library, *api));
  ZEFUSE_ZE(*api, "any", zeInit, 0);
  return api.release();  // for the rest of the process, see the header
}

// A driver without them is as good: messages then have the code alone.
void findDescriptions(Api& api) {
  uint32_t count = 1;
  void* address = nullptr;
  if (api.zeDriverGet(&count, &api.described) == ZE_RESULT_SUCCESS && count > 0 &&
      api.zeDriverGetExtensionFunctionAddress(api.described, "zeDriverGetLastErrorDescription", &address) ==
          ZE_RESULT_SUCCESS)
    api.describeLastError = reinterpret_cast<decltype(api.describeLastError)>(address);
}

void findExtensions(Api& api) {
  auto find = [&](auto& function, const char* name) {
    void* address = nullptr;
    if (api.described && api.zeDriverGetExtensionFunctionAddress(api.described, name, &address) != ZE_RESULT_SUCCESS)
      address = nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    return function != nullptr;
  };
  if (!find(api.productCreate, ze_extension::product_create_name) ||
      !find(api.productDestroy, ze_extension::product_destroy_name) ||
      !find(api.appendProduct, ze_extension::append_product_name) ||
      !find(api.productLibrary, ze_extension::product_library_name))
    api.productCreate = nullptr;
  if (!find(api.convolutionCreate, ze_extension::convolution_create_name) ||
      !find(api.convolutionDestroy, ze_extension::convolution_destroy_name) ||
      !find(api.appendConvolution, ze_extension::append_convolution_name) ||
      !find(api.convolutionLibrary, ze_extension::convolution_library_name))
    api.convolutionCreate = nullptr;
  find(api.deviceOrdinal, ze_extension::device_ordinal_name);
  find(api.streamIsCapturing, ze_extension::stream_is_capturing_name);
  find(api.immediateAppendLists, immediate_append_lists_name);
}

// Where the CPU driver may be, best first.
std::string besideThisCode() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&besideThisCode), &info) || !info.dli_fname)
    return {};
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

constexpr const char* driver_name = "libze_zefuse_cpu.so.1";
constexpr const char* cuda_driver_name = "libze_zefuse_cuda.so.1";

Result<const Api*> findCpuDriver() {
  if (const char* path = std::getenv("ZEFUSE_CPU_DRIVER"); path && *path)
    return loadDriver(path);  // a wrong setting is an error, not a reason to look elsewhere
  std::string tried;
  auto exists = [&](const std::string& path) {
    tried += (tried.empty() ? "" : ", ") + path;
    return access(path.c_str(), R_OK) == 0;
  };
  if (const std::string folder = besideThisCode(); !folder.empty())
    if (exists(folder + driver_name))
      return loadDriver(folder + driver_name);
  Result<const Api*> found = loadDriver(driver_name);
  if (!found.ok() && found.status().code() == Code::not_found)
    return Status{Code::not_found, "zefuse's CPU driver was not found (looked for " + tried +
                                       " and in the library search path); install zefuse again, or set "
                                       "ZEFUSE_CPU_DRIVER to its path"};
  return found;
}

Result<const Api*> openedBeforeFork(const std::string& library) {
  return Status{Code::device, library + " was opened before this process was forked, and a GPU's driver does not work "
                                        "in a fork; start this process by \"spawn\", or use device 'cpu'"};
}

}  // namespace

Status tryLoader(const std::string& name, std::chrono::milliseconds limit) {
  Result<Verdict> verdict = runTrial(name, name, limit);
  // What this library's own search path has, or the process has loaded already, the program may not find by name.
  if (verdict.ok() && verdict->word == trial_no_library)
    if (const std::string path = pathHere(name); !path.empty())
      verdict = runTrial(name, path, limit);
  if (!verdict.ok())
    return verdict.status();
  if (verdict->word == trial_works)
    return {};
  if (verdict->word == trial_no_library)
    return {Code::not_found, "no Level Zero loader (" + name + ") on this system: " + verdict->detail};
  return {Code::not_found, name + ": zeInit found no usable driver (" + verdict->detail +
                               "); install the vendor's Level Zero driver or use device 'cpu'"};
}

Result<const Api*> loadDriver(const std::string& path, const std::string& what) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status{Code::not_found, "cannot load " + what + ": " + dlerror() + "; install zefuse again"};
  auto api = std::make_unique<Api>();
  api->library = path;
  ZEFUSE_RETURN_IF_ERROR(bindTables(library, *api));
  findDescriptions(*api);  // before the first call that may fail
  ZEFUSE_ZE(*api, "any", zeInit, 0);
  findExtensions(*api);
  return api.release();  // for the rest of the process, see the header
}

Result<const Api*> cpuApi() {
  const WithoutFork without_fork;  // a child has no thread that would end the first call
  static const Result<const Api*> api = findCpuDriver();
  return api;
}

Result<const Api*> cudaApi() {
  const WithoutFork without_fork;
  static const uint32_t generation = forkGeneration();
  static const Result<const Api*> api = loadDriver(besideThisCode() + cuda_driver_name, "the driver over CUDA");
  return generation != forkGeneration() && api.ok() ? openedBeforeFork(cuda_driver_name) : api;
}

Result<const Api*> loaderApi() {
  static const uint32_t generation = forkGeneration();
  static const Result<const Api*> api = loadLoader("libze_loader.so.1");
  return generation != forkGeneration() && api.ok() ? openedBeforeFork("libze_loader.so.1") : api;
}

const char* resultName(ze_result_t result) {
  switch (result) {
#define ZEFUSE_ZE_RESULT(name)                                                                                         \
  case name: return #name;
    ZEFUSE_ZE_RESULT(ZE_RESULT_SUCCESS)
    ZEFUSE_ZE_RESULT(ZE_RESULT_NOT_READY)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_DEVICE_LOST)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_MODULE_LINK_FAILURE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_NOT_AVAILABLE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNINITIALIZED)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNSUPPORTED_VERSION)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_SIZE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNSUPPORTED_SIZE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_ENUMERATION)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_GLOBAL_NAME)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_FUNCTION_NAME)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_OVERLAPPING_REGIONS)
    ZEFUSE_ZE_RESULT(ZE_RESULT_ERROR_UNKNOWN)
#undef ZEFUSE_ZE_RESULT
  default: return "unknown result";
  }
}

bool traceEnabled() {
  static const bool enabled = [] {
    const char* value = std::getenv("ZEFUSE_ZE_TRACE");
    return value && std::strcmp(value, "1") == 0;
  }();
  return enabled;
}

void traceCall(const Api& api, const char* call, ze_result_t result) {
  std::fprintf(stderr, "zefuse ze: %s -> %s [%s]\n", call, resultName(result), api.library.c_str());
}

std::string failedCall(const Api& api, const char* call, ze_result_t result, const std::string& device) {
  char code[16];
  std::snprintf(code, sizeof code, "0x%x", static_cast<unsigned>(result));
  return std::string(call) + " failed with " + resultName(result) + " (" + code + ") on device '" + device + "' (" +
         api.library + ")";
}

Status callError(const Api& api, const char* call, ze_result_t result, const std::string& device,
                 std::source_location place) {
  const bool memory = result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY || result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  const char* reason = nullptr;
  if (!api.describeLastError || api.describeLastError(api.described, &reason) != ZE_RESULT_SUCCESS)
    reason = nullptr;
  return {memory ? Code::out_of_memory : Code::device,
          failedCall(api, call, result, device) + (reason && *reason ? std::string(": ") + reason : ""), place};
}

}  // namespace zefuse::ze
