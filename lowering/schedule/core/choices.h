// What a schedule chose, as data: one struct per choice, with what was chosen, the sizes and limits that decided, and
// what was given up for it. `describe` is the one place that makes words of it: explain's "schedule".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lowering/schedule/core/decisions.h"

namespace zefuse {

// Sizes are of one row, unit or group; none: symbolic. Fields that only decided are last in each struct.
namespace choice {

//===-- what the kernel is, and what is parallel (core/strategy) ---------------------------------===//

struct Pointwise {
  bool lanes_of_one_piece = false;  // else each vector would compute all short pieces of a concatenation
};
struct Scan {
  bool row_at_a_time = false;  // no lanes: they would be far apart in memory
};
struct Reduction {
  bool across_rows = false;                // lanes lie across rows, else along the row
  double across_cost = 0, along_cost = 0;  // of the cost model, per element and axis set
};
struct Scatter {
  enum class Parallel : uint8_t { nothing, free_dims, ranges };
  Parallel over = Parallel::nothing;  // ranges: of the result's outermost addressed dimension
  double row_elements = 0, updates = 0;
  int64_t slices = 1;       // of the updates, each summed by itself
  bool fill_lanes = false;  // the fill by vectors, the updates one by one
};
struct Sort {
  bool best_of_row = false;  // keeps the best so far, else sorts all
  std::optional<int64_t> length, wanted;
};

//===-- how groups of one work-item walk (core/strategy) -----------------------------------------===//

struct TransposedLoad {  // tiles, for a load that is contiguous along another dim than the lanes'
  unsigned dim = 0;
  bool lanes_collide = false;  // what they access falls into one set of the first-level cache
};
struct Interleaved {  // rows whose pieces are neighbours in memory are walked together
  int64_t rows = 0, piece = 0;
};
struct Strips {
  int64_t vectors = 0;  // of rows that walk the reduced dims together
  int64_t vector_bytes = 0, budget_bytes = 0;
};
struct LaneValues {
  int64_t values = 0;  // of all lanes of a line, loaded once for many lines
};
struct Kept {
  int64_t values = 0;    // of a row, that a later stage would compute again
  bool scratch = false;  // else private memory
  std::optional<int64_t> bytes;
  int64_t private_bytes = 0;  // the limit
};

//===-- how work-groups share (gpu/) -------------------------------------------------------------===//

struct ItemVectors {
  int64_t rounds = 1, lanes = 1;  // a work-item's vectors
  std::optional<int64_t> units;
  int64_t resident_items = 0;
};
struct RowTeam {
  enum class Of : uint8_t { item, subgroup, group };
  Of of = Of::item;  // what takes a row
  int64_t size = 1;  // work-items of it
  std::optional<int64_t> elements, rows;
};
struct RowVectors {
  int64_t lanes = 1, teams = 1;  // teams: sub-groups that share the reduced dims
  std::optional<int64_t> elements, units;
  int64_t sharing_lanes = 1;  // of each of these sub-groups
};
struct LocalTiles {
  int64_t side = 0, loads = 0;
};

//===-- products (products/) ---------------------------------------------------------------------===//

// Bytes of a sub-group's accumulators, and how many the target has.
struct Registers {
  int64_t accumulators = 0, limit = 0;
};
struct Product {
  int64_t rows = 0, columns = 0, subgroups = 0;
  bool engine = false;
  Registers registers;
};
struct PackedProduct {  // blocks of both operands are packed (the CPU)
  int64_t rows = 0, columns = 0;
};
struct InnerProducts {  // of rows and columns as they lie (the CPU)
  int64_t rows = 0, columns = 0, lanes = 0;
};
struct Convolution {
  int64_t rows = 0, columns = 0;
  bool channels_are_columns = false, engine = false;
  Registers registers;
};
struct Attention {
  int64_t rows = 0, subgroups = 0, keys = 0;
  bool engine = false;
  bool together = false;  // four sub-groups are one product's
};
struct AttentionGradient {
  bool of_keys = false;
  int64_t rows = 0, subgroups = 0, passing = 0;
  bool engine = false;
};

}  // namespace choice

using Choice = std::variant<choice::Pointwise, choice::Scan, choice::Reduction, choice::Scatter, choice::Sort,
                            choice::TransposedLoad, choice::Interleaved, choice::Strips, choice::LaneValues,
                            choice::Kept, choice::ItemVectors, choice::RowTeam, choice::RowVectors, choice::LocalTiles,
                            choice::Product, choice::PackedProduct, choice::InnerProducts, choice::Convolution,
                            choice::Attention, choice::AttentionGradient>;
using Choices = std::vector<Choice>;  // in the order in which they were made

// The first of its kind; null: none.
template <typename T> const T* find(const Choices& choices) {
  for (const Choice& choice : choices)
    if (const T* found = std::get_if<T>(&choice))
      return found;
  return nullptr;
}

// Of one launch.
struct ScheduleRecord {
  std::vector<Choices> parts;  // one, but for kernels side by side
  bool in_place = false;
  int64_t batch = 1;  // sets of tensors
  // Tiles that were tried before and given up, since they spilled so many registers; and what still spills.
  std::vector<std::pair<std::vector<Choices>, int64_t>> given_up;
  int64_t spilled = 0;
  std::string spilled_on;  // the target

  void add(const Choice& choice) {
    if (parts.empty())
      parts.emplace_back();
    parts.back().push_back(choice);
  }
  template <typename T> const T* find() const {  // of any part
    for (const Choices& part : parts)
      if (const T* found = zefuse::find<T>(part))
        return found;
    return nullptr;
  }
  // What was measured and is not the cost model's choice, and what a launch took by both.
  std::vector<Decision> tuned;
  double before_us = 0, after_us = 0;

  void noteTuned(const std::vector<Decision>& decisions, double before, double after);
  bool onMatrixEngine() const;
};

// One line.
std::string describe(const ScheduleRecord& record);

}  // namespace zefuse
