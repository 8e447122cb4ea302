// A plan as readable JSON, for dumps and people. SPIR-V words are left out.
#pragma once

#include "common/base/api.h"
#include <cstddef>
#include <span>
#include <string>

namespace zefuse {

// `plan` may be any bytes; what is no plan gives {"error": "..."}: this is for people to read.
ZEFUSE_API std::string planToJson(std::span<const std::byte> plan);

}  // namespace zefuse
