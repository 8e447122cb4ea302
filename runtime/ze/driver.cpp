#include "runtime/ze/driver.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace zefuse::ze {
namespace {

std::string hexOf(const ze_driver_uuid_t& uuid) {
  std::string text;
  for (uint8_t byte : uuid.id) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

}  // namespace

bool Driver::isOurs() const {
  return uuid == "7a65667573652d6370752d6472762d31";  // "zefuse-cpu-drv-1", docs/cpu_driver.md
}

bool Driver::isOverCuda() const {
  return uuid == "7a65667573652d637564612d64727631";  // "zefuse-cuda-drv1", docs/cuda_driver.md
}

bool Driver::appendsLists() const {
  uint32_t count = 0;
  if (!api->immediateAppendLists || api->zeDriverGetExtensionProperties(handle, &count, nullptr) != ZE_RESULT_SUCCESS)
    return false;
  std::vector<ze_driver_extension_properties_t> extensions(count);
  return api->zeDriverGetExtensionProperties(handle, &count, extensions.data()) == ZE_RESULT_SUCCESS &&
         std::ranges::any_of(extensions, [](const auto& extension) {
           return std::string_view("ZE_experimental_immediate_command_list_append") == extension.name;
         });
}

Result<std::vector<Driver>> Driver::list(const Api& api) {
  uint32_t count = 0;
  ZEFUSE_ZE(api, "any", zeDriverGet, &count, nullptr);
  std::vector<ze_driver_handle_t> handles(count);
  ZEFUSE_ZE(api, "any", zeDriverGet, &count, handles.data());
  handles.resize(count);
  std::vector<Driver> drivers;
  for (ze_driver_handle_t handle : handles) {
    auto properties = make<ze_driver_properties_t>();
    ZEFUSE_ZE(api, "any", zeDriverGetProperties, handle, &properties);
    drivers.push_back({&api, handle, properties.driverVersion, hexOf(properties.uuid)});
  }
  return drivers;
}

}  // namespace zefuse::ze
