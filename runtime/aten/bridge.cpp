// libzefuse_aten.so's one export.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "common/base/status.h"
#include "runtime/aten/arguments.h"
#include "runtime/aten/results.h"
#include "runtime/executor/aten_bridge.h"

namespace zefuse::aten {

namespace {

std::string fullName(const std::string& op, const std::string& overload) {
  return overload.empty() ? op : op + "." + overload;
}

class Op final : public AtenOp {
public:
  Op(std::string name, const c10::OperatorHandle& handle)
      : name_(std::move(name)), handle_(handle), schema_(handle.schema()) {
    for (const c10::Argument& argument : schema_.arguments())
      targets_.push_back(Target::of(argument));
    built_in_ = schema_.operator_name().getNamespace() == "aten";
  }

  Result<std::vector<AtenResult>> call(std::span<const AtenArgument> arguments) const override {
    try {
      return callOrThrow(arguments);
    } catch (const BadArgument& error) {
      return Status(Code::invalid_argument, name_ + ": " + error.what());
    } catch (const c10::IndexError& error) {
      return Status(Code::index_error, message(error));
    } catch (const c10::LinAlgError& error) {
      return Status(Code::linear_algebra, message(error));
    } catch (const c10::OutOfMemoryError& error) {
      return Status(Code::out_of_memory, message(error));
    } catch (const c10::NotImplementedError& error) {
      return Status(Code::unsupported, message(error));
    } catch (const c10::Error& error) {
      return Status(Code::invalid_argument, message(error));
    } catch (const std::bad_alloc&) {
      return Status(Code::out_of_memory, name_ + ": out of memory");
    } catch (const std::exception& error) {  // a Python exception is one of these
      return Status(Code::invalid_argument, name_ + ": " + error.what());
    } catch (...) {
      return Status(Code::internal, name_ + ": threw something that is no std::exception");
    }
  }

private:
  std::string message(const c10::Error& error) const { return name_ + ": " + error.what_without_backtrace(); }

  Result<std::vector<AtenResult>> callOrThrow(std::span<const AtenArgument> arguments) const {
    // Below autograd: AOTAutograd has made the backward graph already. Without autocast: its casts
    // are in the graph.
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::autocast_dispatch_keyset);
    at::NoGradGuard no_grad;

    std::optional<c10::OperatorHandle> found;
    if (!built_in_) {
      found = c10::Dispatcher::singleton().findSchema(schema_.operator_name());
      if (!found || !(found->schema() == schema_))
        return Status(Code::not_found, name_ + ": its torch.library registration is gone or has changed since the "
                                               "graph was compiled; keep the Library object alive");
    }
    const c10::OperatorHandle& handle = found ? *found : handle_;
    const auto& parameters = schema_.arguments();
    if (arguments.size() > parameters.size())
      throw BadArgument("the plan has " + std::to_string(arguments.size()) + " arguments, the schema " +
                        std::to_string(parameters.size()));
    BorrowedStorages borrowed;
    std::vector<c10::IValue> stack;
    stack.reserve(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i >= arguments.size()) {
        if (!parameters[i].default_value())
          throw BadArgument("argument '" + parameters[i].name() + "' is missing");
        stack.push_back(*parameters[i].default_value());
        continue;
      }
      try {
        stack.push_back(convert(targets_[i], arguments[i], borrowed));
      } catch (const BadArgument& error) {
        throw BadArgument("argument '" + parameters[i].name() + "' " + error.what());
      }
    }
    handle.callBoxed(stack);
    auto converted = results(stack, borrowed);
    if (!converted.ok())
      return Status(converted.status().code(), name_ + ": " + converted.status().message());
    return converted;
  }

  std::string name_;
  // Python can unregister operators that are not torch's own, and handle_ then dangles: for those
  // it is never used.
  c10::OperatorHandle handle_;
  c10::FunctionSchema schema_;
  std::vector<Target> targets_;
  bool built_in_;
};

class Bridge final : public AtenBridge {
public:
  Result<std::unique_ptr<AtenOp>> resolve(const std::string& op, const std::string& overload) override {
    std::string name = fullName(op, overload);
    try {
      auto handle = c10::Dispatcher::singleton().findSchema({op, overload});
      if (!handle)
        return Status(Code::not_found, name + ": torch has no such operator" + overloadsOf(op) +
                                           "; import the library that registers it first");
      const c10::FunctionSchema& schema = handle->schema();
      for (const c10::Argument& argument : schema.arguments())
        if (argument.alias_info() && argument.alias_info()->isWrite())
          return Status(Code::unsupported, name + ": writes to its argument '" + argument.name() +
                                               "'; plans hold functional operators only");
      return std::unique_ptr<AtenOp>(std::make_unique<Op>(name, *handle));
    } catch (const std::exception& error) {
      return Status(Code::internal, name + ": " + error.what());
    }
  }

  void release(void* owner) override { delete static_cast<at::Tensor*>(owner); }

private:
  static std::string overloadsOf(const std::string& op) {
    std::string list;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
      if (name.name == op)
        list += (list.empty() ? " (overloads of " + op + ": " : ", ") +
                (name.overload_name.empty() ? std::string("default") : name.overload_name);
    return list.empty() ? list : list + ")";
  }
};

}  // namespace

}  // namespace zefuse::aten

extern "C" __attribute__((visibility("default"))) zefuse::AtenBridge* zefuse_aten_bridge() {
  static auto* bridge = new zefuse::aten::Bridge;  // outlives static destruction of whoever holds results
  return bridge;
}
