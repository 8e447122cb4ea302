#include "runtime/executor/kernel_modules.h"

#include <algorithm>
#include <thread>

#include "runtime/cache/file_cache.h"
#include "runtime/executor/program.h"
#include "runtime/executor/vendor_code.h"
#include "runtime/parallel.h"

namespace zefuse::executor {
namespace {

// How long one process waits for another that builds the same kernel. Compiling one takes tens of milliseconds.
constexpr std::chrono::seconds build_wait{60};

}  // namespace

std::span<const uint32_t> spirvOf(const plan::KernelModule& module) {
  const auto* words = module.spirv();
  return words ? std::span(words->data(), words->size()) : std::span<const uint32_t>();
}

CacheKey nativeKey(const plan::KernelModule& module, const ze::Device& device, std::string_view cpu_level) {
  CacheKey key("native");
  key.add("format", "1").add("target", module.target()->str());
  for (auto& [name, value] : device.nativeFields(cpu_level))
    key.add(name, value);
  key.addHash("spirv", std::as_bytes(spirvOf(module)));
  return key;
}

Result<std::unique_ptr<KernelModules>> KernelModules::build(const plan::Plan& plan, const ExecutableOptions& options,
                                                            Counters& counters) {
  auto self = std::make_unique<KernelModules>();
  auto open = [](const std::string& name, std::unique_ptr<ze::Context>& out) -> Status {
    Result<ze::Device> device = ze::Device::find(name);
    if (!device.ok())
      return device.status();
    Result<ze::Context> context = ze::Context::create(*device);
    if (!context.ok())
      return context.status();
    out = std::make_unique<ze::Context>(std::move(*context));
    return {};
  };
  if (options.device != "cpu")
    ZEFUSE_RETURN_IF_ERROR(open(options.device, self->gpu_));
  const auto* modules = plan.modules();
  if (!modules || modules->size() == 0)
    return self;
  for (const plan::KernelModule* module : *modules) {
    const bool cpu = isCpuTarget(module->target()->string_view());
    if (!cpu && !self->gpu_)
      return Status{Code::invalid_argument, "kernel module '" + module->id()->str() + "' is compiled for target '" +
                                                module->target()->str() + "', which device '" + options.device +
                                                "' cannot run; compile for this device"};
    if (cpu && !self->host_)
      ZEFUSE_RETURN_IF_ERROR(open("cpu", self->host_));
  }
  auto contextOf = [&](const plan::KernelModule& module) -> const ze::Context& {
    return isCpuTarget(module.target()->string_view()) ? *self->host_ : *self->gpu_;
  };
  self->modules_.resize(modules->size());

  const FileCache cache(options.cache_dir, options.cache_limit);
  std::vector<std::optional<CacheKey>> keys(modules->size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < modules->size(); ++i) {
    const plan::KernelModule& module = *modules->Get(uint32_t(i));
    const std::string label = module.id()->str();
    if (options.native_binary) {
      const std::span<const std::byte> given = options.native_binary(label, module.target()->str());
      if (!given.empty())
        if (auto loaded = ze::Module::fromNative(contextOf(module), given, label); loaded.ok()) {
          self->modules_[i] = std::move(*loaded);
          continue;
        }  // made for another driver: build it here
    }
    keys[i] = nativeKey(module, contextOf(module).device());
    if (auto stored = cache.load(*keys[i]))
      if (auto loaded = ze::Module::fromNative(contextOf(module), *stored, label); loaded.ok()) {
        self->modules_[i] = std::move(*loaded);
        ++counters.native_cache_hits;
        continue;
      }
    if (!options.build)
      return Status{Code::not_found, "there is no native code for kernel '" + module.entry()->str() + "' on " +
                                         contextOf(module).device().description +
                                         ", and nothing may be compiled here; compile the package for this device "
                                         "(--targets; `zefuse targets` lists them)"};
    missing.push_back(i);
  }

  std::optional<VendorCode> vendor;
  if (self->gpu_ && !self->gpu_->device().hasOurCompiler()) {
    vendor.emplace(self->gpu_->device(), options, cache);
    vendor->expect(size_t(std::ranges::count_if(
        missing, [&](size_t i) { return !isCpuTarget(modules->Get(uint32_t(i))->target()->string_view()); })));
  }
  size_t threads =
      options.build_threads > 0 ? size_t(options.build_threads) : std::max(1u, std::thread::hardware_concurrency());
  std::vector<Status> results(missing.size());
  inParallel(missing.size(), threads, [&](size_t at) {
    const size_t i = missing[at];
    const plan::KernelModule& module = *modules->Get(uint32_t(i));
    VendorCode* const by = isCpuTarget(module.target()->string_view()) || !vendor ? nullptr : &*vendor;
    results[at] = buildOne(contextOf(module), module, *keys[i], cache, by, counters, self->modules_[i]);
  });
  for (Status& result : results)
    ZEFUSE_RETURN_IF_ERROR(result);
  return self;
}

Status KernelModules::buildOne(const ze::Context& context, const plan::KernelModule& module, const CacheKey& key,
                               const FileCache& cache, VendorCode* vendor, Counters& counters,
                               std::optional<ze::Module>& out) {
  const std::string label = module.id()->str();
  // Another process or thread may be at it already, or have just ended.
  const FileCache::Lock lock = cache.lock(key, build_wait);
  if (auto stored = lock.held() ? cache.load(key) : std::nullopt)
    if (auto loaded = ze::Module::fromNative(context, *stored, label); loaded.ok()) {
      out = std::move(*loaded);
      ++counters.native_cache_hits;
      return {};
    }
  ++counters.native_cache_misses;
  const std::span<const uint32_t> words = spirvOf(module);
  if (words.empty())
    return {Code::damaged, "plan: kernel module '" + label + "' carries no SPIR-V and no usable native code was given"};
  if (vendor) {
    // A driver may refuse what another version's compiler made; its own code it takes.
    for (bool refused : {false, true}) {
      auto code = vendor->make(module, refused);
      if (!code.ok())
        return code.status();
      auto loaded = ze::Module::fromNative(context, code->bytes, label);
      if (!loaded.ok() && code->by_driver)
        return loaded.status();
      if (!loaded.ok())
        continue;
      counters.noteCacheFailure(cache.store(key, code->bytes, label));
      out = std::move(*loaded);
      return {};
    }
    return {Code::internal, "kernel module '" + label + "': no code was made"};
  }
  auto built = ze::Module::fromSpirv(context, words, label);
  if (!built.ok())
    return built.status();
  if (auto native = built->nativeBinary(); native.ok() && !native->empty())
    counters.noteCacheFailure(cache.store(key, *native, label));
  out = std::move(*built);
  return {};
}

}  // namespace zefuse::executor
