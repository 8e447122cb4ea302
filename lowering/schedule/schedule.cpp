#include "lowering/schedule/schedule.h"

#include "lowering/analysis/kernel_graph.h"
#include "lowering/analysis/legality.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "lowering/schedule/core/builtin_call.h"
#include "lowering/schedule/core/index_width.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/cpu/cpu.h"
#include "lowering/schedule/gpu/gpu.h"
#include "lowering/schedule/launch_function.h"
#include "lowering/schedule/ordered/ordered.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t unit_worth = 1 << 20;  // of a launch of several parts: what a group's share of one part counts

// An operation that makes or takes elements of such a type; null: none does.
Operation* firstOfType(Block& body, llvm::function_ref<bool(Type)> wanted) {
  Operation* found = nullptr;
  body.walk([&](Operation* op) {
    auto has = [&](Type type) { return wanted(getElementTypeOrSelf(type)); };
    if (!llvm::any_of(op->getOperandTypes(), has) && !llvm::any_of(op->getResultTypes(), has))
      return WalkResult::advance();
    found = op;
    return WalkResult::interrupt();
  });
  return found;
}

/// On a GPU a group works for one set, neighbouring groups for different ones: binds that set's inputs and returns its
/// outputs, and where sets differ in size, its own. WorkGroup::group() is then the number among the set's groups.
SmallVector<Value> takeOwnSet(OpBuilder& b, ModuleOp module, const Batch& batch, Evaluator::Arguments& arguments) {
  Location loc = b.getUnknownLoc();
  Value x = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
  Value group = callBuiltin(b, module, "_Z12get_group_idj", b.getI64Type(), x);
  Value set = arith::RemUIOp::create(b, loc, group, arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(batch.sets)));
  auto ofSet = [&](ArrayRef<Value> all, size_t of_one, size_t number) -> Value {
    Value chosen = all[number];
    for (int64_t other = 1; other < batch.sets; ++other) {
      Value is = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, set,
                                       arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(other)));
      chosen = arith::SelectOp::create(b, loc, is, all[other * of_one + number], chosen);
    }
    return chosen;
  };
  const size_t inputs = batch.inputs_of_body.size(), outputs = batch.outputs.size() / batch.sets;
  for (auto [number, tensor] : llvm::enumerate(batch.inputs_of_body))
    arguments.inputs[tensor] = ofSet(batch.inputs, inputs, number);
  SmallVector<Value> own;
  for (size_t number = 0; number < outputs; ++number)
    own.push_back(ofSet(batch.outputs, outputs, number));
  if (!batch.sizes.empty()) {
    auto sizes =
        llvm::map_to_vector(batch.sizes, [&](int64_t elements) -> Value { return constantIndex(b, loc, elements); });
    arguments.symbols[cast<AffineSymbolExpr>(batch.size).getPosition()] = ofSet(sizes, 1, 0);
  }
  return own;
}

// Lanes of a vector. Half of them where a tile's lines fall into one set of the first-level cache, which has 8 or 12
// ways: each line is accessed 16 times, and would be gone in between.
int64_t modelledLanes(KernelOp kernel, ArrayRef<AffineMap> layouts, const TargetDescription& target) {
  if (kernel.getBatch() != 1)
    return target.vector_width;
  for (Part part : partsOf(kernel)) {
    AffineExpr set_size;
    KernelGraph graph = graphOf(kernel, layouts, part, set_size);
    Refusal refusal;
    auto domain = analyseDomain(kernel.getContext(), graph, refusal);
    Decisions nobodys;
    if (domain && !domain->product && !domain->sort && !domain->scatter &&
        chooseStrategy(*domain, graph, target, nobodys).lanes_collide)
      return target.vector_width / 2;
  }
  return target.vector_width;
}

// Parts are scheduled one after the other, each as if it were alone: a group does its share of each.
struct ScheduledPart {
  Part part;
  KernelGraph graph;
  std::unique_ptr<Domain> domain;
  Strategy strategy;
};

struct Parts {
  std::vector<ScheduledPart> all;
  AffineExpr scratch_bytes;  // null: none
  unsigned graph_symbols = 0;
};

// Fills `parts`, and `batch.size` where sizes differ; or says why the kernel has no schedule.
std::optional<Refusal> analyseParts(KernelOp kernel, ArrayRef<AffineMap> layouts, Batch& batch,
                                    const TargetDescription& target, Decisions& decisions, Parts& parts) {
  auto refused = [](Operation* op, const Twine& reason) { return Refusal{op, reason.str()}; };
  AffineExpr scratch_bytes;
  parts.graph_symbols = graphSymbolsOf(kernel);
  for (Part part : partsOf(kernel)) {
    ScheduledPart& mine =
        parts.all.emplace_back(ScheduledPart{part, graphOf(kernel, layouts, part, batch.size), nullptr, {}});
    parts.graph_symbols = mine.graph.graph_symbols;
    Refusal refusal;
    mine.domain = analyseDomain(kernel.getContext(), mine.graph, refusal);
    if (!mine.domain)
      return refusal;
    if (mine.domain->product)
      if (std::string reason = whyNoProductKernel(mine.domain->product->op, target); !reason.empty())
        return refused(mine.domain->product->op, reason);
    if (batch.size)
      if (auto reason = useBatchSizes(*mine.domain, mine.graph, batch.size))
        return refused(kernel, *reason);
    if (mine.domain->scatter)
      mine.domain->scatter->in_place = kernel.getInPlace().has_value();
    decisions.beginPart(unsigned(parts.all.size() - 1));
    mine.strategy = chooseStrategy(*mine.domain, mine.graph, target, decisions);
    if (!mine.strategy.kept_static)
      scratch_bytes = scratch_bytes ? scratch_bytes + mine.strategy.kept_bytes : mine.strategy.kept_bytes;
    if (batch.sets > 1 &&
        (mine.domain->scatter || mine.domain->sort || mine.domain->product || !target.supports.batches))
      return refused(kernel, "a batch of these kernels has no schedule for " + target.name);
  }
  if (batch.sets > 1 && target.hasWorkGroups() && scratch_bytes)
    return refused(kernel, "a batch of tensors of unknown sizes has no schedule for " + target.name);
  if (parts.all.size() > 1 && !target.supports.parts)
    return refused(kernel, "kernels side by side have no schedule for " + target.name);
  if (scratch_bytes)
    for (ScheduledPart& part : parts.all)  // of one group: its parts use the same memory, one after the other
      part.strategy.kept_bytes = scratch_bytes;
  parts.scratch_bytes = scratch_bytes;
  return std::nullopt;
}

// Why the kernel is none that any schedule takes.
std::optional<Refusal> whyRefused(KernelOp kernel, const TargetDescription& target, size_t layouts) {
  Block& body = kernel.getBody().front();
  for (Operation& op : body)
    if (auto illegal = findIllegal(&op))
      return Refusal{illegal->op, illegal->reason};
  if (!target.native.f64)
    if (Operation* op = firstOfType(body, [](Type type) { return type.isF64(); }))
      return Refusal{op, "computes in f64, and " + target.name + " has no double precision"};
  const size_t values = (body.getNumArguments() + body.getTerminator()->getNumOperands()) * kernel.getBatch();
  if (layouts != values)
    return Refusal{kernel, ("has " + Twine(layouts) + " layouts for " + Twine(values) + " values").str()};
  return std::nullopt;
}

// The function's body for one part, by what it computes.
void scheduleDomain(const ScheduleContext& schedule) {
  const bool groups = schedule.target.hasWorkGroups();
  if (schedule.domain.scatter)
    scheduleScatter(schedule);
  else if (schedule.domain.product)
    scheduleProduct(schedule);
  else if (schedule.domain.sort)
    groups ? scheduleGpuSort(schedule) : scheduleSort(schedule);
  else
    groups ? scheduleGpu(schedule) : scheduleCpu(schedule);
}

// A part's extent where neighbouring groups work for different sets: whole groups for each, as many as the largest has.
AffineExpr extentOfAllSets(const LoweredKernel& share, const Batch& batch, unsigned graph_symbols) {
  AffineExpr extent = share.extent;
  if (!batch.sizes.empty())
    extent = simplifyAffine(
        extent.replace(batch.size, getAffineConstantExpr(*llvm::max_element(batch.sizes), extent.getContext())), 0,
        graph_symbols);
  return extent.ceilDiv(share.grain) * share.grain * batch.sets;
}

// Adds a part's share to a launch of several: the launch's units are those of all parts, each worth what a group should
// have of it.
void addShare(LoweredKernel& launch, LoweredKernel& share) {
  const AffineExpr units = share.extent * std::max<int64_t>(1, unit_worth / share.grain);
  launch.extent = launch.extent ? launch.extent + units : units;
  launch.grain = unit_worth;
  launch.schedule.parts.push_back(std::move(share.schedule.parts.front()));
}

// The function's body and the launch's units; or what could not be emitted.
std::optional<Refusal> scheduleParts(OpBuilder& builder, Parts& parts, const Batch& batch,
                                     const TargetDescription& target, Decisions& decisions, LaunchFunction& function,
                                     ScheduledKernel& result) {
  const bool by_group = batch.sets > 1 && target.hasWorkGroups();  // a group works for one set
  SmallVector<Value> all_outputs = batch.outputs;
  if (by_group)
    all_outputs = takeOwnSet(builder, *result.module, batch, function.arguments);
  for (auto [number, part] : llvm::enumerate(parts.all)) {
    decisions.beginPart(unsigned(number));
    LoweredKernel share;
    share.schedule.parts = {part.strategy.choices};
    share.schedule.batch = batch.sets;
    SmallVector<Value> outputs(ArrayRef(all_outputs).slice(part.part.first, part.part.count));
    Evaluator evaluator(builder, *part.domain, part.graph, function.arguments);
    evaluator.keep(&part.strategy.kept);
    ScheduleContext schedule{part.graph,        *part.domain, part.strategy, target,  evaluator,
                             *result.module,    function.op,  batch,         outputs, function.scratch,
                             function.in_place, share,        decisions};
    evaluator.enter(&function.op.getBody().front());
    scheduleDomain(schedule);
    if (evaluator.failed())
      return evaluator.failure();
    evaluator.leave();
    if (by_group)
      share.extent = extentOfAllSets(share, batch, parts.graph_symbols);
    LoweredKernel& launch = result.launch;
    if (parts.all.size() > 1) {
      addShare(launch, share);
      continue;
    }
    launch.extent = share.extent;
    launch.grain = share.grain;
    launch.chunked = share.chunked;
    launch.group_size = share.group_size;
    launch.schedule = std::move(share.schedule);
  }
  return std::nullopt;
}

// A product's addresses are constants apart, which a conversion of each sum hides from the device's compiler: on an
// H100 4096 cubed in f32 took 141 registers instead of 121, and 3.59 ms instead of 2.81. Convolutions, which are as
// near to spilling, did spill.
bool wantsWideIndices(const Parts& parts) {
  return llvm::any_of(parts.all, [](const ScheduledPart& part) {
    return part.domain->product && isa<MatmulOp, ConvolutionOp>(part.domain->product->op);
  });
}

}  // namespace

FailureOr<ScheduledKernel> scheduleKernel(KernelOp kernel, const TargetDescription& given, const Tuning& tuning) {
  MLIRContext* context = kernel.getContext();
  context->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                       vector::VectorDialect>();
  auto refuse = [&](const Refusal& refused) {
    InFlightDiagnostic diagnostic = kernel.emitError() << "kernel " << kernel.getName() << ": " << refused.reason;
    if (refused.op && refused.op != kernel)
      diagnostic.attachNote(refused.op->getLoc()) << "at " << refused.op->getName();
    return failure();
  };
  Decisions decisions(tuning);
  TargetDescription target = given;
  auto layouts = layoutsOf(kernel);
  if (auto refused = whyRefused(kernel, target, layouts.size()))
    return refuse(*refused);
  if (!target.hasWorkGroups()) {  // of a group's work-items the vectors are accesses', not the target's
    const int64_t all = target.vector_width, lanes = modelledLanes(kernel, layouts, target);
    target.vector_width = int(decisions.take("lanes of a vector", lanes, {lanes == all ? all / 2 : all}));
  }
  Batch batch;
  batch.sets = kernel.getBatch();
  auto tensors = kernel.getBody().getArguments();
  batch.inputs_of_body.assign(tensors.begin(), tensors.end());
  if (kernel.getBatchSizes())
    batch.sizes = *kernel.getBatchSizes();
  Parts parts;
  if (auto refused = analyseParts(kernel, layouts, batch, target, decisions, parts))
    return refuse(*refused);

  ScheduledKernel result;
  LoweredKernel& launch = result.launch;
  OpBuilder builder(context);
  result.module = ModuleOp::create(kernel.getLoc());
  builder.setInsertionPointToEnd(result.module->getBody());
  launch.scratch_bytes = parts.scratch_bytes;
  LaunchFunction function = beginFunction(builder, kernel, target.buffer_alignment, parts.graph_symbols, batch, launch);
  if (auto refused = scheduleParts(builder, parts, batch, target, decisions, function, result))
    return refuse(*refused);
  builder.setInsertionPointToEnd(&function.op.getBody().front());
  func::ReturnOp::create(builder, kernel.getLoc());

  launch.schedule.in_place = kernel.getInPlace().has_value();
  launch.schedule.batch = batch.sets;
  if (target.hasWorkGroups() && indexBits(kernel, layouts) == 32)
    result.index_bits = unsigned(decisions.take("bits of an index", wantsWideIndices(parts) ? 64 : 32, {32, 64}));
  launch.decisions = decisions.made();
  return result;
}

}  // namespace zefuse
