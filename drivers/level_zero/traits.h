// What a driver says of itself. Each driver that links this folder defines traits(), and entries() of entries.h; the
// folder has the rest of what any Level Zero driver is: tables, handles, refusals, the driver object.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <span>

namespace zefuse::level_zero {

struct Extension {
  const char* name;
  uint32_t version;
};

// An entry that a program may ask for by name (zeDriverGetExtensionFunctionAddress).
struct ExtensionFunction {
  const char* name;
  void* address;
};

struct Traits {
  const char* log_name;  // how lines on stderr begin: "zefuse cpu driver"
  bool log_refusals;     // each refused call writes its reason to stderr
  char uuid[ZE_MAX_DRIVER_UUID_SIZE + 1];
  ze_result_t (*start)();  // of zeInit, which calls it each time; null: nothing that may fail. May refuse
  uint32_t (*version)();   // of the build: ze_driver_properties_t; may read files
  ze_driver_memory_free_policy_ext_flags_t free_policies;
  ze_ipc_property_flags_t ipc;            // what processes can share
  std::span<const Extension> extensions;  // besides those that every driver here has (driver.cpp)
  std::span<const ExtensionFunction> functions;
};

// The same object at every call, which lives as long as the process. Thread-safe. Must not refuse (error.h), which asks
// it.
const Traits& traits();

}  // namespace zefuse::level_zero
