#include "lowering/schedule/core/choices.h"

#include <cstdio>

namespace zefuse {
namespace {

std::string text(int64_t number) { return std::to_string(number); }
std::string tiles(int64_t rows, int64_t columns) { return "tiles of " + text(rows) + " x " + text(columns); }
std::string microseconds(double number) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), number < 100 ? "%.1f" : "%.0f", number);
  return digits;
}
constexpr const char* engine_words = "on the matrix engine";

struct Words {
  std::string operator()(const choice::Pointwise& choice) const {
    return choice.lanes_of_one_piece ? "pointwise; lanes so that each vector is of one piece of the concatenation"
                                     : "pointwise";
  }
  std::string operator()(const choice::Scan& scan) const {
    return std::string("scan, parallel over the other dims") + (scan.row_at_a_time ? ", a row at a time" : "");
  }
  std::string operator()(const choice::Reduction& reduction) const {
    return std::string("reduction, lanes ") + (reduction.across_rows ? "across rows" : "along the row");
  }
  std::string operator()(const choice::Scatter& scatter) const {
    if (scatter.slices > 1)
      return "scatter, sums of " + text(scatter.slices) + " slices of the updates";
    switch (scatter.over) {
    case choice::Scatter::Parallel::nothing: return "scatter, one after the other";
    case choice::Scatter::Parallel::free_dims:
      return std::string("scatter, parallel over what no index addresses") +
             (scatter.fill_lanes ? ", filled by vectors" : "");
    case choice::Scatter::Parallel::ranges: return "scatter, parallel over ranges of the result";
    }
    return {};
  }
  std::string operator()(const choice::Sort& sort) const {
    return sort.best_of_row ? "sort, the best of a row" : "sort, a network per row";
  }
  std::string operator()(const choice::TransposedLoad& tiles) const {
    return std::string("tiled for a transposed load") + (tiles.lanes_collide ? ", whose lanes share a cache set" : "");
  }
  std::string operator()(const choice::Interleaved& interleaved) const {
    return text(interleaved.rows) + (interleaved.rows == 1 ? " row" : " rows") + " at a time, of " +
           text(interleaved.piece) + " neighbours in each place";
  }
  std::string operator()(const choice::Strips& strips) const { return text(strips.vectors) + " vectors at a time"; }
  std::string operator()(const choice::LaneValues& held) const {
    return "the lanes of " + text(held.values) + (held.values == 1 ? " value" : " values") + " loaded once";
  }
  std::string operator()(const choice::Kept& kept) const {
    return "keeps " + text(kept.values) + " of a row's values in " + (kept.scratch ? "scratch" : "private") + " memory";
  }
  std::string operator()(const choice::ItemVectors& vectors) const {
    return text(vectors.rounds) + " vectors of " + text(vectors.lanes) + " per work-item";
  }
  std::string operator()(const choice::RowTeam& team) const {
    switch (team.of) {
    case choice::RowTeam::Of::item: return "a row per work-item";
    case choice::RowTeam::Of::subgroup: return "a row per sub-group";
    case choice::RowTeam::Of::group: return "a row per group of " + text(team.size);
    }
    return {};
  }
  std::string operator()(const choice::RowVectors& vectors) const {
    std::string rows = "vectors of " + text(vectors.lanes) + " rows";
    return rows + (vectors.teams == 1 ? " per work-item" : ", reduced by " + text(vectors.teams) + " sub-groups") +
           (vectors.sharing_lanes > 1 ? " of which " + text(vectors.sharing_lanes) + " lanes share a row" : "");
  }
  std::string operator()(const choice::LocalTiles& local) const {
    return tiles(local.side, local.side) + " through local memory for " + text(local.loads) + " loads";
  }
  std::string operator()(const choice::Product& product) const {
    return "product, " + tiles(product.rows, product.columns) + " by " + text(product.subgroups) + " sub-groups" +
           (product.engine ? std::string(" ") + engine_words : "");
  }
  std::string operator()(const choice::PackedProduct& product) const {
    return "product, blocks of " + text(product.rows) + " x " + text(product.columns);
  }
  std::string operator()(const choice::InnerProducts& product) const {
    return "product, " + text(product.rows) + " x " + text(product.columns) + " sums at a time, along " +
           text(product.lanes) + " lanes";
  }
  std::string operator()(const choice::Convolution& product) const {
    return "implicit product, " + tiles(product.rows, product.columns) + ", channels as " +
           (product.channels_are_columns ? "columns" : "rows") + onEngine(product.engine);
  }
  std::string operator()(const choice::Attention& attention) const {
    return "attention, " + text(attention.rows) + " query rows per group of " + text(attention.subgroups) +
           " sub-groups, tiles of " + text(attention.keys) + " keys" + onEngine(attention.engine) +
           (attention.together ? ", four sub-groups to a product" : "");
  }
  std::string operator()(const choice::AttentionGradient& gradient) const {
    return std::string("attention's derivative by ") + (gradient.of_keys ? "keys and values, " : "queries, ") +
           text(gradient.rows) + " rows per group of " + text(gradient.subgroups) + " sub-groups, tiles of " +
           text(gradient.passing) + (gradient.of_keys ? " queries" : " keys") + onEngine(gradient.engine);
  }

private:
  static std::string onEngine(bool engine) { return engine ? std::string(", ") + engine_words : ""; }
};

std::string describe(const std::vector<Choices>& parts) {
  std::string line = parts.size() > 1 ? "side by side: " : "";
  for (size_t part = 0; part < parts.size(); ++part) {
    line += part == 0 ? "" : "; ";
    for (size_t number = 0; number < parts[part].size(); ++number)
      line += (number == 0 ? "" : ", ") + std::visit(Words(), parts[part][number]);
  }
  return line;
}

}  // namespace

void ScheduleRecord::noteTuned(const std::vector<Decision>& decisions, double before, double after) {
  for (const Decision& decision : decisions)
    if (decision.taken != decision.modelled)
      tuned.push_back(decision);
  before_us = before;
  after_us = after;
}

bool ScheduleRecord::onMatrixEngine() const {
  for (const Choices& part : parts)
    for (const Choice& choice : part)
      if (std::visit(
              [](const auto& chosen) {
                if constexpr (requires { chosen.engine; })
                  return chosen.engine;
                return false;
              },
              choice))
        return true;
  return false;
}

std::string describe(const ScheduleRecord& record) {
  std::string line = describe(record.parts);
  if (record.in_place)
    line += ", in place";
  if (record.batch > 1)
    line += ", batch of " + text(record.batch);
  for (const auto& [parts, spilled] : record.given_up)
    line += "; rescheduled, since this spilled " + text(spilled) + " on " + record.spilled_on + ": " + describe(parts);
  if (record.spilled > 0)
    line += "; spills " + text(record.spilled) + " on " + record.spilled_on;
  for (size_t number = 0; number < record.tuned.size(); ++number) {
    const Decision& decision = record.tuned[number];
    line += (number == 0 ? "; tuned: " : ", ") + decision.name + " " + decision.taken_words + " instead of " +
            decision.modelled_words;
  }
  if (!record.tuned.empty() && record.before_us > 0)
    line += ", " + microseconds(record.before_us) + " -> " + microseconds(record.after_us) + " µs";
  return line;
}

}  // namespace zefuse
