// Drivers of one Level Zero implementation. A value type: handles live as long as the process.
#pragma once

#include <string>
#include <vector>

#include "common/base/api.h"
#include "runtime/ze/api.h"

namespace zefuse::ze {

struct ZEFUSE_API Driver {
  const Api* api = nullptr;
  ze_driver_handle_t handle = nullptr;
  uint32_t version = 0;
  std::string uuid;  // 32 hexadecimal digits; the same for one build of a driver on every machine

  bool isOurs() const;        // zefuse's CPU driver, whatever type of device it presents itself as
  bool isOverCuda() const;    // zefuse's driver for NVIDIA GPUs
  bool appendsLists() const;  // closed lists run on immediate ones (CommandList::append)

  static Result<std::vector<Driver>> list(const Api& api);
};

}  // namespace zefuse::ze
