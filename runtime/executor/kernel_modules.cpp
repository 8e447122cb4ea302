#include "runtime/executor/kernel_modules.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/base/parallel.h"
#include "common/plan/program.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/vendor_code.h"
#include "runtime/ze/convolution.h"
#include "runtime/ze/product.h"

namespace zefuse::executor {
namespace {

// How long one process waits for another that builds the same kernel. Compiling one takes tens of milliseconds.
constexpr std::chrono::seconds build_wait{60};

// Those that are building.
LongForkMutex& registryMutex() {
  static auto* mutex = new LongForkMutex;  // never destroyed: plans may outlive this library's static objects
  return *mutex;
}

std::vector<KernelModules*>& registry() {
  static auto* building = new std::vector<KernelModules*>;
  return *building;
}

std::optional<ze::Module> take(const ze::Context& context, std::span<const std::byte> code,
                               const plan::KernelModule& module) {
  auto loaded = ze::Module::fromNative(context, code, module.id()->str());
  return loaded.ok() ? std::optional(std::move(*loaded)) : std::nullopt;
}

}  // namespace

std::span<const uint32_t> spirvOf(const plan::KernelModule& module) {
  const auto* words = module.spirv();
  return words ? std::span(words->data(), words->size()) : std::span<const uint32_t>();
}

CacheKey nativeKey(const plan::KernelModule& module, const ze::Device& device, std::string_view cpu_level) {
  CacheKey key("native");
  key.add("format", "2").add("target", module.target()->str());
  for (auto& [name, value] : device.nativeFields(cpu_level))
    key.add(name, value);
  key.addHash("spirv", std::as_bytes(spirvOf(module)));
  return key;
}

const ze::Context& KernelModules::contextOf(const plan::KernelModule& module) const {
  return plan::runsOnHost(module.target()->string_view()) ? *host_ : gpu_->context();
}

std::vector<bool> KernelModules::replaceable(bool products, bool convolutions) const {
  std::vector<bool> launched(modules_.size()), by_kernel(modules_.size());
  if (const auto* steps = plan_.steps())
    for (const plan::Step* step : *steps) {
      if (const plan::Launch* launch = step->kind_as_Launch()) {
        launched[launch->module_()] = true;
        if (!(products && launch->library()) && !(convolutions && launch->library_convolution()))
          by_kernel[launch->module_()] = true;
      } else if (const plan::GroupedMatmul* product = step->kind_as_GroupedMatmul(); product && product->kernel()) {
        launched[product->kernel()->module_()] = by_kernel[product->kernel()->module_()] = true;
      }
    }
  for (size_t i = 0; i < launched.size(); ++i)
    launched[i] = launched[i] && !by_kernel[i];
  return launched;
}

Result<std::unique_ptr<KernelModules>> KernelModules::build(const plan::Plan& plan, const ExecutableOptions& options,
                                                            Counters& counters) {
  std::unique_ptr<KernelModules> self(new KernelModules(plan, options, counters));
  auto openHost = [&]() -> Status {
    Result<ze::Context> context = ze::Context::of("cpu");
    if (!context.ok())
      return context.status();
    self->host_ = std::make_unique<ze::Context>(std::move(*context));
    return {};
  };
  if (options.device != "cpu") {
    auto gpu = DeviceContext::open(options.device);
    if (!gpu.ok())
      return gpu.status();
    self->gpu_ = std::move(*gpu);
  }
  const auto* modules = plan.modules();
  if (!modules || modules->size() == 0)
    return self;
  for (const plan::KernelModule* module : *modules) {
    const bool cpu = plan::runsOnHost(module->target()->string_view());
    if (!cpu && !self->gpu_)
      return Status{Code::invalid_argument, "kernel module '" + module->id()->str() + "' is compiled for target '" +
                                                module->target()->str() + "', which device '" + options.device +
                                                "' cannot run; compile for this device"};
    if (cpu && !self->host_)
      ZEFUSE_RETURN_IF_ERROR(openHost());
  }
  self->modules_.resize(modules->size());

  const FileCache cache(options.cache_dir, options.cache_limit);
  std::optional<VendorCode> vendor;
  if (self->gpu_ && !self->gpu_->device().hasOurCompiler())
    vendor.emplace(self->gpu_->device(), options);
  const bool may_wait = options.build && self->gpu_ && self->gpu_->device().hasOurCompiler();
  const std::vector<bool> later = self->replaceable(may_wait, may_wait);
  std::vector<size_t> missing;
  for (size_t i = 0; i < modules->size(); ++i) {
    const plan::KernelModule& module = *modules->Get(uint32_t(i));
    const ze::Context& context = self->contextOf(module);
    const std::string label = module.id()->str();
    if (options.native_binary) {
      const std::span<const std::byte> given = options.native_binary(label, module.target()->str());
      if (!given.empty())
        if (auto loaded = ze::Module::fromNative(context, given, label); loaded.ok()) {
          self->modules_[i] = std::move(*loaded);
          continue;
        }  // made for another driver: build it here
    }
    if (later[i]) {
      ++self->missing_;
      continue;
    }
    const VendorCode* const by = &context == self->host_.get() || !vendor ? nullptr : &*vendor;
    if (Kept kept = load(context, module, cache, by); kept.module) {
      self->modules_[i] = std::move(kept.module);
      ++counters.native_cache_hits;
      continue;
    }
    if (!options.build && !options.cancelled())
      return Status{Code::not_found, "there is no native code for kernel '" + module.entry()->str() + "' on " +
                                         context.device().description +
                                         ", and nothing may be compiled here; compile the package for this device "
                                         "(--targets; `zefuse targets` lists them)"};
    missing.push_back(i);
    ++self->missing_;
  }
  if (!options.build_beside || vendor || missing.empty()) {
    ZEFUSE_RETURN_IF_ERROR(self->buildNow(missing, later, vendor ? &*vendor : nullptr));
    return self;
  }
  self->forgetCaller();
  self->options_.cancelled = [&ending = self->ending_] { return ending.load(); };
  const std::lock_guard lock(registryMutex());
  registry().push_back(self.get());
  self->building_ = std::make_unique<primitives::TeamThread<Status>>(
      [self = self.get(), missing = std::move(missing), later = later] {
        return self->buildNow(missing, later, nullptr);
      });
  return self;
}

KernelModules::~KernelModules() {
  if (!building_)
    return;
  if (generation_ != forkGeneration()) {
    (void)building_.release();  // its thread is the parent's: nothing here would end a wait for it
    return;
  }
  ending_ = true;
  const std::lock_guard lock(registryMutex());
  std::erase(registry(), this);
  building_.reset();
}

void KernelModules::endBuilding() {
  if (!building_ || generation_ != forkGeneration())
    return;
  ending_ = true;
  while (!building_->endsWithin(std::chrono::seconds(1)))
    continue;
  const std::lock_guard lock(mutex_);
  options_.cancelled = {};  // whoever needs one that is missing has it built
}

void KernelModules::endAllBuilding() {
  const std::lock_guard lock(registryMutex());
  for (KernelModules* each : registry())
    each->ending_ = true;
  for (KernelModules* each : registry())
    each->endBuilding();
}

Status KernelModules::buildNow(std::span<const size_t> which, const std::vector<bool>& later, VendorCode* vendor) {
  ZEFUSE_RETURN_IF_ERROR(buildMissing(which, vendor));
  if (std::ranges::find(later, true) == later.end())
    return {};
  // Asked now: loading the libraries takes a while, and somebody else may have been at it.
  const ze::Device& device = gpu_->device();
  const std::vector<bool> still = replaceable(ze::productLibrary(device).ok(), ze::convolutionLibrary(device).ok());
  std::vector<size_t> needed;
  for (size_t i = 0; i < later.size(); ++i)
    if (later[i] && !still[i])
      needed.push_back(i);
  return buildMissing(needed, nullptr);  // where some are left for later there is no vendor's compiler
}

Status KernelModules::buildAll(std::span<const size_t> which, VendorCode* vendor) {
  const auto& modules = *plan_.modules();
  auto vendorOf = [&](const plan::KernelModule& module) {
    return plan::runsOnHost(module.target()->string_view()) ? nullptr : vendor;
  };
  const FileCache cache(options_.cache_dir, options_.cache_limit);
  if (vendor)
    vendor->expect(
        size_t(std::ranges::count_if(which, [&](size_t i) { return vendorOf(*modules.Get(uint32_t(i))) != nullptr; })));
  const size_t threads =
      options_.build_threads > 0 ? size_t(options_.build_threads) : std::max(1u, std::thread::hardware_concurrency());
  std::vector<Status> results(which.size());
  std::atomic<bool> failed{false};  // nobody waits for more of a compiler that hangs
  inParallel(which.size(), threads, [&](size_t at) {
    if (failed)
      return;
    const size_t i = which[at];
    const plan::KernelModule& module = *modules.Get(uint32_t(i));
    results[at] = options_.cancelled() ? Status{Code::cancelled, "cancelled"}
                                       : buildOne(contextOf(module), module, cache, vendorOf(module),
                                                  options_.cancelled, counters_, modules_[i]);
    if (!results[at].ok())
      failed = true;
  });
  // Whatever else went wrong then: a compiler that was not asked to the end looks like none.
  if (failed && options_.cancelled())
    return Status{Code::cancelled, "loading a plan of " + std::to_string(modules.size()) +
                                       " kernels was cancelled; those that were compiled by then are in the cache"};
  for (Status& result : results)
    ZEFUSE_RETURN_IF_ERROR(result);
  return {};
}

Status KernelModules::require(std::span<const size_t> which) {
  if (!isPartial())
    return {};
  while (!isBuiltWithin(std::chrono::seconds(1)))
    continue;
  return buildMissing(which, nullptr);
}

Status KernelModules::buildMissing(std::span<const size_t> which, VendorCode* vendor) {
  const std::lock_guard lock(mutex_);
  std::vector<size_t> missing;
  for (size_t i : which)
    if (!modules_[i] && std::ranges::find(missing, i) == missing.end())
      missing.push_back(i);
  const Status status = buildAll(missing, vendor);
  missing_ -= size_t(std::ranges::count_if(missing, [&](size_t i) { return modules_[i].has_value(); }));
  return status;
}

void KernelModules::forgetCaller() {
  if (building_)  // forgotten before that began
    return;
  options_.cancelled = {};
  options_.jit_progress = {};
  options_.native_binary = {};
}

KernelModules::Kept KernelModules::load(const ze::Context& context, const plan::KernelModule& module,
                                        const FileCache& cache, const VendorCode* vendor) {
  Kept kept;
  if (const auto by_compiler = vendor ? vendor->compilerKey(module) : std::nullopt) {
    const auto code = cache.load(*by_compiler);
    if (!code)
      return kept;  // what the driver itself made of it before is no reason to do without this compiler
    kept.module = take(context, *code, module);
    kept.refused = !kept.module;
    if (kept.module)
      return kept;
  }
  if (const auto code = cache.load(nativeKey(module, context.device())))
    kept.module = take(context, *code, module);
  return kept;
}

Status KernelModules::buildOne(const ze::Context& context, const plan::KernelModule& module, const FileCache& cache,
                               VendorCode* vendor, const CancelCheck& cancelled, Counters& counters,
                               std::optional<ze::Module>& out) {
  const std::string label = module.id()->str();
  const CacheKey key = nativeKey(module, context.device());
  const auto by_compiler = vendor ? vendor->compilerKey(module) : std::nullopt;
  // Another process or thread may be at it already, or have just ended.
  const FileCache::Lock lock = cache.lock(by_compiler ? *by_compiler : key, build_wait, cancelled);
  Kept kept = load(context, module, cache, vendor);
  if (kept.module) {
    out = std::move(kept.module);
    ++counters.native_cache_hits;
    return {};
  }
  ++counters.native_cache_misses;
  const std::span<const uint32_t> words = spirvOf(module);
  if (words.empty())
    return {Code::damaged, "plan: kernel module '" + label + "' carries no SPIR-V and no usable native code was given"};
  if (vendor) {
    if (by_compiler && !kept.refused) {
      auto code = vendor->byCompiler(module);
      if (!code.ok())
        return code.status();
      // Also where the driver refuses it: the next process then finds that out at once.
      counters.noteCacheFailure(cache.store(*by_compiler, *code, label));
      if (out = take(context, *code, module); out)
        return {};
      kept.refused = true;
      // Another version's code may have been refused before, and what the driver made instead is here.
      if (const auto own = cache.load(key))
        if (out = take(context, *own, module); out)
          return {};
    }
    auto code = vendor->byDriver(module, kept.refused);
    if (!code.ok())
      return code.status();
    auto loaded = ze::Module::fromNative(context, *code, label);
    if (!loaded.ok())
      return loaded.status();
    counters.noteCacheFailure(cache.store(key, *code, label));
    out = std::move(*loaded);
    return {};
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
