// A plan as readable JSON, for dumps and people. SPIR-V words are left out.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runtime/status.h"

namespace zefuse {

// `plan` may be any bytes; damaged when they are no plan.
Result<std::string> planToJson(std::span<const std::byte> plan);

} // namespace zefuse
