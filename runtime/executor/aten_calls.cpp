#include "runtime/executor/aten_calls.h"

#include <dlfcn.h>

#include <atomic>
#include <bit>
#include <mutex>

#include "common/plan/dtype.h"

namespace zefuse {
namespace {
std::atomic<AtenBridge*> installed{nullptr};
std::string& bridgeFolder() {
  static std::string folder;
  return folder;
}
}  // namespace

void setAtenBridge(AtenBridge* bridge) { installed = bridge; }

void setAtenBridgeFolder(std::string folder) { bridgeFolder() = std::move(folder); }

namespace executor {
namespace {

constexpr const char* bridge_library = "libzefuse_aten.so";

Result<AtenBridge*> loadBridge() {
  std::string beside = bridgeFolder().empty() ? "" : bridgeFolder() + "/";
  Dl_info info{};
  if (beside.empty() && dladdr(reinterpret_cast<const void*>(&setAtenBridge), &info) && info.dli_fname) {
    beside = info.dli_fname;
    beside.resize(beside.rfind('/') == std::string::npos ? 0 : beside.rfind('/') + 1);
  }
  std::string reasons;
  for (const std::string& path : {beside + bridge_library, std::string(bridge_library)}) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      reasons += std::string(reasons.empty() ? "" : "; ") + dlerror();
      continue;
    }
    auto factory = reinterpret_cast<AtenBridgeFactory>(dlsym(library, "zefuse_aten_bridge"));
    AtenBridge* bridge = factory ? factory() : nullptr;
    if (bridge)
      return bridge;
    return Status{Code::damaged, path + " has no usable zefuse_aten_bridge; reinstall zefuse"};
  }
  return Status{Code::not_found, "the plan calls ATen operators and libzefuse_aten.so cannot be "
                                 "loaded (" +
                                     reasons + "); it needs torch's libraries"};
}

}  // namespace

Result<AtenBridge*> atenBridge() {
  if (AtenBridge* bridge = installed)
    return bridge;
  static const Result<AtenBridge*> loaded = loadBridge();
  return loaded;
}

Result<AtenOps> AtenOps::resolve(const plan::Program& program) {
  AtenOps self;
  self.ops_.resize(program.plan.steps.size());
  for (size_t i = 0; i < program.plan.steps.size(); ++i) {
    const auto* call = program.plan.steps[i]->kind.AsAtenCall();
    if (!call)
      continue;
    if (!self.bridge_) {
      Result<AtenBridge*> bridge = atenBridge();
      if (!bridge.ok())
        return bridge.status();
      self.bridge_ = *bridge;
      auto alias = self.bridge_->resolve("aten::alias", "");
      if (!alias.ok())
        return alias.status();
      self.alias_ = std::move(*alias);
      auto empty = self.bridge_->resolve("aten::empty_strided", "");
      if (!empty.ok())
        return empty.status();
      self.empty_strided_ = std::move(*empty);
    }
    auto op = self.bridge_->resolve(call->op, call->overload);
    if (!op.ok())
      return Status{op.status().code(), plan::stepName(program.plan, i) + ": " + op.status().message()};
    self.ops_[i] = std::move(*op);
  }
  return self;
}

Result<AtenResult> AtenOps::one(const AtenOp& op, std::span<const AtenArgument> arguments) const {
  auto results = op.call(arguments);
  if (!results.ok())
    return results.status();
  if (results->size() == 1 && results->front().is_tensor)
    return std::move(results->front());
  for (const AtenResult& result : *results)
    if (result.is_tensor)
      bridge_->release(result.owner);
  return Status{Code::internal, "an ATen helper operator gave no single tensor"};
}

Result<AtenResult> AtenOps::alias(const TensorRef& tensor) const {
  AtenArgument argument;
  argument.kind = plan::ArgumentKind::tensor;
  argument.tensor = tensor;
  return one(*alias_, {&argument, 1});
}

Result<AtenResult> AtenOps::emptyStrided(const BoundValue& value) const {
  // empty_strided(size, stride, dtype, layout, device, pin_memory)
  std::vector<AtenArgument> arguments(6);
  auto fill = [](AtenArgument& list, std::span<const int64_t> numbers) {
    list.kind = plan::ArgumentKind::list;
    for (int64_t number : numbers) {
      list.items.emplace_back();
      list.items.back().kind = plan::ArgumentKind::integer;
      list.items.back().integer = number;
    }
  };
  fill(arguments[0], value.sizes);
  fill(arguments[1], value.strides);
  arguments[2].kind = plan::ArgumentKind::dtype;
  arguments[2].integer = plan::torchScalarType(value.dtype);
  return one(*empty_strided_, arguments);
}

void AtenArguments::build(const plan::AtenCallT& call, const Binding& binding) {
  built_ = true;
  arguments_.clear();
  tensors_.clear();
  for (const auto& argument : call.args)
    arguments_.push_back(convert(*argument, binding));
  for (size_t i = 0; i < call.args.size(); ++i)
    collect(*call.args[i], arguments_[i]);
}

AtenArgument AtenArguments::convert(const plan::ArgumentT& argument, const Binding& binding) const {
  AtenArgument out;
  out.kind = argument.kind;
  out.integer = argument.kind == plan::ArgumentKind::integer ? binding.exprs[argument.value] : argument.integer;
  out.real = argument.real;
  if (argument.kind == plan::ArgumentKind::formula) {  // for ATen a number as any
    out.kind = plan::ArgumentKind::real;
    out.real = std::bit_cast<double>(binding.exprs[argument.value]);
  }
  out.text = argument.text;
  if (argument.kind == plan::ArgumentKind::tensor) {
    const BoundValue& value = binding.values[argument.value];
    out.tensor.dtype = value.dtype;
    out.tensor.sizes = value.sizes;
    out.tensor.strides = value.strides;
  }
  for (const auto& item : argument.items)
    out.items.push_back(convert(*item, binding));
  return out;
}

void AtenArguments::collect(const plan::ArgumentT& from, AtenArgument& to) {
  if (from.kind == plan::ArgumentKind::tensor)
    tensors_.emplace_back(&to, from.value);
  for (size_t i = 0; i < from.items.size(); ++i)
    collect(*from.items[i], to.items[i]);
}

}  // namespace executor
}  // namespace zefuse
