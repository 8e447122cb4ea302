// Layout assignment: how each value that reaches memory lies there.
//
// Readers with an opinion are library operands (strides that oneDNN takes), ATen operands and outputs (exactly eager's
// strides). A kernel or matmul can write any dense layout, so the cheapest copy is the one that its producer makes
// unnecessary: contiguous when every reader accepts that, else the candidate that satisfies most readers. Readers that
// remain get a copy, one per distinct view and layout.
#include <algorithm>

#include "common/toolchain/target_description.h"
#include "compiler/fuse/channels_last.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/layout_readers.h"
#include "compiler/fuse/orders.h"
#include "compiler/fuse/output_place.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/index_space.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_ASSIGNLAYOUTS
#include "compiler/fuse/Passes.h.inc"

namespace {

class LayoutAssignment {
public:
  LayoutAssignment(func::FuncOp graph, bool one_order)
      : graph_(graph), context_(graph.getContext()), num_symbols_(graphSymbolsOf(graph)), one_order_(one_order) {}

  LogicalResult run() {
    Block& block = graph_.getBody().front();
    for (BlockArgument arg : block.getArguments())
      layout_[arg] = argumentLayout(arg);
    SmallVector<Operation*> ops;
    for (Operation& op : block)
      ops.push_back(&op);
    for (Operation* op : ops) {
      auto step = dyn_cast<StepOpInterface>(op);
      if (!step)
        continue;
      if (isa<KernelOp>(op) && !llvm::all_of(op->getOperands(), [&](Value input) { return layout_.contains(input); }))
        return op->emitOpError("reads a view from outside: it has no layout of its own");
      auto kernel = dyn_cast<KernelOp>(op);
      const bool one_order = kernel && one_order_ && reduces(kernel);
      follows_images_ = !one_order || !copiesImagesRather(kernel);
      for (auto [i, result] : llvm::enumerate(op->getResults())) {
        AffineMap strides = step.getFixedResultStrides(i);
        layout_[result] =
            strides ? stridedLayout(strides.getResults(), nullptr, num_symbols_, context_) : choose(result);
      }
      if (one_order)
        useOneOrder(kernel);
    }
    for (BlockArgument arg : block.getArguments())
      if (failed(satisfyReaders(arg)))
        return failure();
    for (Operation* op : ops)
      if (isa<StepOpInterface>(op))
        for (Value result : op->getResults())
          if (failed(satisfyReaders(result)))
            return failure();
    for (Operation* op : ops)  // which read copies by now
      if (auto step = dyn_cast<StepOpInterface>(op))
        step.setLayouts(layoutsOf(op->getOperands()), layoutsOf(op->getResults()));
    writeOutputStrides();
    return success();
  }

private:
  /// Null for a view.
  SmallVector<AffineMap> layoutsOf(ValueRange values) const {
    return llvm::map_to_vector(values, [&](Value value) { return layout_.lookup(value); });
  }

  AffineMap argumentLayout(BlockArgument arg) {
    auto strides = graph_.getArgAttrOfType<AffineMapAttr>(arg.getArgNumber(), "zefuse.strides");
    if (!strides)
      return contiguousLayout(cast<RankedTensorType>(arg.getType()), num_symbols_);
    return stridedLayout(strides.getValue().getResults(), nullptr, num_symbols_, context_);
  }

  /// What is said of a function result in zefuse.outputs.
  DictionaryAttr output(unsigned result) {
    for (Attribute output : outputsOf(graph_)) {
      auto entry = dyn_cast<DictionaryAttr>(output);
      auto index = entry ? entry.getAs<IntegerAttr>("result") : nullptr;
      if (index && index.getInt() == result)
        return entry;
    }
    return {};
  }

  std::optional<LayoutReader> readerOf(OpOperand& use, AffineMap view) {
    Operation* op = use.getOwner();
    LayoutReader reader{&use, view, shapeOf(cast<RankedTensorType>(use.get().getType())), std::nullopt};
    if (isa<func::ReturnOp>(op)) {
      DictionaryAttr entry = output(use.getOperandNumber());
      if (entry && entry.get("argument"))
        return std::nullopt;  // the caller gets a view of what it gave
      if (entry) {
        reader.exact = entry.getAs<AffineMapAttr>("strides").getValue();
        reader.dense = entry.contains("any_strides");
      }
      return reader;
    }
    auto step = dyn_cast<StepOpInterface>(op);
    if (!step)
      return std::nullopt;
    const unsigned number = use.getOperandNumber();
    if (auto kernel = dyn_cast<KernelOp>(op);
        kernel && readByLibraryConvolution(kernel.getBody().getArgument(number))) {
      reader.channels_last = true;
      return reader;
    }
    switch (step.getOperandRule(number)) {
    case OperandRule::any: return std::nullopt;
    case OperandRule::strided: reader.strided = true; break;
    case OperandRule::matrix: break;
    case OperandRule::rows: reader.rows = true; break;
    case OperandRule::channels_last: reader.channels_last = true; break;
    case OperandRule::fixed: reader.exact = step.getFixedOperandStrides(number); break;
    }
    return reader;
  }

  void collectReaders(Value value, AffineMap view, SmallVectorImpl<LayoutReader>& readers) {
    for (OpOperand& use : value.getUses()) {
      if (auto next = dyn_cast<ViewOp>(use.getOwner())) {
        collectReaders(next.getResult(), through(view, next), readers);
      } else if (auto reader = readerOf(use, view)) {
        readers.push_back(*reader);
      }
    }
  }

  AffineMap through(AffineMap view, ViewOp next) {
    SmallVector<AffineExpr> results;
    for (AffineExpr expr : view.getResults())
      results.push_back(expr.replaceDims(next.getMap().getResults()));
    AffineMap map = AffineMap::get(next.getMap().getNumDims(), num_symbols_, results, context_);
    return simplifyInBounds(map, shapeOf(next.getType()));
  }

  /// Products in kernels that a vendor's library takes as well, where their operands lie as a library wants them; their
  /// kernels take any layout, so that nothing is copied for them.
  void collectLibraryProducts(Value value, AffineMap view, SmallVectorImpl<LayoutReader>& readers) {
    for (OpOperand& use : value.getUses()) {
      Operation* op = use.getOwner();
      if (auto next = dyn_cast<ViewOp>(op))
        collectLibraryProducts(next.getResult(), through(view, next), readers);
      else if (auto kernel = dyn_cast<KernelOp>(op))
        collectLibraryProducts(kernel.getBody().getArgument(use.getOperandNumber()), view, readers);
      else if (isa<MatmulOp>(op) && op->hasAttr(in_library) && use.getOperandNumber() < 2)
        readers.push_back({&use, view, shapeOf(cast<RankedTensorType>(use.get().getType())), std::nullopt});
    }
  }

  AffineMap identityMap(Value value) {
    const int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
    SmallVector<AffineExpr> dims;
    for (int64_t i = 0; i < rank; ++i)
      dims.push_back(getAffineDimExpr(unsigned(i), context_));
    return AffineMap::get(unsigned(rank), num_symbols_, dims, context_);
  }

  SmallVector<LayoutReader> readersOf(Value value) {
    SmallVector<LayoutReader> readers;
    collectReaders(value, identityMap(value), readers);
    return readers;
  }

  bool accepts(const LayoutReader& reader, AffineMap layout) {
    AffineExpr element = layout.getResult(0).replaceDims(reader.view.getResults());
    AffineMap map = AffineMap::get(reader.view.getNumDims(), num_symbols_, element);
    auto strided = asStrided(map, reader.sizes);
    if (!strided)
      return false;
    size_t rank = reader.sizes.size();
    std::optional<AffineMap> exact = reader.exact;
    if (reader.channels_last)
      exact = AffineMap::get(0, num_symbols_, channelsLastStrides(reader.sizes, context_), context_);
    if (exact &&
        llvm::all_of(llvm::zip_equal(reader.sizes, strided->strides, exact->getResults()), [](const auto& each) {
          auto [size, stride, wanted] = each;
          return constantOf(size) == 1 || sameValue(stride, wanted);
        }))
      return true;
    // A plan states no negative strides; torch has none.
    if (!llvm::all_of(reader.view.getResults(), stepsForward) && !llvm::all_of(strided->strides, neverNegative))
      return false;
    if (reader.strided || (reader.dense && isDense(strided->strides, reader.sizes)))
      return true;
    if (exact)
      return false;
    if (reader.rows) {
      auto row = dyn_cast<AffineConstantExpr>(strided->strides[rank - 2]);
      auto length = dyn_cast<AffineConstantExpr>(reader.sizes[rank - 1]);
      bool constant = llvm::all_of(strided->strides, llvm::IsaPred<AffineConstantExpr>);
      return constant && constantOf(strided->strides[rank - 1]) == 1 && length && row.getValue() >= length.getValue();
    }
    // oneDNN: broadcasting only in batch dimensions, a unit stride in one of the last two. Other
    // strides reach its reference implementation, which is slower than a copy.
    bool unit = rank < 2;
    for (size_t i = 0; i < rank; ++i) {
      bool single = constantOf(reader.sizes[i]) == 1;
      if (i + 2 >= rank) {
        if (!single && constantOf(strided->strides[i]) == 0)
          return false;
        unit |= single || constantOf(strided->strides[i]) == 1;
      }
    }
    return unit;
  }

  AffineMap channelsLastLayout(ArrayRef<AffineExpr> sizes) {
    return stridedLayout(channelsLastStrides(sizes, context_), nullptr, num_symbols_, context_);
  }

  /// How a channels-last image lies of which the kernel sees what is computed in this shape (channels in groups: a
  /// group norm); else null.
  AffineMap followingViewedInput(Value value, RankedTensorType type) {
    auto kernel = value.getDefiningOp<KernelOp>();
    if (!kernel || type.getRank() < 3)
      return {};
    for (Value input : kernel.getInputs()) {
      auto read = cast<RankedTensorType>(input.getType());
      AffineMap layout = layout_.at(input);
      if (read.getRank() < 3 || read.getRank() > 5 || layout != channelsLastLayout(shapeOf(read)) ||
          layout == contiguousLayout(read, num_symbols_))
        continue;
      for (ViewOp view : kernel.getBody().getOps<ViewOp>()) {
        if (!sameShape(view.getType(), type) || !sameShape(cast<RankedTensorType>(view.getSource().getType()), read))
          continue;
        AffineExpr element = layout.getResult(0).replaceDims(view.getMap().getResults());
        auto strided = asStrided(AffineMap::get(unsigned(type.getRank()), num_symbols_, element), shapeOf(type));
        if (strided && isDense(strided->strides, shapeOf(type)))
          return stridedLayout(strided->strides, nullptr, num_symbols_, context_);
      }
    }
    return {};
  }

  /// Channels last if `value`'s kernel reads a channels-last image at least as large as any other; else null.
  AffineMap followingInputs(Value value, RankedTensorType type) {
    auto kernel = value.getDefiningOp<KernelOp>();
    if (!kernel || type.getRank() < 3 || type.getRank() > 5)
      return {};
    bool found = false;
    for (Value input : kernel.getInputs()) {
      auto read = cast<RankedTensorType>(input.getType());
      if (read.getRank() != type.getRank())
        continue;
      if (layout_.at(input) == channelsLastLayout(shapeOf(read)) &&
          layout_.at(input) != contiguousLayout(read, num_symbols_))
        found |= sameChannelsOrPlaces(read, type);
      else if (sameShape(read, type))
        return {};
    }
    return found ? channelsLastLayout(shapeOf(type)) : AffineMap();
  }

  static bool reduces(KernelOp kernel) {
    return kernel.getBody()
        .walk([](linalg::GenericOp op) { return isReduction(op) ? WalkResult::interrupt() : WalkResult::advance(); })
        .wasInterrupted();
  }

  /// Whether the value's rows are contiguous in the layout.
  bool hasRows(AffineMap layout, RankedTensorType type) {
    SmallVector<AffineExpr> sizes = shapeOf(type);
    auto strided = asStrided(layout, sizes);
    return strided && (constantOf(sizes.back()) == 1 || constantOf(strided->strides.back()) == 1);
  }

  /// A kernel that reduces has no tiles: where it reads or writes large tensors in two orders, those of one order are
  /// walked through element by element, each on a cache line of its own. What is in the minority is copied: inputs
  /// before the kernel, results after it, for whoever wants them otherwise.
  void useOneOrder(KernelOp kernel) {
    for (const OtherOrder& other :
         inOtherOrders(kernel, [&](Value value) { return layout_.lookup(value); }, num_symbols_)) {
      if (other.value.getDefiningOp() == kernel.getOperation()) {
        layout_[other.value] = other.layout;
        continue;
      }
      Value& copy = reordered_[{other.value, other.layout}];
      const auto type = cast<RankedTensorType>(other.value.getType());
      for (OpOperand& use : kernel->getOpOperands())
        if (use.get() == other.value) {
          if (!copy)
            copy = copyKernel(other.value, {&use, identityMap(other.value), shapeOf(type), std::nullopt}, type,
                              other.layout);
          use.set(copy);
        }
    }
  }

  /// Whether results of a kernel that reduces lie contiguous although it reads channels-last images: copies of these
  /// before it (useOneOrder) are less than those of results behind it would be, or as much and what it reduces is
  /// innermost so. What is saved for a backward graph is read there beside the results' gradients, which lie as the
  /// results do.
  bool copiesImagesRather(KernelOp kernel) {
    double before = 0, behind = 0;
    for (Value input : kernel.getInputs()) {
      const auto type = cast<RankedTensorType>(input.getType());
      if (isLargeInOrder(input) && type.getRank() >= 3 && type.getRank() <= 5 &&
          layout_.at(input) == channelsLastLayout(shapeOf(type)) &&
          layout_.at(input) != contiguousLayout(type, num_symbols_))
        before += estimatedElements(input);
    }
    for (Value result : kernel.getResults()) {
      const auto type = cast<RankedTensorType>(result.getType());
      const AffineMap viewed = followingViewedInput(result, type);
      const AffineMap layout = viewed ? viewed : followingInputs(result, type);
      if (!layout || !isLargeInOrder(result))
        continue;
      const SmallVector<LayoutReader> readers = readersOf(result);
      auto copied = [&](AffineMap lies) {
        return llvm::any_of(readers, [&](const LayoutReader& reader) { return !accepts(reader, lies); });
      };
      behind += copied(layout) ? estimatedElements(result) : 0;
      before += copied(contiguousLayout(type, num_symbols_)) ? estimatedElements(result) : 0;
    }
    return before < behind || (before == behind && behind > 0 && reducesInnermost(kernel));
  }

  AffineMap choose(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    // oneDNN's quick convolutions write channels last, on every CPU (docs/convolution.md), and a kernel's tiles too.
    if (ConvolutionOp convolution = convolutionOf(value, type)) {
      // What is only returned a kernel writes as it is wanted: its tiles have rows of either kind.
      if (isa<KernelOp>(value.getDefiningOp()) && !convolution->hasAttr(in_library) &&
          llvm::all_of(value.getUsers(), llvm::IsaPred<func::ReturnOp>))
        if (SmallVector<LayoutReader> readers = readersOf(value); readers.size() == 1 && readers[0].exact)
          return stridedLayout(readers[0].exact->getResults(), nullptr, num_symbols_, context_);
      if (convolution.getSlices() == 1)
        return channelsLastLayout(shapeOf(type));
      SmallVector<AffineExpr> sizes(shapeOf(type)),
          strides = channelsLastStrides(ArrayRef(sizes).drop_front(), context_);
      const AffineExpr slice = numElements(ArrayRef(sizes).drop_front(), context_);
      strides.insert(strides.begin(), simplifyAffine(slice, 0, num_symbols_));
      return stridedLayout(strides, nullptr, num_symbols_, context_);
    }
    AffineMap contiguous = contiguousLayout(type, num_symbols_);
    SmallVector<LayoutReader> readers = readersOf(value);
    const size_t others = readers.size();
    collectLibraryProducts(value, identityMap(value), readers);
    auto satisfied = [&](AffineMap layout) {
      return llvm::count_if(readers, [&](const LayoutReader& reader) { return accepts(reader, layout); });
    };
    auto result = dyn_cast<OpResult>(value);
    auto step = value.getDefiningOp<StepOpInterface>();
    const bool keeps_rows = step && step.keepsRowsOf(result.getResultNumber());
    // oneDNN writes a product in any order that a reader wants; attention and recurrences write whole rows only.
    const bool only_rows = keeps_rows && !isa<MatmulOp, GroupedMatmulOp>(value.getDefiningOp());
    AffineMap best = contiguous;
    int64_t best_count = satisfied(contiguous);
    auto consider = [&](AffineMap layout) {
      if (best_count == static_cast<int64_t>(readers.size()) || (only_rows && !hasRows(layout, type)))
        return;
      if (int64_t count = satisfied(layout); count > best_count) {
        best_count = count;
        best = layout;
      }
    };
    for (const LayoutReader& reader : readers)
      if (reader.channels_last && readsWhole(reader, type))
        consider(channelsLastLayout(reader.sizes));
    // A kernel that reads images channels last writes them so, unless a reader would mind: one order of memory on both
    // sides, and the next convolution is often behind another kernel.
    // One that reduces has no tiles: two orders of memory cost it more (66 ms, a batch norm of 4x64x112x112) than a
    // copy for the reader does (10 ms). Not so sequences: a layer norm's rows are a transposed convolution's channels.
    const AffineMap viewed = followingViewedInput(value, type);
    if (AffineMap layout = viewed ? viewed : followingInputs(value, type); layout && follows_images_) {
      if (type.getRank() > 3 && reduces(value.getDefiningOp<KernelOp>()))
        return layout;
      if (!viewed && satisfied(layout) >= best_count)
        return layout;
    }
    for (const LayoutReader& reader : readers)
      if (reader.exact && readsWhole(reader, type) && isDense(reader.exact->getResults(), reader.sizes))
        consider(stridedLayout(reader.exact->getResults(), nullptr, num_symbols_, context_));
    if (best_count < static_cast<int64_t>(readers.size()))
      if (auto strides = stridesToldBy(value, outputsAmong(readers)); strides && isDense(*strides, shapeOf(type)))
        consider(stridedLayout(*strides, nullptr, num_symbols_, context_));
    // Row-major over permuted dimensions; the identity was tried. A product keeps N innermost, where oneDNN is fast.
    // So does a kernel's result that a vendor's library multiplies: columns of odd lengths are slow there.
    bool product = keeps_rows || readers.size() > others;
    unsigned rank = type.getRank(), movable = product ? rank - 1 : rank;
    if (rank <= 4) {
      SmallVector<unsigned> order(llvm::to_vector(llvm::seq<unsigned>(0, rank)));
      while (std::next_permutation(order.begin(), order.begin() + movable))
        consider(permutedLayout(type, order, num_symbols_));
    } else if (auto kernel = value.getDefiningOp<KernelOp>(); kernel && !product && !reduces(kernel)) {
      for (const LayoutReader& reader : readers)
        if (SmallVector<unsigned> order = orderReadBy(reader.view, reader.sizes, type); !order.empty())
          consider(permutedLayout(type, order, num_symbols_));
    }
    // A view of an image (patches in a row) is a matrix to others, which may want it turned.
    return viewed && satisfied(viewed) >= best_count ? viewed : best;
  }

  /// Of the outputs that may have any strides: those that they got.
  void writeOutputStrides() {
    auto results = graph_.getBody().front().getTerminator()->getOperands();
    auto outputs = llvm::to_vector(outputsOf(graph_));
    for (Attribute& output : outputs) {
      auto entry = dyn_cast<DictionaryAttr>(output);
      if (!entry || !entry.contains("any_strides"))
        continue;
      Value value = results[entry.getAs<IntegerAttr>("result").getInt()];
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<AffineExpr> indices;
      for (unsigned dim = 0; dim < type.getRank(); ++dim)
        indices.push_back(getAffineDimExpr(dim, context_));
      for (ViewOp view; (view = value.getDefiningOp<ViewOp>()); value = view.getOperand())
        indices = llvm::map_to_vector(view.getMap().getResults(),
                                      [&](AffineExpr index) { return index.replaceDims(indices); });
      AffineExpr element = layout_.at(value).getResult(0).replaceDims(indices);
      auto strided = asStrided(AffineMap::get(type.getRank(), num_symbols_, element), shapeOf(type));
      assert(strided && "layout assignment leaves only strided views outside kernels");
      AffineMap eager = entry.getAs<AffineMapAttr>("strides").getValue();
      for (auto [size, stride, traced] : llvm::zip(shapeOf(type), strided->strides, eager.getResults()))
        if (constantOf(size) == 1)
          stride = traced;
      NamedAttrList entries(entry);
      entries.set("strides", AffineMapAttr::get(AffineMap::get(0, num_symbols_, strided->strides, context_)));
      output = entries.getDictionary(context_);
    }
    if (!outputs.empty())
      graph_->setAttr("zefuse.outputs", ArrayAttr::get(context_, outputs));
  }

  static SmallVector<LayoutReader> outputsAmong(ArrayRef<LayoutReader> readers) {
    SmallVector<LayoutReader> outputs;
    llvm::copy_if(readers, std::back_inserter(outputs), [](const LayoutReader& reader) {
      return isa<func::ReturnOp>(reader.use->getOwner()) && reader.exact;
    });
    return outputs;
  }

  /// The strides that the value has in eager, by what is known of these outputs; null where they do not tell.
  std::optional<SmallVector<AffineExpr>> stridesToldBy(Value value, ArrayRef<LayoutReader> outputs) {
    if (outputs.empty())
      return std::nullopt;
    return stridesFor(value, llvm::map_to_vector(outputs, [&](const LayoutReader& reader) {
                        auto offset = output(reader.use->getOperandNumber()).getAs<AffineMapAttr>("offset");
                        return OutputPlace{reader.use, *reader.exact,
                                           offset ? offset.getValue().getResult(0) : AffineExpr()};
                      }));
  }

  /// Outputs that are views of one value share memory in eager: a write to one is seen in the others. Where another
  /// layout suits more of them than the value's they are views of one copy, not copies of their own.
  void copyOnceForOutputs(Value value) {
    SmallVector<LayoutReader> outputs = outputsAmong(readersOf(value));
    auto type = cast<RankedTensorType>(value.getType());
    if (llvm::all_of(outputs, [&](const LayoutReader& reader) {
          return reader.view == outputs.front().view && reader.sizes == outputs.front().sizes;
        }))
      return;
    auto suited = [&](AffineMap layout) {
      return llvm::count_if(outputs, [&](const LayoutReader& reader) { return accepts(reader, layout); });
    };
    const auto as_it_lies = suited(layout_.at(value));
    if (as_it_lies == static_cast<int64_t>(outputs.size()))
      return;
    AffineMap layout = contiguousLayout(type, num_symbols_);
    SmallVector<unsigned> order(llvm::to_vector(llvm::seq<unsigned>(0, type.getRank())));
    while (type.getRank() <= 5 && std::next_permutation(order.begin(), order.end()))
      if (AffineMap other = permutedLayout(type, order, num_symbols_); suited(other) > suited(layout))
        layout = other;
    SmallVector<ArrayRef<LayoutReader>> some = {outputs};
    for (const LayoutReader& reader : outputs)
      some.emplace_back(reader);
    for (ArrayRef<LayoutReader> told : some)  // maybe with gaps
      if (auto strides = stridesToldBy(value, told))
        if (AffineMap other = stridedLayout(*strides, nullptr, num_symbols_, context_); suited(other) > suited(layout))
          layout = other;
    if (suited(layout) <= std::max<int64_t>(as_it_lies, 1))
      return;
    llvm::erase_if(outputs, [&](const LayoutReader& reader) { return !accepts(reader, layout); });
    LayoutReader whole = outputs.front();
    whole.view = identityMap(value);
    Value copy = copyKernel(value, whole, type, layout);
    OpBuilder builder(graph_.getBody().front().getTerminator());
    for (LayoutReader& reader : outputs) {
      auto viewed = cast<RankedTensorType>(reader.use->get().getType());
      bool whole_copy = reader.view == whole.view && viewed == type;
      Value view =
          whole_copy ? copy : ViewOp::create(builder, reader.use->getOwner()->getLoc(), viewed, copy, reader.view);
      reader.use->set(view);
    }
  }

  LogicalResult satisfyReaders(Value value) {
    copyOnceForOutputs(value);
    SmallVector<std::tuple<AffineMap, AffineMap, Value>> copies;  // view, layout, copy
    SmallVector<LayoutReader> readers = readersOf(value);
    for (LayoutReader& reader : readers) {
      if (accepts(reader, layout_.at(value)))
        continue;
      auto type = cast<RankedTensorType>(reader.use->get().getType());
      AffineMap layout = reader.exact ? stridedLayout(reader.exact->getResults(), nullptr, num_symbols_, context_)
                         : reader.channels_last ? channelsLastLayout(reader.sizes)
                                                : contiguousLayout(type, num_symbols_);
      auto it = llvm::find_if(copies, [&](auto& copy) {  // x[:3] is the same view of x as x itself, but for its sizes
        return std::get<0>(copy) == reader.view && std::get<1>(copy) == layout && std::get<2>(copy).getType() == type;
      });
      if (it == copies.end()) {
        copies.emplace_back(reader.view, layout, copyKernel(value, reader, type, layout));
        it = std::prev(copies.end());
      }
      reader.use->set(std::get<2>(*it));
    }
    // What is saved for a backward graph and returned is one tensor, which its gradient will lie as.
    for (LayoutReader& reader : readers)
      if (reader.dense && accepts(reader, layout_.at(value)))
        for (auto& [view, layout, copy] : copies)
          if (view == reader.view && copy.getType() == reader.use->get().getType())
            reader.use->set(copy);
    return success();
  }

  /// A kernel that writes view(value) in `layout`.
  Value copyKernel(Value value, const LayoutReader& reader, RankedTensorType type, AffineMap layout) {
    OpBuilder builder(context_);
    if (Operation* producer = value.getDefiningOp())
      builder.setInsertionPointAfter(producer);
    else
      builder.setInsertionPointToStart(&graph_.getBody().front());
    Location loc = NameLoc::get(builder.getStringAttr("layout_copy|"), reader.use->getOwner()->getLoc());
    auto layouts = builder.getArrayAttr({AffineMapAttr::get(layout_.at(value)), AffineMapAttr::get(layout)});
    SmallVector<AffineExpr> strides = asStrided(layout, shapeOf(type))->strides;
    auto kernel = KernelOp::create(builder, loc, TypeRange{type}, ValueRange{value}, "layout_copy", layouts);
    Block& block = kernel.getBody().emplaceBlock();
    Value source = block.addArgument(value.getType(), loc);
    builder.setInsertionPointToEnd(&block);
    Value viewed = ViewOp::create(builder, loc, type, source, reader.view);
    Value copy = copyOf(builder, loc, cutRepeats(builder, loc, viewed, strides));
    YieldOp::create(builder, loc, copy);
    kernel.getResult(0).setType(copy.getType());
    layout_[kernel.getResult(0)] = layout;
    builder.setInsertionPointAfter(kernel);
    return repeatTo(builder, loc, kernel.getResult(0), type);
  }

  func::FuncOp graph_;
  MLIRContext* context_;
  unsigned num_symbols_;
  bool one_order_;              // reductions have no tiles
  bool follows_images_ = true;  // of the kernel whose results' layouts are being chosen
  DenseMap<Value, AffineMap> layout_;
  DenseMap<std::pair<Value, AffineMap>, Value> reordered_;  // for reductions: copies of values in other layouts
};

class AssignLayouts : public impl::AssignLayoutsBase<AssignLayouts> {
public:
  using AssignLayoutsBase::AssignLayoutsBase;

private:
  void runOnOperation() override {
    const auto description = TargetDescription::named(target);
    if (failed(LayoutAssignment(getOperation(), description && !description->hasWorkGroups()).run()))
      signalPassFailure();
  }
};

}  // namespace
}  // namespace zefuse
