// zefuse.convolution on a GPU, as an implicit matrix product: one side is the weight, the other the input's patches,
// whose elements are found where they lie. Channels are the columns of the product when they are the result's
// neighbours (channels last), else its rows. Each group of channels is a product of its own.
//
//   forward, transposed   channels of the result x its pixels (all images), over kernel taps and input channels
//   weights               channels of the gradient x (kernel taps and input channels), over all pixels of the gradient
//
// Slices of the sum are a batch of products: the index of what is summed over starts at the slice's first.
#include "lowering/schedule/products/call_kernel.h"
#include "lowering/schedule/products/epilogue.h"
#include "lowering/schedule/products/gpu_product.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

class ConvolutionSchedule {
public:
  ConvolutionSchedule(ConvolutionOp op, CallKernel& kernel, const TargetDescription& target)
      : op_(op), k_(kernel), target_(target), b_(kernel.builder()), loc_(b_.getUnknownLoc()), i_(kernel.math()),
        input_(kernel.tensor(0)), weight_(kernel.tensor(1)),
        result_number_(2 + (op.getBias() ? 1 : 0) + unsigned(op.getOperands_().size())),
        result_(kernel.tensor(result_number_)), spatial_(input_.sizes.size() - 2), groups_(op.getGroups()),
        slices_(op.getSlices()), of_weights_(op.getKind() == "weights"), transposed_(op.getKind() == "transposed") {}

  void run() {
    AffineExpr slice_stride;
    if (slices_ > 1) {
      slice_stride = result_.strides.front();
      result_.sizes.erase(result_.sizes.begin());
      result_.strides.erase(result_.strides.begin());
    }
    // The tensor whose pixels are walked, and the one whose spatial sizes are the kernel's.
    const StridedTensor& outer = of_weights_ ? weight_ : result_;
    const StridedTensor& taps = of_weights_ ? result_ : weight_;
    images_ = {outer.sizes[0]};
    llvm::append_range(images_, ArrayRef(outer.sizes).drop_front(2));
    kernel_.assign(taps.sizes.begin() + 2, taps.sizes.end());
    AffineExpr channels = outer.sizes[1].floorDiv(groups_), depth = input_.sizes[1].floorDiv(groups_);
    // Input channels run fastest where they are neighbours, else the taps do.
    channels_fastest_ = constantOf(input_.strides[1]) == 1;
    depth_ = depth;
    AffineExpr patches = depth;
    for (AffineExpr size : kernel_)
      patches = patches * size;
    AffineExpr pixels = getAffineConstantExpr(1, b_.getContext());
    for (AffineExpr size : images_)
      pixels = pixels * size;

    channels_are_columns_ = !of_weights_ && constantOf(result_.strides[1]) == 1;
    AffineExpr other = of_weights_ ? patches : pixels, inner = of_weights_ ? pixels : patches;
    AffineExpr m = channels_are_columns_ ? other : channels, n = channels_are_columns_ ? channels : other;
    const MatrixOperation* engine = matrixOperation(input_.element, weight_.element, target_);
    bits_ = bool(engine);
    ProductTile tile = chooseTile(constantOf(m), constantOf(n), groups_ * slices_, 4, target_, bits_);
    AffineExpr tiles_m = m.ceilDiv(tile.rows()), tiles_n = n.ceilDiv(tile.columns());
    LoweredKernel& launch = k_.launch();
    launch.extent = tiles_m * tiles_n * (groups_ * slices_);
    launch.grain = 1;
    launch.schedule.add(choice::Convolution{tile.rows(), tile.columns(), channels_are_columns_, bits_,
                                            registersOf(tile, 4, target_, bits_)});
    WorkGroup group(b_, k_.function(), launch, tile.items(), tile.block_columns);
    Value count_n = k_.expression(tiles_n), count_m = k_.expression(tiles_m);
    Value rest = i_.divide(group.group(), count_n);
    Value tile_n = i_.modulo(group.group(), count_n), tile_m = i_.modulo(rest, count_m);
    Value group_number = i_.divide(rest, count_m);
    Value first_inner = i_.number(0);
    if (slices_ > 1) {
      Value slice = i_.divide(group_number, groups_);
      group_number = i_.modulo(group_number, groups_);
      inner = inner.floorDiv(slices_);
      first_inner = i_.multiply(slice, k_.expression(inner));
      Value at = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), i_.multiply(slice, k_.expression(slice_stride)));
      result_.pointer =
          LLVM::GEPOp::create(b_, loc_, result_.pointer.getType(), memoryType(result_.element), result_.pointer,
                              ArrayRef<LLVM::GEPArg>{at}, LLVM::GEPNoWrapFlags::inbounds);
    }
    first_channel_ = i_.multiply(group_number, k_.expression(channels));
    first_input_ = i_.multiply(group_number, k_.expression(depth));

    rows_ = {k_.expression(m), constantOf(m)};
    columns_ = {k_.expression(n), constantOf(n)};
    Product product{rows_, columns_, {k_.expression(inner), constantOf(inner)}, b_.getF32Type(), engine, {}, {}};
    // `swap`: the source's rows and columns are the function's second and first index.
    auto source = [&](bool swap, bool first_contiguous, int64_t run, auto load) {
      ProductSource source;
      source.columns_contiguous = swap ? first_contiguous : !first_contiguous;
      source.run = run;
      source.together = 2;
      source.load = [swap, load](Value row, Value column, int64_t lanes) {
        return swap ? load(column, row, lanes) : load(row, column, lanes);
      };
      return source;
    };
    // Accesses along what is summed over stay inside a tap's channels, wherever a slice starts.
    auto inSlice = [&](int64_t run) {
      while (slices_ > 1 && run > 1 && constantOf(inner).value_or(1) % run != 0)
        run /= 2;
      return run;
    };
    int64_t patch_run = channels_fastest_ ? accessRun(input_.strides[1], depth, input_.element) : 1;
    if (!of_weights_)
      patch_run = inSlice(patch_run);
    auto summed = [this, first_inner](Value index) { return slices_ == 1 ? index : i_.add(first_inner, index); };
    auto patch = [this, summed](Value patch, Value pixel, int64_t lanes) {
      return of_weights_ ? loadPatch(patch, summed(pixel), lanes) : loadPatch(summed(patch), pixel, lanes);
    };
    if (of_weights_) {
      // gradient (channel, pixel) x patches (pixel, patch)
      auto gradient = [this, summed](Value channel, Value pixel, int64_t) {
        return load(weight_, pixelOffset(weight_, i_.add(first_channel_, channel), summed(pixel)), 1);
      };
      product.a = source(false, constantOf(weight_.strides[1]) == 1, 1, gradient);
      product.b = source(true, channels_fastest_, patch_run, patch);
    } else {
      auto weight = [this, summed](Value channel, Value patch, int64_t lanes) {
        return loadWeight(channel, summed(patch), lanes);
      };
      auto weights = source(channels_are_columns_, false, inSlice(weightRun()), weight);
      auto patches_source = source(channels_are_columns_, channels_fastest_, patch_run, patch);
      product.a = channels_are_columns_ ? patches_source : weights;
      product.b = channels_are_columns_ ? weights : patches_source;
    }
    emitProduct(b_, group, tile, product, i_.multiply(tile_m, tile.rows()), i_.multiply(tile_n, tile.columns()),
                [&](Value row, Value column, Value value) { store(row, column, value); });
  }

private:
  const StridedTensor& tensor(unsigned number) const { return number == result_number_ ? result_ : k_.tensor(number); }

  Value load(const StridedTensor& tensor, Value offset, int64_t lanes) {
    return bits_ ? k_.loadBits(tensor, offset, lanes) : k_.load(tensor, offset, lanes);
  }

  // An index into a row-major space, taken apart; the first coordinate keeps what is left. In 32 bits where they do and
  // a wider division is a call.
  SmallVector<Value> apart(Value index, ArrayRef<AffineExpr> sizes) {
    SmallVector<Value> coordinates(sizes.size());
    int64_t count = 1;
    for (AffineExpr size : sizes)
      count = count < 0 || !constantOf(size) ? -1 : std::min<int64_t>(count * *constantOf(size), int64_t(1) << 31);
    bool narrow = target_.index_bits < 64 && count >= 0 && count < (int64_t(1) << 31);
    Type i32 = b_.getI32Type();
    if (narrow)
      index = arith::IndexCastUIOp::create(b_, loc_, i32, index);
    for (size_t dim = sizes.size(); dim-- > 0;) {
      Value part = index;
      if (dim > 0) {
        Value size = narrow
                         ? arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(*constantOf(sizes[dim]))))
                         : k_.expression(sizes[dim]);
        part = i_.modulo(index, size);
        index = i_.divide(index, size);
      }
      coordinates[dim] = narrow ? arith::IndexCastUIOp::create(b_, loc_, b_.getIndexType(), part) : part;
    }
    return coordinates;
  }

  // A patch's element: its input channel in the group, then its tap per spatial dimension.
  SmallVector<Value> patchOf(Value patch) {
    SmallVector<AffineExpr> sizes(kernel_);
    if (channels_fastest_)
      sizes.push_back(depth_);
    else
      sizes.insert(sizes.begin(), depth_);
    SmallVector<Value> parts = apart(patch, sizes);
    if (channels_fastest_)
      std::rotate(parts.begin(), parts.end() - 1, parts.end());
    return parts;
  }

  Value pixelOffset(const StridedTensor& tensor, Value channel, Value pixel) {
    SmallVector<Value> indices = apart(pixel, images_);
    indices.insert(indices.begin() + 1, channel);
    return k_.offset(tensor, indices);
  }

  // The input under a tap of the kernel at a pixel; zero in the padding.
  Value loadPatch(Value patch, Value pixel, int64_t lanes) {
    SmallVector<Value> part = patchOf(patch), at = apart(pixel, images_);
    SmallVector<Value> indices{at[0], i_.add(first_input_, part[0])};
    Value inside;
    Value zero = i_.number(0);
    for (size_t dim = 0; dim < spatial_; ++dim) {
      int64_t stride = op_.getStride()[dim], padding = op_.getPadding()[dim], dilation = op_.getDilation()[dim];
      Value size = k_.expression(input_.sizes[dim + 2]), tap = i_.multiply(part[dim + 1], dilation), place;
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
    Value value = load(input_, k_.offset(input_, indices), lanes);
    Value nothing = constantOfType(
        b_, loc_, cast<TypedAttr>(b_.getZeroAttr(bits_ ? Type(b_.getI16Type()) : b_.getF32Type())), unsigned(lanes));
    return arith::SelectOp::create(b_, loc_, splat(b_, inside, unsigned(lanes)), value, nothing);
  }

  // forward: [O, C / groups, kernel...]; transposed: [C, O / groups, kernel...].
  Value loadWeight(Value channel, Value patch, int64_t lanes) {
    SmallVector<Value> part = patchOf(patch), indices;
    if (transposed_)
      indices = {i_.add(first_input_, part[0]), channel};
    else
      indices = {i_.add(first_channel_, channel), part[0]};
    indices.append(part.begin() + 1, part.end());
    return load(weight_, k_.offset(weight_, indices), lanes);
  }

  // Neighbouring elements of a patch are neighbours in the weight where its layout has the patch's order.
  int64_t weightRun() const {
    size_t channel = transposed_ ? 0 : 1;
    bool one_tap = llvm::all_of(kernel_, [](AffineExpr size) { return constantOf(size) == 1; });
    if (channels_fastest_ || one_tap)
      return accessRun(weight_.strides[channel], depth_, weight_.element);
    return accessRun(weight_.strides.back(), kernel_.back(), weight_.element);
  }

  void store(Value first_row, Value column, Value value) {
    auto post_ops = llvm::to_vector(op_.getPostOps().getAsValueRange<StringAttr>());
    OpBuilder::InsertionGuard guard(b_);
    auto exists = scf::IfOp::create(b_, loc_, i_.less(column, columns_.value), false);
    b_.setInsertionPointToStart(exists.thenBlock());
    // Where rows are channels, the others are a stride away from the first one.
    SmallVector<Value> bases;
    if (!of_weights_ && !channels_are_columns_)
      for (unsigned number = op_.getBias() ? 3 : 2; number <= result_number_; ++number)
        bases.push_back(pixelOffset(tensor(number), i_.add(first_channel_, first_row), column));
    for (int64_t block_row = 0; block_row < ProductTile::block_rows; ++block_row) {
      OpBuilder::InsertionGuard inner(b_);
      Value row = i_.add(first_row, block_row);
      auto branch = scf::IfOp::create(b_, loc_, i_.less(row, rows_.value), false);
      b_.setInsertionPointToStart(branch.thenBlock());
      Value element = vector::ExtractOp::create(b_, loc_, value, block_row);
      Value channel = i_.add(first_channel_, channels_are_columns_ ? column : row);
      Value other = channels_are_columns_ ? row : column;
      if (of_weights_) {
        SmallVector<Value> part = patchOf(other), indices{channel};
        indices.append(part);
        k_.store(result_, k_.offset(result_, indices), element);
        continue;
      }
      unsigned next = op_.getBias() ? 3 : 2;
      auto offset = [&](unsigned number) {
        const StridedTensor& walked = tensor(number);
        if (channels_are_columns_)
          return pixelOffset(walked, channel, other);
        if (constantOf(walked.sizes[1]) == 1)
          return bases[number - next];
        auto stride = constantOf(walked.strides[1]);
        return i_.add(bases[number - next], stride ? i_.number(block_row * *stride)
                                                   : i_.multiply(k_.expression(walked.strides[1]), block_row));
      };
      if (op_.getBias())
        element = arith::AddFOp::create(b_, loc_, element, k_.load(k_.tensor(2), k_.offset(k_.tensor(2), channel)));
      element = emitPostOps(b_, loc_, post_ops, element,
                            [&](unsigned number) { return k_.load(k_.tensor(next + number), offset(next + number)); });
      k_.store(result_, offset(result_number_), element);
    }
  }

  ConvolutionOp op_;
  CallKernel& k_;
  const TargetDescription& target_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  const StridedTensor &input_, &weight_;
  unsigned result_number_;
  StridedTensor result_;  // of this group's slice
  size_t spatial_;
  int64_t groups_, slices_;
  bool bits_ = false;  // operands go to the matrix engine as they are
  bool of_weights_, transposed_, channels_fastest_ = false, channels_are_columns_ = false;
  SmallVector<AffineExpr> images_, kernel_;  // image and pixel sizes; taps
  AffineExpr depth_;                         // input channels of a group
  Value first_channel_, first_input_;
  Extent rows_, columns_;
};

}  // namespace

FailureOr<ScheduledKernel> scheduleConvolution(ConvolutionOp op, ArrayRef<AffineMap> layouts,
                                               const TargetDescription& target) {
  if (!target.supports.products)
    return op.emitError("convolution has a kernel on GPU targets only; on the CPU it is a library call"), failure();
  SmallVector<Type> operands(op->getOperandTypes());
  operands.push_back(op.getType());
  for (Type operand : operands) {
    Type element = getElementTypeOrSelf(operand);
    if (!element.isF32() && !element.isF16() && !element.isBF16())
      return op.emitError("convolution of ") << element << " has no GPU kernel", failure();
  }
  CallKernel kernel(op, "convolution", operands, 1, layouts);
  if (!kernel.ok())
    return op.emitError("convolution: ") << kernel.refusal(), failure();
  ConvolutionSchedule(op, kernel, target).run();
  return kernel.finish();
}

}  // namespace zefuse
