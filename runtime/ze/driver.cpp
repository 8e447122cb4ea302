#include "runtime/ze/driver.h"

namespace zefuse::ze {

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
    drivers.push_back({&api, handle, properties.driverVersion});
  }
  return drivers;
}

}  // namespace zefuse::ze
