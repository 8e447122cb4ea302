// What a device's own compiler says of kernels that may want more registers than there are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace zefuse {

// The registers that the device's compiler would keep in memory; none: nobody here can tell.
using SpillCheck = std::function<std::optional<int64_t>(std::span<const uint32_t> spirv)>;
// The same of several kernels, which differ: one answer for each, in their order.
using SpillSurvey = std::function<std::vector<std::optional<int64_t>>(std::span<const std::vector<uint32_t>> kernels)>;

}  // namespace zefuse
