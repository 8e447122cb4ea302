// Products (matrix products, convolutions) of few results and a long sum have too few tiles for a GPU: the sum is cut
// into slices, a product for each, in a batch. An ordinary reduction adds them, in order, which fusion joins with what
// comes after. chooseSplits, the schedule's cost model, says how many.
#include "common/toolchain/target_description.h"
#include "compiler/builder/dtype.h"
#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/index_space.h"
#include "lowering/analysis/library_products.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_SPLITPRODUCTS
#include "compiler/fuse/Passes.h.inc"

namespace {

bool onEngine(Value a, Value b, const TargetDescription& gpu) {
  return matrixOperation(elementOf(a), elementOf(b), gpu) != nullptr;
}

bool splitOnEngine(Value a, Value b, const TargetDescription& gpu) {
  return splitOperation(elementOf(a), elementOf(b), gpu) != nullptr;
}

/// Adds partial results of `product` along their first dimension, then `bias` (of the sum's sizes; null: none), and
/// rounds to the product's type. Says at them what was done.
Value sumOfSlices(TensorBuilder& build, Operation* product, Value partial, Value bias) {
  std::string note = "k in " + std::to_string(typeOf(partial).getShape().front()) +
                     " slices, which the next kernel adds: too few tiles otherwise";
  if (auto said = product->getAttrOfType<StringAttr>("zefuse.note"))
    note = said.str() + "; " + note;
  partial.getDefiningOp()->setAttr("zefuse.note", build.b.getStringAttr(note));
  Type compute = elementOf(partial);
  Value sum = build.reduce(partial, {0}, ReductionKind::add);
  if (bias)
    sum = build.loop({sum, bias}, typeOf(sum), [&](Body&, ArrayRef<Scalar> in) { return in[0] + in[1].to(compute); });
  return build.convert(sum, elementOf(product->getResult(0)));
}

//===-- matrix products ----------------------------------------------------------------------===//

int64_t slicesOf(MatmulOp op, const TargetDescription& gpu) {
  SmallVector<AffineExpr> sizes = shapeOf(typeOf(op.getResult()));
  auto depth = constantOf(shapeOf(typeOf(op.getA())).back());
  if (!depth)
    return 1;
  AffineExpr batches = numElements(ArrayRef(sizes).drop_back(2), op.getContext());
  const bool wide = splitOnEngine(op.getA(), op.getB(), gpu);
  return chooseSplits(constantOf(sizes[sizes.size() - 2]), constantOf(sizes.back()), constantOf(batches), *depth, 4,
                      gpu, wide || onEngine(op.getA(), op.getB(), gpu), wide);
}

Value split(MatmulOp op, int64_t slices, TensorBuilder& build) {
  RankedTensorType result = typeOf(op.getResult());
  Exprs sizes(shapeOf(result));
  const size_t rank = sizes.size();
  AffineExpr depth = shapeOf(typeOf(op.getA())).back().floorDiv(slices);
  auto sliced = [&](Value operand, size_t k) {
    Exprs whole(shapeOf(typeOf(operand))), indices;
    whole[k] = depth;
    whole.insert(whole.begin(), build.constant(slices));
    for (size_t position = 0; position < rank; ++position)
      indices.push_back(build.dim(int64_t(position) + 1));
    indices[k] = build.dim(0) * depth + indices[k];
    return build.view(operand, indices, whole);
  };
  Exprs parts(sizes);
  parts.insert(parts.begin(), build.constant(slices));
  RankedTensorType type = build.type(parts, fx::computeType(result.getElementType()));
  Value partial =
      build.matmul(sliced(op.getA(), rank - 1), sliced(op.getB(), rank - 2), {}, op.getAlpha().convertToDouble(), type);
  return sumOfSlices(build, op, partial, op.getBias() ? build.expand(op.getBias(), sizes) : Value());
}

//===-- convolutions -------------------------------------------------------------------------===//

// gpu_convolution.cpp has the product that a convolution is.
int64_t slicesOf(ConvolutionOp op, const TargetDescription& gpu) {
  const bool of_weights = op.getKind() == "weights";
  const int64_t groups = static_cast<int64_t>(op.getGroups());
  RankedTensorType result = typeOf(op.getResult()), weight = typeOf(op.getWeight());
  // The tensor whose pixels are walked, and the one whose spatial sizes are the kernel's.
  SmallVector<AffineExpr> outer = shapeOf(of_weights ? weight : result), taps = shapeOf(of_weights ? result : weight);
  auto spatial = [&](ArrayRef<AffineExpr> sizes) { return numElements(sizes.drop_front(2), op.getContext()); };
  AffineExpr pixels = outer[0] * spatial(outer);
  AffineExpr patches = shapeOf(typeOf(op.getInput()))[1].floorDiv(groups) * spatial(taps);
  auto depth = constantOf(of_weights ? pixels : patches);
  if (!depth)
    return 1;
  const bool wide = splitOnEngine(op.getInput(), op.getWeight(), gpu);
  return chooseSplits(constantOf(outer[1].floorDiv(groups)), constantOf(of_weights ? patches : pixels), groups, *depth,
                      4, gpu, wide || onEngine(op.getInput(), op.getWeight(), gpu), wide);
}

Value split(ConvolutionOp op, int64_t slices, TensorBuilder& build) {
  RankedTensorType result = typeOf(op.getResult());
  Exprs sizes(shapeOf(result)), parts(sizes);
  parts.insert(parts.begin(), build.constant(slices));
  auto partial = cast<ConvolutionOp>(build.b.clone(*op));
  partial.getBiasMutable().clear();
  partial.setSlices(slices);
  partial.getResult().setType(build.type(parts, fx::computeType(elementOf(op.getInput()))));
  Value bias = op.getBias();
  if (bias) {  // per channel
    for (size_t dim = 2; dim < sizes.size(); ++dim)
      bias = build.unsqueeze(bias, {int64_t(dim) - 1});
    bias = build.expand(bias, sizes);
  }
  return sumOfSlices(build, op, partial, bias);
}

template <typename Product>
void splitEach(func::FuncOp graph, const TargetDescription& gpu, llvm::function_ref<bool(Product)> stays) {
  const unsigned num_symbols = graphSymbolsOf(graph);
  for (Product op : llvm::make_early_inc_range(graph.getBody().front().getOps<Product>()))
    if (const int64_t slices = stays(op) ? 1 : slicesOf(op, gpu); slices > 1) {
      OpBuilder builder(op);
      TensorBuilder build(op.getLoc(), builder, num_symbols);
      op.getResult().replaceAllUsesWith(split(op, slices, build));
      op.erase();
    }
}

class SplitProducts : public impl::SplitProductsBase<SplitProducts> {
public:
  using SplitProductsBase::SplitProductsBase;

private:
  void runOnOperation() override {
    const std::optional<TargetDescription> description = TargetDescription::named(target);
    if (!description || !description->supports.products) {
      getOperation()->emitError() << "'" << target << "' has no products as kernels";
      return signalPassFailure();
    }
    const auto which = libraryProductsNamed(library).value_or(LibraryProducts::never);
    splitEach<MatmulOp>(getOperation(), *description,
                        [&](MatmulOp op) { return libraryWork(op, *description, which).has_value(); });
    const auto of_convolutions = libraryProductsNamed(convolutions).value_or(LibraryProducts::never);
    splitEach<ConvolutionOp>(getOperation(), *description, [&](ConvolutionOp op) {
      return libraryWork(op, *description, of_convolutions, isOfParameters(op.getWeight())).has_value();
    });
  }
};

}  // namespace
}  // namespace zefuse
