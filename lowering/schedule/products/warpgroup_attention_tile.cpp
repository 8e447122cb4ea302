#include "lowering/schedule/products/warpgroup_attention_tile.h"

#include "lowering/schedule/products/panel_tile.h"
#include "lowering/schedule/products/product_splits.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t short_heads = 64, longest_heads = 128, few_keys = 256;
constexpr int64_t most_stages = 4;
constexpr int64_t named_barriers = 15;  // of a group, beside its own

Type elementIn(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

int64_t panels(int64_t columns) {
  return (columns + PanelShape::columns - 1) / PanelShape::columns * PanelShape::columns;
}

// Barriers of pairs of sides: turns, then of each stage one for each warpgroup that waits for what was copied there,
// and one for those that copy.
int64_t barriersOf(const WarpgroupAttentionTile& tile, int64_t stages) {
  return tile.warpgroups + stages * (tile.warpgroups + 1);
}

}  // namespace

int64_t WarpgroupAttentionTile::queryElements() const { return rows() * panels(depth); }

int64_t WarpgroupAttentionTile::localElements(int64_t stages) const {
  return queryElements() + stages * keys * (panels(depth) + panels(columns));
}

int64_t WarpgroupAttentionTile::stages(const TargetDescription& target) const {
  if (copying == 0)
    return turns ? 4 : 2;
  int64_t stages = most_stages;
  while (stages > 2 &&
         (2 * localElements(stages) > target.local_memory_bytes || barriersOf(*this, stages) > named_barriers))
    --stages;
  return stages;
}

std::optional<WarpgroupAttentionTile> chooseWarpgroupAttention(AttentionOp op, const TargetDescription& target,
                                                               Decisions* decisions) {
  if (target.matrix.together == 0 || op.getMask())
    return std::nullopt;
  const MatrixOperation* engine = matrixOperation(elementIn(op.getQuery()), elementIn(op.getKey()), target);
  if (!engine || elementIn(op.getValue()) != elementIn(op.getQuery()))
    return std::nullopt;
  auto whole = [](int64_t size) { return (size + engine_depth - 1) / engine_depth * engine_depth; };
  const int64_t queries = op.getQuery().getType().getShape().end()[-2];
  const int64_t keys = op.getKey().getType().getShape().end()[-2];
  // Few rows are better spread over small groups, and the values of no key at all are not there to be multiplied.
  auto isFew = [](int64_t count) {
    return !ShapedType::isDynamic(count) && count < WarpgroupAttentionTile::rows_of_warpgroup;
  };
  if (isFew(queries) || isFew(keys))
    return std::nullopt;
  WarpgroupAttentionTile tile{engine, 2, 128, whole(op.getQuery().getType().getShape().back()),
                              whole(op.getValue().getType().getShape().back())};
  // Of a lane: the result, the scores and the probabilities. Three warpgroups have 168 registers for each lane.
  const int64_t registers = target.engine_accumulator_bytes * 5 / 4 / 4 / target.matrix.lanes;
  auto fits = [&] {
    return tile.columns / 2 + tile.keys / 2 + tile.keys / 4 <= (tile.warpgroups > 2 ? registers * 4 / 5 : registers) &&
           2 * tile.localElements(tile.stages(target)) <= target.local_memory_bytes;
  };
  // Of heads of 64 over many keys: two groups fit on a multiprocessor then, 0.76 to 0.81 of the time (H100). Over few
  // keys a step of all of them is quicker.
  if (!fits() ||
      (tile.depth <= short_heads && tile.columns <= short_heads && (ShapedType::isDynamic(keys) || keys > few_keys)))
    tile.keys = 64;
  // Few groups are made twice as many: each engine has one.
  int64_t groups = ShapedType::isDynamic(queries) ? -1 : (queries + tile.rows() - 1) / tile.rows();
  for (int64_t size : op.getQuery().getType().getShape().drop_back(2))
    groups = ShapedType::isDynamic(size) || groups < 0 ? -1 : groups * size;
  if ((!ShapedType::isDynamic(queries) && queries <= WarpgroupAttentionTile::rows_of_warpgroup) ||
      (groups >= 0 && groups < target.engines) || !fits())
    tile.warpgroups = 1;
  if (!fits())
    return std::nullopt;
  // Of short heads turns are up to 0.92 of the time when causal, and as much when not. Of longer ones a warpgroup that
  // copies, in groups that stay on their engines, takes 0.70 to 0.82 of the time; with turns 1.0 to 1.07 of that
  // (H100).
  const bool short_head = tile.depth <= short_heads && tile.columns <= short_heads;
  const bool long_head = !short_head && tile.depth <= longest_heads && tile.columns <= longest_heads;
  if (tile.warpgroups == 2 && short_head && tile.keys == 64) {
    tile.turns = 1;
    if (!fits())
      tile.turns = 0;
  } else if (tile.warpgroups == 2 && long_head) {
    tile.copying = target.matrix.together;
    tile.persistent = 1;
    if (!fits())
      tile.copying = tile.persistent = 0;
  }
  if (decisions) {
    const WarpgroupAttentionTile modelled = tile;
    tile.turns = tile.copying = 0;
    decisions->choose("keys of a step", tile.keys, {64, 96, 128}, fits);
    decisions->choose("warpgroups", tile.warpgroups, {1, 2, 3}, fits);
    // Of what is left for stages, and for registers.
    auto copyingFits = [&] { return barriersOf(tile, 2) <= named_barriers && fits(); };
    tile.copying = modelled.copying;
    if (tile.warpgroups == 1 || !copyingFits())
      tile.copying = 0;
    tile.persistent = 0;
    decisions->choose("copying sub-groups", tile.copying, {0, 4}, copyingFits);
    if (tile.copying > 0)
      tile.persistent = modelled.persistent;
    decisions->choose("one group on each engine", tile.persistent, {0, 1}, [&] { return tile.copying > 0; });
    auto turnsFit = [&] { return (tile.copying > 0 ? tile.warpgroups > 1 : tile.warpgroups == 2) && fits(); };
    tile.turns = modelled.turns;
    if (!turnsFit())
      tile.turns = 0;
    decisions->choose("turns of warpgroups", tile.turns, {0, 1}, turnsFit);
  }
  return tile;
}

}  // namespace zefuse
