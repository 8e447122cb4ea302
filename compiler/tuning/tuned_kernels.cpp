#include "compiler/tuning/tuned_kernels.h"

#include "llvm/Support/JSON.h"

using namespace llvm;

namespace zefuse {

FailureOr<TunedKernels> readTuning(StringRef json, std::string& error) {
  TunedKernels tuned;
  if (json.empty())
    return tuned;
  auto fail = [&](const Twine& what) -> FailureOr<TunedKernels> {
    error = ("what was tuned cannot be read: " + what).str();
    return failure();
  };
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(json);
  if (!value)
    return fail(llvm::toString(value.takeError()));
  const llvm::json::Object* kernels = value->getAsObject();
  if (!kernels)
    return fail("expected an object");
  for (const auto& [hash, entry] : *kernels) {
    const llvm::json::Object* fields = entry.getAsObject();
    const llvm::json::Object* choice = fields ? fields->getObject("choice") : nullptr;
    if (!choice)
      return fail("kernel " + hash.str() + " has no choice");
    TunedKernel& kernel = tuned[hash.str()];
    kernel.before_us = fields->getNumber("before_us").value_or(0);
    kernel.after_us = fields->getNumber("after_us").value_or(0);
    for (const auto& [name, number] : *choice) {
      const std::optional<int64_t> chosen = number.getAsInteger();
      if (!chosen)
        return fail("'" + name.str() + "' of kernel " + hash.str() + " is no integer");
      kernel.choice[name.str()] = *chosen;
    }
  }
  return tuned;
}

}  // namespace zefuse
