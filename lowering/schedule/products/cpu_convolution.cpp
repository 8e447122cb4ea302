// zefuse.convolution in a kernel for the CPU, in the types that its library does not take: the product of
// convolution_nodes.h by blocks, as cpu_matmul.cpp's.
//
//   unit          `block_rows` rows (pixels; channels where they are few, and of weights) of up to `most_tiles` tiles
//   tile          as many columns (channels; else pixels, or a patch's elements) as two cache lines hold
//
// The patches of a unit's rows are packed once for all of its tiles: finding an element costs more than multiplying it.
// Rows and columns past the last are computed as the last one is and not stored.
//
// Padding is multiplied with the rest, as zeros, which makes NaN of an infinite weight. A sum that is NaN is therefore
// added up again without it, where eager leaves padding out.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/convolution_nodes.h"
#include "lowering/schedule/products/cpu_product.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

class CpuConvolution : CpuProduct {
public:
  static constexpr int64_t block_rows = 128, block_depth = 64, most_tiles = 4;

  explicit CpuConvolution(const ScheduleContext& context)
      : CpuProduct(context,
                   cast<RankedTensorType>(context.domain.product->op->getResult(0).getType()).getElementType()),
        image_(context) {}

  void run() {
    const bool of_weights = image_.of_weights;
    const int64_t most = std::min<int64_t>(c_.target.vector_width, tile_bytes / bytes());
    const std::optional<int64_t> channels = constantOf(image_.channels);
    // Few channels leave most of a tile's columns empty, and pixels are many.
    channels_are_columns_ = !of_weights && channels.value_or(most) * 2 >= most;
    AffineExpr other = of_weights ? image_.patches : image_.pixels;
    AffineExpr m = channels_are_columns_ ? other : image_.channels, n = channels_are_columns_ ? image_.channels : other;
    AffineExpr inner = of_weights ? image_.pixels : image_.patches;
    tile_ = tileOf(constantOf(m), block_rows, most, std::max<int64_t>(1, tile_bytes / bytes() / most));
    tile_.vectors = std::min<int64_t>(tile_.vectors, 2);
    const int64_t columns = tile_.columns(), rows = tile_.rows;
    auto known = constantOf(n);
    tiles_ = known ? std::clamp<int64_t>((*known + columns - 1) / columns, 1, most_tiles) : most_tiles;
    // Neighbours of a patch are channels of the input; of a row of the weight's product, channels of the result.
    if (image_.channels_fastest)
      patch_run_ = image_.inGroup(std::min(image_.nodes.lanesOfOperand(0, 1, most),
                                           of_weights ? image_.nodes.lanesOfResult(1, most)
                                                      : image_.nodes.lanesOfOperand(1, image_.channelOfPatch(), most)));
    channel_run_ = most;
    while (channel_run_ > 1 && channels.value_or(1) % channel_run_ != 0)
      channel_run_ /= 2;
    channel_run_ = std::min(image_.nodes.lanesOfResult(of_weights ? 0 : 1, channel_run_),
                            image_.nodes.lanesOfOperand(1, image_.channelOfResult(), channel_run_));

    AffineExpr across = n.ceilDiv(columns * tiles_), down = m.ceilDiv(rows);
    c_.launch.schedule.add(choice::PackedProduct{rows, columns});
    packed_a_ = buffer(rows * block_depth);
    packed_b_ = buffer(block_depth * columns);
    sums_ = buffer(rows * columns * tiles_);
    Value group = c_.workItem("_Z12get_group_idj");
    const double depth = double(constantOf(inner).value_or(256));
    auto [begin, end] = shareOfGroup(c_, group, c_.domain.space.simplify(across * down * image_.groups),
                                     double(rows * columns * tiles_) * std::max(depth, 1.0) / 4);
    m_ = image_.nodes.expression(m);
    n_ = image_.nodes.expression(n);
    k_ = image_.nodes.expression(inner);
    Value block_count = image_.nodes.expression(down), across_count = image_.nodes.expression(across);
    Value group_channels = image_.nodes.expression(image_.channels),
          depth_of_group = image_.nodes.expression(image_.depth);
    auto units = e_.openLoop(begin, end, i_.number(1));
    Value block = i_.modulo(units.index(), block_count), rest = i_.divide(units.index(), block_count);
    Value number = i_.divide(rest, across_count);
    image_.bindGroup(i_.multiply(number, group_channels), i_.multiply(number, depth_of_group));
    emitUnit(i_.multiply(block, rows), i_.multiply(i_.modulo(rest, across_count), columns * tiles_));
    e_.closeLoop(units);
  }

private:
  void emitUnit(Value row, Value first_column) {
    const int64_t columns = tile_.columns(), sums_of_tile = tile_.rows * columns;
    Value zero = i_.number(0), left = i_.subtract(n_, first_column);
    Value tiles = i_.smaller(i_.number(tiles_), i_.divide(i_.add(left, columns - 1), columns));
    clear(sums_, zero, sums_of_tile * tiles_, tile_.lanes);
    loop(zero, k_, block_depth, [&](Value first) {
      Value depth = i_.smaller(i_.number(block_depth), i_.subtract(k_, first));
      packRows(row, first, depth);
      loop(zero, tiles, 1, [&](Value tile) {
        packColumns(i_.add(first_column, i_.multiply(tile, columns)), first, depth);
        multiply(tile_, packed_a_, {block_depth, 1}, packed_b_, depth, sums_, i_.multiply(tile, sums_of_tile));
      });
    });
    if (leavesPaddingOut())
      addAgainWithoutPadding(row, first_column, tiles);
    Value last_row = i_.smaller(i_.number(tile_.rows), i_.subtract(m_, row));
    loop(zero, last_row, 1, [&](Value r) {
      bindRow(i_.add(row, r));
      loop(zero, tiles, 1, [&](Value tile) {
        Value column = i_.add(first_column, i_.multiply(tile, columns));
        Value at = i_.add(i_.multiply(tile, sums_of_tile), i_.multiply(r, columns));
        const int64_t run = columnRun();
        loop(zero, i_.smaller(i_.number(columns), i_.subtract(n_, column)), run, [&](Value c) {
          bindColumn(i_.add(column, c), run);
          e_.toInnermost();
          image_.nodes.store(narrowed(withBias(load(sums_, i_.add(at, c), run), image_.nodes)));
        });
      });
    });
  }

  // Eager's library does, and its transposed convolutions; its forward ones of doubles multiply a matrix with the
  // zeros.
  bool leavesPaddingOut() {
    const bool multiplied = image_.op.getKind() == "forward" && element_.isF64();
    return isa<FloatType>(type_) && !image_.of_weights && !multiplied && image_.mayPad();
  }

  Value isNaN(Value number) { return arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::UNO, number, number); }

  // As many rounds as `count` where `condition` holds, else none.
  void loopIf(Value condition, Value count, llvm::function_ref<void(Value)> body) {
    loop(i_.number(0), arith::SelectOp::create(b_, loc_, condition, count, i_.number(0)), 1, body);
  }

  // Sums of which none is NaN cost one addition of vectors each: zero times a sum is NaN where that is (or infinite).
  void addAgainWithoutPadding(Value row, Value first_column, Value tiles) {
    const int64_t columns = tile_.columns(), all = tile_.rows * columns * tiles_;
    Value nothing = constantOfType(b_, loc_, b_.getZeroAttr(type_), unsigned(tile_.lanes));
    e_.toInnermost();
    auto walk = e_.openLoop(i_.number(0), i_.number(all), i_.number(tile_.lanes), {nothing});
    Value sums = load(sums_, walk.index(), tile_.lanes);
    Value found = math::FmaOp::create(b_, loc_, sums, nothing, walk.carried()[0]);
    Value total = e_.closeLoop(walk, {found})[0];
    e_.toInnermost();
    if (tile_.lanes > 1) {
      Value lanes = total;
      total = vector::ExtractOp::create(b_, loc_, lanes, 0);
      for (int64_t lane = 1; lane < tile_.lanes; ++lane)
        total = arith::AddFOp::create(b_, loc_, total, vector::ExtractOp::create(b_, loc_, lanes, lane));
    }
    Value rows = i_.smaller(i_.number(tile_.rows), i_.subtract(m_, row));
    loopIf(isNaN(total), rows, [&](Value r) {
      loop(i_.number(0), i_.smaller(i_.multiply(tiles, columns), i_.subtract(n_, first_column)), 1, [&](Value c) {
        Value in_tile = i_.modulo(c, i_.number(columns));
        Value at = i_.add(i_.multiply(i_.divide(c, i_.number(columns)), tile_.rows * columns),
                          i_.add(i_.multiply(r, columns), in_tile));
        addAgain(at, i_.add(row, r), i_.add(first_column, c));
      });
    });
  }

  void addAgain(Value at, Value row, Value column) {
    Value none = constantOfType(b_, loc_, b_.getZeroAttr(type_), 1), before = load(sums_, at, 1), again = isNaN(before);
    store(sums_, at, arith::SelectOp::create(b_, loc_, again, none, before));
    loopIf(again, k_, [&](Value k) {
      Value inside, channel = channels_are_columns_ ? column : row;
      Value pixel = widened(image_.loadPatch(k, channels_are_columns_ ? row : column, 1, &inside));
      Value weight = widened(image_.loadWeight(channel, k, image_.channelOfPatch(), 1));
      Value sum = load(sums_, at, 1);
      Value more = math::FmaOp::create(b_, loc_, pixel, weight, sum);
      store(sums_, at, arith::SelectOp::create(b_, loc_, inside, more, sum));
    });
  }

  int64_t columnRun() const { return channels_are_columns_ ? channel_run_ : image_.of_weights ? patch_run_ : 1; }

  void bindRow(Value row) { channels_are_columns_ ? image_.bindPixel(row) : image_.bindChannel(row); }
  void bindColumn(Value column, int64_t lanes) {
    if (channels_are_columns_)
      image_.bindChannel(column, lanes);
    else if (image_.of_weights)
      image_.bindPatch(column, lanes);
    else
      image_.bindPixel(column);
  }

  Value lastAt(Value index, Value size, int64_t run) const {
    return i_.smaller(index, i_.subtract(size, i_.number(run)));
  }

  // A row's elements side by side.
  void packRows(Value row, Value first, Value depth) {
    Value zero = i_.number(0);
    auto place = [&](Value r, Value k) { return i_.add(i_.multiply(r, block_depth), k); };
    if (image_.of_weights) {  // a pixel's channels, so that it is taken apart once
      loop(zero, depth, 1, [&](Value k) {
        loop(zero, i_.number(tile_.rows), 1, [&](Value r) {
          Value channel = lastAt(i_.add(row, r), m_, 1);
          store(packed_a_, place(r, k), widened(image_.loadGradient(channel, i_.add(first, k))));
        });
      });
      return;
    }
    const int64_t run = patch_run_;  // divides what is summed over
    loop(zero, i_.number(tile_.rows), 1, [&](Value r) {
      Value present = lastAt(i_.add(row, r), m_, 1);
      loop(zero, depth, run, [&](Value k) {
        Value at = i_.add(first, k);
        Value value = channels_are_columns_ ? image_.loadPatch(at, present, run)
                                            : image_.loadWeight(present, at, image_.channelOfPatch(), run);
        store(packed_a_, place(r, k), widened(value));
      });
    });
  }

  // For each element of what is summed over the columns side by side.
  void packColumns(Value column, Value first, Value depth) {
    const int64_t columns = tile_.columns(), run = columnRun();
    loop(i_.number(0), depth, 1, [&](Value k) {
      loop(i_.number(0), i_.number(columns), run, [&](Value c) {
        Value at = i_.add(first, k), present = lastAt(i_.add(column, c), n_, run);
        Value value = image_.of_weights       ? image_.loadPatch(present, at, run)
                      : channels_are_columns_ ? image_.loadWeight(present, at, image_.channelOfResult(), run)
                                              : image_.loadPatch(at, present, run);
        store(packed_b_, i_.add(i_.multiply(k, columns), c), widened(value));
      });
    });
  }

  ConvolutionNodes image_;
  Tile tile_;
  bool channels_are_columns_ = false;
  int64_t tiles_ = 1, patch_run_ = 1, channel_run_ = 1;
  Value packed_a_, packed_b_, sums_;
  Value m_, n_, k_;
};

}  // namespace

void scheduleCpuConvolution(const ScheduleContext& context) { CpuConvolution(context).run(); }

}  // namespace zefuse
