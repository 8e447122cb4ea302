#include "runtime/executor/library_calls.h"

#include <algorithm>
#include <optional>

#include "runtime/primitives/core/team_thread.h"

namespace zefuse::executor {

namespace {

using primitives::Attention;
using primitives::AttentionDesc;
using primitives::AttentionGradient;
using primitives::AttentionGradientDesc;
using primitives::Convolution;
using primitives::ConvolutionDesc;
using primitives::GroupedMatmul;
using primitives::GroupedMatmulDesc;
using primitives::inParallelForTeam;
using primitives::Matmul;
using primitives::MatmulDesc;
using primitives::Primitive;
using recurrence::Recurrence;
using recurrence::RecurrenceDesc;

using Made = Result<std::shared_ptr<const Primitive>>;

template <typename Kind> Made made(Result<std::shared_ptr<const Kind>> result) {
  if (!result.ok())
    return result.status();
  return std::shared_ptr<const Primitive>(std::move(*result));
}

Made get(const MatmulDesc& desc) { return made(Matmul::get(desc)); }
Made get(const ConvolutionDesc& desc) { return made(Convolution::get(desc)); }
Made get(const AttentionDesc& desc) { return made(Attention::get(desc)); }
Made get(const AttentionGradientDesc& desc) { return made(AttentionGradient::get(desc)); }
Made get(const GroupedMatmulDesc& desc) { return made(GroupedMatmul::get(desc)); }
Made get(const RecurrenceDesc& desc) { return made(Recurrence::get(desc)); }

bool isKnown(const MatmulDesc& desc) { return Matmul::isCached(desc); }
bool isKnown(const ConvolutionDesc& desc) { return Convolution::isCached(desc); }
bool isKnown(const AttentionDesc&) { return true; }  // generates nothing
bool isKnown(const AttentionGradientDesc&) { return true; }
bool isKnown(const GroupedMatmulDesc&) { return false; }  // generates the product of all rows
bool isKnown(const RecurrenceDesc&) { return true; }

}  // namespace

std::vector<Made> getAll(std::span<const CallDesc> descs) {
  std::vector<const CallDesc*> missing;
  for (const CallDesc& desc : descs)
    if (std::ranges::none_of(missing, [&](const CallDesc* other) { return *other == desc; }) &&
        !std::visit([](const auto& kind) { return isKnown(kind); }, desc))
      missing.push_back(&desc);
  // The others hold what is made here until all are read from the cache, which is smaller than a large model.
  std::vector<std::optional<Made>> fresh(missing.size());
  inParallelForTeam(missing.size(),
                    [&](size_t i) { fresh[i] = std::visit([](const auto& kind) { return get(kind); }, *missing[i]); });

  std::vector<Made> results;
  results.reserve(descs.size());
  for (const CallDesc& desc : descs) {
    auto at = std::ranges::find_if(missing, [&](const CallDesc* other) { return *other == desc; });
    if (at != missing.end())
      results.push_back(*fresh[size_t(at - missing.begin())]);
    else
      results.push_back(std::visit([](const auto& kind) { return get(kind); }, desc));
  }
  return results;
}

}  // namespace zefuse::executor
