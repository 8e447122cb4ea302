// A plan as readable JSON, for dumps and people. SPIR-V words are left out.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace zefuse {

// `plan` may be any bytes; what is no plan gives {"error": "..."}: this is for people to read.
std::string planToJson(std::span<const std::byte> plan);

}  // namespace zefuse
