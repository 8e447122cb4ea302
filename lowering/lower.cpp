#include "lowering/lower.h"
#include "lowering/integer_conversions.h"

#include "lowering/dot_products.h"
#include "lowering/half_conversions.h"
#include "lowering/passes.h"
#include "lowering/rounded_math.h"
#include "lowering/schedule/products/products.h"
#include "lowering/schedule/schedule.h"
#include "lowering/spirv/emit.h"
#include "lowering/spirv/emitter_client.h"
#include "lowering/spirv/validate.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {

template <typename T> static std::string print(T& printable) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if constexpr (std::is_base_of_v<llvm::Module, T>)
    printable.print(stream, nullptr);
  else
    printable.print(stream);
  return text;
}

// Stage 3 to stage 4. Diagnostics are about `op`.
static FailureOr<LoweredKernel> emitKernel(Operation* op, ScheduledKernel scheduled, const TargetDescription& target,
                                           const StageDump& dump) {
  auto fail = [&](const Twine& reason) {
    op->emitError() << "kernel " << scheduled.launch.name << ": " << reason;
    return failure();
  };
  ModuleOp module = *scheduled.module;
  if (dump)
    dump("scheduled.mlir", print(module));
  if (failed(verify(module)))
    return fail("the schedule is invalid; this is a bug of the lowering");
  if (target.hasWorkGroups()) {
    approximateRoundedMath(module, target.native);
    saturateIntegersOfFloats(module);
  } else {
    defineIntegersOfFloats(module);
  }
  expandDotProducts(module, target.native);
  if (failed(expandHalfConversions(module, target.native)))
    return fail("half-sized types were left; this is a bug of the lowering");
  PassManager passes(module.getContext(), module->getName().getStringRef());
  passes.addPass(createConvertToLLVM({scheduled.index_bits}));
  passes.enableVerifier(false);  // translateToLLVM's result is verified
  if (failed(passes.run(module)))
    return fail("the scheduled function does not convert to the LLVM dialect");
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvm_module = translateToLLVM(module, context);
  if (!llvm_module)
    return fail("no LLVM IR");
  if (dump)
    dump("kernel.ll", print(*llvm_module));
  std::string error;
  FailureOr<std::vector<uint32_t>> words = emitSpirv(*llvm_module, error);
  if (failed(words))
    return fail(error);
  if (dump)
    dump("kernel.spvasm", disassemble(*words));
  if (auto invalid = whyInvalid(*words))
    return fail("spirv-val rejects the module: " + *invalid);
  if (std::string missing = whyNotOn(target, *words); !missing.empty())
    return fail(missing + "; this is a bug of the lowering");
  scheduled.launch.spirv = std::move(*words);
  return std::move(scheduled.launch);
}

std::optional<TargetDescription> targetNamed(Operation* op, StringRef name) {
  auto target = TargetDescription::named(name);
  if (!target)
    op->emitError() << "'" << name << "' is no target; `zefuse targets` lists what there is";
  return target;
}

void prepareToLower() { startSpirvBackEnd(); }

FailureOr<LoweredKernel> lowerKernel(KernelOp kernel, const TargetDescription& target, const StageDump& dump,
                                     const Tuning& tuning) {
  FailureOr<ScheduledKernel> scheduled = scheduleKernel(kernel, target, tuning);
  if (failed(scheduled))
    return failure();
  return emitKernel(kernel, std::move(*scheduled), target, dump);
}

FailureOr<LoweredKernel> lowerAttentionGradient(Operation* op, const AttentionGradientCall& call,
                                                const TargetDescription& target, const StageDump& dump) {
  FailureOr<ScheduledKernel> scheduled = scheduleAttentionGradient(op, call, target);
  if (failed(scheduled))
    return failure();
  return emitKernel(op, std::move(*scheduled), target, dump);
}

FailureOr<LoweredKernel>
lowerWithoutSpills(const TargetDescription& target, const SpillCheck& spills,
                   llvm::function_ref<FailureOr<LoweredKernel>(const TargetDescription&)> lower) {
  constexpr int most = 3, halvings = 4;  // kernels that are tried; the last halving leaves the smallest tiles there are
  TargetDescription fitting = target;
  std::vector<std::pair<std::vector<Choices>, int64_t>> given_up;
  int64_t still = 0;
  FailureOr<LoweredKernel> lowered = lower(fitting);
  for (int tries = 1; succeeded(lowered); ++tries) {
    std::optional<int64_t> spilled = spills ? spills(lowered->spirv) : std::nullopt;
    if (!spilled || *spilled == 0)
      break;
    FailureOr<LoweredKernel> smaller = failure();
    for (int halving = 0; halving < halvings && tries < most; ++halving) {
      fitting.accumulator_bytes /= 2;
      fitting.engine_accumulator_bytes /= 2;
      smaller = lower(fitting);
      if (failed(smaller) || smaller->spirv != lowered->spirv)
        break;
      smaller = failure();  // the tiles were small already
    }
    if (failed(smaller)) {
      still = *spilled;
      break;
    }
    given_up.emplace_back(std::move(lowered->schedule.parts), *spilled);
    lowered = std::move(smaller);
  }
  if (succeeded(lowered)) {
    lowered->schedule.given_up = std::move(given_up);
    lowered->schedule.spilled = still;
    lowered->schedule.spilled_on = target.name;
  }
  return lowered;
}

FailureOr<LoweredKernel> lowerAttentionGradient(AttentionGradientOp op, ArrayRef<AffineMap> layouts,
                                                const TargetDescription& target, const StageDump& dump) {
  AttentionGradientCall call;
  call.of_keys = op.getOfKeys();
  call.all = op.getNumResults() == 3;
  call.q = op.getQuery().getType();
  call.k = op.getKey().getType();
  call.v = op.getValue().getType();
  call.grad = op.getGradient().getType();
  call.log_sums = op.getLogSums().getType();
  call.delta = op.getDelta().getType();
  if (op.getMask())
    call.mask = op.getMask().getType();
  for (Type type : op.getResultTypes())
    call.results.push_back(cast<RankedTensorType>(type));
  call.layouts.assign(layouts.begin(), layouts.end());
  call.scale = op.getScale()->convertToFloat();
  call.causal = op.getCausal();
  return lowerAttentionGradient(op.getOperation(), call, target, dump);
}

}  // namespace zefuse
