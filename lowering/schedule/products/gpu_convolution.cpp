// zefuse.convolution on a GPU, as an implicit matrix product: one side is the weight, the other the input's patches,
// whose elements are found where they lie. Channels are the columns of the product when they are the result's
// neighbours (channels last), else its rows. Each group of channels is a product of its own.
//
//   forward, transposed   channels of the result x its pixels (all images), over kernel taps and input channels
//   weights               channels of the gradient x (kernel taps and input channels), over all pixels of the gradient
//
// Slices of the sum are a batch of products: the index of what is summed over starts at the slice's first.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/products/gpu_product.h"
#include "lowering/schedule/products/product_nodes.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

class ConvolutionSchedule {
public:
  explicit ConvolutionSchedule(const ScheduleContext& context)
      : c_(context), op_(cast<ConvolutionOp>(context.domain.product->op)), e_(context.evaluator),
        target_(context.target), b_(context.builder()), loc_(b_.getUnknownLoc()), i_{b_, loc_}, nodes_(context),
        spatial_(op_.getStride().size()), groups_(int64_t(op_.getGroups())), slices_(int64_t(op_.getSlices())),
        first_dim_(slices_ > 1 ? 1 : 0), of_weights_(op_.getKind() == "weights"),
        transposed_(op_.getKind() == "transposed") {}

  void run() {
    const SmallVector<AffineExpr> input = shapeOf(op_.getInput().getType()),
                                  weight = shapeOf(op_.getWeight().getType()), whole = shapeOf(op_.getType());
    ArrayRef<AffineExpr> result = ArrayRef(whole).drop_front(first_dim_);
    // The tensor whose pixels are walked, and the one whose spatial sizes are the kernel's.
    ArrayRef<AffineExpr> outer = of_weights_ ? ArrayRef(weight) : result,
                         taps = of_weights_ ? result : ArrayRef(weight);
    kernel_.assign(taps.begin() + 2, taps.end());
    AffineExpr channels = outer[1].floorDiv(groups_), depth = input[1].floorDiv(groups_);
    // Input channels run fastest where they are neighbours, else the taps do.
    const ProductNodes::Neighbours channel_neighbours = nodes_.neighboursAlong(0, 1);
    channels_fastest_ = channel_neighbours.bytes > nodes_.neighboursAlong(0, unsigned(spatial_) + 1).bytes;
    depth_ = depth;
    // Before the loops of the product, which the evaluator knows nothing of.
    for (AffineExpr size : ArrayRef(input).drop_front(2))
      input_sizes_.push_back(nodes_.expression(size));
    SmallVector<AffineExpr> images = {outer[0]}, patch(kernel_);
    llvm::append_range(images, outer.drop_front(2));
    patch.insert(channels_fastest_ ? patch.end() : patch.begin(), depth);
    images_ = extentsOf(images);
    patch_ = extentsOf(patch);
    AffineExpr patches = depth;
    for (AffineExpr size : kernel_)
      patches = patches * size;
    AffineExpr pixels = getAffineConstantExpr(1, b_.getContext());
    for (AffineExpr size : images)
      pixels = pixels * size;

    channels_are_columns_ = !of_weights_ && nodes_.storesAlong(first_dim_ + 1);
    AffineExpr other = of_weights_ ? patches : pixels, inner = of_weights_ ? pixels : patches;
    AffineExpr m = channels_are_columns_ ? other : channels, n = channels_are_columns_ ? channels : other;
    const MatrixOperation* engine =
        matrixOperation(op_.getInput().getType().getElementType(), op_.getWeight().getType().getElementType(), target_);
    bits_ = engine != nullptr;
    ProductTile tile = chooseTile(constantOf(m), constantOf(n), groups_ * slices_, 4, target_, bits_);
    AffineExpr tiles_m = m.ceilDiv(tile.rows()), tiles_n = n.ceilDiv(tile.columns());
    LoweredKernel& launch = c_.launch;
    launch.extent = tiles_m * tiles_n * (groups_ * slices_);
    launch.grain = 1;
    launch.schedule.add(choice::Convolution{tile.rows(), tile.columns(), channels_are_columns_, bits_,
                                            registersOf(tile, 4, target_, bits_)});
    WorkGroup group(b_, c_.function, launch, tile.items(), tile.block_columns);
    Value count_n = nodes_.expression(tiles_n), count_m = nodes_.expression(tiles_m);
    Value rest = i_.divide(group.group(), count_n);
    Value tile_n = i_.modulo(group.group(), count_n), tile_m = i_.modulo(rest, count_m);
    Value group_number = i_.divide(rest, count_m);
    Value first_inner = i_.number(0);
    if (slices_ > 1) {
      Value slice = i_.divide(group_number, groups_);
      group_number = i_.modulo(group_number, groups_);
      inner = inner.floorDiv(slices_);
      first_inner = i_.multiply(slice, nodes_.expression(inner));
      nodes_.bindResult(0, slice);
      e_.toInnermost();
    }
    first_channel_ = i_.multiply(group_number, nodes_.expression(channels));
    first_input_ = i_.multiply(group_number, nodes_.expression(depth));

    rows_ = {nodes_.expression(m), constantOf(m)};
    columns_ = {nodes_.expression(n), constantOf(n)};
    Product product{rows_, columns_, {nodes_.expression(inner), constantOf(inner)}, b_.getF32Type(), engine, {}, {}};
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
    int64_t patch_run = channels_fastest_ ? inGroup(channel_neighbours.run) : 1;
    if (!of_weights_)
      patch_run = inSlice(patch_run);
    auto summed = [this, first_inner](Value index) { return slices_ == 1 ? index : i_.add(first_inner, index); };
    auto image = [this, summed](Value patch, Value pixel, int64_t lanes) {
      return of_weights_ ? loadPatch(patch, summed(pixel), lanes) : loadPatch(summed(patch), pixel, lanes);
    };
    if (of_weights_) {
      // gradient (channel, pixel) x patches (pixel, patch)
      auto gradient = [this, summed](Value channel, Value pixel, int64_t) {
        SmallVector<Value> indices = apart(summed(pixel), images_);
        indices.insert(indices.begin() + 1, i_.add(first_channel_, channel));
        return taken(load(1, indices, 1, 1));
      };
      product.a = source(false, nodes_.neighboursAlong(1, 1).bytes > 0, 1, gradient);
      product.b = source(true, channels_fastest_, patch_run, image);
    } else {
      auto weight = [this, summed](Value channel, Value patch, int64_t lanes) {
        return loadWeight(channel, summed(patch), lanes);
      };
      const unsigned along = weightDimension();
      const int64_t run = nodes_.neighboursAlong(1, along).run;
      auto weights =
          source(channels_are_columns_, false, inSlice(along == channelOfPatch() ? inGroup(run) : run), weight);
      auto patches_source = source(channels_are_columns_, channels_fastest_, patch_run, image);
      product.a = channels_are_columns_ ? patches_source : weights;
      product.b = channels_are_columns_ ? weights : patches_source;
    }
    emitProduct(b_, group, tile, product, i_.multiply(tile_m, tile.rows()), i_.multiply(tile_n, tile.columns()),
                [&](Value row, Value column, Value value) { store(row, column, value); });
  }

private:
  /// The longest run up to this one that never crosses from one group's channels to the next's.
  int64_t inGroup(int64_t run) const {
    while (run > 1 && constantOf(depth_).value_or(1) % run != 0)
      run /= 2;
    return run;
  }

  /// `lanes` neighbours along the dimension, as they are in registers.
  Value load(unsigned operand, ArrayRef<Value> indices, unsigned dimension, int64_t lanes) {
    SmallVector<std::pair<unsigned, Value>> at;
    for (auto [number, index] : llvm::enumerate(indices))
      at.emplace_back(unsigned(number), index);
    return nodes_.load(operand, at, {dimension, lanes});
  }

  /// What the product takes of a register: bits for the matrix engine, else single precision.
  Value taken(Value value) { return bits_ ? value : widened(value, elementOf(op_.getInput())); }
  Value widened(Value value, Type element) { return element.isF32() ? value : widenToF32(b_, loc_, value, element); }

  SmallVector<Extent> extentsOf(ArrayRef<AffineExpr> sizes) const {
    return llvm::map_to_vector(sizes,
                               [&](AffineExpr size) { return Extent{nodes_.expression(size), constantOf(size)}; });
  }

  // An index into a row-major space, taken apart; the first coordinate keeps what is left. In 32 bits where they do and
  // a wider division is a call.
  SmallVector<Value> apart(Value index, ArrayRef<Extent> sizes) {
    SmallVector<Value> coordinates(sizes.size());
    constexpr int64_t limit = int64_t(1) << 31;
    int64_t count = 1;
    for (const Extent& size : sizes)
      count = count < 0 || !size.constant ? -1 : std::min(count * *size.constant, limit);
    const bool narrow = target_.index_bits < 64 && count >= 0 && count < limit;
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

  // A patch's element: its input channel in the group, then its tap per spatial dimension.
  SmallVector<Value> patchOf(Value patch) {
    SmallVector<Value> parts = apart(patch, patch_);
    if (channels_fastest_)
      std::rotate(parts.begin(), parts.end() - 1, parts.end());
    return parts;
  }

  // The input under a tap of the kernel at a pixel; zero in the padding.
  Value loadPatch(Value patch, Value pixel, int64_t lanes) {
    SmallVector<Value> part = patchOf(patch), at = apart(pixel, images_);
    SmallVector<Value> indices{at[0], i_.add(first_input_, part[0])};
    Value inside;
    Value zero = i_.number(0);
    for (size_t dim = 0; dim < spatial_; ++dim) {
      int64_t stride = op_.getStride()[dim], padding = op_.getPadding()[dim], dilation = op_.getDilation()[dim];
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
    Value value = load(0, indices, 1, lanes);
    Value nothing = constantOfType(b_, loc_, b_.getZeroAttr(getElementTypeOrSelf(value.getType())), unsigned(lanes));
    return taken(arith::SelectOp::create(b_, loc_, splat(b_, inside, unsigned(lanes)), value, nothing));
  }

  // forward: [O, C / groups, kernel...]; transposed: [C, O / groups, kernel...].
  Value loadWeight(Value channel, Value patch, int64_t lanes) {
    SmallVector<Value> part = patchOf(patch), indices;
    if (transposed_)
      indices = {i_.add(first_input_, part[0]), channel};
    else
      indices = {i_.add(first_channel_, channel), part[0]};
    indices.append(part.begin() + 1, part.end());
    return taken(load(1, indices, weightDimension(), lanes));
  }

  unsigned channelOfPatch() const { return transposed_ ? 0 : 1; }

  // Neighbouring elements of a patch are neighbours in the weight where its layout has the patch's order.
  unsigned weightDimension() const {
    bool one_tap = llvm::all_of(kernel_, [](AffineExpr size) { return constantOf(size) == 1; });
    return channels_fastest_ || one_tap ? channelOfPatch() : unsigned(spatial_) + 1;
  }

  /// What follows a block's 8 rows, one after the other.
  void store(Value first_row, Value column, Value value) {
    nodes_.open(i_.less(column, columns_.value));
    e_.toInnermost();
    if (of_weights_)
      bindPatch(column);
    else if (channels_are_columns_)
      nodes_.bindResult(first_dim_ + 1, i_.add(first_channel_, column));
    else
      bindPixel(column);
    for (int64_t block_row = 0; block_row < ProductTile::block_rows; ++block_row) {
      e_.toInnermost();
      Value row = i_.add(first_row, block_row);
      nodes_.open(i_.less(row, rows_.value));
      e_.toInnermost();
      if (of_weights_)
        nodes_.bindResult(first_dim_, i_.add(first_channel_, row));
      else if (channels_are_columns_)
        bindPixel(row);
      else
        nodes_.bindResult(first_dim_ + 1, i_.add(first_channel_, row));
      e_.toInnermost();
      Value element = vector::ExtractOp::create(b_, loc_, value, block_row);
      if (Value bias = nodes_.bias())
        element = arith::AddFOp::create(b_, loc_, element, widened(bias, elementOf(op_.getBias())));
      if (Type type = op_.getType().getElementType(); !type.isF32())
        element = narrowFromF32(b_, loc_, element, type);
      nodes_.store(element);
      nodes_.close();
    }
    nodes_.close();
  }

  void bindPixel(Value pixel) {
    SmallVector<Value> at = apart(pixel, images_);
    nodes_.bindResult(first_dim_, at[0]);
    for (size_t dim = 0; dim < spatial_; ++dim)
      nodes_.bindResult(first_dim_ + 2 + unsigned(dim), at[dim + 1]);
  }

  void bindPatch(Value patch) {
    for (auto [dim, index] : llvm::enumerate(patchOf(patch)))
      nodes_.bindResult(first_dim_ + 1 + unsigned(dim), index);
  }

  static Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

  const ScheduleContext& c_;
  ConvolutionOp op_;
  Evaluator& e_;
  const TargetDescription& target_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  ProductNodes nodes_;
  size_t spatial_;
  int64_t groups_, slices_;
  unsigned first_dim_;  // of the result: behind that of the slices
  bool bits_ = false;   // operands go to the matrix engine as they are
  bool of_weights_, transposed_, channels_fastest_ = false, channels_are_columns_ = false;
  SmallVector<AffineExpr> kernel_;      // taps
  AffineExpr depth_;                    // input channels of a group
  SmallVector<Extent> images_, patch_;  // images and their pixels; a patch's channels and taps, in its order
  SmallVector<Value> input_sizes_;      // spatial
  Value first_channel_, first_input_;
  Extent rows_, columns_;
};

}  // namespace

void scheduleGpuConvolution(const ScheduleContext& context) { ConvolutionSchedule(context).run(); }

}  // namespace zefuse
