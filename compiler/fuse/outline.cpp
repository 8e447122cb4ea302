#include "compiler/fuse/outline.h"

#include <functional>

#include "compiler/fuse/graph.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace zefuse {

/// The operations that read `op`'s results, with free operations looked through.
static void consumersOf(Operation* op, llvm::SetVector<Operation*>& consumers) {
  for (Operation* user : op->getUsers()) {
    Operation* top = op->getBlock()->findAncestorOpInBlock(*user);
    if (isFree(top))
      consumersOf(top, consumers);
    else
      consumers.insert(top);
  }
}

KernelBody bodyOf(ArrayRef<Operation*> ops) {
  llvm::SmallPtrSet<Operation*, 16> inside(ops.begin(), ops.end());
  KernelBody body;
  std::function<void(Operation*)> include;
  auto need = [&](Value value) {
    Operation* producer = value.getDefiningOp();
    if (producer && inside.contains(producer))
      return;
    if (producer && isFree(producer))
      include(producer);
    else
      body.inputs.insert(value);
  };
  include = [&](Operation* op) {
    if (body.ops.contains(op))
      return;
    for (Value operand : op->getOperands())
      need(operand);
    for (Region& region : op->getRegions())
      region.walk([&](Operation* inner) {
        for (Value operand : inner->getOperands())
          if (!region.isAncestor(operand.getParentRegion()))
            need(operand);
      });
    body.ops.insert(op);
  };
  for (Operation* op : ops)
    include(op);
  return body;
}

KernelOp outline(ArrayRef<Operation*> ops, unsigned num_symbols) {
  llvm::SmallPtrSet<Operation*, 16> inside(ops.begin(), ops.end());
  KernelBody needed = bodyOf(ops);
  const llvm::SetVector<Value>& inputs = needed.inputs;
  llvm::SetVector<Value> outputs;
  for (Operation* op : ops)
    for (OpOperand& use : op->getUses()) {
      Operation* top = op->getBlock()->findAncestorOpInBlock(*use.getOwner());
      if (inside.contains(top))
        continue;
      // A view inside the group's reach is cloned; only readers outside need the value in memory.
      llvm::SetVector<Operation*> readers;
      if (isFree(top))
        consumersOf(top, readers);
      else
        readers.insert(top);
      if (llvm::any_of(readers, [&](Operation* reader) { return !inside.contains(reader); }))
        outputs.insert(use.get());
    }

  OpBuilder builder(ops.back());
  SmallVector<Location> locations;
  for (Operation* op : ops)
    locations.push_back(op->getLoc());
  SmallVector<Attribute> layouts;
  SmallVector<Type> results;
  for (Value value : llvm::concat<const Value>(inputs.getArrayRef(), outputs.getArrayRef()))
    layouts.push_back(AffineMapAttr::get(contiguousLayout(cast<RankedTensorType>(value.getType()), num_symbols)));
  for (Value value : outputs)
    results.push_back(value.getType());
  auto kernel = KernelOp::create(builder, builder.getFusedLoc(locations), results, inputs.getArrayRef(),
                                 kernelName(ops), builder.getArrayAttr(layouts));
  for (Operation* op : ops)  // what explain says of it
    if (Attribute note = op->getDiscardableAttr("zefuse.note"))
      kernel->setAttr("zefuse.note", note);
  Block& block = kernel.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, block.addArgument(input.getType(), input.getLoc()));
  builder.setInsertionPointToEnd(&block);
  for (Operation* op : needed.ops) {
    Operation* clone = builder.clone(*op, mapping);
    // Equal kernels are one, whatever reads them and whatever is said of them.
    for (StringRef mark : {StringRef("zefuse.output"), StringRef("zefuse.late"), StringRef("zefuse.note"),
                           StringRef(few_results), StringRef(with_slices), StringRef(kept_copy)})
      clone->removeDiscardableAttr(mark);
  }
  SmallVector<Value> yielded;
  for (Value output : outputs)
    yielded.push_back(mapping.lookup(output));
  YieldOp::create(builder, kernel.getLoc(), yielded);
  for (auto [i, result] : llvm::enumerate(kernel.getResults()))
    Value(outputs[i]).replaceUsesWithIf(result, [&](OpOperand& use) {
      Operation* top = kernel->getBlock()->findAncestorOpInBlock(*use.getOwner());
      return !inside.contains(top) && top != kernel;
    });
  return kernel;
}

}  // namespace zefuse
