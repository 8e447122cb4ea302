#include "lowering/schedule/schedule.h"

#include "compiler/dialect/shape.h"
#include "lowering/schedule/scalar_ops.h"
#include "lowering/spirv/legality.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

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

unsigned graphSymbolsOf(KernelOp kernel) {
  unsigned count = 0;
  auto type = [&](Type type) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      count = std::max(count, numSymbols(tensor));
  };
  for (auto layout : kernel.getLayouts().getAsRange<AffineMapAttr>())
    count = std::max(count, layout.getValue().getNumSymbols());
  for (BlockArgument argument : kernel.getBody().getArguments())
    type(argument.getType());
  kernel.getBody().walk([&](Operation* op) {
    llvm::for_each(op->getResultTypes(), type);
    if (auto view = dyn_cast<ViewOp>(op))
      count = std::max(count, view.getMap().getNumSymbols());
    if (auto size = dyn_cast<SizeOp>(op))
      count = std::max(count, size.getMap().getNumSymbols());
  });
  return count;
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

}  // namespace

Value ScheduleContext::workItem(StringRef name, unsigned dimension) const {
  OpBuilder& b = builder();
  Location loc = b.getUnknownLoc();
  ModuleOp symbols = module;
  if (!symbols.lookupSymbol<func::FuncOp>(name)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(symbols.getBody());
    auto type = b.getFunctionType({b.getI32Type()}, {b.getI64Type()});
    func::FuncOp::create(b, loc, name, type).setPrivate();
  }
  Value which = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(dimension));
  auto call = func::CallOp::create(b, loc, name, TypeRange{b.getI64Type()}, ValueRange{which});
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), call.getResult(0));
}

void ScheduleContext::storeOutput(const DomainOutput& output) const {
  // Nothing to store; and its layout, with strides of 0, would not tell its elements apart.
  auto type = cast<RankedTensorType>(output.node.value.getType());
  if (llvm::is_contained(type.getShape(), 0))
    return;
  Value value = evaluator.evaluate(output.node);
  if (value)
    evaluator.store(outputs[output.number], graph.output_offset(domain.space, output), value,
                    cast<RankedTensorType>(output.node.value.getType()).getElementType());
}

SmallVector<const DomainOutput*> ScheduleContext::columnOutputs(unsigned level) const {
  SmallVector<const DomainOutput*> found;
  for (auto [number, output] : llvm::enumerate(domain.outputs))
    if (!output.per_row && strategy.output_levels[number] == level)
      found.push_back(&output);
  return found;
}

void ScheduleContext::bindPosition(ArrayRef<unsigned> dims, Value position) const {
  OpBuilder& b = builder();
  Location loc = b.getUnknownLoc();
  Value rest = position;
  for (unsigned i = dims.size(); i-- > 0;) {
    if (i == 0) {
      evaluator.bind(dims[0], rest);
      return;
    }
    Value size = evaluator.index(domain.space.size(dims[i]));
    evaluator.toInnermost();
    Value coordinate = arith::RemUIOp::create(b, loc, rest, size);
    rest = arith::DivUIOp::create(b, loc, rest, size);
    evaluator.bind(dims[i], coordinate);
  }
}

std::pair<Value, Value> shareOfGroup(const ScheduleContext& context, Value group, AffineExpr units, double unit_cost) {
  constexpr double min_group_cost = 200 << 10;  // less work than this is not worth another thread's wake-up
  OpBuilder& b = context.builder();
  Location loc = b.getUnknownLoc();
  context.launch.extent = units;
  context.launch.grain = std::max<int64_t>(1, int64_t(min_group_cost / unit_cost));
  Value groups = context.workItem("_Z14get_num_groupsj"), extent = context.evaluator.index(units);
  context.evaluator.toInnermost();
  Value up = arith::AddIOp::create(b, loc, extent, arith::SubIOp::create(b, loc, groups, constantIndex(b, loc, 1)));
  Value chunk = arith::DivUIOp::create(b, loc, up, groups);
  auto limited = [&](Value value) -> Value { return arith::MinSIOp::create(b, loc, value, extent); };
  Value begin = limited(arith::MulIOp::create(b, loc, group, chunk));
  return {begin, limited(arith::AddIOp::create(b, loc, begin, chunk))};
}

Value ScheduleContext::combine(const Instance& instance, Value lhs, Value rhs) const {
  return emitScalarOp(builder(), combinerOf(instance.op).op, {lhs, rhs}, lanesOf(lhs));
}

Value ScheduleContext::combineLanes(const Instance& instance, Value vector) const {
  OpBuilder& b = builder();
  for (int64_t lanes = lanesOf(vector); lanes > 1; lanes /= 2) {
    Location at = vector.getLoc();
    if (lanes == 2) {
      Value low = vector::ExtractOp::create(b, at, vector, int64_t(0));
      return combine(instance, low, vector::ExtractOp::create(b, at, vector, int64_t(1)));
    }
    SmallVector<int64_t> low = llvm::to_vector(llvm::seq<int64_t>(0, lanes / 2));
    SmallVector<int64_t> high = llvm::to_vector(llvm::seq<int64_t>(lanes / 2, lanes));
    Value first = vector::ShuffleOp::create(b, at, vector, vector, low);
    Value second = vector::ShuffleOp::create(b, at, vector, vector, high);
    vector = combine(instance, first, second);
  }
  return vector;
}

Value ScheduleContext::finish(const Instance& instance, Value reduced) const {
  Value init = initOf(instance.op);
  TypedAttr constant;
  if (matchPattern(init, m_Constant(&constant)) && constant == neutralElement(combinerOf(instance.op).op))
    return reduced;
  Value start = evaluator.evaluate({init, domain.space.indices({})});
  if (!start)
    return reduced;
  evaluator.toInnermost();
  return combine(instance, splat(builder(), start, lanesOf(reduced)), reduced);
}

static SmallVector<AffineMap> layoutsOf(KernelOp kernel) {
  return llvm::map_to_vector(kernel.getLayouts().getAsRange<AffineMapAttr>(),
                             [](AffineMapAttr map) { return map.getValue(); });
}

// The results of a kernel's part: its number of the first, and how many.
struct Part {
  size_t first, count;
};

// A kernel without `zefuse.parts` is one part.
static SmallVector<Part> partsOf(KernelOp kernel) {
  auto counts = kernel->getAttrOfType<DenseI64ArrayAttr>("zefuse.parts");
  if (!counts)
    return {{0, kernel.getBody().front().getTerminator()->getNumOperands()}};
  SmallVector<Part> parts;
  size_t first = 0;
  for (int64_t count : counts.asArrayRef()) {
    parts.push_back({first, size_t(count)});
    first += count;
  }
  return parts;
}

// Fills `batch.size`. `layouts` outlive the result.
static KernelGraph graphOf(KernelOp kernel, ArrayRef<AffineMap> layouts, Batch& batch, Part part) {
  Block* body = &kernel.getBody().front();
  KernelGraph graph;
  graph.outputs = llvm::to_vector(body->getTerminator()->getOperands().slice(part.first, part.count));
  graph.graph_symbols = graphSymbolsOf(kernel);
  graph.is_input = [body](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == body;
  };
  if (kernel.getBatchSizes())
    batch.size = getAffineSymbolExpr(graph.graph_symbols++, kernel.getContext());
  // Tensors of a batch with sizes are one row of elements each, or one element.
  bool flat = bool(batch.size);
  graph.offset = [=](IndexSpace& space, Node node) {
    if (flat)
      return node.at.getNumResults() == 1 ? node.at.getResult(0) : space.constant(0);
    return space.apply(layouts[cast<BlockArgument>(node.value).getArgNumber()], node.at).getResult(0);
  };
  size_t first = size_t(body->getNumArguments()) * kernel.getBatch() + part.first;
  graph.output_offset = [=](IndexSpace& space, const DomainOutput& output) {
    if (flat)
      return output.node.at.getResult(0);
    return space.apply(layouts[first + output.number], output.node.at).getResult(0);
  };
  return graph;
}

std::optional<std::string> whyNotScheduled(KernelOp kernel) {
  auto layouts = layoutsOf(kernel);
  Batch batch;
  Refusal refusal;
  for (Part part : partsOf(kernel)) {
    KernelGraph graph = graphOf(kernel, layouts, batch, part);
    if (!analyseDomain(kernel.getContext(), graph, refusal))
      return refusal.reason;
  }
  return std::nullopt;
}

bool mayWriteInPlace(KernelOp kernel, unsigned input, unsigned result) {
  auto parts = partsOf(kernel);
  if (parts.size() > 1)  // another part may read what is overwritten
    return false;
  // What a branch evaluates is evaluated again outside of it, after a store.
  Block& body = kernel.getBody().front();
  if (body.walk([](Operation* op) {
            return isa<tensor::ConcatOp, PadOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
          })
          .wasInterrupted())
    return false;
  auto layouts = layoutsOf(kernel);
  Batch batch;
  if (kernel.getBatchSizes())
    batch.sizes = *kernel.getBatchSizes();
  KernelGraph graph = graphOf(kernel, layouts, batch, parts.front());
  Refusal refusal;
  auto domain = analyseDomain(kernel.getContext(), graph, refusal);
  if (!domain || domain->scatter || domain->sort || domain->scan_dim || !domain->instances.empty() ||
      (batch.size && useBatchSizes(*domain, graph, batch.size)))
    return false;
  IndexSpace& space = domain->space;
  auto output = llvm::find_if(domain->outputs, [&](const DomainOutput& output) { return output.number == result; });
  AffineExpr written = space.simplify(graph.output_offset(space, *output));
  Dims dims = space.dimsOf(space.indices({written}));
  for (unsigned dim : domain->rows)
    if (constantOf(space.size(dim)) != 1 && !dims.test(dim))
      return false;
  bool fine = true;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (const DomainOutput& root : domain->outputs)
    walkNodes(space, root.node, seen, graph, [&](Node node) {
      fine &= node.value != body.getArgument(input) || space.simplify(graph.offset(space, node)) == written;
      return fine;
    });
  return fine;
}

// Of a launch of several parts: what a group's share of one part alone counts.
static constexpr int64_t unit_worth = 1 << 20;

FailureOr<ScheduledKernel> scheduleKernel(KernelOp kernel, const TargetDescription& target) {
  MLIRContext* context = kernel.getContext();
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
  if (!target.f64)
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
  if (kernel.getBatchSizes())
    batch.sizes = *kernel.getBatchSizes();
  // Parts are scheduled one after the other, each as if it were alone: a group does its share of each.
  struct Scheduled {
    Part part;
    KernelGraph graph;
    std::unique_ptr<Domain> domain;
    Strategy strategy;
  };
  std::vector<Scheduled> parts;
  AffineExpr scratch_bytes;
  unsigned graph_symbols = graphSymbolsOf(kernel);
  for (Part part : partsOf(kernel)) {
    Scheduled& mine = parts.emplace_back(Scheduled{part, graphOf(kernel, layouts, batch, part), nullptr, {}});
    graph_symbols = mine.graph.graph_symbols;
    Refusal refusal;
    mine.domain = analyseDomain(context, mine.graph, refusal);
    if (!mine.domain)
      return refuse(refusal.op, refusal.reason);
    if (batch.size)
      if (auto reason = useBatchSizes(*mine.domain, mine.graph, batch.size))
        return refuse(kernel, *reason);
    mine.strategy = chooseStrategy(*mine.domain, mine.graph, target);
    if (!mine.strategy.kept_static)
      scratch_bytes = scratch_bytes ? scratch_bytes + mine.strategy.kept_bytes : mine.strategy.kept_bytes;
    if (batch.sets > 1 && (mine.domain->scatter || mine.domain->sort || target.kind != TargetDescription::Kind::cpu))
      return refuse(kernel, "a batch of these kernels has no schedule for " + target.name);
  }
  if (parts.size() > 1 && target.kind != TargetDescription::Kind::cpu)
    return refuse(kernel, "kernels side by side have no schedule for " + target.name);
  if (scratch_bytes)
    for (Scheduled& part : parts)  // of one group: its parts use the same memory, one after the other
      part.strategy.kept_bytes = scratch_bytes;

  ScheduledKernel result;
  LoweredKernel& launch = result.launch;
  launch.name = kernel.getName().str();
  SmallVector<unsigned> symbols = symbolsOf(kernel);
  launch.symbols.assign(symbols.begin(), symbols.end());

  // Checks, equal ones under one number.
  Evaluator::Arguments arguments;
  kernel.getBody().walk([&](CheckedIndexOp op) {
    auto same = llvm::find_if(launch.checks, [&](const KernelCheck& check) {
      return check.error == op.getError() && check.message == op.getMessage();
    });
    arguments.checks[op] = same - launch.checks.begin();
    if (same == launch.checks.end())
      launch.checks.push_back({op.getError().str(), op.getMessage().str()});
  });

  // The function: pointers, status, scratch, symbols (plan.fbs, Launch).
  OpBuilder builder(context);
  Location loc = kernel.getLoc();
  result.module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(result.module->getBody());
  Type pointer = LLVM::LLVMPointerType::get(context, 1);
  bool scratch = bool(scratch_bytes);
  SmallVector<Type> types(layouts.size() + (launch.checks.empty() ? 0 : 1) + (scratch ? 1 : 0), pointer);
  types.append(launch.symbols.size(), builder.getI64Type());
  auto function = func::FuncOp::create(builder, loc, launch.name, builder.getFunctionType(types, {}));
  Block* entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);

  unsigned next = 0;
  llvm::SmallBitVector shared(inputs + results);  // the body's inputs and results in whose memory there are both
  if (auto pairs = kernel->getAttrOfType<DenseI64ArrayAttr>("zefuse.in_place"))
    for (unsigned i = 0; i + 1 < pairs.size(); i += 2)
      shared.set(pairs[i]).set(inputs + pairs[i + 1]);
  for (unsigned all_inputs = inputs * batch.sets; next < layouts.size(); ++next) {
    Value argument = entry->getArgument(next);
    bool input = next < all_inputs;
    Type tensor = input ? body.getArgument(next % inputs).getType()
                        : body.getTerminator()->getOperand((next - all_inputs) % results).getType();
    int64_t align = bytesInMemory(cast<RankedTensorType>(tensor).getElementType());
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
    launch.scratch_bytes = scratch_bytes;
  }
  arguments.symbols.assign(graph_symbols, Value());
  for (unsigned symbol : launch.symbols)
    arguments.symbols[symbol] =
        arith::IndexCastOp::create(builder, loc, builder.getIndexType(), entry->getArgument(next++));

  AffineExpr extent = getAffineConstantExpr(0, context);
  for (Scheduled& part : parts) {
    LoweredKernel share;
    share.schedule = part.strategy.reason;
    SmallVector<Value> outputs(ArrayRef(batch.outputs).slice(part.part.first, part.part.count));
    Evaluator evaluator(builder, *part.domain, part.graph, arguments);
    evaluator.keep(&part.strategy.kept);
    ScheduleContext schedule{part.graph, *part.domain, part.strategy, target,          evaluator,    *result.module,
                             function,   batch,        outputs,       scratch_pointer, shared.any(), share};
    evaluator.enter(entry);
    if (part.domain->scatter)
      scheduleScatter(schedule);
    else if (part.domain->sort)
      target.kind == TargetDescription::Kind::cpu ? scheduleSort(schedule) : scheduleGpuSort(schedule);
    else
      target.kind == TargetDescription::Kind::cpu ? scheduleCpu(schedule) : scheduleGpu(schedule);
    if (evaluator.failed())
      return refuse(evaluator.failure().op, evaluator.failure().reason);
    evaluator.leave();
    if (parts.size() == 1) {
      launch.extent = share.extent;
      launch.grain = share.grain;
      launch.chunked = share.chunked;
      launch.group_size = share.group_size;
      launch.schedule = share.schedule;
      break;
    }
    // The launch's units are those of all parts, each worth what a group should have of it.
    int64_t worth = std::max<int64_t>(1, unit_worth / share.grain);
    extent = extent + share.extent * worth;
    launch.extent = extent;
    launch.grain = unit_worth;
    launch.schedule += (launch.schedule.empty() ? "side by side: " : "; ") + share.schedule;
  }
  if (kernel->hasAttr("zefuse.in_place"))
    launch.schedule += ", in place";
  if (batch.sets > 1)
    launch.schedule += ", batch of " + std::to_string(batch.sets);
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder, loc);
  return result;
}

}  // namespace zefuse
