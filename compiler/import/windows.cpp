// Pooling and its gradients, im2col and col2im: reductions over windows that are a view (an index map) of the padded
// input. A gradient looks, for each input position, at the windows that hold it, so nothing is scattered and all of it
// fuses with its neighbours.
#include <cmath>

#include "compiler/import/indexing.h"
#include "compiler/import/op_table.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {
namespace {

// One spatial dimension. Window o covers start(o) + k * dilation for k below `kernel`, where
// start(o) = o * stride - padding, or, when adaptive, floor(o * in / out) up to ceil((o + 1) * in / out).
struct Axis {
  AffineExpr in, out;
  AffineExpr kernel;  // adaptive: no window is wider
  // How many elements of a window are looked at: those beyond the input's end lie there in every window, and a pool
  // over everything may be asked for with a window of hundreds.
  AffineExpr looked_at;
  int64_t stride = 1, padding = 0, dilation = 1;
  bool adaptive = false;
  bool ends_early = false;  // adaptive: a window may have fewer elements than `kernel`

  // The place of element k of window o in the padded input.
  AffineExpr place(AffineExpr o, AffineExpr k) const {
    return adaptive ? (o * in).floorDiv(out) + k : o * stride + k * dilation;
  }
  AffineExpr elements() const { return looked_at ? looked_at : kernel; }
  AffineExpr paddedSize() const { return adaptive ? in + kernel : place(out - 1, elements() - 1) + 1; }
  bool global() const { return !adaptive && isConstant(out, 1) && elements() == in && padding == 0 && dilation == 1; }
};

SmallVector<int64_t> perAxis(Op& op, StringRef name, size_t axes, ArrayRef<int64_t> missing = {}) {
  SmallVector<int64_t> given = op.integers(name);
  if (given.empty())
    return SmallVector<int64_t>(missing);
  if (given.size() == 1)
    given.resize(axes, given[0]);
  return given;
}

SmallVector<Axis> poolAxes(Op& op, size_t axes, ArrayRef<AffineExpr> in, ArrayRef<AffineExpr> out) {
  SmallVector<int64_t> kernel = perAxis(op, "kernel_size", axes);
  SmallVector<int64_t> stride = perAxis(op, "stride", axes, kernel), padding = perAxis(op, "padding", axes);
  SmallVector<int64_t> dilation(axes, 1);
  if (op.takes("dilation"))
    dilation = perAxis(op, "dilation", axes);
  SmallVector<Axis> result;
  for (size_t axis = 0; axis < axes; ++axis) {
    Axis made;
    made.in = in[in.size() - axes + axis];
    made.out = out[out.size() - axes + axis];
    made.kernel = op.build.constant(kernel[axis]);
    made.stride = stride[axis];
    made.padding = padding[axis];
    made.dilation = dilation[axis];
    if (auto size = dyn_cast<AffineConstantExpr>(made.in)) {
      int64_t within = llvm::divideCeil(size.getValue() + made.padding, made.dilation);
      made.looked_at = op.build.constant(std::clamp<int64_t>(within, 1, kernel[axis]));
    }
    result.push_back(made);
  }
  return result;
}

SmallVector<Axis> adaptiveAxes(Op& op, size_t axes, ArrayRef<AffineExpr> in, ArrayRef<AffineExpr> out) {
  SmallVector<Axis> result;
  for (size_t axis = 0; axis < axes; ++axis) {
    Axis made;
    made.in = in[in.size() - axes + axis];
    made.out = out[out.size() - axes + axis];
    auto from = dyn_cast<AffineConstantExpr>(made.in), to = dyn_cast<AffineConstantExpr>(made.out);
    if (isConstant(made.out, 0) || isConstant(made.in, 0))
      op.refuse("an empty dimension is not lowered");
    if (isConstant(made.out, 1)) {
      made.kernel = made.in;
    } else if (from && to && from.getValue() % to.getValue() == 0) {
      made.stride = from.getValue() / to.getValue();
      made.kernel = op.build.constant(made.stride);
    } else {
      made.adaptive = made.ends_early = true;
      made.kernel = made.in.floorDiv(made.out) + 2;
    }
    result.push_back(made);
  }
  return result;
}

// in -> [leading..., out..., kernel...]: every element of every window, `number` where the input ends.
Value windowsOf(TensorBuilder& build, Value input, ArrayRef<Axis> axes, bool ceil_mode, double number) {
  size_t leading = rankOf(input) - axes.size();
  Exprs sizes(shapeOf(typeOf(input))), indices, result(sizes.begin(), sizes.begin() + leading);
  SmallVector<int64_t> low(leading, 0);
  bool padded = false;
  for (size_t d = 0; d < leading; ++d)
    indices.push_back(build.dim(d));
  for (auto [number_of_axis, axis] : llvm::enumerate(axes)) {
    low.push_back(axis.padding);
    padded |= axis.padding != 0 || ceil_mode || axis.adaptive;
    sizes[leading + number_of_axis] = axis.paddedSize();
    indices.push_back(
        axis.place(build.dim(leading + number_of_axis), build.dim(leading + axes.size() + number_of_axis)));
    result.push_back(axis.out);
  }
  for (const Axis& axis : axes)
    result.push_back(axis.elements());
  if (padded)
    input = build.pad(input, low, sizes, number);
  return build.view(input, indices, result);
}

Scalar number(Body& body, AffineExpr size) { return body.size(size); }

// Inside a loop over windows: where an axis' element lies in the input, and whether it belongs to the window.
struct Member {
  Scalar place, inside;
};
Member memberOf(Body& body, const Axis& axis, int64_t o_dim, int64_t k_dim) {
  Scalar o = body.position(o_dim), k = body.position(k_dim), in = number(body, axis.in);
  if (axis.adaptive) {
    Scalar out = number(body, axis.out);
    Scalar start(body.b, arith::FloorDivSIOp::create(body.b, (o * in).value(), out.value()));
    Scalar place = start + k;
    return {place, place * out < (o + 1) * in};
  }
  Scalar place = o * double(axis.stride) + k * double(axis.dilation) - double(axis.padding);
  return {place, (place >= 0) & (place < in)};
}

// Elements of window o that count in its mean.
Scalar countOf(Body& body, const Axis& axis, Scalar o, bool count_padding) {
  Scalar in = number(body, axis.in);
  if (axis.adaptive) {
    Scalar out = number(body, axis.out);
    auto quotient = [&](Scalar a) {
      return Scalar(body.b, arith::FloorDivSIOp::create(body.b, a.value(), out.value()));
    };
    return quotient((o + 1) * in + out - 1) - quotient(o * in);
  }
  Scalar start = o * double(axis.stride) - double(axis.padding);
  Scalar end = start + number(body, axis.kernel);
  if (count_padding)
    return minimum(end, in + double(axis.padding)) - start;
  return minimum(end, in) - maximum(start, start.constant(0));
}

SmallVector<int64_t> lastDims(size_t axes, int64_t rank) {
  return llvm::to_vector(llvm::seq<int64_t>(rank - axes, rank));
}

//===-- max ------------------------------------------------------------------------------------===//

// The largest value of each window and, if asked, its position in the flattened spatial input: the first of equal
// ones, and of several NaNs the last, as eager's loop finds them.
Values emitMax(Op& op, ArrayRef<Axis> axes, bool ceil_mode, bool positions) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self");
  Type compute = fx::computeType(elementOf(self));
  // The positions are looked for among the elements as they lie in memory: wider ones would be stored for that.
  Value elements = windowsOf(build, self, axes, ceil_mode, -HUGE_VAL), windows = build.convert(elements, compute);
  int64_t rank = rankOf(windows), leading = rank - 2 * axes.size();
  SmallVector<int64_t> window_dims = lastDims(axes.size(), rank);
  bool masked = llvm::any_of(axes, [](const Axis& axis) { return axis.ends_early; });
  auto insideAll = [&](Body& body) {
    std::optional<Scalar> inside;
    for (auto [number_of_axis, axis] : llvm::enumerate(axes)) {
      Scalar mine = memberOf(body, axis, leading + number_of_axis, leading + axes.size() + number_of_axis).inside;
      inside = inside ? *inside & mine : mine;
    }
    return *inside;
  };
  if (masked)
    windows = build.loop({windows}, typeOf(windows), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar least = isa<FloatType>(compute)
                         ? in[0].constant(-HUGE_VAL)
                         : constantScalar(body.b, compute,
                                          APInt::getSignedMinValue(compute.getIntOrFloatBitWidth()).getSExtValue());
      return select(insideAll(body), in[0], least);
    });
  Value largest = build.reduce(windows, window_dims, ReductionKind::max);
  Values results = {build.convert(largest, op.element())};
  if (!positions)
    return results;
  Type i64 = build.b.getI64Type();
  RankedTensorType found_type = withElement(typeOf(windows), i64);
  Value found =
      build.loop({elements, Operand(largest, build.unreduced(rank, window_dims))}, found_type,
                 [&](Body& body, ArrayRef<Scalar> in) {
                   Scalar element = in[0].to(compute), linear = constantScalar(body.b, i64, int64_t(0));
                   for (auto [number_of_axis, axis] : llvm::enumerate(axes)) {
                     Scalar place =
                         memberOf(body, axis, leading + number_of_axis, leading + axes.size() + number_of_axis).place;
                     linear = linear * number(body, axis.in) + place;
                   }
                   Scalar nan = isNan(element) & isNan(in[1]);
                   Scalar none = constantScalar(body.b, i64, INT64_MAX);
                   Scalar candidate = select(nan, -linear - 1, select(element == in[1], linear, none));
                   return select(insideAll(body), candidate, none);
                 });
  Value position = build.reduce(found, window_dims, ReductionKind::min);
  results.push_back(build.loop({position}, op.resultType(1), [&](Body&, ArrayRef<Scalar> in) {
    return select(in[0] < 0, -in[0] - 1, in[0]).to(op.element(1));
  }));
  return results;
}

Values emitMaxPool(Op& op, size_t axes) {
  auto made = poolAxes(op, axes, shapeOf(typeOf(op.tensor("self"))), shapeOf(op.resultType(0)));
  return emitMax(op, made, op.boolean("ceil_mode"), op.numResults() > 1 && op.used(1));
}

Values emitAdaptiveMaxPool(Op& op, size_t axes) {
  auto made = adaptiveAxes(op, axes, shapeOf(typeOf(op.tensor("self"))), shapeOf(op.resultType(0)));
  return emitMax(op, made, false, op.used(1));
}

//===-- the windows that hold a position -------------------------------------------------------===//

// How many windows of an axis may hold one position, and the first of them at position h, for a gradient's loop.
AffineExpr holders(TensorBuilder& build, const Axis& axis) {
  if (axis.adaptive)
    return axis.out.floorDiv(axis.in) + 2;
  if (axis.global())
    return build.constant(1);
  int64_t kernel = cast<AffineConstantExpr>(axis.kernel).getValue();
  int64_t most = (kernel - 1) * axis.dilation / axis.stride + 1;
  if (auto size = dyn_cast<AffineConstantExpr>(axis.in))  // no more windows begin before its last position
    most = std::clamp<int64_t>((size.getValue() - 1 + axis.padding) / axis.stride + 1, 1, most);
  return build.constant(most);
}

// `windowed` [leading..., out...] as [leading..., in..., holder...]; zero where there is no such window.
Value holdersOf(TensorBuilder& build, Value windowed, ArrayRef<Axis> axes) {
  size_t leading = rankOf(windowed) - axes.size();
  Exprs sizes(shapeOf(typeOf(windowed))), indices, result(sizes.begin(), sizes.begin() + leading);
  SmallVector<int64_t> low(leading, 0);
  for (size_t d = 0; d < leading; ++d)
    indices.push_back(build.dim(d));
  for (auto [number_of_axis, axis] : llvm::enumerate(axes)) {
    AffineExpr h = build.dim(leading + number_of_axis), j = build.dim(leading + axes.size() + number_of_axis);
    AffineExpr count = holders(build, axis);
    if (axis.global()) {
      low.push_back(0);
      indices.push_back(build.constant(0));
    } else if (axis.adaptive) {
      low.push_back(0);
      indices.push_back((h * axis.out).floorDiv(axis.in) + j);
      sizes[leading + number_of_axis] = axis.out + count;
    } else {
      int64_t before = cast<AffineConstantExpr>(count).getValue() - 1;
      low.push_back(before);
      indices.push_back((h + axis.padding).floorDiv(axis.stride) - j + before);
      sizes[leading + number_of_axis] = (axis.in - 1 + axis.padding).floorDiv(axis.stride) + before + 1;
    }
    result.push_back(axis.in);
  }
  for (const Axis& axis : axes)
    result.push_back(holders(build, axis));
  bool padded = llvm::any_of(axes, [](const Axis& axis) { return !axis.global(); });
  return build.view(padded ? build.pad(windowed, low, sizes, 0) : windowed, indices, result);
}

// The sum over the windows that hold each position of what `share` takes from them.
Value sumOverHolders(Op& op, ArrayRef<Value> windowed, ArrayRef<Axis> axes, BodyFunction share) {
  TensorBuilder& build = op.build;
  SmallVector<Operand> operands;
  for (Value value : windowed)
    operands.emplace_back(holdersOf(build, value, axes));
  RankedTensorType type = typeOf(operands[0].tensor);
  Value shares = build.loop(operands, type, share);
  // Of a pool over everything each position has one holder: a reduction, even of one element, would fix the loops'
  // order.
  SmallVector<AffineExpr> sizes = shapeOf(type);
  if (llvm::all_of(ArrayRef(sizes).take_back(axes.size()), [](AffineExpr size) { return isConstant(size, 1); })) {
    sizes.truncate(sizes.size() - axes.size());
    SmallVector<AffineExpr> indices;
    for (size_t position = 0; position < sizes.size(); ++position)
      indices.push_back(build.dim(position));
    indices.append(axes.size(), build.constant(0));
    return build.convert(build.view(shares, indices, sizes), op.element());
  }
  Value sum = build.reduce(shares, lastDims(axes.size(), type.getRank()), ReductionKind::add);
  return build.convert(sum, op.element());
}

Values emitMaxBackward(Op& op, ArrayRef<Axis> axes) {
  TensorBuilder& build = op.build;
  Value grad = op.tensor("grad_output");
  grad = build.convert(grad, fx::computeType(elementOf(grad)));
  // Padding holds index 0, whose gradient is 0 there: no harm.
  size_t leading = rankOf(grad) - axes.size();
  return {sumOverHolders(op, {grad, op.tensor("indices")}, axes, [&](Body& body, ArrayRef<Scalar> in) {
    Scalar linear = body.position(leading);
    for (size_t axis = 1; axis < axes.size(); ++axis)
      linear = linear * number(body, axes[axis].in) + body.position(leading + axis);
    return select(in[1] == linear, in[0], in[0].constant(0));
  })};
}

Values emitMaxPoolBackward(Op& op, size_t axes) {
  Value grad = op.tensor("grad_output");
  return emitMaxBackward(op, poolAxes(op, axes, shapeOf(op.resultType()), shapeOf(typeOf(grad))));
}

Values emitAdaptiveMaxBackward(Op& op, size_t axes) {
  Value grad = op.tensor("grad_output");
  return emitMaxBackward(op, adaptiveAxes(op, axes, shapeOf(op.resultType()), shapeOf(typeOf(grad))));
}

//===-- mean -----------------------------------------------------------------------------------===//

struct Mean {
  SmallVector<Axis> axes;
  bool ceil_mode = false, count_padding = true;
  double divisor = 0;  // 0: how many elements a window has
};

Mean meanOf(Op& op, size_t axes, bool adaptive, ArrayRef<AffineExpr> in, ArrayRef<AffineExpr> out) {
  if (adaptive)
    return {adaptiveAxes(op, axes, in, out)};
  Mean mean{poolAxes(op, axes, in, out), op.boolean("ceil_mode"), op.boolean("count_include_pad")};
  if (op.takes("divisor_override") && !op.isNone("divisor_override")) {
    mean.divisor = double(op.integer("divisor_override"));
    if (mean.divisor == 0)
      op.refuse("eager raises for a divisor of zero");
  }
  return mean;
}

// [leading..., out...] divided by each window's count.
Value divideByCount(TensorBuilder& build, Value sums, const Mean& mean) {
  size_t leading = rankOf(sums) - mean.axes.size();
  return build.loop({sums}, typeOf(sums), [&](Body& body, ArrayRef<Scalar> in) {
    if (mean.divisor != 0)
      return in[0] / mean.divisor;
    bool uniform = llvm::all_of(mean.axes, [&](const Axis& axis) {
      return !axis.adaptive && !mean.ceil_mode && (axis.padding == 0 || mean.count_padding);
    });
    std::optional<Scalar> count;
    for (auto [number_of_axis, axis] : llvm::enumerate(mean.axes)) {
      Scalar mine = uniform ? number(body, axis.kernel)
                            : countOf(body, axis, body.position(leading + number_of_axis), mean.count_padding);
      count = count ? *count * mine : mine;
    }
    return in[0] / count->to(in[0].type());
  });
}

Value floating(Op& op, StringRef name) {
  Value value = op.tensor(name);
  Type element = elementOf(value);
  if (!isa<FloatType>(element))
    op.refuse("a mean of " + fx::dtypeName(element) + " is not lowered");
  return op.build.convert(value, fx::computeType(element));
}

// The mean of no elements: eager raises. Of three dims it looks at the channels, too.
void requireElements(Op& op, size_t axes) {
  const Exprs sizes(shapeOf(typeOf(op.tensor("self"))));
  for (size_t dim = axes == 3 ? 1 : sizes.size() - axes; dim < sizes.size(); ++dim)
    op.require(sizes[dim] - 1, "runtime_error",
               "adaptive_avg_pool" + Twine(axes) +
                   "d(): Expected input to have non-zero size for non-batch dimensions, but input has sizes " +
                   placesOf(sizes) + " with dimension " + Twine(dim) + " being empty",
               sizes);
}

Values emitMeanPool(Op& op, size_t axes, bool adaptive) {
  TensorBuilder& build = op.build;
  Value self = floating(op, "self");
  if (adaptive)
    requireElements(op, axes);
  Mean mean = meanOf(op, axes, adaptive, shapeOf(typeOf(self)), shapeOf(op.resultType()));
  Value windows = windowsOf(build, self, mean.axes, mean.ceil_mode, 0);
  int64_t rank = rankOf(windows), leading = rank - 2 * axes;
  if (llvm::any_of(mean.axes, [](const Axis& axis) { return axis.ends_early; }))
    windows = build.loop({windows}, typeOf(windows), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar value = in[0];
      for (auto [number_of_axis, axis] : llvm::enumerate(mean.axes))
        if (axis.ends_early)
          value = select(memberOf(body, axis, leading + number_of_axis, leading + axes + number_of_axis).inside, value,
                         value.constant(0));
      return value;
    });
  Value sums = build.reduce(windows, lastDims(axes, rank), ReductionKind::add);
  return {build.convert(divideByCount(build, sums, mean), op.element())};
}

Values emitMeanBackward(Op& op, size_t axes, bool adaptive) {
  Value grad = floating(op, "grad_output");
  Mean mean = meanOf(op, axes, adaptive, shapeOf(op.resultType()), shapeOf(typeOf(grad)));
  Value scaled = divideByCount(op.build, grad, mean);
  size_t leading = rankOf(grad) - axes;
  return {sumOverHolders(op, {scaled}, mean.axes, [&](Body& body, ArrayRef<Scalar> in) {
    Scalar value = in[0];
    for (auto [number_of_axis, axis] : llvm::enumerate(mean.axes)) {
      Scalar h = body.position(leading + number_of_axis), j = body.position(leading + axes + number_of_axis);
      if (axis.adaptive) {
        Scalar out = number(body, axis.out), extent = number(body, axis.in);
        Scalar first(body.b, arith::FloorDivSIOp::create(body.b, (h * out).value(), extent.value()));
        value = select((first + j) * extent < (h + 1) * out, value, value.constant(0));
      } else if (auto kernel = dyn_cast<AffineConstantExpr>(axis.kernel);
                 kernel && kernel.getValue() % axis.stride != 0) {
        Scalar stride = constantScalar(body.b, h.type(), axis.stride);
        Scalar offset(body.b, arith::RemSIOp::create(body.b, (h + double(axis.padding)).value(), stride.value()));
        value = select(offset + j * double(axis.stride) < double(kernel.getValue()), value, value.constant(0));
      }
    }
    return value;
  })};
}

//===-- im2col, col2im -------------------------------------------------------------------------===//

SmallVector<Axis> columnAxes(Op& op, ArrayRef<AffineExpr> image) {
  SmallVector<int64_t> kernel = op.integers("kernel_size"), dilation = op.integers("dilation"),
                       padding = op.integers("padding"), stride = op.integers("stride");
  SmallVector<Axis> axes;
  for (size_t axis = 0; axis < 2; ++axis) {
    Axis made;
    made.in = image[image.size() - 2 + axis];
    made.kernel = op.build.constant(kernel[axis]);
    made.stride = stride[axis];
    made.padding = padding[axis];
    made.dilation = dilation[axis];
    made.out = (made.in + (2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1)).floorDiv(stride[axis]) + 1;
    axes.push_back(made);
  }
  return axes;
}

// [..., C, H, W] -> [..., C * kernel, windows].
Values emitIm2col(Op& op) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self");
  auto axes = columnAxes(op, shapeOf(typeOf(self)));
  Value windows = windowsOf(build, self, axes, false, 0);
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rankOf(windows)));
  std::rotate(order.end() - 4, order.end() - 2, order.end());  // kernel before windows
  return {build.reshape(build.permute(windows, order), shapeOf(op.resultType()))};
}

// The sum of the columns' elements that came from each position of the image.
Values emitCol2im(Op& op) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self");
  Exprs image(shapeOf(op.resultType()));
  auto axes = columnAxes(op, image);
  size_t leading = image.size() - 2;
  Exprs columns(image.begin(), image.begin() + leading), indices, result(image);
  for (const Axis& axis : axes)
    columns.push_back(axis.kernel);
  for (const Axis& axis : axes)
    columns.push_back(axis.out);
  Type compute = fx::computeType(op.element());
  Value value = build.convert(build.reshape(self, columns), compute);
  SmallVector<int64_t> low(leading + 2, 0);
  Exprs padded(columns);
  for (size_t d = 0; d < leading; ++d)
    indices.push_back(build.dim(d));
  for (size_t axis = 0; axis < 2; ++axis)
    indices.push_back(build.dim(leading + 2 + axis));
  for (size_t axis = 0; axis < 2; ++axis) {
    const Axis& a = axes[axis];
    int64_t reach = (cast<AffineConstantExpr>(a.kernel).getValue() - 1) * a.dilation;
    int64_t before = (reach + a.stride - 1) / a.stride;
    AffineExpr h = build.dim(leading + axis), k = build.dim(leading + 2 + axis);
    indices.push_back((h - k * a.dilation + (a.padding + before * a.stride)).floorDiv(a.stride));
    low.push_back(before);
    padded[leading + 2 + axis] = (a.in - 1 + a.padding).floorDiv(a.stride) + before + 1;
    result.push_back(a.kernel);
  }
  Value seen = build.view(build.pad(value, low, padded, 0), indices, result);
  Value shares = build.loop({seen}, typeOf(seen), [&](Body& body, ArrayRef<Scalar> in) {
    Scalar share = in[0];
    for (size_t axis = 0; axis < 2; ++axis) {
      const Axis& a = axes[axis];
      if (a.stride == 1)
        continue;
      int64_t reach = (cast<AffineConstantExpr>(a.kernel).getValue() - 1) * a.dilation;
      int64_t before = (reach + a.stride - 1) / a.stride;
      Scalar numerator = body.position(leading + axis) - body.position(leading + 2 + axis) * double(a.dilation) +
                         double(a.padding + before * a.stride);
      Scalar stride = constantScalar(body.b, numerator.type(), a.stride);
      Scalar rest(body.b, arith::RemSIOp::create(body.b, numerator.value(), stride.value()));
      share = select(rest == 0, share, share.constant(0));
    }
    return share;
  });
  int64_t rank = rankOf(shares);
  return {build.convert(build.reduce(shares, {rank - 2, rank - 1}, ReductionKind::add), op.element())};
}

}  // namespace

void registerWindows(OpTable& table) {
  for (size_t axes : {1, 2, 3}) {
    std::string d = std::to_string(axes) + "d";
    auto add = [&](const std::string& name, auto emitter) { table.add("aten." + name + ".default", emitter); };
    if (axes != 1) {
      add("max_pool" + d + "_with_indices", [=](Op& op) { return emitMaxPool(op, axes); });
      add("max_pool" + d + "_with_indices_backward", [=](Op& op) { return emitMaxPoolBackward(op, axes); });
      add("adaptive_max_pool" + d, [=](Op& op) { return emitAdaptiveMaxPool(op, axes); });
      add("adaptive_max_pool" + d + "_backward", [=](Op& op) { return emitAdaptiveMaxBackward(op, axes); });
      add("avg_pool" + d + "_backward", [=](Op& op) { return emitMeanBackward(op, axes, false); });
      add("_adaptive_avg_pool" + d, [=](Op& op) { return emitMeanPool(op, axes, true); });
      add("_adaptive_avg_pool" + d + "_backward", [=](Op& op) { return emitMeanBackward(op, axes, true); });
    }
    add("avg_pool" + d, [=](Op& op) { return emitMeanPool(op, axes, false); });
  }
  table.add("aten.im2col.default", emitIm2col);
  table.add("aten.col2im.default", emitCol2im);
}

}  // namespace zefuse
