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

// The kernel's graph symbols in use, ascending.
SmallVector<unsigned> symbolsOf(KernelOp kernel) {
  llvm::SmallBitVector used;
  auto note = [&](AffineMap map) {
    for (AffineExpr result : map.getResults())
      result.walk([&](AffineExpr part) {
        if (auto symbol = dyn_cast<AffineSymbolExpr>(part)) {
          if (symbol.getPosition() >= used.size())
            used.resize(symbol.getPosition() + 1);
          used.set(symbol.getPosition());
        }
      });
  };
  auto noteType = [&](Type type) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      if (auto map = dyn_cast_or_null<AffineMapAttr>(tensor.getEncoding()))
        note(map.getValue());
  };
  for (auto layout : kernel.getLayouts().getAsRange<AffineMapAttr>())
    note(layout.getValue());
  for (BlockArgument argument : kernel.getBody().getArguments())
    noteType(argument.getType());
  kernel.getBody().walk([&](Operation* op) {
    for (Type type : op->getResultTypes())
      noteType(type);
    for (NamedAttribute attribute : op->getAttrs())
      if (auto map = dyn_cast<AffineMapAttr>(attribute.getValue()))
        note(map.getValue());
  });
  return llvm::to_vector(used.set_bits());
}

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

// Equal checks under one number.
void numberChecks(KernelOp kernel, LoweredKernel& launch, Evaluator::Arguments& arguments) {
  kernel.getBody().walk([&](CheckedIndexOp op) {
    auto same = llvm::find_if(launch.checks, [&](const KernelCheck& check) {
      return check.error == op.getError() && check.message == op.getMessage();
    });
    arguments.checks[op] = same - launch.checks.begin();
    if (same == launch.checks.end())
      launch.checks.push_back({op.getError().str(), op.getMessage().str()});
  });
}

}  // namespace

FailureOr<ScheduledKernel> scheduleKernel(KernelOp kernel, const TargetDescription& given, const Tuning& tuning) {
  MLIRContext* context = kernel.getContext();
  Decisions decisions(tuning);
  TargetDescription target = given;
  context->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                       vector::VectorDialect>();
  auto refuse = [&](Operation* op, const Twine& reason) {
    InFlightDiagnostic diagnostic = kernel.emitError() << "kernel " << kernel.getName() << ": " << reason;
    if (op && op != kernel)
      diagnostic.attachNote(op->getLoc()) << "at " << op->getName();
    return failure();
  };
  for (Operation& op : kernel.getBody().front())
    if (auto illegal = findIllegal(&op))
      return refuse(illegal->op, illegal->reason);

  Block& body = kernel.getBody().front();
  if (!target.native.f64)
    if (Operation* op = firstOfType(body, [](Type type) { return type.isF64(); }))
      return refuse(op, "computes in f64, and " + target.name + " has no double precision");
  auto layouts = layoutsOf(kernel);
  unsigned inputs = body.getNumArguments(), results = body.getTerminator()->getNumOperands();
  Batch batch;
  batch.sets = kernel.getBatch();
  batch.inputs_of_body.assign(body.getArguments().begin(), body.getArguments().end());
  if (layouts.size() != size_t(inputs + results) * batch.sets)
    return refuse(kernel, "has " + Twine(layouts.size()) + " layouts for " + Twine((inputs + results) * batch.sets) +
                              " values");
  if (!target.hasWorkGroups()) {  // of a group's work-items the vectors are accesses', not the target's
    const int64_t all = target.vector_width, lanes = modelledLanes(kernel, layouts, target);
    target.vector_width = int(decisions.take("lanes of a vector", lanes, {lanes == all ? all / 2 : all}));
  }
  if (kernel.getBatchSizes())
    batch.sizes = *kernel.getBatchSizes();
  Parts parts;
  if (auto refused = analyseParts(kernel, layouts, batch, target, decisions, parts))
    return refuse(refused->op, refused->reason);

  ScheduledKernel result;
  LoweredKernel& launch = result.launch;
  launch.name = kernel.getName().str();
  SmallVector<unsigned> symbols = symbolsOf(kernel);
  launch.symbols.assign(symbols.begin(), symbols.end());

  Evaluator::Arguments arguments;
  numberChecks(kernel, launch, arguments);

  // The function: pointers, status, scratch, symbols (plan.fbs, Launch).
  OpBuilder builder(context);
  Location loc = kernel.getLoc();
  result.module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(result.module->getBody());
  Type pointer = LLVM::LLVMPointerType::get(context, 1);
  bool scratch = bool(parts.scratch_bytes);
  SmallVector<Type> types(layouts.size() + (launch.checks.empty() ? 0 : 1) + (scratch ? 1 : 0), pointer);
  types.append(launch.symbols.size(), builder.getI64Type());
  auto function = func::FuncOp::create(builder, loc, launch.name, builder.getFunctionType(types, {}));
  Block* entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);

  unsigned next = 0;
  llvm::SmallBitVector shared(inputs + results);  // the body's inputs and results in whose memory there are both
  if (auto pairs = kernel.getInPlace())
    for (unsigned i = 0; i + 1 < pairs->size(); i += 2)
      shared.set((*pairs)[i]).set(inputs + (*pairs)[i + 1]);
  for (unsigned all_inputs = inputs * batch.sets; next < layouts.size(); ++next) {
    Value argument = entry->getArgument(next);
    bool input = next < all_inputs;
    Type tensor = input ? body.getArgument(next % inputs).getType()
                        : body.getTerminator()->getOperand((next - all_inputs) % results).getType();
    int64_t align =
        std::max<int64_t>(target.buffer_alignment, bytesInMemory(cast<RankedTensorType>(tensor).getElementType()));
    bool alone = !shared.test(input ? next % inputs : inputs + (next - all_inputs) % results);
    if (alone)
      function.setArgAttr(next, LLVM::LLVMDialect::getNoAliasAttrName(), builder.getUnitAttr());
    function.setArgAttr(next, LLVM::LLVMDialect::getAlignAttrName(), builder.getI64IntegerAttr(align));
    if (input && alone)
      function.setArgAttr(next, LLVM::LLVMDialect::getReadonlyAttrName(), builder.getUnitAttr());
    (input ? batch.inputs : batch.outputs).push_back(argument);
  }
  for (auto [argument, tensor] : llvm::zip(batch.inputs, body.getArguments()))
    arguments.inputs[tensor] = argument;
  if (!launch.checks.empty())
    arguments.status = entry->getArgument(next++);
  Value scratch_pointer;
  if (scratch) {
    function.setArgAttr(next, LLVM::LLVMDialect::getNoAliasAttrName(), builder.getUnitAttr());
    scratch_pointer = entry->getArgument(next++);
    launch.scratch_bytes = parts.scratch_bytes;
  }
  arguments.alignment = target.buffer_alignment;
  arguments.symbols.assign(parts.graph_symbols, Value());
  for (unsigned symbol : launch.symbols)
    arguments.symbols[symbol] =
        arith::IndexCastOp::create(builder, loc, builder.getIndexType(), entry->getArgument(next++));

  SmallVector<Value> all_outputs = batch.outputs;
  if (batch.sets > 1 && target.hasWorkGroups())
    all_outputs = takeOwnSet(builder, *result.module, batch, arguments);

  AffineExpr extent = getAffineConstantExpr(0, context);
  for (auto [number, part] : llvm::enumerate(parts.all)) {
    decisions.beginPart(unsigned(number));
    LoweredKernel share;
    share.schedule.parts = {part.strategy.choices};
    share.schedule.batch = batch.sets;
    SmallVector<Value> outputs(ArrayRef(all_outputs).slice(part.part.first, part.part.count));
    Evaluator evaluator(builder, *part.domain, part.graph, arguments);
    evaluator.keep(&part.strategy.kept);
    ScheduleContext schedule{part.graph,     *part.domain, part.strategy, target,  evaluator,
                             *result.module, function,     batch,         outputs, scratch_pointer,
                             shared.any(),   share,        decisions};
    evaluator.enter(entry);
    if (part.domain->scatter)
      scheduleScatter(schedule);
    else if (part.domain->product)
      scheduleProduct(schedule);
    else if (part.domain->sort)
      target.hasWorkGroups() ? scheduleGpuSort(schedule) : scheduleSort(schedule);
    else
      target.hasWorkGroups() ? scheduleGpu(schedule) : scheduleCpu(schedule);
    if (evaluator.failed())
      return refuse(evaluator.failure().op, evaluator.failure().reason);
    evaluator.leave();
    if (batch.sets > 1 && target.hasWorkGroups()) {  // whole groups for each set, as many as the largest has
      if (!batch.sizes.empty())
        share.extent = simplifyAffine(
            share.extent.replace(batch.size, getAffineConstantExpr(*llvm::max_element(batch.sizes), context)), 0,
            parts.graph_symbols);
      share.extent = share.extent.ceilDiv(share.grain) * share.grain * batch.sets;
    }
    if (parts.all.size() == 1) {
      launch.extent = share.extent;
      launch.grain = share.grain;
      launch.chunked = share.chunked;
      launch.group_size = share.group_size;
      launch.schedule = std::move(share.schedule);
      break;
    }
    // The launch's units are those of all parts, each worth what a group should have of it.
    int64_t worth = std::max<int64_t>(1, unit_worth / share.grain);
    extent = extent + share.extent * worth;
    launch.extent = extent;
    launch.grain = unit_worth;
    launch.schedule.parts.push_back(std::move(share.schedule.parts.front()));
  }
  launch.schedule.in_place = kernel.getInPlace().has_value();
  launch.schedule.batch = batch.sets;
  if (target.hasWorkGroups() && indexBits(kernel, layouts) == 32) {
    // A product's addresses are constants apart, which a conversion of each sum hides from the device's compiler: on an
    // H100 4096 cubed in f32 took 141 registers instead of 121, and 3.59 ms instead of 2.81. Convolutions, which are as
    // near to spilling, did spill.
    const bool wide = llvm::any_of(parts.all, [](const ScheduledPart& part) {
      return part.domain->product && isa<MatmulOp, ConvolutionOp>(part.domain->product->op);
    });
    result.index_bits = unsigned(decisions.take("bits of an index", wide ? 64 : 32, {32, 64}));
  }
  launch.decisions = decisions.made();
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder, loc);
  return result;
}

}  // namespace zefuse
