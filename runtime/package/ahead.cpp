#include "runtime/package/ahead.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "common/base/parallel.h"
#include "common/toolchain/installed_compilers.h"
#include "common/toolchain/targets.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/kernel_modules.h"
#include "runtime/executor/vendor_code.h"

namespace zefuse::package {
namespace {

// The CPU driver, asked for each level once its device is known. Thread-safe after prepare().
class Compilers {
public:
  explicit Compilers(const AheadOptions& options) : options_(options), cache_(options.cache_dir, options.cache_limit) {}

  // `products`: the GPUs to come.
  Status prepare(bool cpu, const std::set<std::string>& products) {
    if (cpu) {
      Result<ze::Context> context = ze::Context::of("cpu");
      if (!context.ok())
        return context.status();
      context_.emplace(std::move(*context));
    }
    constexpr std::chrono::seconds deadline{10};  // nobody waits for a device here, so a slow compiler is waited for
    for (const std::string& product : products) {
      const auto knows = installedCompilerFor(product, deadline, options_.cancelled);
      if (knows.status().code() == Code::cancelled)
        return knows.status();
      const VendorCompiler* vendor = vendorCompilerOf(product);
      const std::string advice = vendor ? ": " + std::string(vendor->advice) : "";
      if (!knows.ok())
        return {Code::not_found, "no compiler here makes code for '" + product + "'" + advice +
                                     "; installed: " + describe(installedCompilers(deadline))};
      of_products_.try_emplace(product, *knows);
    }
    return {};
  }

  Result<std::vector<std::byte>> compile(const plan::KernelModule& module, const std::string& target, bool& cached) {
    const bool cpu = findCpuTarget(target) != nullptr;
    const CacheKey key = cpu ? executor::nativeKey(module, context_->device(), target)
                             : executor::vendorCodeKey(executor::spirvOf(module), target, of_products_.at(target));
    const FileCache::Lock lock = cache_.lock(key, options_.deadline, options_.cancelled);
    if (auto stored = cache_.load(key)) {
      cached = true;
      return std::move(*stored);
    }
    auto made = cpu ? byDriver(module, target) : byVendor(module, target);
    if (made.ok())
      (void)cache_.store(key, *made, module.entry()->str());  // best effort
    return made;
  }

private:
  Result<std::vector<std::byte>> byDriver(const plan::KernelModule& module, const std::string& level) const {
    auto built =
        ze::Module::fromSpirv(*context_, executor::spirvOf(module), module.id()->str(), "-zefuse-isa=" + level);
    return built.ok() ? built->nativeBinary() : built.status();
  }

  Result<std::vector<std::byte>> byVendor(const plan::KernelModule& module, const std::string& product) const {
    const InstalledCompiler& compiler = of_products_.at(product);
    CompilerOptions options;
    options.compiler = compiler.command;
    options.deadline = options_.deadline;
    options.cancelled = options_.cancelled;
    auto built = compiler.vendor->compile(executor::spirvOf(module), product, options);
    if (!built.ok())
      return built.status();
    return std::move(built->bytes);
  }

  const AheadOptions& options_;
  const FileCache cache_;
  std::optional<ze::Context> context_;
  std::map<std::string, InstalledCompiler> of_products_;
};

}  // namespace

Result<std::vector<NativeCode>> compileAhead(const plan::Plan& plan, const std::vector<std::string>& targets,
                                             const AheadOptions& options) {
  struct Work {
    const plan::KernelModule* module;
    std::string target;
  };
  std::vector<Work> work;
  bool cpu = false;
  std::set<std::string> products;
  if (plan.modules())
    for (const plan::KernelModule* module : *plan.modules()) {
      const bool of_cpu = module->target()->string_view() == "cpu";
      cpu |= of_cpu;
      if (!of_cpu)
        products.insert(module->target()->str());
      const size_t before = work.size();
      for (const std::string& target : targets)
        if (of_cpu ? findCpuTarget(target) != nullptr : module->target()->string_view() == target)
          work.push_back({module, target});
      if (work.size() == before)
        return Status{Code::invalid_argument, "kernel '" + module->entry()->str() + "' is made for '" +
                                                  module->target()->str() + "', which is none of the targets"};
    }
  Compilers compilers(options);
  if (!work.empty())
    ZEFUSE_RETURN_IF_ERROR(compilers.prepare(cpu, products));

  std::vector<NativeCode> codes(work.size());
  std::mutex mutex;  // progress, the first error, and whether to stop
  Status first_error;
  bool stop = false;
  size_t done = 0;
  const size_t threads =
      options.threads > 0 ? size_t(options.threads) : std::max(1u, std::thread::hardware_concurrency());
  auto cancel = [&] {
    stop = true;
    if (first_error.ok())
      first_error = {Code::cancelled, "compiling was cancelled after " + std::to_string(done) + " of " +
                                          std::to_string(work.size()) + " kernels"};
  };
  inParallel(work.size(), threads, [&](size_t i) {
    {
      std::lock_guard lock(mutex);
      if (!stop && options.cancelled())
        cancel();
      if (stop)
        return;
    }
    const auto start = std::chrono::steady_clock::now();
    bool cached = false;
    auto bytes = compilers.compile(*work[i].module, work[i].target, cached);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::lock_guard lock(mutex);
    const std::string kernel = work[i].module->entry()->str();
    if (!bytes.ok()) {
      stop = true;
      if (first_error.ok())
        first_error = {bytes.status().code(),
                       "kernel '" + kernel + "' for '" + work[i].target + "': " + bytes.status().message()};
      return;
    }
    codes[i] = {work[i].module->id()->str(), work[i].target, std::move(*bytes)};
    ++done;
    if (options.progress && !options.progress(kernel, work[i].target, cached ? 0 : seconds, done, work.size()))
      cancel();
  });
  if (!first_error.ok())
    return first_error;
  return codes;
}

}  // namespace zefuse::package
