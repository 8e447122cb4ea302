// Kernels of different iteration spaces that read the same data and do not wait for each other (RoPE of q and of fewer
// heads of k, a layer norm's input gradient and its parameters') become one launch of several `parts`.
// Each group of the launch does its share of every part. One fork and join of threads instead of two, no barrier
// between them, and what both read is read while it is in the cache if it is small.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/lower.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_JOINSIDEBYSIDE
#include "compiler/fuse/Passes.h.inc"

namespace {

constexpr size_t max_operations = 1024;  // of one SPIR-V module, whose parts are scheduled apart
constexpr size_t max_candidates = 8;     // kernels before one that it is tried with
constexpr double least_shared = 16;      // elements: less is no data to share
constexpr double max_held = 2 << 20;     // bytes that may lie in the arena longer than they would
constexpr size_t longest_name = 120;
// docs/gpu.md, Compiling.
constexpr const char* gpu_parts = "not side by side in one launch: on a GPU each has a group size, sub-groups and "
                                  "local memory of its own";

class SideBySide {
public:
  SideBySide(func::FuncOp graph, StringRef why_none)
      : graph_(graph), block_(graph.getBody().front()), why_none_(why_none) {}

  void run() {
    bool joined = true;
    while (joined) {
      joined = false;
      refusals_.clear();
      number();
      SmallVector<KernelOp> earlier;
      for (auto kernel : llvm::make_early_inc_range(block_.getOps<KernelOp>())) {
        if (!mayJoin(kernel))
          continue;
        for (KernelOp candidate : llvm::reverse(ArrayRef(earlier).take_back(max_candidates)))
          if (tryJoin(candidate, kernel)) {
            joined = true;
            break;
          }
        if (joined)
          break;
        earlier.push_back(kernel);
      }
    }
    auto known = llvm::to_vector(notJoinedOf(graph_));
    llvm::append_range(known, refusals_);
    graph_->setAttr("zefuse.not_joined", ArrayAttr::get(graph_.getContext(), known));
  }

private:
  static bool mayJoin(KernelOp kernel) {
    return kernel.getBatch() == 1 && !kernel.getWrites() && kernel.getOps<SortOp>().empty() && !isOfAGroup(kernel) &&
           llvm::none_of(kernel.getBody().getOps(), [](Operation& op) { return isProduct(&op); });
  }

  void number() {
    positions_.clear();
    for (Operation& op : block_)
      positions_[&op] = positions_.size();
  }

  size_t firstReader(Operation* op) const {
    size_t first = SIZE_MAX;
    for (Operation* user : op->getUsers())
      first = std::min(first, isa<ViewOp>(user) ? firstReader(user) : positions_.lookup(user));
    return first;
  }

  size_t lastReader(Value value) const {
    size_t last = 0;
    for (Operation* user : value.getUsers())
      last = std::max(last, isa<ViewOp>(user) ? lastReader(user->getResult(0)) : positions_.lookup(user));
    return last;
  }

  bool tryJoin(KernelOp a, KernelOp b) {
    auto read = inCommon(a, b);
    if (!read)
      return false;
    auto reason = why_none_.empty() ? whyApart(a, b, *read) : std::optional(why_none_.str());
    if (!reason)
      join(a, b);
    else if (a.getGroups() && b.getGroups())  // a copy for a layout has no operators to name
      refusals_.push_back(refusal(a, b, *reason));
    return !reason;
  }

  // What `a` reads, if it may stand where `b` stands, later, and they read the same data.
  std::optional<llvm::SetVector<Value>> inCommon(KernelOp a, KernelOp b) const {
    if (firstReader(a) <= positions_.lookup(b))
      return std::nullopt;
    llvm::SetVector<Value> read;
    for (Value input : a.getInputs())
      read.insert(throughViews(input));
    if (llvm::none_of(b.getInputs(), [&](Value input) {
          Value source = throughViews(input);
          return read.contains(source) && estimatedElements(source) >= least_shared;
        }))
      return std::nullopt;
    return read;
  }

  std::optional<std::string> whyApart(KernelOp a, KernelOp b, const llvm::SetVector<Value>& read) const {
    auto operations = [](KernelOp kernel) { return kernel.getBody().front().getOperations().size(); };
    if (size_t both = operations(a) + operations(b); both > max_operations)
      return "side by side they would be " + std::to_string(both) + " operations, more than " +
             std::to_string(max_operations);
    if (size_t both = a->getNumOperands() + b->getNumOperands() + a->getNumResults() + b->getNumResults();
        both > max_kernel_tensors)
      return "side by side they would have " + std::to_string(both) + " tensors, more than " +
             std::to_string(max_kernel_tensors);
    for (Operation* op = a->getNextNode(); op != b; op = op->getNextNode())
      if (auto kernel = dyn_cast<KernelOp>(op); kernel && kernel.getWrites())
        return "a kernel between them overwrites an input, which the first might read";
    double held = 0;
    for (Value source : read)
      if (source.getDefiningOp() && lastReader(source) < positions_.lookup(b))
        held += estimatedElements(source) *
                std::max(1u, cast<RankedTensorType>(source.getType()).getElementTypeBitWidth() / 8);
    if (held > max_held && a->getNextNode() != b.getOperation())
      return "what the first alone reads would wait in memory until the second: " + std::to_string(int64_t(held)) +
             " bytes";
    return std::nullopt;
  }

  static Attribute refusal(KernelOp a, KernelOp b, const std::string& reason) {
    Builder builder(a.getContext());
    auto group = [&](KernelOp kernel) { return builder.getI64IntegerAttr(kernel.getGroups()->front()); };
    return builder.getDictionaryAttr({builder.getNamedAttr("first", group(a)), builder.getNamedAttr("second", group(b)),
                                      builder.getNamedAttr("reason", builder.getStringAttr(reason))});
  }

  static SmallVector<int64_t> partsOf(KernelOp kernel) {
    if (auto parts = kernel.getParts())
      return SmallVector<int64_t>(*parts);
    return {int64_t(kernel.getNumResults())};
  }

  static void join(KernelOp a, KernelOp b) {
    OpBuilder builder(b);
    SmallVector<Value> inputs;
    SmallVector<Attribute> layouts, result_layouts;
    SmallVector<Type> types;
    SmallVector<int64_t> parts, groups;
    for (KernelOp kernel : {a, b}) {
      for (auto [input, layout] : llvm::zip(kernel.getInputs(), kernel.getLayouts()))
        if (!known(inputs, layouts, input, layout)) {
          inputs.push_back(input);
          layouts.push_back(layout);
        }
      llvm::append_range(result_layouts, kernel.getLayouts().getValue().drop_front(kernel.getInputs().size()));
      llvm::append_range(types, kernel.getResultTypes());
      llvm::append_range(parts, partsOf(kernel));
      if (auto mine = kernel.getGroups())
        llvm::append_range(groups, *mine);
    }
    size_t num_inputs = inputs.size();
    SmallVector<Attribute> all(layouts);
    all.append(result_layouts);
    std::string name = a.getName().str();
    if (!a.getName().contains(b.getName()) && name.size() + b.getName().size() < longest_name)
      name += ("_beside_" + b.getName()).str();
    auto both = KernelOp::create(builder, builder.getFusedLoc({a.getLoc(), b.getLoc()}), types, inputs, name,
                                 builder.getArrayAttr(all));
    both.setParts(parts);
    if (!groups.empty())
      both.setGroups(groups);
    Block& body = both.getBody().emplaceBlock();
    for (size_t i = 0; i < num_inputs; ++i)
      body.addArgument(inputs[i].getType(), inputs[i].getLoc());
    builder.setInsertionPointToEnd(&body);
    SmallVector<Value> yielded;
    unsigned next = 0;
    for (KernelOp kernel : {a, b}) {
      IRMapping mapping;
      Block& from = kernel.getBody().front();
      for (auto [argument, input, layout] : llvm::zip(from.getArguments(), kernel.getInputs(), kernel.getLayouts()))
        mapping.map(argument, body.getArgument(known(inputs, layouts, input, layout).value()));
      for (Operation& op : from.without_terminator())
        builder.clone(op, mapping);
      for (Value value : from.getTerminator()->getOperands())
        yielded.push_back(mapping.lookup(value));
      for (Value result : kernel.getResults())
        result.replaceAllUsesWith(both.getResult(next++));
    }
    YieldOp::create(builder, both.getLoc(), yielded);
    // What stood behind `a` and only moves its results' indices may stand before the union now.
    Block& block = *b->getBlock();
    a.erase();
    b.erase();
    sortKeepingOrder(block);
  }

  static std::optional<size_t> known(ArrayRef<Value> inputs, ArrayRef<Attribute> layouts, Value input,
                                     Attribute layout) {
    for (auto [number, pair] : llvm::enumerate(llvm::zip(inputs, layouts)))
      if (std::get<0>(pair) == input && std::get<1>(pair) == layout)
        return number;
    return std::nullopt;
  }

  func::FuncOp graph_;
  Block& block_;
  const StringRef why_none_;
  llvm::DenseMap<Operation*, size_t> positions_;
  SmallVector<Attribute> refusals_;  // of pairs that read the same data; of the last round
};

class JoinSideBySide : public impl::JoinSideBySideBase<JoinSideBySide> {
public:
  using JoinSideBySideBase::JoinSideBySideBase;

private:
  void runOnOperation() override {
    const std::optional<TargetDescription> description = targetNamed(getOperation(), target);
    if (!description)
      return signalPassFailure();
    SideBySide(getOperation(), description->supports.parts ? StringRef() : StringRef(gpu_parts)).run();
  }
};

}  // namespace
}  // namespace zefuse
