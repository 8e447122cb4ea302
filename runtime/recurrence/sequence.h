// One run of a recurrent layer, as the loops over its steps see it: addresses and strides.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "common/plan/plan_generated.h"
#include "runtime/recurrence/splits.h"

namespace zefuse::recurrence {

// [steps, rows, units], packed sequences' [rows of all steps, units], [rows, units] (place 0) or [units]; units are
// contiguous. data is null for what nobody asks for.
template <typename Number> struct TensorOf {
  Number* data = nullptr;
  int64_t step = 0, row = 0;  // strides, in elements; of packed sequences both a row's

  Number* at(int64_t place, int64_t b) const { return data + place * step + b * row; }
};
using Tensor = TensorOf<float>;

// A step computed just before or after another: it has rows 0 to `rows`, which are at `place`.
struct Beside {
  int64_t place, rows;
};

// A weight of bf16 that is multiplied as such, in tiles (AMX) or in pairs (AVX-512). The hidden state is rounded to
// bf16 for that.
struct Tiles {
  const uint16_t* packed = nullptr;  // blocks of units: [depth / together][vectors][together / 2][16][2]
  // [2, rows, depth]: of the step before and of this step; zeros behind the units. A derivative has the gradients of
  // its products there instead.
  __bf16* hidden = nullptr;
  int64_t rows = 0, depth = 0;
  // With a projection, packed for the cell tanh, and what a step projects, [rows, unprojected_depth].
  const uint16_t* projection = nullptr;
  __bf16* unprojected = nullptr;
  int64_t unprojected_depth = 0;
  // Of a whole layer: its input's weight, packed as the other, the input [steps, rows, input_depth], and the output.
  const uint16_t* packed_input = nullptr;
  const __bf16* input = nullptr;
  int64_t input_step = 0, input_row = 0, input_depth = 0;
  __bf16* output = nullptr;
  int64_t output_step = 0, output_row = 0;

  // The hidden state that the n-th step to be computed reads.
  __bf16* at(int64_t n, int64_t b) const { return hidden + ((n & 1) * rows + b) * depth; }
};

struct Sequence {
  plan::RecurrentCell cell{};
  bool gradient = false, reverse = false, projected = false;
  int64_t steps = 0, batch = 0, hidden = 0, gates = 0;
  int64_t outputs = 0;  // units of the hidden state: with a projection others than the `hidden` of the formula
  const float* packed = nullptr;      // as pack() of the same processor level leaves it
  const float* projection = nullptr;  // as pack() leaves it, for the cell tanh
  Tiles tiles;                        // instead, at a level of tiles
  Splits splits;                      // instead, at a level of splits
  std::array<Tensor, 7> operands;
  std::array<Tensor, 5> results;
  Tensor hidden_carry, cell_carry;  // [rows, units]: what one step leaves for the next, where no result keeps it
  Tensor unprojected;               // [rows, hidden]: what a step projects
  // Of a whole layer, whose products with its input [steps, rows, inputs] are the steps' own: there are no gates.
  Tensor input;
  int64_t inputs = 0;
  const float* packed_input = nullptr;  // as `packed`
  // Of f32, where rows would share lines of the nearest cache, else null: copies of a step's input, and of the hidden
  // state of the step before and of this one.
  Tensor near_input, near_hidden;
  // Of a layer of bf16, at a level of tiles, instead of the f32 ones: activations, for its derivative the gradients of
  // the output and of the gates. `multiplies_gates`: the derivative's products read these, and not Tiles::hidden.
  TensorOf<_Float16> narrow_activations;
  TensorOf<__bf16> narrow_gradient, narrow_gates;
  bool multiplies_gates = false;
  // What the derivative of a layer with its input adds the gates' gradients of all steps to, for the bias: a sum for
  // `rows_of_sum` rows each, which one thread has all of. So the bits do not depend on how rows are shared out.
  Tensor bias_sums;
  int64_t rows_of_sum = 1;
  // Of packed sequences, else null: how many rows each step has, which never grows, and how many the steps before it.
  const int64_t *rows = nullptr, *places = nullptr;
  // Of packed sequences and layers with their input: where each row ended, [rows, units]. Of packed sequences: the
  // hidden state that each step read, as output.
  Tensor last_hidden, hidden_before;

  // The step that is the n-th to be computed.
  int64_t step(int64_t n) const { return reverse != gradient ? steps - 1 - n : n; }
  int64_t rowsOf(int64_t t) const { return rows ? rows[t] : batch; }
  int64_t place(int64_t t) const { return places ? places[t] : t; }
  // In the forward pass: rows that `before` does not have begin with this step, those that `after` does not have end.
  Beside before(int64_t t) const { return beside(reverse ? t + 1 : t - 1); }
  Beside after(int64_t t) const { return beside(reverse ? t - 1 : t + 1); }

private:
  Beside beside(int64_t t) const { return t < 0 || t >= steps ? Beside{0, 0} : Beside{place(t), rowsOf(t)}; }
};

// Where the threads of a sequence wait for each other after each step.
class alignas(64) Meeting {
public:
  // Blocks until all `parts` threads have called it for the `phase`-th time (from 1 on).
  void wait(int64_t parts, int64_t phase);

private:
  std::atomic<int64_t> arrived_{0};
};

// What a thread does of a sequence: these rows of the batch, these blocks of hidden units.
struct Share {
  int64_t first_row, last_row;
  int64_t first_block, last_block;
  Meeting* meeting;  // null: it depends on nobody else
  int64_t parts;
  int64_t first_output = 0, last_output = 0;  // blocks of the hidden state's units, with a projection
};

// How a layer's rows of the batch and blocks of units are shared out: parts of each. Whoever has some of the same rows
// meets once a step; rows do not depend on each other.
struct Division {
  int64_t rows = 1, blocks = 1;
};

// The quickest for so many threads, `most_row_parts` parts of rows at most.
constexpr int64_t most_row_parts = 16;
Division divide(int64_t threads, int64_t rows, int64_t blocks);

// The loops compiled for one level of processors.
struct Level {
  const char* name;
  int64_t lanes;
  void (*run)(const Sequence& sequence, const Share& share);
  bool tiled = false;    // takes Tiles
  double speed = 1;      // of its products, beside f32's
  int64_t together = 0;  // with Tiles: of the depth what lies together for one vector, a tile's or a pair
  bool splits = false;   // takes Splits

  // Bytes of a number of a packed weight.
  double bytes() const { return splits ? 6 : tiled ? 2 : 4; }
};

// Whether each thread takes rows of the batch of its own, and reads all weights, of which there are so many numbers:
// then threads do not wait for each other at each step.
bool sharesOutRows(const Level& level, int64_t threads, int64_t rows, double weights);

// The best level of this processor that ONEDNN_MAX_CPU_ISA allows. `narrow`: with a weight of bf16.
const Level& level(bool narrow = false);

// The level of a layer of f32 with the products of its input, of so many rows.
const Level& layerLevel(int64_t rows);

// Hidden units of a block, and blocks of a layer.
int64_t unitsOfBlock(plan::RecurrentCell cell, bool gradient, int64_t lanes);
// Blocks of a layer's units that a gradient or a projection goes through.
int64_t plainBlocks(int64_t units, int64_t lanes);
// A weight [rows, columns], rows in groups of a gate each.
struct Matrix {
  int64_t gates, rows, columns;
};
// Floats that pack() writes.
int64_t packedSize(plan::RecurrentCell cell, bool gradient, Matrix matrix, int64_t lanes);
// Number: float or __bf16.
template <typename Number>
void pack(plan::RecurrentCell cell, bool gradient, Matrix matrix, int64_t lanes, const Number* weight, float* packed);

// Hidden units up to whole tiles, and numbers that packTiles() writes.
int64_t tiledDepth(int64_t hidden);
int64_t packedTiles(plan::RecurrentCell cell, bool gradient, Matrix matrix);
// The bits of bf16: selecting among numbers would call the compiler's library where a processor has none of bf16.
void packTiles(plan::RecurrentCell cell, bool gradient, Matrix matrix, int64_t together, const uint16_t* weight,
               uint16_t* packed);

}  // namespace zefuse::recurrence
