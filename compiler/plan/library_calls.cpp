#include "compiler/plan/library_calls.h"

#include "compiler/plan/layouts.h"
#include "lowering/analysis/library_products.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace zefuse {
namespace {

std::optional<plan::PostOpKind> postOpKind(StringRef name) {
  for (plan::PostOpKind kind : plan::EnumValuesPostOpKind())
    if (name == plan::EnumNamePostOpKind(kind))
      return kind;
  return std::nullopt;
}

std::unique_ptr<plan::PostOpT> postOpOf(linalg::GenericOp activation) {
  auto post_op = std::make_unique<plan::PostOpT>();
  post_op->kind = *postOpKind(activation->getAttrOfType<StringAttr>("zefuse.activation"));
  return post_op;
}

// What was measured; `automatic` where it is a kernel, which could not be made here.
plan::LibraryWay wayOf(Operation* op) {
  if (auto measured = op->getAttrOfType<StringAttr>(implementation_attribute))
    for (const plan::LibraryWay way : plan::EnumValuesLibraryWay())
      if (measured.getValue() == plan::EnumNameLibraryWay(way))
        return way;
  return plan::LibraryWay::automatic;
}

bool isOfArgument(Value value) {
  while (auto view = value.getDefiningOp<ViewOp>())
    value = view.getSource();
  return isa<BlockArgument>(value);
}

}  // namespace

bool LibraryCalls::isStrided(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return asStrided(values_.placeOf(value).layout, shapeOf(type)).has_value();
}

template <typename Call> std::vector<std::unique_ptr<plan::PostOpT>> LibraryCalls::postOps(Call op) {
  std::vector<std::unique_ptr<plan::PostOpT>> post_ops;
  size_t next = 0;
  for (StringRef name : op.getPostOps().template getAsValueRange<StringAttr>()) {
    auto post_op = std::make_unique<plan::PostOpT>();
    post_op->kind = *postOpKind(name);
    if (post_op->kind == plan::PostOpKind::add || post_op->kind == plan::PostOpKind::mul)
      post_op->operand = static_cast<int32_t>(values_.addLibraryOperand(op.getOperands_()[next++]));
    post_ops.push_back(std::move(post_op));
  }
  return post_ops;
}

std::unique_ptr<plan::MatmulT> LibraryCalls::productAlone(MatmulOp op) {
  auto matmul = std::make_unique<plan::MatmulT>();
  matmul->a = values_.addLibraryOperand(op.getA());
  matmul->b = values_.addLibraryOperand(op.getB());
  if (op.getBias())
    matmul->bias = values_.addLibraryOperand(op.getBias());
  matmul->out = values_.addValue(op.getResult());
  matmul->alpha = op.getAlpha().convertToFloat();
  return matmul;
}

std::unique_ptr<plan::MatmulT> LibraryCalls::product(MatmulOp op) {
  auto matmul = productAlone(op);
  matmul->bf16_math = op.getBf16Math();
  matmul->post_ops = postOps(op);
  matmul->way = wayOf(op);
  return matmul;
}

std::unique_ptr<plan::ConvolutionT> LibraryCalls::convolutionAlone(ConvolutionOp op) {
  auto convolution = std::make_unique<plan::ConvolutionT>();
  convolution->kind = op.getKind() == "forward"      ? plan::ConvolutionKind::forward
                      : op.getKind() == "transposed" ? plan::ConvolutionKind::transposed
                                                     : plan::ConvolutionKind::weights;
  convolution->input = values_.addValue(op.getInput());
  convolution->weight = values_.addValue(op.getWeight());
  if (op.getBias())
    convolution->bias = values_.addValue(op.getBias());
  convolution->out = values_.addValue(op.getResult());
  convolution->stride.assign(op.getStride().begin(), op.getStride().end());
  convolution->padding.assign(op.getPadding().begin(), op.getPadding().end());
  convolution->dilation.assign(op.getDilation().begin(), op.getDilation().end());
  convolution->groups = static_cast<int32_t>(op.getGroups());
  return convolution;
}

std::unique_ptr<plan::ConvolutionT> LibraryCalls::convolution(ConvolutionOp op) {
  auto convolution = convolutionAlone(op);
  convolution->post_ops = postOps(op);
  convolution->way = wayOf(op);
  return convolution;
}

std::unique_ptr<plan::AttentionT> LibraryCalls::attention(AttentionOp op) {
  auto attention = std::make_unique<plan::AttentionT>();
  attention->query = values_.addLibraryOperand(op.getQuery());
  attention->key = values_.addLibraryOperand(op.getKey());
  attention->value = values_.addLibraryOperand(op.getValue());
  attention->out = values_.addValue(op.getResult());
  attention->scale = op.getScale()->convertToFloat();
  attention->causal = op.getCausal();
  if (op.getMask())
    attention->mask = static_cast<int32_t>(values_.addLibraryOperand(op.getMask()));
  if (op.getLogSums())
    attention->log_sums = static_cast<int32_t>(values_.addValue(op.getLogSums()));
  return attention;
}

std::unique_ptr<plan::AttentionGradientT> LibraryCalls::attentionGradient(AttentionGradientOp op) {
  auto gradient = std::make_unique<plan::AttentionGradientT>();
  gradient->query = values_.addLibraryOperand(op.getQuery());
  gradient->key = values_.addLibraryOperand(op.getKey());
  gradient->value = values_.addLibraryOperand(op.getValue());
  gradient->gradient = values_.addLibraryOperand(op.getGradient());
  gradient->log_sums = values_.addValue(op.getLogSums());
  gradient->row_sums = values_.addValue(op.getDelta());
  gradient->results.assign(3, -1);
  for (OpResult result : op->getResults())
    if (!result.use_empty())
      gradient->results[result.getResultNumber() + (op.getOfKeys() ? 1 : 0)] =
          static_cast<int32_t>(values_.addValue(result));
  gradient->scale = op.getScale()->convertToFloat();
  gradient->causal = op.getCausal();
  return gradient;
}

// The product, with the places of its operands, which are strided tensors in memory. Null: there is none.
template <typename Product> Product LibraryCalls::productOf(KernelOp kernel) {
  auto products = kernel.getBody().getOps<Product>();
  if (products.empty() || kernel.getNumResults() != 1)
    return {};
  Product product = *products.begin();
  if (!product->hasAttr(in_library))
    return {};
  for (auto [argument, operand] : llvm::zip_equal(kernel.getBody().getArguments(), kernel.getOperands()))
    values_.put(argument, values_.placeOf(operand));
  for (Value operand : product->getOperands())
    if (!isOfArgument(operand) || !isStrided(operand))
      return {};
  return product;
}

std::unique_ptr<plan::MatmulT> LibraryCalls::vendorProduct(KernelOp kernel, MatmulOp product) {
  // An activation's result lies as the product's would.
  Place place = values_.placeOf(kernel.getResult(0));
  Value made = kernel.getBody().front().getTerminator()->getOperand(0);
  auto activation = made.getDefiningOp<linalg::GenericOp>();
  if (activation) {
    Value source = activation.getDpsInputOperand(0)->get();
    const AffineMap rows = contiguousLayout(product.getType(), num_symbols_);
    if (auto view = source.getDefiningOp<ViewOp>()) {
      const AffineMap regrouped = contiguousLayout(view.getType(), num_symbols_);
      if (place.layout != regrouped || layoutThrough(view, rows) != regrouped)
        return nullptr;
      place.layout = rows;
    }
  } else if (made != product.getResult()) {
    return nullptr;
  }
  values_.put(product.getResult(), place);
  if (!isStrided(product.getResult()))
    return nullptr;
  auto call = productAlone(product);
  if (activation)
    call->post_ops.push_back(postOpOf(activation));
  call->tf32_math = inTf32(product);
  return call;
}

std::unique_ptr<plan::ConvolutionT> LibraryCalls::vendorConvolution(KernelOp kernel, ConvolutionOp convolution) {
  values_.put(convolution.getResult(), values_.placeOf(kernel.getResult(0)));
  if (!isStrided(convolution.getResult()))
    return nullptr;
  Value made = kernel.getBody().front().getTerminator()->getOperand(0);
  auto activation = made.getDefiningOp<linalg::GenericOp>();
  if (activation)
    made = activation.getDpsInputOperand(0)->get();
  Value residual;
  if (Operation* sum = made.getDefiningOp(); sum && sum != convolution) {
    residual = libraryResidual(sum, convolution);
    if (!residual || !isOfArgument(residual) || !isStrided(residual))
      return nullptr;
    made = convolution.getResult();
  }
  if (made != convolution.getResult())
    return nullptr;
  auto call = convolutionAlone(convolution);
  if (residual) {
    auto added = std::make_unique<plan::PostOpT>();
    added->kind = plan::PostOpKind::add;
    added->operand = int32_t(values_.addValue(residual));
    call->post_ops.push_back(std::move(added));
  }
  if (activation)
    call->post_ops.push_back(postOpOf(activation));
  call->tf32_math = inTf32(convolution);
  return call;
}

std::optional<VendorCall> LibraryCalls::vendorCall(KernelOp kernel) {
  VendorCall call;
  Operation* computes = nullptr;
  if (auto product = productOf<MatmulOp>(kernel)) {
    call.product = vendorProduct(kernel, product);
    computes = product;
  } else if (auto convolution = productOf<ConvolutionOp>(kernel)) {
    call.convolution = vendorConvolution(kernel, convolution);
    computes = convolution;
  }
  if (!call.product && !call.convolution)
    return std::nullopt;
  call.work = computes->getAttrOfType<IntegerAttr>(in_library).getInt();
  return call;
}

}  // namespace zefuse
