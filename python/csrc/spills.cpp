#include "python/csrc/spills.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "lowering/native/ocloc.h"
#include "runtime/executor/vendor_code.h"

namespace zefuse::python {
namespace {

std::optional<int64_t> spillsOf(std::span<const uint32_t> spirv, const std::string& product,
                                const InstalledCompiler& ocloc, const FileCache& cache, const CacheKey& answer) {
  int64_t spilled = 0;
  if (auto stored = cache.load(answer); stored && stored->size() == sizeof spilled) {
    std::memcpy(&spilled, stored->data(), sizeof spilled);
    return spilled;
  }
  OclocOptions options;
  options.compiler = ocloc.command;
  Result<DeviceBinary> binary = compileWithOcloc(spirv, product, options);
  if (!binary.ok())
    return std::nullopt;  // the same error comes again where it can be told
  spilled = deviceReport(*binary).spilled_registers;
  (void)cache.store(executor::oclocKey(spirv, product, ocloc.version), binary->bytes);  // best effort, as the next
  (void)cache.store(answer, std::as_bytes(std::span(&spilled, 1)));
  return spilled;
}

// Without a cache folder, the same kernel of every layer is still asked about once.
struct Answers {
  std::mutex mutex;
  std::map<std::string, std::optional<int64_t>> known;
};

}  // namespace

SpillCheck spillCheck(const std::string& product, const InstalledCompiler& ocloc, const FileCache& cache) {
  return [=, &cache, answers = std::make_shared<Answers>()](std::span<const uint32_t> spirv) -> std::optional<int64_t> {
    CacheKey answer("spills");
    answer.add("format", "1").add("target", product).add("compiler", "ocloc " + ocloc.version);
    answer.addHash("spirv", std::as_bytes(spirv));
    std::lock_guard lock(answers->mutex);
    auto [entry, fresh] = answers->known.try_emplace(answer.text());
    if (fresh)
      entry->second = spillsOf(spirv, product, ocloc, cache, answer);
    return entry->second;
  };
}

}  // namespace zefuse::python
