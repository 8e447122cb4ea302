#include "core/spills.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/base/parallel.h"
#include "runtime/executor/vendor_code.h"

namespace zefuse::core {
namespace {

std::optional<int64_t> spillsOf(std::span<const uint32_t> spirv, const std::string& product,
                                const InstalledCompiler& compiler, const FileCache& cache,
                                const CancelCheck& cancelled) {
  CacheKey answer("spills");
  answer.add("format", "1").add("target", product).add("compiler", compiler.identity());
  answer.addHash("spirv", std::as_bytes(spirv));
  int64_t spilled = 0;
  if (auto stored = cache.load(answer); stored && stored->size() == sizeof spilled) {
    std::memcpy(&spilled, stored->data(), sizeof spilled);
    return spilled;
  }
  if (cancelled())
    return std::nullopt;
  CompilerOptions options;
  options.compiler = compiler.command;
  options.cancelled = cancelled;
  Result<DeviceBinary> binary = compiler.vendor->compile(spirv, product, options);
  if (!binary.ok())
    return std::nullopt;  // the same error comes again where it can be told
  spilled = compiler.vendor->report(*binary).spilled_registers;
  (void)cache.store(executor::vendorCodeKey(spirv, product, compiler), binary->bytes);  // best effort, as the next
  (void)cache.store(answer, std::as_bytes(std::span(&spilled, 1)));
  return spilled;
}

}  // namespace

SpillSurvey spillSurvey(const std::string& product, const InstalledCompiler& compiler, const FileCache& cache,
                        int threads, const CancelCheck& cancelled) {
  const size_t at_once = threads > 0 ? size_t(threads) : std::max(1u, std::thread::hardware_concurrency());
  return [=, &cache](std::span<const std::vector<uint32_t>> kernels) {
    std::vector<std::optional<int64_t>> answers(kernels.size());
    inParallel(kernels.size(), at_once,
               [&](size_t i) { answers[i] = spillsOf(kernels[i], product, compiler, cache, cancelled); });
    return answers;
  };
}

}  // namespace zefuse::core
