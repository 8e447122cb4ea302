#include "compiler/fuse/shared_addresses.h"

#include "compiler/fuse/graph.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr size_t much_work = 12;    // scalar operations that lead to one element: fewer take no longer than to load it
constexpr double costly = 1 << 19;  // scalar operations that are saved: fewer take no longer than another launch

linalg::GenericOp elementwise(Operation* op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() == 0 ? generic : nullptr;
}

bool isGather(linalg::GenericOp generic) { return !generic.getBody()->getOps<tensor::ExtractOp>().empty(); }

double elementsOf(Operation* op) { return estimatedElements(op->getResult(0)); }

size_t workOf(linalg::GenericOp generic) {
  size_t work = 0;
  for (Operation& inner : generic.getBody()->without_terminator())
    work += isa<math::MathDialect>(inner.getDialect()) ? 4 : 1;
  return work;
}

/// The elementwise operations of as many elements that lead to `op`, itself among them.
llvm::SetVector<Operation*> coneOf(Operation* op) {
  llvm::SetVector<Operation*> cone;
  cone.insert(op);
  for (size_t next = 0; next < cone.size(); ++next)
    for (Value operand : cast<linalg::GenericOp>(cone[next]).getDpsInputs()) {
      auto producer = elementwise(throughViews(operand).getDefiningOp());
      if (producer && !isGather(producer) && elementsOf(producer) == elementsOf(op))
        cone.insert(producer);
    }
  return cone;
}

size_t workOf(const llvm::SetVector<Operation*>& cone) {
  size_t work = 0;
  for (Operation* op : cone)
    work += workOf(cast<linalg::GenericOp>(op));
  return work;
}

}  // namespace

llvm::DenseSet<Operation*> sharedAddresses(Block& block) {
  llvm::SetVector<Operation*> read;  // by an elementwise operation of many times their elements
  llvm::DenseSet<Operation*> result, works;
  for (Operation& op : block) {
    auto reader = elementwise(&op);
    if (!reader)
      continue;
    for (Value operand : reader.getDpsInputs()) {
      auto producer = elementwise(throughViews(operand).getDefiningOp());
      if (!producer || isGather(producer) || elementsOf(reader) < many_share * elementsOf(producer))
        continue;
      read.insert(producer);
      llvm::SetVector<Operation*> cone = coneOf(producer);
      if (const size_t work = workOf(cone);
          isGather(reader) && work >= much_work && work * elementsOf(reader) >= costly) {
        result.insert(producer);
        works.insert(cone.begin(), cone.end());
      }
    }
  }
  if (result.empty())
    return result;
  for (Operation* op : read) {
    llvm::SetVector<Operation*> cone = coneOf(op);
    if (workOf(cone) >= much_work && llvm::any_of(cone, [&](Operation* each) { return works.contains(each); }))
      result.insert(op);
  }
  return result;
}

}  // namespace zefuse
