#include "compiler/plan/values.h"

#include "compiler/plan/layouts.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {

std::optional<plan::DType> dtypeOf(Type element) {
  if (element.isF32())
    return plan::DType::f32;
  if (element.isF64())
    return plan::DType::f64;
  if (element.isF16())
    return plan::DType::f16;
  if (element.isBF16())
    return plan::DType::bf16;
  if (element.isInteger(1))
    return plan::DType::b8;
  if (element.isUnsignedInteger(8))
    return plan::DType::u8;
  if (element.isInteger(8))
    return plan::DType::i8;
  if (element.isInteger(16))
    return plan::DType::i16;
  if (element.isInteger(32))
    return plan::DType::i32;
  if (element.isInteger(64))
    return plan::DType::i64;
  return std::nullopt;
}

int64_t bytesOf(Type element) { return std::max<int64_t>(1, element.getIntOrFloatBitWidth() / 8); }

namespace {

/// The bytes from the first to the last element of a layout.
AffineExpr bytesSpanned(RankedTensorType type, AffineMap layout) {
  SmallVector<AffineExpr> last;
  for (AffineExpr size : shapeOf(type)) {
    if (auto constant = dyn_cast<AffineConstantExpr>(size); constant && constant.getValue() == 0)
      return getAffineConstantExpr(0, type.getContext());
    last.push_back(size - 1);
  }
  return (layout.getResult(0).replaceDims(last) + 1) * bytesOf(type.getElementType());
}

}  // namespace

uint32_t PlanValues::addBuffer(plan::Storage storage, uint32_t index, AffineExpr bytes) {
  auto buffer = std::make_unique<plan::BufferT>();
  buffer->storage = storage;
  buffer->index = index;
  buffer->bytes = bytes ? exprs_.addAtLeastZero(bytes) : exprs_.constant(0, context_);
  buffer->first_step = buffer->last_step = plan_.steps.size();
  plan_.buffers.push_back(std::move(buffer));
  return plan_.buffers.size() - 1;
}

void PlanValues::allocate(Value value, AffineMap layout, bool output) {
  auto type = cast<RankedTensorType>(value.getType());
  uint32_t index = output ? num_outputs_++ : 0;
  places_[value] = {addBuffer(output ? plan::Storage::output : plan::Storage::arena, index, bytesSpanned(type, layout)),
                    layout};
}

Place PlanValues::placeOf(Value value) {
  if (auto it = places_.find(value); it != places_.end())
    return it->second;
  auto view = value.getDefiningOp<ViewOp>();
  assert(view && "stage 2 leaves only kernels, calls and views");
  Place source = placeOf(view.getSource());
  Place place{source.buffer, layoutThrough(view, source.layout)};
  places_[value] = place;
  return place;
}

uint32_t PlanValues::addValue(Value value, std::optional<AffineMap> exact, ArrayRef<AffineExpr> sizes_override) {
  Place place = placeOf(value);
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<AffineExpr> sizes = sizes_override.empty() ? shapeOf(type) : SmallVector<AffineExpr>(sizes_override);
  auto strided = asStrided(place.layout, shapeOf(type));
  assert(strided && "layout assignment leaves only strided views outside kernels");
  return addValue(place.buffer, type, sizes, exact ? exact->getResults() : ArrayRef<AffineExpr>(strided->strides),
                  strided->offset);
}

uint32_t PlanValues::addValue(uint32_t buffer, RankedTensorType type, ArrayRef<AffineExpr> sizes,
                              ArrayRef<AffineExpr> strides, AffineExpr offset) {
  auto result = std::make_unique<plan::ValueT>();
  result->buffer = buffer;
  result->dtype = dtypeOf(type.getElementType()).value();
  result->sizes = exprs_.addAll(sizes);
  result->strides = exprs_.addAll(strides);
  result->offset = exprs_.add(offset);
  plan_.values.push_back(std::move(result));
  return plan_.values.size() - 1;
}

uint32_t PlanValues::addLibraryOperand(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<AffineExpr> sizes = shapeOf(type);
  auto strided = asStrided(placeOf(value).layout, sizes);
  for (auto [size, stride] : llvm::zip(sizes, strided->strides))
    if (auto constant = dyn_cast<AffineConstantExpr>(stride); constant && constant.getValue() == 0)
      size = getAffineConstantExpr(1, context_);
  return addValue(value, std::nullopt, sizes);
}

}  // namespace zefuse
