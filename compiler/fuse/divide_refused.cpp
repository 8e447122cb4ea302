// Kernels that the schedule refuses, taken apart again.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/outline.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/kernel_graph.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_DIVIDEREFUSEDKERNELS
#include "compiler/fuse/Passes.h.inc"

namespace {

class Dividing {
public:
  explicit Dividing(func::FuncOp graph)
      : graph_(graph), builder_(graph.getContext()), num_symbols_(graphSymbolsOf(graph)) {
    llvm::append_range(refusals_, notJoinedOf(graph));
    for (auto kernel : graph.getOps<KernelOp>())
      if (auto groups = kernel.getGroups())
        for (int64_t group : *groups)
          next_group_ = std::max(next_group_, group + 1);
  }

  void run() {
    for (KernelOp kernel : llvm::make_early_inc_range(graph_.getOps<KernelOp>()))
      if (hasSeveralComputes(kernel.getBody().front()))
        if (auto reason = whyNot(kernel))
          divide(kernel, *reason);
    graph_->setAttr("zefuse.not_joined", builder_.getArrayAttr(refusals_));
  }

private:
  std::optional<std::string> whyNot(KernelOp kernel) {
    for (int64_t group : kernel.getGroups().value_or(ArrayRef<int64_t>()))
      for (Attribute refused : refusedOf(graph_))
        if (auto entry = cast<DictionaryAttr>(refused); entry.getAs<IntegerAttr>("group").getInt() == group)
          return entry.getAs<StringAttr>("reason").str();
    return whyNotScheduled(kernel);
  }

  /// Values between the pieces are contiguous; the kernel's own keep their layouts.
  void divide(KernelOp kernel, const std::string& reason) {
    Block& body = kernel.getBody().front();
    ArrayRef<Attribute> layouts = kernel.getLayouts().getValue();
    llvm::DenseMap<Value, Attribute> layout_of;
    IRMapping mapping;
    mapping.map(body.getArguments(), kernel.getInputs());
    for (auto [input, layout] : llvm::zip(kernel.getInputs(), layouts))
      layout_of[input] = layout;
    OpBuilder builder(kernel);
    SmallVector<Operation*> free, compute;
    for (Operation& op : body.without_terminator())
      (isCompute(&op) ? compute : free).push_back(builder.clone(op, mapping));
    for (auto [yielded, result, layout] : llvm::zip(body.getTerminator()->getOperands(), kernel.getResults(),
                                                    layouts.drop_front(kernel.getInputs().size()))) {
      Value value = mapping.lookup(yielded);
      result.replaceAllUsesWith(value);
      layout_of[value] = layout;
    }
    llvm::erase_if(compute, [](Operation* op) { return op->use_empty() && (op->erase(), true); });
    auto groups = kernel.getGroups();
    int64_t group = groups ? groups->front() : next_group_++;
    kernel.erase();
    for (auto [number, op] : llvm::enumerate(compute)) {
      KernelOp piece = outline(op, num_symbols_);
      SmallVector<Attribute> of_piece(piece.getLayouts().getValue());
      for (auto [layout, input] : llvm::zip(of_piece, piece.getInputs()))
        if (Attribute known = layout_of.lookup(input))
          layout = known;
      // The piece's results are those of `op` that are read.
      for (auto [position, yielded] : llvm::enumerate(piece.getBody().front().getTerminator()->getOperands())) {
        Attribute mine = layout_of.lookup(op->getResult(cast<OpResult>(yielded).getResultNumber()));
        if (!mine)
          continue;
        of_piece[piece.getInputs().size() + position] = mine;
        layout_of[piece.getResult(position)] = mine;
      }
      piece.setLayoutsAttr(builder_.getArrayAttr(of_piece));
      // The last piece is the one that others know by the old number.
      int64_t next = number + 1 == compute.size() ? group : next_group_++;
      piece.setGroups({next});
      if (number > 0)
        refusals_.push_back(builder_.getDictionaryAttr(
            {builder_.getNamedAttr("first", builder_.getI64IntegerAttr(last_group_)),
             builder_.getNamedAttr("second", builder_.getI64IntegerAttr(next)),
             builder_.getNamedAttr("reason", builder_.getStringAttr("the schedule refuses their kernel: " + reason))}));
      last_group_ = next;
    }
    for (Operation* op : llvm::reverse(compute))
      op->erase();
    for (Operation* op : llvm::reverse(free))
      if (op->use_empty())
        op->erase();
  }

  func::FuncOp graph_;
  Builder builder_;
  unsigned num_symbols_;
  SmallVector<Attribute> refusals_;
  int64_t next_group_ = 0, last_group_ = 0;
};

class DivideRefusedKernels : public impl::DivideRefusedKernelsBase<DivideRefusedKernels> {
  void runOnOperation() override { Dividing(getOperation()).run(); }
};

}  // namespace
}  // namespace zefuse
