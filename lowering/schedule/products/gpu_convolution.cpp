// zefuse.convolution on a GPU, as an implicit matrix product (convolution_nodes.h). Channels are the columns of the
// product when they are the result's neighbours (channels last), else its rows.
//
// Slices of the sum are a batch of products: the index of what is summed over starts at the slice's first.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/products/convolution_nodes.h"
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
  explicit ConvolutionSchedule(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), target_(context.target), b_(context.builder()), loc_(b_.getUnknownLoc()),
        i_{b_, loc_}, image_(context), op_(image_.op), nodes_(image_.nodes) {}

  void run() {
    const int64_t groups = image_.groups, slices = image_.slices;
    const bool of_weights = image_.of_weights;
    AffineExpr channels = image_.channels, patches = image_.patches, pixels = image_.pixels;
    channels_are_columns_ = !of_weights && nodes_.storesAlong(image_.first_dim + 1);
    AffineExpr other = of_weights ? patches : pixels, inner = of_weights ? pixels : patches;
    AffineExpr m = channels_are_columns_ ? other : channels, n = channels_are_columns_ ? channels : other;
    const Type input = elementOf(op_.getInput()), weight = elementOf(op_.getWeight());
    const MatrixOperation* engine = matrixOperation(input, weight, target_);
    bits_ = engine != nullptr;
    const bool wide = !engine && (engine = splitOperation(input, weight, target_));
    ProductTile tile =
        chooseTile(constantOf(m), constantOf(n), groups * slices, 4, target_, bool(engine), &c_.decisions, wide);
    AffineExpr tiles_m = m.ceilDiv(tile.rows()), tiles_n = n.ceilDiv(tile.columns());
    LoweredKernel& launch = c_.launch;
    launch.extent = tiles_m * tiles_n * (groups * slices);
    launch.grain = 1;
    launch.schedule.add(choice::Convolution{tile.rows(), tile.columns(), channels_are_columns_, engine != nullptr,
                                            registersOf(tile, 4, target_, engine != nullptr)});
    WorkGroup group(b_, c_.function, launch, tile.items(), tile.lanes);
    Value count_n = nodes_.expression(tiles_n), count_m = nodes_.expression(tiles_m);
    Value rest = i_.divide(group.group(), count_n);
    Value tile_n = i_.modulo(group.group(), count_n), tile_m = i_.modulo(rest, count_m);
    Value group_number = i_.divide(rest, count_m);
    Value first_inner = i_.number(0);
    if (slices > 1) {
      Value slice = i_.divide(group_number, groups);
      group_number = i_.modulo(group_number, groups);
      inner = inner.floorDiv(slices);
      first_inner = i_.multiply(slice, nodes_.expression(inner));
      nodes_.bindResult(0, slice);
      e_.toInnermost();
    }
    Value first_channel = i_.multiply(group_number, nodes_.expression(channels));
    image_.bindGroup(first_channel, i_.multiply(group_number, nodes_.expression(image_.depth)));

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
      while (slices > 1 && run > 1 && constantOf(inner).value_or(1) % run != 0)
        run /= 2;
      return run;
    };
    int64_t patch_run = image_.channels_fastest ? image_.inGroup(image_.channel_neighbours.run) : 1;
    if (!of_weights)
      patch_run = inSlice(patch_run);
    auto summed = [=, this](Value index) { return slices == 1 ? index : i_.add(first_inner, index); };
    auto image = [=, this](Value patch, Value pixel, int64_t lanes) {
      return taken(of_weights ? image_.loadPatch(patch, summed(pixel), lanes)
                              : image_.loadPatch(summed(patch), pixel, lanes));
    };
    if (of_weights) {
      // gradient (channel, pixel) x patches (pixel, patch)
      auto gradient = [this, summed](Value channel, Value pixel, int64_t) {
        return taken(image_.loadGradient(channel, summed(pixel)));
      };
      product.a = source(false, nodes_.neighboursAlong(1, 1).bytes > 0, 1, gradient);
      product.b = source(true, image_.channels_fastest, patch_run, image);
    } else {
      auto weight = [this, summed](Value channel, Value patch, int64_t lanes) {
        return taken(image_.loadWeight(channel, summed(patch), lanes));
      };
      const unsigned along = image_.weightDimension();
      const int64_t run = nodes_.neighboursAlong(1, along).run;
      auto weights = source(channels_are_columns_, false,
                            inSlice(along == image_.channelOfPatch() ? image_.inGroup(run) : run), weight);
      auto patches_source = source(channels_are_columns_, image_.channels_fastest, patch_run, image);
      product.a = channels_are_columns_ ? patches_source : weights;
      product.b = channels_are_columns_ ? weights : patches_source;
    }
    emitProduct(b_, group, tile, product, target_, i_.multiply(tile_m, tile.rows()),
                i_.multiply(tile_n, tile.columns()), [&](const ProductPart& part) { store(part); });
  }

private:
  /// What the product takes of a register: bits for the matrix engine, else single precision.
  Value taken(Value value) { return bits_ ? value : widened(value, elementOf(op_.getInput())); }
  Value widened(Value value, Type element) { return element.isF32() ? value : widenToF32(b_, loc_, value, element); }

  /// What follows the elements of a block, one after the other: rows of a column, or columns of a row.
  void store(const ProductPart& part) {
    const int64_t count = cast<VectorType>(part.value.getType()).getNumElements();
    part.of_row ? openRow(part.row) : openColumn(part.column);
    for (int64_t number = 0; number < count; ++number) {
      e_.toInnermost();
      part.of_row ? openColumn(i_.add(part.column, number)) : openRow(i_.add(part.row, number));
      e_.toInnermost();
      Value element = vector::ExtractOp::create(b_, loc_, part.value, number);
      if (Value bias = nodes_.bias())
        element = arith::AddFOp::create(b_, loc_, element, widened(bias, elementOf(op_.getBias())));
      if (Type type = op_.getType().getElementType(); !type.isF32())
        element = narrowFromF32(b_, loc_, element, type);
      nodes_.store(element);
      nodes_.close();
    }
    nodes_.close();
  }

  void openColumn(Value column) {
    nodes_.open(i_.less(column, columns_.value));
    e_.toInnermost();
    if (image_.of_weights)
      image_.bindPatch(column);
    else if (channels_are_columns_)
      image_.bindChannel(column);
    else
      image_.bindPixel(column);
  }

  void openRow(Value row) {
    nodes_.open(i_.less(row, rows_.value));
    e_.toInnermost();
    if (!image_.of_weights && channels_are_columns_)
      image_.bindPixel(row);
    else
      image_.bindChannel(row);
  }

  static Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

  const ScheduleContext& c_;
  Evaluator& e_;
  const TargetDescription& target_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  ConvolutionNodes image_;
  ConvolutionOp op_;
  ProductNodes& nodes_;
  bool bits_ = false;  // operands go to the matrix engine as they are
  bool channels_are_columns_ = false;
  Extent rows_, columns_;
};

}  // namespace

void scheduleGpuConvolution(const ScheduleContext& context) { ConvolutionSchedule(context).run(); }

}  // namespace zefuse
