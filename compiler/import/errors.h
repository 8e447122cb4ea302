// How an import fails as a whole. What makes one operator a fallback is NotLowered (compiler/builder/not_lowered.h).
#pragma once

#include <stdexcept>

#include "common/base/api.h"

namespace zefuse {

// The graph cannot be imported at all: names the node and the reason. Reaches the user as a Python exception.
class ZEFUSE_API ImportError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

}  // namespace zefuse
