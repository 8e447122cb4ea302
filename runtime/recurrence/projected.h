// The loops over the steps of an LSTM whose hidden state is a projection of what the cell's formula gives: a step is
// two products, and whoever shares its rows meets behind each.
#pragma once

#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

// The gradient of the output with what later steps add, for the units of the share.
template <int lanes>
[[gnu::always_inline]] inline void gradientOfOutput(const Sequence& s, const Share& share, int64_t t,
                                                    int64_t last_row) {
  const int64_t first = share.first_output * 4 * lanes, last = std::min(share.last_output * 4 * lanes, s.outputs);
  const int64_t place = s.place(t);
  for (int64_t b = share.first_row; b < last_row; ++b)
    for (int64_t unit = first; unit < last; unit += lanes) {
      const int64_t count = s.outputs - unit;
      Vector<lanes> dh, carried;
      load<lanes>(dh, s.operands[0].at(place, b) + unit, count);
      load<lanes>(carried, s.hidden_carry.at(0, b) + unit, count);
      store<lanes>(s.results[3].at(place, b) + unit, dh + carried, count);
      store<lanes>(s.hidden_carry.at(0, b) + unit, Vector<lanes>{}, count);
    }
}

template <int lanes, int rows> [[gnu::always_inline]] inline void runProjected(const Sequence& s, const Share& share) {
  constexpr int64_t most = 6 * rows;  // as in runSteps
  alignas(64) float product[most * 4 * lanes];
  const int64_t of_projection = (s.gradient ? s.outputs : s.hidden) * 4 * lanes;  // numbers of a packed block
  int64_t met = 0;
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t t = s.step(n), last_row = std::min(share.last_row, s.rowsOf(t)), place = s.place(t);
    if (s.gradient) {
      gradientOfOutput<lanes>(s, share, t, last_row);
      if (share.meeting)
        share.meeting->wait(share.parts, ++met);
      for (int64_t block = share.first_block; block < share.last_block; ++block)
        for (int64_t begin = share.first_row; begin < last_row; begin += most) {
          const int64_t end = std::min(begin + most, last_row);
          multiplyRows<lanes, rows, 4, false>(s, t, begin, end - begin, block, s.results[3].at(place, begin),
                                              s.results[3].row, s.projection + block * of_projection, s.outputs,
                                              product);
          for (int64_t b = begin; b < end; ++b)
            for (int64_t v = 0; v < 4 && (block * 4 + v) * lanes < s.hidden; ++v)
              lstmGradient<lanes>(s, t, b, (block * 4 + v) * lanes, product + ((b - begin) * 4 + v) * lanes);
        }
      if (share.meeting)
        share.meeting->wait(share.parts, ++met);
      for (int64_t block = share.first_output; block < share.last_output; ++block)
        for (int64_t begin = share.first_row; begin < last_row; begin += most)
          units<lanes, rows, 4>(s, t, begin, std::min(begin + most, last_row), block, product);
      continue;
    }
    if (share.meeting && n > 0)
      share.meeting->wait(share.parts, ++met);
    const int64_t going_on = s.before(t).rows;
    for (int64_t block = share.first_block; block < share.last_block; ++block)
      for (int64_t b = share.first_row, end; b < last_row; b = end) {
        end = std::min(b + most, last_row);
        if (b < going_on)  // rows that begin here have their hidden state elsewhere
          end = std::min(end, going_on);
        units<lanes, rows, 4>(s, t, b, end, block, product);
      }
    if (share.meeting)
      share.meeting->wait(share.parts, ++met);
    for (int64_t block = share.first_output; block < share.last_output; ++block)
      for (int64_t begin = share.first_row; begin < last_row; begin += most) {
        const int64_t end = std::min(begin + most, last_row);
        multiplyRows<lanes, rows, 4, false>(s, t, begin, end - begin, block, s.unprojected.at(0, begin),
                                            s.unprojected.row, s.projection + block * of_projection, s.hidden, product);
        for (int64_t b = begin; b < end; ++b)
          storeProjected<lanes, false>(s, t, b, block, product + (b - begin) * 4 * lanes);
      }
  }
}

}  // namespace zefuse::recurrence
