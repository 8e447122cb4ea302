// The library of a GPU's vendor is slow where rows of 16-bit elements begin between two multiples of 16 bytes, and so
// are our kernels: both would load single elements (the derivatives of a projection to 50257 words). Such an operand is
// copied once, with rows a little longer, zeros behind them: its memory is passed over once, where the product reads it
// hundreds of times. Products that share an operand share the copy. The same of a result (the projection itself): the
// operand that has its columns gets a few more, and who reads the result, or a copy for the caller, leaves them out.
#include "common/toolchain/target_description.h"
#include "compiler/builder/dtype.h"
#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/index_space.h"
#include "lowering/analysis/library_products.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_PADPRODUCTS
#include "compiler/fuse/Passes.h.inc"

namespace {

constexpr int64_t together = 8;              // elements of 16 bytes
constexpr int64_t fewest_uses = 256;         // multiplications of each element that is copied
constexpr int64_t fewest_uses_ordered = 32;  // of one that is copied since no strides tell where it lies

int64_t padded(int64_t size) { return (size + together - 1) / together * together; }
bool isOdd(int64_t size) { return size % together != 0; }

/// A matrix as it lies in memory, or transposed: `base` is what the views that only swap its dimensions begin at.
struct Matrix {
  Value base;
  bool transposed = false;

  explicit Matrix(Value operand) : base(operand) {
    while (auto view = base.getDefiningOp<ViewOp>()) {
      AffineExpr first, second;
      bindDims(view.getContext(), first, second);
      if (typeOf(view.getSource()).getRank() != 2 || typeOf(base).getRank() != 2 ||
          view.getMap() != AffineMap::get(2, view.getMap().getNumSymbols(), {second, first}, view.getContext()))
        break;
      base = view.getSource();
      transposed = !transposed;
    }
  }
  int64_t inner() const { return typeOf(base).getShape().back(); }
  // Whether the base's rows follow each other in memory, as far as is known: of other views they may lie anyhow.
  bool isContiguous() const {
    auto view = base.getDefiningOp<ViewOp>();
    return !view || typeOf(view.getSource()).getNumElements() == typeOf(base).getNumElements();
  }
  int64_t elements() const { return typeOf(base).getNumElements(); }

  Value resized(int64_t rows, int64_t columns, TensorBuilder& build) const {
    if (transposed)
      std::swap(rows, columns);
    Value whole = base;
    if (typeOf(base).getShape() != ArrayRef<int64_t>{rows, columns})
      whole = build.pad(base, {0, 0}, {build.constant(rows), build.constant(columns)}, 0);
    return transposed ? build.permute(whole, {1, 0}) : whole;
  }
};

void pad(MatmulOp op, TensorBuilder& build) {
  const RankedTensorType a = typeOf(op.getA()), b = typeOf(op.getB()), result = typeOf(op.getResult());
  if (result.getRank() != 2 || !a.hasStaticShape() || !b.hasStaticShape() ||
      !isa<Float16Type, BFloat16Type>(elementOf(op.getA())))
    return;
  const int64_t m = a.getDimSize(0), k = a.getDimSize(1), n = b.getDimSize(1);
  const Matrix of_a(op.getA()), of_b(op.getB());
  bool wants_a = of_a.isContiguous() && isOdd(of_a.inner()), wants_b = of_b.isContiguous() && isOdd(of_b.inner());
  const bool longer_k = (wants_a && !of_a.transposed) || (wants_b && of_b.transposed);
  const bool more_rows = wants_a && of_a.transposed;
  const bool more_columns = (wants_b && !of_b.transposed) || isOdd(n);  // the result's rows too
  if (!longer_k && !more_rows && !more_columns)
    return;
  Value bias = op.getBias();
  if (more_columns && bias && (typeOf(bias).getRank() != 1 || typeOf(bias).getDimSize(0) != n))
    return;
  const int64_t all_m = more_rows ? padded(m) : m, all_k = longer_k ? padded(k) : k,
                all_n = more_columns ? padded(n) : n;
  const int64_t copied = (all_m != m || all_k != k ? of_a.elements() : 0) +
                         (all_n != n || all_k != k ? of_b.elements() : 0) +
                         (!wants_a && !wants_b ? result.getNumElements() : 0);
  if (double(copied) * fewest_uses > double(m) * double(k) * double(n))
    return;
  if (bias && all_n != n)
    bias = build.pad(bias, {0}, {build.constant(all_n)}, 0);
  Value product = build.matmul(of_a.resized(all_m, all_k, build), of_b.resized(all_k, all_n, build), bias,
                               op.getAlpha().convertToDouble(),
                               build.type({build.constant(all_m), build.constant(all_n)}, result.getElementType()));
  product.getDefiningOp()->setAttr("zefuse.note",
                                   build.b.getStringAttr("rows of " +
                                                         std::to_string(wants_a   ? of_a.inner()
                                                                        : wants_b ? of_b.inner()
                                                                                  : n) +
                                                         " elements are copied to begin at multiples of 16 bytes"));
  for (auto [dim, size] : {std::pair<int64_t, int64_t>{0, m}, {1, n}})
    if (typeOf(product).getDimSize(unsigned(dim)) != size)
      product = build.slice(product, dim, build.constant(0), build.constant(size), 1);
  op.getResult().replaceAllUsesWith(product);
  op.erase();
}

/// Whether strides tell where the elements of a view, or a copy of one, lie in its contiguous source. Those of windows
/// of an image do not, as rows.
bool isStrided(Value operand, unsigned num_symbols) {
  AffineMap map = AffineMap::getMultiDimIdentityMap(unsigned(typeOf(operand).getRank()), operand.getContext());
  const SmallVector<AffineExpr> sizes = shapeOf(typeOf(operand));
  // zefuse-prepare makes views of copies.
  for (Operation* op; (op = operand.getDefiningOp()) && (isa<ViewOp>(op) || isCopy(op)); operand = op->getOperand(0)) {
    auto view = dyn_cast<ViewOp>(op);
    const AffineMap step =
        view ? view.getMap() : cast<linalg::GenericOp>(op).getMatchingIndexingMap(&op->getOpOperand(0));
    auto through =
        llvm::map_to_vector(step.getResults(), [&](AffineExpr index) { return index.replaceDims(map.getResults()); });
    map = simplifyInBounds(AffineMap::get(unsigned(sizes.size()), num_symbols, through, operand.getContext()), sizes);
  }
  AffineExpr element = contiguousLayout(typeOf(operand), num_symbols).getResult(0).replaceDims(map.getResults());
  return asStrided(AffineMap::get(unsigned(sizes.size()), num_symbols, element), sizes).has_value();
}

/// Copies operands that lie in no strides, as the windows of an image: the library cannot read them, our kernel would
/// address each element by itself, and the sum is not cut into slices, which the library does. `copies`: by what was
/// copied.
void order(MatmulOp op, TensorBuilder& build, unsigned num_symbols, llvm::DenseMap<Value, Value>& copies) {
  if (op.getType().getRank() != 2 || !op.getType().hasStaticShape())
    return;
  const ArrayRef<int64_t> sizes = op.getType().getShape();
  for (auto [operand, uses] :
       {std::pair(&op.getAMutable(), sizes.back()), std::pair(&op.getBMutable(), sizes[sizes.size() - 2])}) {
    const Matrix matrix(operand->get());
    if (uses < fewest_uses_ordered || !typeOf(matrix.base).hasStaticShape() || isStrided(matrix.base, num_symbols))
      continue;
    if (Operation* made = matrix.base.getDefiningOp(); isCopy(made)) {
      made->setAttr(kept_copy, build.b.getUnitAttr());
      continue;
    }
    Value& copy = copies[matrix.base];
    if (!copy) {
      OpBuilder::InsertionGuard guard(build.b);
      build.b.setInsertionPointAfterValue(matrix.base);
      copy = build.loop({matrix.base}, typeOf(matrix.base), [](Body&, ArrayRef<Scalar> in) { return in[0]; });
      copy.getDefiningOp()->setAttr(kept_copy, build.b.getUnitAttr());
    }
    operand->set(matrix.transposed ? build.permute(copy, {1, 0}) : copy);
  }
}

class PadProducts : public impl::PadProductsBase<PadProducts> {
public:
  using PadProductsBase::PadProductsBase;

private:
  void runOnOperation() override {
    func::FuncOp graph = getOperation();
    const auto description = TargetDescription::named(target);
    const auto which = libraryProductsNamed(library).value_or(LibraryProducts::never);
    if (!description || !description->supports.products)
      return;
    const unsigned num_symbols = graphSymbolsOf(graph);
    llvm::DenseMap<Value, Value> copies;
    for (MatmulOp op : llvm::make_early_inc_range(graph.getBody().front().getOps<MatmulOp>()))
      if (libraryWork(op, *description, which)) {
        OpBuilder builder(op);
        TensorBuilder build(op.getLoc(), builder, num_symbols);
        order(op, build, num_symbols, copies);
        pad(op, build);
      }
  }
};

}  // namespace
}  // namespace zefuse
