// A convolution whose windows do not overlap (the patches of a vision transformer) is a product: of the patches, as
// rows, and the weight. Of an image of few channels, which the library of the vendor copies into more and we address by
// single elements, that is what it becomes where the library multiplies: zefuse-pad-products writes the patches as rows
// once. So are its derivatives by the weight and the image.
#include "common/toolchain/target_description.h"
#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/library_products.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_PATCHPRODUCTS
#include "compiler/fuse/Passes.h.inc"

namespace {

// Images of more are multiplied where they lie, in our kernels and the library's.
constexpr int64_t few_channels = 16;

/// A convolution as its forward has it: image [batch, channels, pixels...], result [batch, features, patches...].
struct Patches {
  RankedTensorType image, weight, result;
  int64_t spatial;

  explicit Patches(ConvolutionOp op) {
    const StringRef kind = op.getKind();
    image = kind == "transposed" ? op.getType() : typeOf(op.getInput());
    weight = kind == "weights" ? op.getType() : typeOf(op.getWeight());
    result = kind == "forward" ? op.getType() : typeOf(kind == "weights" ? op.getWeight() : op.getInput());
    spatial = image.getRank() - 2;
  }

  bool doNotOverlap(ConvolutionOp op) const {
    if (!image.hasStaticShape() || !weight.hasStaticShape() || !result.hasStaticShape() || op.getGroups() != 1 ||
        op.getSlices() != 1 || !op.getPostOps().empty() || image.getDimSize(1) >= few_channels)
      return false;
    int64_t taps = 1;
    for (int64_t dim = 0; dim < spatial; ++dim) {
      const int64_t size = weight.getDimSize(unsigned(dim + 2));
      taps *= size;
      const int64_t covered = result.getDimSize(unsigned(dim + 2)) * size, there = image.getDimSize(unsigned(dim + 2));
      if (op.getStride()[size_t(dim)] != size || op.getPadding()[size_t(dim)] != 0 ||
          op.getDilation()[size_t(dim)] != 1 || covered > there || (op.getKind() == "transposed" && covered != there))
        return false;
    }
    return taps > 1 && (op.getKind() == "forward" || !op.getBias());
  }

  int64_t features() const { return weight.getDimSize(0); }
  int64_t rows() const { return result.getNumElements() / features(); }
  int64_t elements() const { return weight.getNumElements() / features(); }  // of a patch
};

class Rewriting {
public:
  Rewriting(ConvolutionOp op, const Patches& patches, TensorBuilder& build) : op_(op), of_(patches), build_(build) {}

  /// The product, and the convolution's result made of it.
  std::pair<Value, Value> run() {
    const Value a = op_.getInput(), b = op_.getWeight();
    if (op_.getKind() == "forward") {
      const Value product = multiply(patchesOf(a), build_.permute(matrixOf(b), {1, 0}), op_.getBias());
      return {product, image(product)};
    }
    if (op_.getKind() == "weights") {
      const Value product = multiply(build_.permute(rowsOf(b), {1, 0}), patchesOf(a), Value());
      return {product, build_.reshape(product, shapeOf(of_.weight))};
    }
    const Value product = multiply(rowsOf(a), matrixOf(b), Value());
    return {product, imageOf(product)};
  }

private:
  Value multiply(Value a, Value b, Value bias) {
    const RankedTensorType result =
        build_.type({shapeOf(typeOf(a))[0], shapeOf(typeOf(b))[1]}, op_.getType().getElementType());
    return build_.matmul(a, b, bias, 1.0, result);
  }

  Exprs sizes(ArrayRef<int64_t> numbers) {
    Exprs found;
    for (int64_t number : numbers)
      found.push_back(build_.constant(number));
    return found;
  }

  /// [batch, channels, patches and taps of each dimension in turn].
  SmallVector<int64_t> divided() const {
    SmallVector<int64_t> all{of_.image.getDimSize(0), of_.image.getDimSize(1)};
    for (int64_t dim = 2; dim < of_.spatial + 2; ++dim) {
      all.push_back(of_.result.getDimSize(unsigned(dim)));
      all.push_back(of_.weight.getDimSize(unsigned(dim)));
    }
    return all;
  }
  /// The same with [batch, patches..., channels, taps...] in this order.
  SmallVector<int64_t> byPatch() const {
    SmallVector<int64_t> order{0};
    for (int64_t dim = 0; dim < of_.spatial; ++dim)
      order.push_back(2 + 2 * dim);
    order.push_back(1);
    for (int64_t dim = 0; dim < of_.spatial; ++dim)
      order.push_back(3 + 2 * dim);
    return order;
  }

  Value patchesOf(Value image) {
    for (int64_t dim = 2; dim < of_.spatial + 2; ++dim) {
      const int64_t covered = of_.result.getDimSize(unsigned(dim)) * of_.weight.getDimSize(unsigned(dim));
      if (covered != of_.image.getDimSize(unsigned(dim)))
        image = build_.slice(image, dim, build_.constant(0), build_.constant(covered), 1);
    }
    image = build_.permute(build_.reshape(image, sizes(divided())), byPatch());
    return build_.reshape(image, sizes({of_.rows(), of_.elements()}));
  }

  Value imageOf(Value patches) {
    const SmallVector<int64_t> order = byPatch(), all = divided();
    SmallVector<int64_t> permuted, back(order.size());
    for (auto [position, dim] : llvm::enumerate(order)) {
      permuted.push_back(all[size_t(dim)]);
      back[size_t(dim)] = int64_t(position);
    }
    return build_.reshape(build_.permute(build_.reshape(patches, sizes(permuted)), back), shapeOf(of_.image));
  }

  Value matrixOf(Value weight) { return build_.reshape(weight, sizes({of_.features(), of_.elements()})); }

  Value rowsOf(Value result) {
    SmallVector<int64_t> order{0};
    for (int64_t dim = 0; dim < of_.spatial; ++dim)
      order.push_back(dim + 2);
    order.push_back(1);
    return build_.reshape(build_.permute(result, order), sizes({of_.rows(), of_.features()}));
  }

  Value image(Value rows) {
    SmallVector<int64_t> last{of_.result.getDimSize(0)}, order{0, of_.spatial + 1};
    for (int64_t dim = 0; dim < of_.spatial; ++dim) {
      last.push_back(of_.result.getDimSize(unsigned(dim + 2)));
      order.push_back(dim + 1);
    }
    last.push_back(of_.features());
    return build_.permute(build_.reshape(rows, sizes(last)), order);
  }

  ConvolutionOp op_;
  const Patches& of_;
  TensorBuilder& build_;
};

class PatchProducts : public impl::PatchProductsBase<PatchProducts> {
public:
  using PatchProductsBase::PatchProductsBase;

private:
  void runOnOperation() override {
    func::FuncOp graph = getOperation();
    const auto description = TargetDescription::named(target);
    const auto which = libraryProductsNamed(library).value_or(LibraryProducts::never);
    if (!description || !description->supports.products)
      return;
    const unsigned num_symbols = graphSymbolsOf(graph);
    Block& block = graph.getBody().front();
    bool refused = false;
    for (ConvolutionOp op : llvm::make_early_inc_range(block.getOps<ConvolutionOp>())) {
      const Patches patches(op);
      if (!patches.doNotOverlap(op))
        continue;
      OpBuilder builder(op);
      TensorBuilder build(op.getLoc(), builder, num_symbols);
      const auto [product, result] = Rewriting(op, patches, build).run();
      auto matmul = product.getDefiningOp<MatmulOp>();
      if (!libraryWork(matmul, *description, which)) {
        refused = true;  // what was made is dead
        continue;
      }
      matmul->setAttr("zefuse.note", build.b.getStringAttr("a convolution of windows that do not overlap"));
      op.getResult().replaceAllUsesWith(result);
      op.erase();
    }
    if (refused)
      eraseDead(block);
  }
};

}  // namespace
}  // namespace zefuse
