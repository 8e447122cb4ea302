#include "lowering/analysis/library_products.h"

#include "lowering/analysis/index_space.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace zefuse {

std::optional<LibraryProducts> libraryProductsNamed(StringRef name) {
  return llvm::StringSwitch<std::optional<LibraryProducts>>(name)
      .Case("never", LibraryProducts::never)
      .Case("auto", LibraryProducts::large)
      .Case("always", LibraryProducts::always)
      .Default(std::nullopt);
}

namespace {

bool allows(Operation* op, StringRef attribute) {
  auto graph = op->getParentOfType<func::FuncOp>();
  return graph && graph->hasAttr(attribute);
}

}  // namespace

bool inTf32(MatmulOp op) { return getElementTypeOrSelf(op.getA()).isF32() && allows(op, tf32_products); }
bool inTf32(ConvolutionOp op) { return getElementTypeOrSelf(op.getInput()).isF32() && allows(op, tf32_convolutions); }

std::optional<int64_t> libraryWork(MatmulOp op, const TargetDescription& target, LibraryProducts which) {
  // On a H100 the smallest products measured, of 16 rows, 768 deep, 768 columns, took half the time there
  // (docs/gpu.md).
  constexpr int64_t from = int64_t(1) << 23;  // multiplications
  constexpr int64_t fewest_rows = 16;
  constexpr int64_t unknown = 256;  // a symbolic size
  // Of f32, multiplied as it is, a matrix engine is quicker where tiles for all of a device's engines are whole: on a
  // H100, 4096 x 768 to 8192 x 32000, 1.12 to 1.56 times cuBLASLt's speed, 256 x 4096 1.14, with fewer elements 0.5
  // to 1.2 times (docs/gpu.md).
  constexpr int64_t own_elements = int64_t(1) << 20, own_side = 64;
  if (which == LibraryProducts::never || target.product_library.empty() || !op.getPostOps().empty())
    return std::nullopt;
  const Type type = getElementTypeOrSelf(op.getA());
  if ((!type.isF32() && !type.isBF16() && !type.isF16()) || getElementTypeOrSelf(op.getB()) != type ||
      op.getType().getElementType() != type || (op.getBias() && getElementTypeOrSelf(op.getBias()) != type))
    return std::nullopt;
  if (which == LibraryProducts::always)
    return 0;
  const SmallVector<AffineExpr> result = shapeOf(op.getType());
  auto sizeOf = [&](AffineExpr size) { return double(constantOf(size).value_or(unknown)); };
  double work = sizeOf(shapeOf(cast<RankedTensorType>(op.getA().getType())).back());
  for (AffineExpr size : result)
    work *= sizeOf(size);
  for (AffineExpr side : ArrayRef(result).take_back(2))
    if (constantOf(side) && *constantOf(side) < fewest_rows)
      return std::nullopt;
  if (type.isF32() && !inTf32(op) && target.matrix.find("tf32") && op.getType().hasStaticShape()) {
    const ArrayRef<int64_t> sizes = op.getType().getShape();
    if (op.getType().getNumElements() >= own_elements && sizes.back() >= own_side && sizes.end()[-2] >= own_side)
      return std::nullopt;
  }
  return work >= double(from) ? std::optional(from) : std::nullopt;
}

StringRef convolutionLibrary(const TargetDescription& target) {
  return target.product_library == "cuBLASLt" ? "cuDNN" : StringRef();  // both NVIDIA's
}

std::optional<int64_t> libraryWork(ConvolutionOp op, const TargetDescription& target, LibraryProducts which,
                                   bool kept_weights) {
  // ResNet-50's, one image, have 13 to 118 million. On a H100 (bf16) Inductor's, the library's too, take 321 us of its
  // 410, our kernels 538, which do what follows too. Without kept weights the library wants them copied in each call,
  // and kernels for what follows. Of eight images ours take several times as long.
  const int64_t from = int64_t(1) << (kept_weights && op.getKind() == "forward" ? 23 : 27);  // multiplications

  // With fewer the library copies the tensor that has them with more. An image of few channels is worth that: on a H100
  // the first convolution of ResNet-50, of 3, takes 155 us in our kernel and 71 there, by its weight 339 and 65. By
  // such an image's data it takes 174, and by few channels of a result nothing was measured: those stay.
  constexpr int64_t fewest_channels = 16;

  if (which == LibraryProducts::never || convolutionLibrary(target).empty() || op.getSlices() != 1 ||
      !op.getPostOps().empty())
    return std::nullopt;
  const Type type = getElementTypeOrSelf(op.getInput());
  if ((!type.isF32() && !type.isBF16() && !type.isF16()) || getElementTypeOrSelf(op.getWeight()) != type ||
      getElementTypeOrSelf(op.getType()) != type || (op.getBias() && getElementTypeOrSelf(op.getBias()) != type))
    return std::nullopt;
  if (which == LibraryProducts::always)
    return 0;
  // For f32 as it is, it has no code for images as ours lie, channels last: it would copy them. Groups are
  // slow there (on a H100 96 of one channel each, 7x7, took 1200 us, torch's own kernel 75). Each size has a plan of
  // the library's, which takes milliseconds to make.
  if ((type.isF32() && !inTf32(op)) || op.getGroups() != 1)
    return std::nullopt;
  for (Type tensor : {Type(op.getInput().getType()), Type(op.getWeight().getType()), Type(op.getType())})
    if (!cast<RankedTensorType>(tensor).hasStaticShape())
      return std::nullopt;
  auto sizesOf = [](Type tensor) { return cast<RankedTensorType>(tensor).getShape(); };

  // As forward has them: the result's pixels and channels, and the weight.
  const bool of_weights = op.getKind() == "weights", transposed = op.getKind() == "transposed";
  const auto result = sizesOf(of_weights   ? op.getWeight().getType()
                              : transposed ? op.getInput().getType()
                                           : op.getType());
  const auto weight = sizesOf(of_weights ? op.getType() : op.getWeight().getType());
  if (result[1] < fewest_channels || (transposed && weight[1] < fewest_channels))
    return std::nullopt;
  double work = 1;
  for (int64_t size : result)
    work *= double(size);
  for (int64_t size : weight.drop_front())
    work *= double(size);
  return work >= double(from) ? std::optional(from) : std::nullopt;
}

}  // namespace zefuse
