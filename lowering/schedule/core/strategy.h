// The choices a schedule makes before it emits: where the lanes go, what is kept between stages, how much a unit costs.
// Deterministic: a cost model over the accesses, no measurement.
#pragma once

#include "common/toolchain/target_description.h"
#include "lowering/schedule/core/choices.h"
#include "lowering/schedule/core/decisions.h"
#include "lowering/schedule/core/evaluator.h"
#include "lowering/schedule/core/interleaved_rows.h"
#include "lowering/schedule/core/op_cost.h"
#include "lowering/schedule/core/scatter_plan.h"

namespace zefuse {

struct Strategy {
  static constexpr unsigned none = ~0u;

  bool lanes_in_rows = false;  // else along an axis of each axis set
  unsigned row_lanes = none;   // the row dim with lanes
  // Pointwise: a row dim along which a load is contiguous that is strided along the lanes. Walking tiles of it
  // keeps that load's cache lines until all of their elements were used.
  unsigned tile_dim = none;
  bool lanes_collide = false;  // in tiles: what the lanes access falls into one set of the first-level cache
  llvm::SmallVector<unsigned> axis_lanes;  // per axis set: the dim with lanes (or the work-items' dim), none: no dims
  // CPU, lanes in rows: so many vectors of rows share one walk over the reduced dims, each with its partial results in
  // private memory; 0: one vector at a time, in registers.
  unsigned strip = 0;
  // CPU, lanes in rows: row_lanes are pieces of rows, which a strip takes all of.
  std::optional<InterleavedRows> interleaved;
  // In strips, per level: what its stage needs of a row alone, computed once and held like partial results.
  std::vector<std::vector<Node>> strip_values;
  // CPU, pointwise: what a vector's lanes would load one by one, and lines share but for the outermost dims, so many.
  std::vector<Node> lane_values;
  unsigned lane_values_outer = 0;
  // Per output of the domain: the level of the stage that stores it; `levels`: after all reductions.
  llvm::SmallVector<unsigned> output_levels;
  std::vector<Kept> kept;
  mlir::AffineExpr kept_bytes;  // all buffers together, per group
  bool kept_static = true;      // small and constant: private memory; else scratch
  double unit_cost = 1;         // bytes moved plus weighted operations, per row (pointwise: per element)
  // CPU, scatter: groups share the result's indices of this dimension, which an index addresses, and not the dims that
  // none addresses; `none`: they share those.
  unsigned scatter_range = none;
  // CPU, scatter by rows: the fill has lanes along row_lanes, and the updates come one by one.
  bool scatter_fill_lanes = false;
  std::optional<ScatterSumsPlan> scatter_sums;  // work-groups: then partial sums
  Choices choices;                              // with what decided them
};

// Lanes of a vector along a dim of this size: a power of two up to the target's width.
unsigned lanesFor(const IndexSpace& space, unsigned dim, const TargetDescription& target);

Strategy chooseStrategy(Domain& domain, const KernelGraph& graph, const TargetDescription& target,
                        Decisions& decisions);

}  // namespace zefuse
