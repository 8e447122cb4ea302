// Inputs that the graph overwrites (an optimizer's parameters and states): a kernel that makes the new value may write
// it where the old one lies, if nobody reads the old one later and the kernel itself reads each element of it only
// where it writes it. What cannot becomes a copy at the plan's end.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/kernel_graph.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/lower.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_WRITEINPLACE
#include "compiler/fuse/Passes.h.inc"

namespace {

struct Write {
  BlockArgument argument;
  unsigned set, result;  // of the kernel: which of its sets' tensors, and which result of the body
  int64_t input = -1;    // of the body, where it reads the argument
};

/// What the graph says of the function result that the use is (docs/ir.md); null: it is none, or nothing is said of it.
DictionaryAttr outputEntry(func::FuncOp graph, OpOperand& use) {
  if (!isa<func::ReturnOp>(use.getOwner()))
    return {};
  for (Attribute attr : outputsOf(graph))
    if (auto entry = dyn_cast<DictionaryAttr>(attr))
      if (auto number = entry.getAs<IntegerAttr>("result"); number && number.getInt() == use.getOperandNumber())
        return entry;
  return {};
}

/// Whether the use is a function result with memory of its own: what lies in an argument is read there.
bool isReturned(func::FuncOp graph, OpOperand& use) {
  DictionaryAttr entry = outputEntry(graph, use);
  return isa<func::ReturnOp>(use.getOwner()) && !(entry && entry.contains("argument"));
}

/// A function result that goes to an argument's memory and nowhere else.
BlockArgument writtenArgument(func::FuncOp graph, OpResult result) {
  auto returned = llvm::make_filter_range(result.getUses(), [&](OpOperand& use) { return isReturned(graph, use); });
  if (!llvm::hasSingleElement(returned))
    return {};
  DictionaryAttr entry = outputEntry(graph, *returned.begin());
  auto written = entry ? entry.getAs<IntegerAttr>("written") : nullptr;
  return written ? graph.getArgument(written.getInt()) : BlockArgument();
}

bool isReturnedThroughViews(func::FuncOp graph, Value value) {
  return llvm::any_of(value.getUsers(), [&](Operation* user) {
    auto view = dyn_cast<ViewOp>(user);
    return view && (isReturnedThroughViews(graph, view) ||
                    llvm::any_of(view->getUses(), [&](OpOperand& use) { return isReturned(graph, use); }));
  });
}

/// Whether an operation behind `op` reads what lies in the argument. The caller's views of it are to see the new value.
bool isReadAfter(Value value, Operation* op) {
  return llvm::any_of(value.getUsers(), [&](Operation* user) {
    if (auto view = dyn_cast<ViewOp>(user))
      return isReadAfter(view, op);
    if (user->hasAttr("zefuse.views") &&  // made by ATen, maybe before
        llvm::any_of(user->getResults(), [&](Value view) { return isReadAfter(view, op); }))
      return true;
    return !isa<func::ReturnOp>(user) && op->isBeforeInBlock(user);
  });
}

bool isReadThroughViews(Value value, Operation* op) {
  return llvm::any_of(value.getUsers(), [&](Operation* user) {
    auto view = dyn_cast<ViewOp>(user);
    return view && (llvm::is_contained(view->getUsers(), op) || isReadThroughViews(view, op));
  });
}

/// The layout's offset, without the strides of dimensions of one element.
AffineExpr offsetOf(AffineMap layout, RankedTensorType type) {
  AffineExpr offset = layout.getResult(0);
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.getDimSize(dim) == 1)
      offset = offset.replace(getAffineDimExpr(dim, type.getContext()), getAffineConstantExpr(0, type.getContext()));
  return offset;
}

std::optional<Write> writeOf(func::FuncOp graph, KernelOp kernel, OpResult result) {
  BlockArgument argument = writtenArgument(graph, result);
  if (!argument || isReturnedThroughViews(graph, result) || isReadAfter(argument, kernel) ||
      isReadThroughViews(argument, kernel))
    return std::nullopt;
  auto strides = graph.getArgAttrOfType<AffineMapAttr>(argument.getArgNumber(), "zefuse.strides");
  auto layout = cast<AffineMapAttr>(kernel.getLayouts()[kernel.getNumOperands() + result.getResultNumber()]).getValue();
  auto type = cast<RankedTensorType>(argument.getType());
  if (!strides || result.getType() != type)
    return std::nullopt;
  AffineMap place = stridedLayout(strides.getValue().getResults(), nullptr, layout.getNumSymbols(), graph.getContext());
  if (!sameValue(offsetOf(layout, type), offsetOf(place, type)))
    return std::nullopt;
  unsigned per_set = kernel.getNumResults() / kernel.getBatch(), inputs = kernel.getNumOperands() / kernel.getBatch();
  Write write{argument, result.getResultNumber() / per_set, result.getResultNumber() % per_set};
  for (OpOperand& operand : kernel->getOpOperands()) {
    if (operand.get() != argument)
      continue;
    if (write.input >= 0 || operand.getOperandNumber() / inputs != write.set)
      return std::nullopt;  // another set may read it before or after this one writes it
    write.input = operand.getOperandNumber() % inputs;
  }
  return write;
}

/// All sets run one body: they write alike, or none does.
void choose(func::FuncOp graph, KernelOp kernel, bool with_reductions) {
  unsigned per_set = kernel.getNumResults() / kernel.getBatch();
  SmallVector<int64_t> places(kernel.getNumResults(), -1), pairs;
  for (unsigned result = 0; result < per_set; ++result) {
    SmallVector<Write> writes;
    for (unsigned set = 0; set < kernel.getBatch(); ++set)
      if (auto write = writeOf(graph, kernel, kernel->getResult(set * per_set + result)))
        writes.push_back(*write);
    if (writes.size() != size_t(kernel.getBatch()) ||
        llvm::any_of(writes, [&](const Write& write) { return write.input != writes[0].input; }))
      continue;
    if (writes[0].input >= 0) {
      if (!mayWriteInPlace(kernel, writes[0].input, result, with_reductions))
        continue;
      pairs.append({writes[0].input, result});
    }
    for (const Write& write : writes)
      places[write.set * per_set + result] = write.argument.getArgNumber();
  }
  if (llvm::any_of(places, [](int64_t place) { return place >= 0; }))
    kernel.setWrites(places);
  if (!pairs.empty())
    kernel.setInPlace(pairs);
}

class WriteInPlace : public impl::WriteInPlaceBase<WriteInPlace> {
public:
  using WriteInPlaceBase::WriteInPlaceBase;

private:
  void runOnOperation() override {
    func::FuncOp graph = getOperation();
    const std::optional<TargetDescription> description = targetNamed(graph, target);
    if (!description)
      return signalPassFailure();
    graph.walk([&](KernelOp kernel) {
      if (kernel.getNumResults() > 0)
        choose(graph, kernel, description->hasWorkGroups());
    });
  }
};

}  // namespace
}  // namespace zefuse
