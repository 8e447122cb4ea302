// Statuses and compile errors as the Python exceptions of zefuse.errors.
#pragma once

#include <string>

#include "common/base/status.h"

namespace zefuse::python {

// Raises the class that zefuse.errors.BY_CODE names for the status' code. The GIL must be held.
// `of_torchs_device`: no memory there is torch.OutOfMemoryError as well.
[[noreturn]] void raise(const Status& status, bool of_torchs_device = false);
[[noreturn]] void raise(const char* code, const std::string& message);

template <typename T> T unwrap(Result<T> result) {
  if (!result.ok())
    raise(result.status());
  return std::move(*result);
}

}  // namespace zefuse::python
