// Pointwise kernels with a load that is contiguous along another dim than the stores: square tiles of both dims go
// through local memory, so that neighbouring work-items load neighbours and store neighbours.
#include "lowering/schedule/gpu/gpu_transpose.h"

#include "lowering/dialect/Zefuse.h"
#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/gpu/work_group.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t side_items = 32;  // work-items along a side of a tile
constexpr int64_t group_rows = 8;   // of a tile, that a group moves at a time
constexpr unsigned most_tiles = 4;  // in local memory at a time

class Transpose {
public:
  explicit Transpose(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), b_(context.builder()),
        loc_(context.builder().getUnknownLoc()), i_{b_, loc_}, stored_(context.strategy.row_lanes),
        loaded_(context.strategy.tile_dim) {}

  bool run() {
    findLoads();
    if (loads_.empty())
      return false;
    SmallVector<unsigned> lines =
        llvm::filter_to_vector(c_.domain.rows, [&](unsigned dim) { return dim != stored_ && dim != loaded_; });
    AffineExpr count = space_.product(lines);
    // Two neighbours, so that a sub-group moves whole lines of the cache: of 16 bits 0.91 of the time on a H100, of f32
    // in one tile 0.98, and not measured on others' GPUs.
    const bool measured = c_.target.matrix.form == MatrixForm::fragments && (pairsFit(2) || loads_.size() == 1);
    if (pairsFit(4))
      lanes_ = unsigned(c_.decisions.take("elements of a lane", measured ? 2 : 1, {1, 2}));
    const int64_t side = side_items * lanes_;
    line_ = side + 1;
    AffineExpr across = space_.size(loaded_).ceilDiv(side), along = space_.size(stored_).ceilDiv(side);
    c_.launch.extent = space_.simplify(count * across * along);
    c_.launch.grain = 1;
    c_.launch.schedule.add(choice::LocalTiles{side, int64_t(loads_.size())});
    WorkGroup group(b_, c_.function, c_.launch, side_items * group_rows, 0);
    Value tiles_along = index(along), tiles_across = index(across);
    Value rest = i_.divide(group.group(), tiles_along);
    Value first_stored = i_.multiply(i_.modulo(group.group(), tiles_along), side);
    Value first_loaded = i_.multiply(i_.modulo(rest, tiles_across), side);
    c_.bindPosition(lines, i_.divide(rest, tiles_across));
    e_.toInnermost();
    // A row more than needed per line: both directions spread over the banks.
    for (Node node : loads_)
      arrays_.push_back(group.localArray(memoryType(elementOf(node)), side * line_));
    Value fast = i_.multiply(i_.modulo(group.item(), side_items), lanes_), slow = i_.divide(group.item(), side_items);
    for (int64_t row = 0; row < side; row += group_rows)
      at(
          first_stored, i_.add(slow, row), first_loaded, fast, loaded_,
          [&](unsigned number, Value place) {
            Node node = loads_[number];
            Value value = e_.evaluate(node);
            e_.toInnermost();
            if (!value)
              return;
            value = toMemory(b_, loc_, value, elementOf(node));
            for (unsigned lane = 0; lane < lanes_; ++lane)
              LLVM::StoreOp::create(b_, loc_,
                                    lanes_ == 1 ? value : vector::ExtractOp::create(b_, loc_, value, lane).getResult(),
                                    placeIn(number, place, lane), unsigned(bytesInMemory(elementOf(node))));
          },
          [] {});
    e_.toInnermost();
    group.barrier();
    for (int64_t row = 0; row < side; row += group_rows)
      at(
          first_stored, fast, first_loaded, i_.add(slow, row), stored_,
          [&](unsigned number, Value place) {
            Type type = elementOf(loads_[number]);
            SmallVector<Value> values;
            for (unsigned lane = 0; lane < lanes_; ++lane)
              values.push_back(LLVM::LoadOp::create(b_, loc_, memoryType(type), placeIn(number, place, lane * line_),
                                                    unsigned(bytesInMemory(type))));
            Value value = values[0];
            if (lanes_ > 1)
              value = vector::FromElementsOp::create(b_, loc_, VectorType::get({lanes_}, memoryType(type)), values);
            e_.bindValue(loads_[number], toRegister(b_, loc_, value, type));
          },
          [&] {
            for (const DomainOutput& output : c_.domain.outputs)
              c_.storeOutput(output);
          });
    return true;
  }

private:
  static Type elementOf(Node node) { return cast<RankedTensorType>(node.value.getType()).getElementType(); }

  Value index(AffineExpr expr) {
    Value value = e_.index(space_.simplify(expr));
    e_.toInnermost();
    return value;
  }

  // The loads that are contiguous along the one dim and far from it along the other.
  void findLoads() {
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    for (const DomainOutput& output : c_.domain.outputs)
      walkNodes(space_, output.node, seen, c_.graph, [&](Node node) {
        if (c_.graph.is_input(node.value)) {
          AffineExpr offset = c_.graph.offset(space_, node);
          auto along = space_.strideAlong(offset, stored_), across = space_.strideAlong(offset, loaded_);
          bool near = along && constantOf(along) && *constantOf(along) >= 0 && *constantOf(along) <= 4;
          if (across && constantOf(across) == 1 && !near && loads_.size() < most_tiles && !readsIndices(node))
            loads_.push_back(node);
          return false;
        }
        // A concat's piece, and what a pad surrounds, exists for some of its indices only.
        return !isa_and_nonnull<tensor::ConcatOp, PadOp>(node.value.getDefiningOp());
      });
  }

  // Both sides are whole pairs, what passes through local memory and is stored has so many bytes at most, and the tiles
  // of pairs fit.
  bool pairsFit(int64_t most_bytes) const {
    constexpr int64_t side = 2 * side_items;
    if (int64_t(loads_.size()) * side * (side + 1) * most_bytes > c_.target.local_memory_bytes)
      return false;
    auto even = [&](unsigned dim) {
      auto size = constantOf(space_.size(dim));
      return size && *size % 2 == 0;
    };
    auto narrow = [&](Node node) {
      const int64_t size = bytesInMemory(elementOf(node));
      return size >= 2 && size <= most_bytes;
    };
    return even(stored_) && even(loaded_) && llvm::all_of(loads_, narrow) &&
           llvm::all_of(c_.domain.outputs, [&](const DomainOutput& output) { return narrow(output.node); });
  }

  bool readsIndices(Node node) const {
    bool found = false;
    for (AffineExpr expr : node.at.getResults())
      expr.walk([&](AffineExpr part) { found |= space_.isOpaque(part); });
    return found;
  }

  // Binds both dims at one element of the tile, if it exists, or at the work-item's lanes along `laned`, and emits
  // each(load's number, its place in local memory), then `last`.
  void at(Value first_stored, Value in_stored, Value first_loaded, Value in_loaded, unsigned laned,
          llvm::function_ref<void(unsigned, Value)> each, llvm::function_ref<void()> last) {
    Value stored_size = index(space_.size(stored_)), loaded_size = index(space_.size(loaded_));
    Value stored = i_.add(first_stored, in_stored), loaded = i_.add(first_loaded, in_loaded);
    e_.openIf(i_.both(i_.less(stored, stored_size), i_.less(loaded, loaded_size)));
    for (auto [dim, first] : {std::pair{stored_, stored}, {loaded_, loaded}})
      if (dim == laned && lanes_ > 1)
        e_.bindLanes(dim, first, lanes_, /*aligned=*/true);
      else
        e_.bind(dim, first);
    Value place = i_.add(i_.multiply(in_stored, line_), in_loaded);
    for (unsigned number = 0; number < loads_.size() && !e_.failed(); ++number)
      each(number, place);
    if (!e_.failed())
      last();
    e_.closeIf();
  }

  Value placeIn(unsigned number, Value place, int64_t further) {
    Value offset = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), i_.add(place, further));
    return LLVM::GEPOp::create(b_, loc_, arrays_[number].getType(), memoryType(elementOf(loads_[number])),
                               arrays_[number], ArrayRef<LLVM::GEPArg>{offset}, LLVM::GEPNoWrapFlags::inbounds);
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  unsigned lanes_ = 1;        // elements of a work-item at a time
  int64_t line_ = 0;          // of local memory, in elements
  unsigned stored_, loaded_;  // the dims that stores and these loads are contiguous along
  SmallVector<Node> loads_;
  SmallVector<Value> arrays_;
};

}  // namespace

bool scheduleTranspose(const ScheduleContext& context) { return Transpose(context).run(); }

}  // namespace zefuse
