// Horizontal fusion: kernels that compute the same of different tensors, each too small to be worth a launch of its own
// (an optimizer's step over a parameter list, the bias gradients of a layer), become one launch over several sets.
//
// Equal kernels share one body as it is. Elementwise kernels on contiguous tensors share a body over one dimension, so
// that tensors of any sizes meet. A batch runs where its last kernel stood: no result may be needed before. On a GPU it
// may also run where its first one stood, if all that the others read is there by then: casts of weights, each of which
// stands before the product that wants it. (Not on the CPU: what the product reads next is in its cache.)
//
// On a GPU each group works for one set, and all sets have as many groups as the largest: so sets are of sizes that
// differ by less than four times, or are one group's. What fills the device for longer than a launch takes gains
// nothing.
#include <map>

#include "common/toolchain/target_description.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/kernel_key.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_BATCHKERNELS
#include "compiler/fuse/Passes.h.inc"

namespace {

constexpr size_t max_gpu_pointers = 64;     // Intel's GPUs have a kernel's arguments in registers
constexpr int64_t max_gpu_bytes = 1 << 20;  // of one set's tensors: sums of slices, biases, the state of an optimizer
// Of one that is elementwise: on a H100 4 us. Casts of ResNet-50's weights, one by one, took 3 us each.
constexpr int64_t max_gpu_elementwise_bytes = 8 << 20;
constexpr int64_t gpu_group_elements = 1 << 10;  // what a group takes at least
constexpr int64_t max_held = 2 << 20;       // bytes that a batch may keep in the arena longer than its kernels would
constexpr int64_t max_gpu_held = 16 << 20;  // the same on a GPU
constexpr int64_t nominal_size = 1 << 20;   // of the one dimension of a body for any sizes

int64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (!type.hasStaticShape())
    return int64_t{1} << 40;
  return type.getNumElements() * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

class Batching {
public:
  Batching(func::FuncOp graph, bool on_gpu) : graph_(graph), block_(graph.getBody().front()), on_gpu_(on_gpu) {}

  void run() {
    batch([&](KernelOp kernel) { return mayBatch(kernel) ? flatKey(kernel) : ""; }, /*flat=*/true);
    batch([&](KernelOp kernel) { return mayBatch(kernel) ? kernelKey(kernel) : ""; }, /*flat=*/false);
  }

private:
  bool mayBatch(KernelOp kernel) const {
    if (!on_gpu_)
      return true;
    int64_t bytes = 0;
    for (ValueRange values : {ValueRange(kernel.getInputs()), ValueRange(kernel.getResults())})
      for (Value value : values)
        bytes += bytesOf(value);
    const bool elementwise = llvm::all_of(kernel.getBody().getOps(), [](Operation& op) {
      return isa<arith::ConstantOp, tensor::EmptyOp, YieldOp>(op) || (isa<linalg::GenericOp>(op) && !isReduction(&op));
    });
    return bytes <= (elementwise ? max_gpu_elementwise_bytes : max_gpu_bytes);
  }

  int64_t maxHeld() const { return on_gpu_ ? max_gpu_held : max_held; }
  size_t maxPointers() const { return on_gpu_ ? max_gpu_pointers : max_kernel_tensors; }

  /// Makes batches of kernels with equal keys; an empty key keeps a kernel alone.
  void batch(llvm::function_ref<std::string(KernelOp)> key_of, bool flat) {
    std::map<std::string, SmallVector<KernelOp>, std::less<>> by_key;
    std::vector<const std::string*> order;
    const llvm::DenseSet<Operation*> of_parameters = madeOfParameters(block_);
    for (auto kernel : block_.getOps<KernelOp>()) {
      if (kernel.getBatch() > 1 || !kernel.getOps<ScatterOp>().empty() || !kernel.getOps<SortOp>().empty() ||
          llvm::any_of(kernel.getBody().getOps(), [](Operation& op) { return isProduct(&op); }) || isOfAGroup(kernel))
        continue;
      std::string key = key_of(kernel);
      if (key.empty())
        continue;
      // What is kept from call to call is made apart from what is not.
      if (of_parameters.contains(kernel))
        key += " of parameters";
      auto [it, fresh] = by_key.try_emplace(std::move(key));
      if (fresh)
        order.push_back(&it->first);
      it->second.push_back(kernel);
    }
    for (const std::string* key : order) {
      SmallVector<KernelOp>& kernels = by_key[*key];
      if (kernels.size() < 2)
        continue;
      number();
      bool changed = false;
      for (const Run& run : apart(kernels))
        if (run.kernels.size() > 1) {
          commit(run, flat);
          changed = true;
        }
      if (changed)
        sortKeepingOrder(block_);  // views of results may stand before the batch now
    }
  }

  void number() {
    positions_.clear();
    for (Operation& op : block_)
      positions_[&op] = positions_.size();
  }

  /// The first step that reads a result of `op`.
  size_t firstReader(Operation* op) {
    size_t first = SIZE_MAX;
    for (Operation* user : op->getUsers())
      first = std::min(first, isa<ViewOp>(user) ? firstReader(user) : positions_.lookup(user));
    return first;
  }

  /// Whether the graph returns it, or a view of it: then it has memory of its own anyhow.
  static bool isReturned(Value value) {
    return llvm::any_of(value.getUsers(), [](Operation* user) {
      return isa<func::ReturnOp>(user) || (isa<ViewOp>(user) && isReturned(user->getResult(0)));
    });
  }

  struct Run {
    SmallVector<KernelOp> kernels;
    bool late = true;                           // they may stand where the last one stands
    bool early = true;                          // or where the first one does
    size_t needed = SIZE_MAX;                   // the first step that reads a result
    int64_t inputs_held = 0, results_held = 0;  // bytes of the arena's that live longer: late, early
  };

  /// Cuts kernels (in order) into runs that can all stand in one place.
  std::vector<Run> apart(ArrayRef<KernelOp> kernels) {
    std::vector<Run> runs;
    for (KernelOp kernel : kernels) {
      int64_t inputs = 0, results = 0;
      for (Value input : kernel.getInputs())
        if (throughViews(input).getDefiningOp())
          inputs += bytesOf(input);
      for (Value result : kernel.getResults())
        if (!isReturned(result))
          results += bytesOf(result);
      const size_t pointers = kernel->getNumOperands() + kernel->getNumResults();
      bool late = false, early = false;
      if (!runs.empty() && (runs.back().kernels.size() + 1) * pointers <= maxPointers()) {
        const Run& run = runs.back();
        late = run.late && positions_.lookup(kernel) < run.needed && run.inputs_held <= maxHeld();
        early = on_gpu_ && run.early && run.results_held + results <= maxHeld() && isReadyAt(kernel, run.kernels[0]);
      }
      if (!late && !early)
        runs.emplace_back();
      Run& run = runs.back();
      if (!run.kernels.empty()) {
        run.late = late;
        run.early = early;
        run.results_held += results;
      }
      run.kernels.push_back(kernel);
      run.needed = std::min(run.needed, firstReader(kernel));
      run.inputs_held += inputs;
    }
    return runs;
  }

  /// Whether all that it reads is there where `place` stands.
  bool isReadyAt(KernelOp kernel, Operation* place) const {
    return llvm::all_of(kernel.getInputs(), [&](Value input) {
      Operation* from = throughViews(input).getDefiningOp();
      return !from || positions_.lookup(from) < positions_.lookup(place);
    });
  }

  /// The views behind `value` that stand after `place`.
  static void moveViewsBefore(Value value, Operation* place) {
    auto view = value.getDefiningOp<ViewOp>();
    if (!view || view->isBeforeInBlock(place))
      return;
    moveViewsBefore(view.getSource(), place);
    view->moveBefore(place);
  }

  void commit(const Run& run, bool flat) {
    ArrayRef<KernelOp> kernels = run.kernels;
    KernelOp last = kernels.back();
    Operation* place = run.late ? last : kernels.front();
    for (KernelOp kernel : kernels)
      for (Value input : kernel.getInputs())
        moveViewsBefore(input, place);
    OpBuilder builder(place);
    SmallVector<Value> inputs;
    SmallVector<Type> types;
    SmallVector<Attribute> input_layouts, layouts;
    SmallVector<Location> locations;
    SmallVector<int64_t> groups, sizes;
    for (KernelOp kernel : kernels) {
      llvm::append_range(inputs, kernel.getInputs());
      llvm::append_range(types, kernel.getResultTypes());
      ArrayRef<Attribute> all = kernel.getLayouts().getValue();
      llvm::append_range(input_layouts, all.take_front(kernel.getInputs().size()));
      llvm::append_range(layouts, all.drop_front(kernel.getInputs().size()));
      locations.push_back(kernel.getLoc());
      if (auto mine = kernel.getGroups())
        llvm::append_range(groups, *mine);
      sizes.push_back(cast<RankedTensorType>(kernel.getResult(0).getType()).hasStaticShape()
                          ? cast<RankedTensorType>(kernel.getResult(0).getType()).getNumElements()
                          : 0);
    }
    input_layouts.append(layouts);
    auto batch = KernelOp::create(builder, builder.getFusedLoc(locations), types, inputs, last.getName(),
                                  builder.getArrayAttr(input_layouts), kernels.size());
    if (!groups.empty())
      batch.setGroups(groups);
    // Of one shape, the body may as well know it.
    if (flat && !llvm::all_of(kernels, [&](KernelOp kernel) {
          return kernel.getOperandTypes() == last.getOperandTypes() &&
                 kernel.getResultTypes() == last.getResultTypes() && kernel.getLayouts() == last.getLayouts();
        })) {
      batch.setBatchSizes(sizes);
      flatten(kernels[0], batch.getBody());
    } else {
      batch.getBody().takeBody(KernelOp(kernels[0]).getBody());
    }
    unsigned next = 0;
    for (KernelOp kernel : kernels) {
      for (Value result : kernel.getResults())
        result.replaceAllUsesWith(batch.getResult(next++));
      kernel.erase();
    }
  }

  //===-- bodies for any sizes -----------------------------------------------------------------===//

  /// The text of the kernel's flat body; empty when it has none.
  std::string flatKey(KernelOp kernel) {
    if (!isFlat(kernel))
      return "";
    OpBuilder builder(kernel);
    auto probe = KernelOp::create(builder, kernel.getLoc(), kernel.getResultTypes(), kernel.getInputs(),
                                  kernel.getName(), kernel.getLayouts());
    flatten(kernel, probe.getBody());
    std::string text = bodyText(probe);
    probe.erase();
    if (on_gpu_) {
      const int64_t elements = cast<RankedTensorType>(kernel.getResult(0).getType()).getNumElements();
      text += " of " + std::to_string(llvm::Log2_64(uint64_t(std::max(elements, gpu_group_elements))) / 2);
    }
    return text;
  }

  /// Whether elements lie side by side in the order of their indices. Where a dimension of one element would step to is
  /// nobody's business (a channels-last weight of 1x1).
  static bool liesInRows(AffineMap layout, RankedTensorType type) {
    auto withoutOnes = [&](AffineMap map) {
      SmallVector<AffineExpr> dims;
      for (unsigned dim = 0; dim < map.getNumDims(); ++dim)
        dims.push_back(type.getDimSize(dim) == 1 ? getAffineConstantExpr(0, map.getContext())
                                                 : getAffineDimExpr(dim, map.getContext()));
      return map.replaceDimsAndSymbols(dims, {}, map.getNumDims(), map.getNumSymbols());
    };
    return simplifyAffineMap(withoutOnes(layout)) ==
           simplifyAffineMap(withoutOnes(contiguousLayout(type, layout.getNumSymbols())));
  }

  /// Elementwise work on contiguous tensors of one static shape, besides tensors of one element.
  bool isFlat(KernelOp kernel) {
    auto shape = cast<RankedTensorType>(kernel.getResult(0).getType());
    if (!shape.hasStaticShape() || shape.getNumElements() < 2)
      return false;
    auto whole = [&](Value value) { return cast<RankedTensorType>(value.getType()).getShape() == shape.getShape(); };
    auto single = [](Value value) {
      auto type = cast<RankedTensorType>(value.getType());
      return type.hasStaticShape() && type.getNumElements() == 1;
    };
    ArrayRef<Attribute> layouts = kernel.getLayouts().getValue();
    SmallVector<Value> values(kernel.getInputs());
    llvm::append_range(values, kernel.getResults());
    for (auto [value, layout] : llvm::zip(values, layouts)) {
      if (single(value))
        continue;
      if (!whole(value) || !liesInRows(cast<AffineMapAttr>(layout).getValue(), shape))
        return false;
    }
    if (!llvm::all_of(kernel.getResults(), whole))
      return false;
    for (Operation& op : kernel.getBody().front().without_terminator()) {
      if (isa<arith::ConstantOp>(op))
        continue;
      if (auto empty = dyn_cast<tensor::EmptyOp>(op); empty && whole(empty.getResult()))
        continue;
      auto generic = dyn_cast<linalg::GenericOp>(op);
      if (!generic || generic.getNumReductionLoops() != 0 || generic.getNumResults() != 1 ||
          !whole(generic.getResult(0)))
        return false;
      for (OpOperand& operand : generic->getOpOperands()) {
        AffineMap map = generic.getMatchingIndexingMap(&operand);
        if (!(whole(operand.get()) && map.isIdentity()) && !(single(operand.get()) && map.isConstant()))
          return false;
      }
      auto placed = generic.getBody()->walk([](Operation* inner) {
        return WalkResult(isa<linalg::IndexOp, tensor::ExtractOp, SizeOp>(inner) ? failure() : success());
      });
      if (placed.wasInterrupted())
        return false;
    }
    return true;
  }

  static RankedTensorType flatType(RankedTensorType type) {
    return type.getNumElements() == 1 ? type : RankedTensorType::get({nominal_size}, type.getElementType());
  }

  /// Writes the kernel's work over one dimension into `body`. Tensors of one element keep their types.
  void flatten(KernelOp kernel, Region& body) {
    Block& from = kernel.getBody().front();
    Block& to = body.empty() ? body.emplaceBlock() : body.front();
    IRMapping mapping;
    for (BlockArgument argument : from.getArguments())
      mapping.map(argument, to.addArgument(flatType(cast<RankedTensorType>(argument.getType())), argument.getLoc()));
    auto builder = OpBuilder::atBlockEnd(&to);
    AffineMap identity = builder.getMultiDimIdentityMap(1);
    for (Operation& op : from) {
      if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
        auto type = flatType(empty.getType());
        mapping.map(empty.getResult(),
                    tensor::EmptyOp::create(builder, op.getLoc(), type.getShape(), type.getElementType()).getResult());
        continue;
      }
      auto generic = dyn_cast<linalg::GenericOp>(op);
      if (!generic) {
        builder.clone(op, mapping);
        continue;
      }
      SmallVector<AffineMap> maps;
      for (AffineMap map : generic.getIndexingMapsArray())
        maps.push_back(map.isConstant() && !map.isIdentity() ? AffineMap::get(1, 0, map.getResults(), op.getContext())
                                                             : identity);
      // A map without results is the identity of no dimensions: a tensor of rank 0.
      for (auto [map, operand] : llvm::zip(maps, generic->getOperands()))
        if (cast<RankedTensorType>(operand.getType()).getRank() == 0)
          map = AffineMap::get(1, 0, {}, op.getContext());
      auto lookup = [&](Value value) { return mapping.lookup(value); };
      auto flat = linalg::GenericOp::create(
          builder, op.getLoc(), TypeRange{flatType(cast<RankedTensorType>(generic.getResult(0).getType()))},
          llvm::map_to_vector(generic.getInputs(), lookup), llvm::map_to_vector(generic.getOutputs(), lookup), maps,
          SmallVector<utils::IteratorType>{utils::IteratorType::parallel});
      generic.getRegion().cloneInto(&flat.getRegion(), mapping);
      mapping.map(generic.getResult(0), flat.getResult(0));
    }
  }

  func::FuncOp graph_;
  Block& block_;
  const bool on_gpu_;
  llvm::DenseMap<Operation*, size_t> positions_;
};

class BatchKernels : public impl::BatchKernelsBase<BatchKernels> {
public:
  using BatchKernelsBase::BatchKernelsBase;

private:
  void runOnOperation() override {
    const auto description = TargetDescription::named(target);
    Batching(getOperation(), description && description->hasWorkGroups()).run();
  }
};

}  // namespace
}  // namespace zefuse
