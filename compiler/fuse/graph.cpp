#include "compiler/fuse/graph.h"

#include <cctype>

#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

bool isCompute(Operation* op) {
  return isa_and_nonnull<linalg::GenericOp, tensor::ConcatOp, PadOp, ScanOp, ScatterOp, SortOp>(op) ||
         (op && op->hasAttr(in_kernel));
}

bool hasSeveralComputes(Block& block) {
  return llvm::count_if(block, [](Operation& op) { return isCompute(&op); }) > 1;
}

bool isFree(Operation* op) {
  return isa_and_nonnull<ViewOp, SizeOp, tensor::EmptyOp, linalg::FillOp, arith::ConstantOp>(op);
}

bool isOfAGroup(Operation* kernel) {
  return llvm::any_of(kernel->getOperands(), [](Value operand) { return operand.getDefiningOp<GroupIndexOp>(); });
}

bool isOrdered(Operation* op) {
  auto aten = dyn_cast_or_null<AtenOp>(op);
  return aten && aten.getOrdered();
}

bool sortKeepingOrder(Block& block) {
  SmallVector<Operation*> waiting;
  llvm::DenseSet<Operation*> unplaced;
  for (Operation& op : block.without_terminator()) {
    waiting.push_back(&op);
    unplaced.insert(&op);
  }
  auto ready = [&](Operation* op) {
    bool all = true;
    op->walk([&](Operation* inner) {
      for (Value operand : inner->getOperands())
        all &= !unplaced.contains(operand.getDefiningOp());
    });
    return all;
  };
  while (!waiting.empty()) {
    bool held = false;  // an ordered operation has to wait: so do the later ones
    SmallVector<Operation*> rest;
    for (Operation* op : waiting) {
      if (ready(op) && !(held && isOrdered(op))) {
        unplaced.erase(op);
        op->moveBefore(block.getTerminator());
      } else {
        held |= isOrdered(op);
        rest.push_back(op);
      }
    }
    if (rest.size() == waiting.size())
      return false;
    waiting = std::move(rest);
  }
  return true;
}

void eraseDead(Block& block) {
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op) || (isCompute(&op) && op.use_empty()))
      op.erase();
}

namespace {

/// Arguments of a graph that keeps what is made of them: parameters that it does not write. Of others none.
llvm::DenseSet<Value> keptParameters(func::FuncOp graph) {
  llvm::DenseSet<Value> parameters;
  if (!graph || !graph->hasAttr(kept_weights))
    return parameters;
  llvm::SmallDenseSet<int64_t> written;
  for (Attribute attr : outputsOf(graph))
    if (auto entry = dyn_cast<DictionaryAttr>(attr))
      if (auto argument = entry.getAs<IntegerAttr>("written"))
        written.insert(argument.getInt());
  for (BlockArgument argument : graph.getArguments()) {
    auto kind = graph.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "zefuse.kind");
    if (kind && kind.getValue() != "user" && !written.contains(argument.getArgNumber()))
      parameters.insert(argument);
  }
  return parameters;
}

/// Whether what `op` makes depends on the values it reads alone. They are visited, those that its regions read too.
bool dependsOnReadsAlone(Operation* op, llvm::function_ref<void(Value)> read) {
  if (isa<SizeOp>(op) || !(isa<KernelOp>(op) || isMemoryEffectFree(op)))
    return false;
  op->walk([&](Operation* inner) {
    for (Value operand : inner->getOperands())
      if (operand.getParentBlock() == op->getBlock())
        read(operand);
  });
  return true;
}

}  // namespace

llvm::DenseSet<Operation*> madeOfParameters(Block& graph) {
  llvm::DenseSet<Operation*> made;
  const auto parameters = keptParameters(dyn_cast<func::FuncOp>(graph.getParentOp()));
  if (parameters.empty())
    return made;
  for (Operation& op : graph.without_terminator()) {
    bool all = true;
    const bool alone = dependsOnReadsAlone(&op, [&](Value value) {
      all &= parameters.contains(value) || (value.getDefiningOp() && made.contains(value.getDefiningOp()));
    });
    if (alone && all)
      made.insert(&op);
  }
  return made;
}

bool isOfParameters(Value value) {
  Block* block = value.getParentBlock();
  const auto parameters = keptParameters(dyn_cast<func::FuncOp>(block->getParentOp()));
  SmallVector<Value> waiting;
  llvm::SmallDenseSet<Value> seen;
  auto visit = [&](Value next) {
    if (seen.insert(next).second)
      waiting.push_back(next);
  };
  visit(value);
  while (!waiting.empty()) {
    const Value next = waiting.pop_back_val();
    Operation* op = next.getDefiningOp();
    if (parameters.empty() || (op ? !dependsOnReadsAlone(op, visit) : !parameters.contains(next)))
      return false;
  }
  return true;
}

bool isCopy(Operation* op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || generic.getNumDpsInputs() != 1 || generic.getNumReductionLoops() != 0)
    return false;
  Block& body = *generic.getBody();
  auto yield = cast<linalg::YieldOp>(body.getTerminator());
  return yield.getOperand(0) == body.getArgument(0);
}

Value copyOf(OpBuilder& builder, Location location, Value source) {
  auto type = cast<RankedTensorType>(source.getType());
  SmallVector<Value> sizes;
  for (AffineExpr size : shapeOf(type))
    if (!isa<AffineConstantExpr>(size))
      sizes.push_back(SizeOp::create(builder, location, builder.getIndexType(),
                                     AffineMap::get(0, numSymbols(type), size, builder.getContext())));
  Value empty = tensor::EmptyOp::create(builder, location, type, sizes);
  AffineMap identity = builder.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  auto copy = linalg::GenericOp::create(
      builder, location, TypeRange{type}, source, empty, {identity, identity}, iterators,
      [](OpBuilder& b, Location l, ValueRange args) { linalg::YieldOp::create(b, l, args[0]); });
  return copy.getResult(0);
}

namespace {

/// `source` as `type`, whose sizes are the same or one, or of which `source` has one: there, all is element zero.
Value viewOfFirsts(OpBuilder& builder, Location location, Value source, RankedTensorType type) {
  if (source.getType() == type)
    return source;
  const AffineExpr one = builder.getAffineConstantExpr(1);
  SmallVector<AffineExpr> at, to = shapeOf(type), from = shapeOf(cast<RankedTensorType>(source.getType()));
  for (auto [i, size] : llvm::enumerate(to))
    at.push_back(size == one || from[i] == one ? builder.getAffineConstantExpr(0) : builder.getAffineDimExpr(i));
  return ViewOp::create(builder, location, type, source,
                        AffineMap::get(type.getRank(), numSymbols(type), at, builder.getContext()));
}

}  // namespace

Value cutRepeats(OpBuilder& builder, Location location, Value source, ArrayRef<AffineExpr> strides) {
  auto type = cast<RankedTensorType>(source.getType());
  SmallVector<AffineExpr> sizes = shapeOf(type);
  const AffineExpr zero = builder.getAffineConstantExpr(0);
  for (auto [size, stride] : llvm::zip(sizes, strides))
    if (stride == zero && size != zero)  // where there is no element, there is none to keep
      size = builder.getAffineConstantExpr(1);
  return viewOfFirsts(builder, location, source, shapedTensor(sizes, type.getElementType(), numSymbols(type)));
}

Value repeatTo(OpBuilder& builder, Location location, Value cut, RankedTensorType type) {
  return viewOfFirsts(builder, location, cut, type);
}

bool isCheapToRepeat(Operation* op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops() != 0)
    return false;
  int work = 0;
  for (Operation& inner : generic.getBody()->without_terminator()) {
    if (isa<math::MathDialect>(inner.getDialect()) || isa<tensor::ExtractOp, CheckedIndexOp>(inner))
      return false;
    if (!isa<arith::ConstantOp, linalg::IndexOp>(inner))
      ++work;
  }
  if (work > 6)
    return false;
  // Reads less than it writes: every input is broadcast, or there is none (a mask, arange, full), or a 16-bit float is
  // widened and nothing else is done: in autocast's training the f32 of an activation's gradient.
  Operation& first = generic.getBody()->front();
  if (work == 1 && isa<arith::ExtFOp>(first) && generic.getNumDpsInputs() == 1 && first.getResult(0).getType().isF32())
    return true;
  for (OpOperand* input : generic.getDpsInputOperands())
    if (generic.getMatchingIndexingMap(input).getNumResults() == generic.getNumLoops())
      return false;
  return true;
}

static ArrayRef<Attribute> listOf(func::FuncOp graph, StringRef name) {
  auto list = graph->getAttrOfType<ArrayAttr>(name);
  return list ? list.getValue() : ArrayRef<Attribute>();
}

unsigned graphSymbolsOf(func::FuncOp graph) { return listOf(graph, "zefuse.symbols").size(); }
ArrayRef<Attribute> outputsOf(func::FuncOp graph) { return listOf(graph, "zefuse.outputs"); }
ArrayRef<Attribute> notJoinedOf(func::FuncOp graph) { return listOf(graph, "zefuse.not_joined"); }
ArrayRef<Attribute> refusedOf(func::FuncOp graph) { return listOf(graph, "zefuse.refused"); }

Value throughViews(Value value) {
  while (auto view = value.getDefiningOp<ViewOp>())
    value = view.getSource();
  return value;
}

std::vector<Origin> originsOf(Location location) {
  std::vector<Origin> origins;
  location->walk([&](Location part) {
    auto name = dyn_cast<NameLoc>(part);
    if (!name)
      return WalkResult::advance();
    auto [op, rest] = name.getName().getValue().split('|');
    auto [node, module] = rest.split('|');
    Origin origin{op.str(), node.str(), "", module.str()};
    if (auto file = dyn_cast<FileLineColLoc>(name.getChildLoc()))
      origin.source =
          (file.getFilename().getValue().rsplit('/').second.empty() ? file.getFilename().getValue()
                                                                    : file.getFilename().getValue().rsplit('/').second)
              .str() +
          ":" + std::to_string(file.getLine());
    origins.push_back(std::move(origin));
    return WalkResult::skip();
  });
  return origins;
}

double estimatedElements(ArrayRef<AffineExpr> sizes) {
  constexpr double usual = 256;
  double count = 1;
  for (AffineExpr size : sizes)
    count *= isa<AffineConstantExpr>(size) ? double(cast<AffineConstantExpr>(size).getValue()) : usual;
  return count;
}

double estimatedElements(Value tensor) { return estimatedElements(shapeOf(cast<RankedTensorType>(tensor.getType()))); }

/// "aten.native_layer_norm.default" -> "native_layer_norm", "zefuse_random.uniform.default" -> "uniform"
static std::string operatorOf(const Origin& origin) {
  auto [space, rest] = StringRef(origin.op).split('.');
  std::string word;
  for (char c : rest.empty() ? space : rest.split('.').first)
    word += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return word;
}

std::string kernelName(ArrayRef<Operation*> ops) {
  constexpr size_t longest = 72;
  std::string name;
  SmallVector<std::string> seen;
  if (auto product = llvm::find_if(ops, isProduct); product != ops.end()) {
    name = (*product)->getName().stripDialect().str() + "_";
    for (auto [i, size] : llvm::enumerate(cast<RankedTensorType>((*product)->getResult(0).getType()).getShape()))
      name += (i ? "x" : "") + (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size));
    for (const Origin& origin : originsOf((*product)->getLoc()))
      seen.push_back(operatorOf(origin));
  }
  for (Operation* op : ops) {
    for (const Origin& origin : originsOf(op->getLoc())) {
      std::string word = operatorOf(origin);
      if (word.empty() || llvm::is_contained(seen, word))
        continue;
      seen.push_back(word);
      if (name.size() + word.size() < longest)
        name += (name.empty() ? "" : "_") + word;
    }
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])))
    name = "kernel" + name;
  return name;
}

}  // namespace zefuse
