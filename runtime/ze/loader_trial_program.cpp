#include "runtime/ze/loader_trial.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include <level_zero/loader/ze_loader.h>
#include <level_zero/ze_api.h>

using namespace zefuse::ze;

namespace {

[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::printf("\n%s", trial_prefix);
  std::vprintf(format, arguments);
  std::printf("\n");
  va_end(arguments);
  std::fflush(stdout);
}

[[noreturn]] void answer(const char* word, const char* detail) {
  say("%s %s", word, detail);
  _exit(0);  // a driver's destructors are no part of the question
}

[[noreturn]] void answer(const char* word, const char* call, ze_result_t result) {
  char text[96];
  std::snprintf(text, sizeof text, "%s%s0x%x", call, *call ? " " : "", static_cast<unsigned>(result));
  answer(word, text);
}

const char* pathOf(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map ? map->l_name : "?";
}

template <typename Function> Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

const char* kindOf(ze_device_type_t type) {
  switch (type) {
  case ZE_DEVICE_TYPE_GPU: return "gpu";
  case ZE_DEVICE_TYPE_CPU: return "cpu";
  case ZE_DEVICE_TYPE_VPU: return "npu";
  case ZE_DEVICE_TYPE_FPGA: return "fpga";
  default: return "other";
  }
}

void listComponents(void* library) {
  auto versions = find<decltype(zelLoaderGetVersions)>(library, "zelLoaderGetVersions");
  size_t count = 0;
  if (!versions || versions(&count, nullptr) != ZE_RESULT_SUCCESS)
    return;
  std::vector<zel_component_version_t> components(count);
  if (versions(&count, components.data()) != ZE_RESULT_SUCCESS)
    return;
  for (const zel_component_version_t& one : components)
    say("component %.*s %d.%d.%d %u.%u", ZEL_COMPONENT_STRING_SIZE, one.component_name, one.component_lib_version.major,
        one.component_lib_version.minor, one.component_lib_version.patch, ZE_MAJOR_VERSION(one.spec_version),
        ZE_MINOR_VERSION(one.spec_version));
}

// The functions that listing needs; a loader has them all.
struct Calls {
  decltype(&::zeDriverGet) drivers;
  decltype(&::zeDriverGetApiVersion) version;
  decltype(&::zeDriverGetProperties) driver;
  decltype(&::zeDeviceGet) devices;
  decltype(&::zeDeviceGetProperties) device;
  decltype(&::zeDeviceGetMemoryProperties) memory;
};

void succeed(const char* call, ze_result_t result) {
  if (result != ZE_RESULT_SUCCESS)
    answer(trial_no_driver, call, result);
}

void listDevices(const Calls& ze, ze_driver_handle_t driver) {
  say("%s zeDeviceGet", trial_step);
  uint32_t count = 0;
  const ze_result_t result = ze.devices(driver, &count, nullptr);
  if (result == ZE_RESULT_ERROR_UNINITIALIZED)
    return;  // how a driver may say that it has none
  succeed("zeDeviceGet", result);
  std::vector<ze_device_handle_t> devices(count);
  succeed("zeDeviceGet", ze.devices(driver, &count, devices.data()));
  for (ze_device_handle_t device : devices) {
    say("%s zeDeviceGetProperties", trial_step);
    ze_device_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    succeed("zeDeviceGetProperties", ze.device(device, &properties));
    uint32_t memories = 0;
    uint64_t bytes = 0;
    if (ze.memory(device, &memories, nullptr) == ZE_RESULT_SUCCESS) {
      std::vector<ze_device_memory_properties_t> memory(memories);
      for (ze_device_memory_properties_t& one : memory)
        one.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
      if (ze.memory(device, &memories, memory.data()) == ZE_RESULT_SUCCESS)
        for (const ze_device_memory_properties_t& one : memory)
          bytes = std::max(bytes, one.totalSize);
    }
    properties.name[ZE_MAX_DEVICE_NAME - 1] = '\0';
    say("device %s %04x %04x %llu %d %s", kindOf(properties.type), properties.vendorId, properties.deviceId,
        static_cast<unsigned long long>(bytes), (properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0,
        properties.name);
  }
}

void listDrivers(void* library) {
  const Calls ze{find<decltype(::zeDriverGet)>(library, "zeDriverGet"),
                 find<decltype(::zeDriverGetApiVersion)>(library, "zeDriverGetApiVersion"),
                 find<decltype(::zeDriverGetProperties)>(library, "zeDriverGetProperties"),
                 find<decltype(::zeDeviceGet)>(library, "zeDeviceGet"),
                 find<decltype(::zeDeviceGetProperties)>(library, "zeDeviceGetProperties"),
                 find<decltype(::zeDeviceGetMemoryProperties)>(library, "zeDeviceGetMemoryProperties")};
  if (!ze.drivers || !ze.version || !ze.driver || !ze.devices || !ze.device || !ze.memory)
    answer(trial_no_driver, "it lacks functions of Level Zero 1.0");
  say("%s zeDriverGet", trial_step);
  uint32_t count = 0;
  succeed("zeDriverGet", ze.drivers(&count, nullptr));
  std::vector<ze_driver_handle_t> drivers(count);
  succeed("zeDriverGet", ze.drivers(&count, drivers.data()));
  for (ze_driver_handle_t driver : drivers) {
    ze_api_version_t version{};
    succeed("zeDriverGetApiVersion", ze.version(driver, &version));
    ze_driver_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES;
    succeed("zeDriverGetProperties", ze.driver(driver, &properties));
    char uuid[2 * ZE_MAX_DRIVER_UUID_SIZE + 1];
    for (size_t i = 0; i < ZE_MAX_DRIVER_UUID_SIZE; ++i)
      std::snprintf(uuid + 2 * i, 3, "%02x", properties.uuid.id[i]);
    say("driver %x %u.%u %s", properties.driverVersion, ZE_MAJOR_VERSION(version), ZE_MINOR_VERSION(version), uuid);
    listDevices(ze, driver);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool list = argc >= 3 && std::strcmp(argv[1], "--list") == 0;
  if (list ? argc > 4 : argc != 2) {
    std::fprintf(stderr, "usage: %s [--list] LIBRARY [DRIVER]\n", loader_trial_program);
    return 2;
  }
  const char* const name = argv[list ? 2 : 1];
  const char* const driver = list && argc == 4 ? argv[3] : nullptr;
  alarm(trial_ends_after_s);
  for (int fatal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE})
    signal(fatal, SIG_DFL);  // whoever started this wants to see the signal, not a sanitizer's report
  if (driver) {
    say("%s loading the driver", trial_step);
    void* library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);  // by itself, for what is missing to be told
    if (!library)
      answer(trial_no_driver_library, dlerror());
    say("driver-library %s", pathOf(library));
    setenv("ZE_ENABLE_ALT_DRIVERS", driver, 1);
  }
  if (list)
    say("%s loading the loader", trial_step);
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    answer(trial_no_library, dlerror());
  if (list)
    say("library %s", pathOf(library));
  auto init = find<decltype(::zeInit)>(library, "zeInit");
  if (!init)
    answer(trial_no_driver, "it has no zeInit");
  if (list)
    say("%s zeInit", trial_step);
  const ze_result_t result = init(0);
  if (list) {
    listComponents(library);
    if (result == ZE_RESULT_SUCCESS)
      listDrivers(library);
  }
  answer(result == ZE_RESULT_SUCCESS ? trial_works : trial_no_driver, "", result);
}
