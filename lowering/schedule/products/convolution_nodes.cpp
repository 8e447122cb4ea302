#include "lowering/schedule/products/convolution_nodes.h"

#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {

ConvolutionNodes::ConvolutionNodes(const ScheduleContext& context)
    : op(cast<ConvolutionOp>(context.domain.product->op)), nodes(context), groups(int64_t(op.getGroups())),
      slices(int64_t(op.getSlices())), first_dim(slices > 1 ? 1 : 0), of_weights(op.getKind() == "weights"),
      c_(context), b_(context.builder()), loc_(b_.getUnknownLoc()), i_{b_, loc_}, spatial_(op.getStride().size()),
      transposed_(op.getKind() == "transposed") {
  const SmallVector<AffineExpr> input = shapeOf(op.getInput().getType()), weight = shapeOf(op.getWeight().getType()),
                                whole = shapeOf(op.getType());
  ArrayRef<AffineExpr> result = ArrayRef(whole).drop_front(first_dim);
  // The tensor whose pixels are walked, and the one whose spatial sizes are the kernel's.
  ArrayRef<AffineExpr> outer = of_weights ? ArrayRef(weight) : result, taps = of_weights ? result : ArrayRef(weight);
  kernel_.assign(taps.begin() + 2, taps.end());
  channels = outer[1].floorDiv(groups);
  depth = input[1].floorDiv(groups);
  channel_neighbours = nodes.neighboursAlong(0, 1);
  channels_fastest = channel_neighbours.bytes > nodes.neighboursAlong(0, unsigned(spatial_) + 1).bytes;
  for (AffineExpr size : ArrayRef(input).drop_front(2))
    input_sizes_.push_back(nodes.expression(size));
  SmallVector<AffineExpr> images = {outer[0]}, patch(kernel_);
  llvm::append_range(images, outer.drop_front(2));
  patch.insert(channels_fastest ? patch.end() : patch.begin(), depth);
  images_ = extentsOf(images);
  patch_ = extentsOf(patch);
  patches = depth;
  for (AffineExpr size : kernel_)
    patches = patches * size;
  pixels = getAffineConstantExpr(1, b_.getContext());
  for (AffineExpr size : images)
    pixels = pixels * size;
}

int64_t ConvolutionNodes::inGroup(int64_t run) const {
  while (run > 1 && constantOf(depth).value_or(1) % run != 0)
    run /= 2;
  return run;
}

Value ConvolutionNodes::load(unsigned operand, ArrayRef<Value> indices, unsigned dimension, int64_t lanes) {
  SmallVector<std::pair<unsigned, Value>> at;
  for (auto [number, index] : llvm::enumerate(indices))
    at.emplace_back(unsigned(number), index);
  return nodes.load(operand, at, {dimension, lanes});
}

SmallVector<Extent> ConvolutionNodes::extentsOf(ArrayRef<AffineExpr> sizes) const {
  return llvm::map_to_vector(sizes, [&](AffineExpr size) { return Extent{nodes.expression(size), constantOf(size)}; });
}

// An index into a row-major space, taken apart; the first coordinate keeps what is left. In 32 bits where they do and a
// wider division is a call.
SmallVector<Value> ConvolutionNodes::apart(Value index, ArrayRef<Extent> sizes) {
  SmallVector<Value> coordinates(sizes.size());
  constexpr int64_t limit = int64_t(1) << 31;
  int64_t count = 1;
  for (const Extent& size : sizes)
    count = count < 0 || !size.constant ? -1 : std::min(count * *size.constant, limit);
  const bool narrow = c_.target.index_bits < 64 && count >= 0 && count < limit;
  if (narrow)
    index = arith::IndexCastUIOp::create(b_, loc_, b_.getI32Type(), index);
  for (size_t dim = sizes.size(); dim-- > 0;) {
    Value part = index;
    if (dim > 0) {
      Value size = sizes[dim].value;
      if (narrow)
        size = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(*sizes[dim].constant)));
      part = i_.modulo(index, size);
      index = i_.divide(index, size);
    }
    coordinates[dim] = narrow ? arith::IndexCastUIOp::create(b_, loc_, b_.getIndexType(), part) : part;
  }
  return coordinates;
}

// Its input channel in the group, then its tap per spatial dimension.
SmallVector<Value> ConvolutionNodes::patchOf(Value patch) {
  SmallVector<Value> parts = apart(patch, patch_);
  if (channels_fastest)
    std::rotate(parts.begin(), parts.end() - 1, parts.end());
  return parts;
}

bool ConvolutionNodes::mayPad() {
  auto more_than = [](ArrayRef<int64_t> numbers, int64_t least) {
    return llvm::any_of(numbers, [&](int64_t number) { return number > least; });
  };
  if (more_than(op.getPadding(), 0))
    return true;
  return transposed_ &&
         (more_than(op.getStride(), 1) || llvm::any_of(kernel_, [](AffineExpr size) { return constantOf(size) != 1; }));
}

Value ConvolutionNodes::loadPatch(Value patch, Value pixel, int64_t lanes, Value* inside_out) {
  SmallVector<Value> part = patchOf(patch), at = apart(pixel, images_);
  SmallVector<Value> indices{at[0], i_.add(first_input_, part[0])};
  Value inside;
  Value zero = i_.number(0);
  for (size_t dim = 0; dim < spatial_; ++dim) {
    int64_t stride = op.getStride()[dim], padding = op.getPadding()[dim], dilation = op.getDilation()[dim];
    Value size = input_sizes_[dim], tap = i_.multiply(part[dim + 1], dilation), place;
    if (transposed_) {
      // pixel = place * stride - padding + tap
      Value scaled = i_.subtract(i_.add(at[dim + 1], padding), tap);
      Value positive = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, scaled, zero);
      scaled = i_.larger(scaled, zero);
      place = i_.divide(scaled, stride);
      inside = i_.both(inside, positive);
      if (stride > 1)
        inside = i_.both(inside, i_.equal(i_.modulo(scaled, stride), zero));
      inside = i_.both(inside, i_.less(place, size));
    } else {
      place = i_.add(i_.multiply(at[dim + 1], stride), tap);
      place = padding == 0 ? place : i_.subtract(place, i_.number(padding));
      // One comparison for both ends: a negative place is large without its sign.
      inside = i_.both(inside, arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ult, place, size));
      place = i_.larger(place, zero);
    }
    indices.push_back(i_.smaller(place, i_.subtract(size, i_.number(1))));
  }
  if (inside_out)
    *inside_out = inside;
  Value value = load(0, indices, 1, lanes);
  Value nothing = constantOfType(b_, loc_, b_.getZeroAttr(getElementTypeOrSelf(value.getType())), unsigned(lanes));
  return arith::SelectOp::create(b_, loc_, splat(b_, inside, unsigned(lanes)), value, nothing);
}

// forward: [O, C / groups, kernel...]; transposed: [C, O / groups, kernel...].
Value ConvolutionNodes::loadWeight(Value channel, Value patch, unsigned dimension, int64_t lanes) {
  SmallVector<Value> part = patchOf(patch), indices;
  if (transposed_)
    indices = {i_.add(first_input_, part[0]), channel};
  else
    indices = {i_.add(first_channel_, channel), part[0]};
  indices.append(part.begin() + 1, part.end());
  return load(1, indices, dimension, lanes);
}

Value ConvolutionNodes::loadGradient(Value channel, Value pixel, int64_t lanes) {
  SmallVector<Value> indices = apart(pixel, images_);
  indices.insert(indices.begin() + 1, i_.add(first_channel_, channel));
  return load(1, indices, 1, lanes);
}

unsigned ConvolutionNodes::weightDimension() const {
  bool one_tap = llvm::all_of(kernel_, [](AffineExpr size) { return constantOf(size) == 1; });
  return channels_fastest || one_tap ? channelOfPatch() : unsigned(spatial_) + 1;
}

void ConvolutionNodes::bindPixel(Value pixel) {
  SmallVector<Value> at = apart(pixel, images_);
  nodes.bindResult(first_dim, at[0]);
  for (size_t dim = 0; dim < spatial_; ++dim)
    nodes.bindResult(first_dim + 2 + unsigned(dim), at[dim + 1]);
}

void ConvolutionNodes::bindPatch(Value patch, int64_t lanes) {
  for (auto [dim, index] : llvm::enumerate(patchOf(patch)))
    nodes.bindResult(first_dim + 1 + unsigned(dim), index, dim == 0 ? lanes : 1);
}

void ConvolutionNodes::bindChannel(Value channel, int64_t lanes) {
  nodes.bindResult(first_dim + (of_weights ? 0 : 1), i_.add(first_channel_, channel), lanes);
}

}  // namespace zefuse
