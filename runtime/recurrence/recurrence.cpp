#include "runtime/recurrence/recurrence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>

#include "common/plan/dtype.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/f16.h"
#include "runtime/recurrence/checks.h"
#include "runtime/recurrence/sequence.h"

namespace zefuse::recurrence {

using plan::RecurrentCell;
using primitives::TensorDesc;

namespace {

// Below this a meeting of the threads takes as long as what they share.
constexpr double least_work = 50000;  // floating point operations of a thread in a step

Tensor tensorOf(const TensorDesc& desc, const void* data) {
  Tensor tensor;
  if (desc.sizes.empty())
    return tensor;
  tensor.data = static_cast<float*>(const_cast<void*>(data));
  const size_t rank = desc.sizes.size();
  tensor.row = rank > 1 ? desc.strides[rank - 2] : 0;
  tensor.step = rank > 2 ? desc.strides[0] : tensor.row;
  return tensor;
}

const TensorDesc& weightOf(const RecurrenceDesc& desc) { return desc.operands[arityOf(desc).weight]; }

// Units of the formula, and of the hidden state.
int64_t hiddenOf(const RecurrenceDesc& desc) {
  if (desc.cell == RecurrentCell::lstm_layer)
    return desc.operands[3].sizes[1];
  return desc.projected ? weightOf(desc).sizes[0] / 4 : weightOf(desc).sizes[1];
}
int64_t outputsOf(const RecurrenceDesc& desc) {
  return desc.cell == RecurrentCell::lstm_layer ? hiddenOf(desc) : weightOf(desc).sizes[1];
}

const Level& levelOf(const RecurrenceDesc& desc) {
  const bool narrow = weightOf(desc).dtype == plan::DType::bf16 &&
                      (!desc.projected || desc.operands[placeOfProjection(desc)].dtype == plan::DType::bf16);
  if (desc.cell == RecurrentCell::lstm_layer && !desc.gradient && !narrow)
    return layerLevel(desc.operands[0].sizes[1]);
  return level(narrow && !(desc.gradient && desc.projected));
}

// Of scratch memory, in whole lines of a cache.
int64_t placesBytes(const RecurrenceDesc& desc, int64_t steps) {
  return desc.packed ? (steps * int64_t(sizeof(int64_t)) + 63) / 64 * 64 : 0;
}

// Whether rows so far apart share so few lines of the nearest cache that a product reads them from the next one: of 512
// units it takes 0.96 of the time with copies, of 128 and 256 the same.
bool sharesLines(int64_t row) { return row > 0 && row % 512 == 0; }
// row(t, b) for all steps and rows of the batch, by the team's threads.
template <typename Row> void overRows(int64_t steps, int64_t batch, Row&& row) {
  primitives::overTeam(steps * batch, 256, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at)
      row(at / batch, at % batch);
  });
}

// Of 16 bits as f32, for all steps and rows of the batch, to `to`.
template <typename Widened>
Tensor widen(const Tensor& tensor, int64_t steps, int64_t batch, int64_t units, float* to, Widened&& widened) {
  const Tensor wide{to, batch * units, units};
  const auto* data = reinterpret_cast<const uint16_t*>(tensor.data);
  overRows(steps, batch, [&](int64_t t, int64_t b) {
    const uint16_t* from = data + t * tensor.step + b * tensor.row;
    std::transform(from, from + units, wide.at(t, b), widened);
  });
  return wide;
}

// Numbers from a row to the next of copies: an odd number of lines of a cache, so that rows do not share them.
int64_t spreadRow(int64_t units) { return ((units + 15) / 16 | 1) * 16; }

void fill(const Tensor& to, const Tensor& from, int64_t rows, int64_t units) {
  for (int64_t b = 0; b < rows; ++b)
    if (from.data)
      std::memcpy(to.at(0, b), from.at(0, b), size_t(units) * sizeof(float));
    else
      std::fill_n(to.at(0, b), units, 0.f);
}

}  // namespace

std::string toString(const RecurrenceDesc& desc) {
  std::string text = plan::EnumNameRecurrentCell(desc.cell);
  if (desc.gradient)
    text += "'s derivative";
  for (size_t i = 0; i < desc.operands.size(); ++i)
    text += (i ? ", " : " ") + primitives::toString(desc.operands[i]);
  return text + (desc.projected ? ", projected" : "") + (desc.packed ? ", packed" : "") +
         (desc.reverse ? ", reversed" : "");
}

Result<std::shared_ptr<const Recurrence>> Recurrence::get(const RecurrenceDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(check(desc));
  return std::make_shared<const Recurrence>(desc);
}

Recurrence::Recurrence(RecurrenceDesc desc)
    : desc_(std::move(desc)), steps_((desc_.packed ? desc_.operands.back() : desc_.operands[0]).sizes[0]),
      batch_(desc_.packed ? stateOf(desc_).sizes[0] : desc_.operands[0].sizes[1]), hidden_(hiddenOf(desc_)),
      outputs_(outputsOf(desc_)), inputs_(isLayer() ? desc_.operands[0].sizes[2] : 0),
      total_(desc_.packed ? desc_.operands[0].sizes[0] : steps_ * batch_), level_(levelOf(desc_)),
      implementation_(std::string(level_.tiled || level_.splits ? "steps in " : "steps in registers: ") + level_.name) {
}

bool Recurrence::narrowLayer() const { return ofLayer() && weightOf(desc_).dtype == plan::DType::bf16; }

// Whether what a layer has of bf16 is widened for its loops.
bool Recurrence::widensLayer() const { return narrowLayer() && !level_.tiled; }

// Whether a layer's input is copied for its loops: widened, or with zeros behind it.
bool Recurrence::copiesInput() const {
  return isLayer() && narrowLayer() && (!level_.tiled || inputs_ != tiledDepth(inputs_));
}

// Floats of the copies of two hidden states and an input, or two inputs as well where both are taken apart into bf16.
int64_t Recurrence::spreadSize() const {
  if (level_.splits)
    return batch_ * (splitRow(tiledDepth(hidden_)) + splitRow(tiledDepth(inputs_)));
  return batch_ * (2 * spreadRow(hidden_) + spreadRow(inputs_));
}

// How many rows of the batch have one sum for the bias: few enough sums for a near cache, enough to share them out.
int64_t Recurrence::rowsOfSum() const {
  constexpr int64_t sums = 32;
  return (batch_ + sums - 1) / sums;
}

// Of a step's product in tiles.
int64_t Recurrence::multipliedDepth() const {
  return tiledDepth(desc_.gradient ? arityOf(desc_).gates * hidden_ : outputs_);
}

size_t Recurrence::packedBytesOf(int64_t depth) const {
  const int64_t gates = arityOf(desc_).gates;
  const Matrix matrix{gates, gates * hidden_, depth};
  const RecurrentCell cell = cellOfSteps();
  if (level_.splits)
    return size_t(splitWeight((hidden_ + level_.lanes - 1) / level_.lanes, tiledDepth(depth))) * sizeof(__bf16);
  if (level_.tiled)
    return size_t(packedTiles(cell, desc_.gradient, matrix)) * sizeof(__bf16);
  return size_t(packedSize(cell, desc_.gradient, matrix, level_.lanes)) * sizeof(float);
}

// Of a layer the state's weight is the first, as of the others.
size_t Recurrence::packedBytes() const { return packedBytesOf(outputs_) + (isLayer() ? packedBytesOf(inputs_) : 0); }

void Recurrence::packMatrix(int64_t depth, const void* weight, void* packed) const {
  const int64_t gates = arityOf(desc_).gates;
  const Matrix matrix{gates, gates * hidden_, depth};
  const RecurrentCell cell = cellOfSteps();
  if (level_.splits)
    packSplits(static_cast<const float*>(weight), hidden_, depth, static_cast<uint16_t*>(packed));
  else if (level_.tiled)
    packTiles(cell, desc_.gradient, matrix, level_.together, static_cast<const uint16_t*>(weight),
              static_cast<uint16_t*>(packed));
  else if (weightOf(desc_).dtype == plan::DType::bf16)
    pack(cell, desc_.gradient, matrix, level_.lanes, static_cast<const __bf16*>(weight), static_cast<float*>(packed));
  else
    pack(cell, desc_.gradient, matrix, level_.lanes, static_cast<const float*>(weight), static_cast<float*>(packed));
}

Status Recurrence::packB(const void* weight, void* packed) const {
  if (!isLayer()) {
    packMatrix(outputs_, weight, packed);
    return {};
  }
  const auto* of_input = static_cast<const std::byte*>(weight);
  const auto* of_state = of_input + 4 * hidden_ * inputs_ * int64_t(plan::elementSize(weightOf(desc_).dtype));
  packMatrix(outputs_, of_state, packed);
  packMatrix(inputs_, of_input, static_cast<std::byte*>(packed) + packedBytesOf(outputs_));
  return {};
}

bool Recurrence::packsLike(const Primitive& other) const {
  const auto* same = dynamic_cast<const Recurrence*>(&other);
  return same && same->desc_.cell == desc_.cell && same->desc_.gradient == desc_.gradient && same->hidden_ == hidden_ &&
         same->outputs_ == outputs_ && same->inputs_ == inputs_ && &same->level_ == &level_ &&
         weightOf(same->desc_).dtype == weightOf(desc_).dtype;
}

// The states that one step leaves for the next, what a step projects and the packed projection, in tiles the hidden
// state twice.
Recurrence::Scratch Recurrence::scratch() const {
  auto lines = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  Scratch scratch{};
  scratch.cell = lines(batch_ * outputs_);
  scratch.unprojected = scratch.cell + lines(batch_ * hidden_);
  scratch.projection = scratch.unprojected + (desc_.projected && !desc_.gradient ? lines(batch_ * hidden_) : 0);
  scratch.rounded = scratch.projection;
  const Matrix matrix{1, outputs_, hidden_};
  if (desc_.projected && level_.tiled)
    scratch.rounded += packedTiles(RecurrentCell::tanh, false, matrix) / 2;  // two bf16 to a float
  else if (desc_.projected)
    scratch.rounded += packedSize(RecurrentCell::tanh, desc_.gradient, matrix, level_.lanes);
  scratch.rounded_cells = scratch.rounded + (level_.tiled ? batch_ * multipliedDepth() : 0);
  scratch.input = scratch.rounded_cells + (level_.tiled && desc_.projected ? batch_ * tiledDepth(hidden_) / 2 : 0);
  scratch.output = scratch.input;
  if (copiesInput())
    scratch.output += lines(steps_ * batch_ * (level_.tiled ? tiledDepth(inputs_) / 2 : inputs_));
  scratch.output += isLayer() && !level_.tiled ? spreadSize() : 0;
  const int64_t units = steps_ * batch_ * hidden_;  // of all steps
  scratch.activations = scratch.output + (widensLayer() && isLayer() ? units : 0);
  // Of the derivative the gradients of output and gates are widened as well.
  const bool has_activations = desc_.gradient || (isLayer() && !desc_.results[2].sizes.empty());
  scratch.gradient = scratch.activations + (widensLayer() && has_activations ? 4 * units : 0);
  scratch.sums = lines(scratch.gradient + (widensLayer() && desc_.gradient ? 5 * units : 0));
  scratch.end = scratch.sums;
  if (ofLayer() && desc_.gradient && batch_ > 0)
    scratch.end += lines((batch_ + rowsOfSum() - 1) / rowsOfSum() * 4 * hidden_);
  return scratch;
}

size_t Recurrence::scratchBytes() const {
  return size_t(placesBytes(desc_, steps_)) + size_t(scratch().end) * sizeof(float);
}

void Recurrence::packProjection(const void* projection, float* packed) const {
  const Matrix matrix{1, outputs_, hidden_};
  if (level_.tiled)
    packTiles(RecurrentCell::tanh, false, matrix, level_.together, static_cast<const uint16_t*>(projection),
              reinterpret_cast<uint16_t*>(packed));
  else if (desc_.operands[placeOfProjection(desc_)].dtype == plan::DType::bf16)
    pack(RecurrentCell::tanh, desc_.gradient, matrix, level_.lanes, static_cast<const __bf16*>(projection), packed);
  else
    pack(RecurrentCell::tanh, desc_.gradient, matrix, level_.lanes, static_cast<const float*>(projection), packed);
}

Status Recurrence::readRows(const int64_t* rows, int64_t* places) const {
  if (steps_ == 0)
    return refuse(Code::invalid_argument, desc_, "has no steps");
  int64_t place = 0, before = batch_;
  for (int64_t t = 0; t < steps_; ++t) {
    if ((rows[t] < 1 && batch_ > 0) || rows[t] > before || (t == 0 && rows[t] != batch_))
      return refuse(Code::invalid_argument, desc_,
                    "batch_sizes[" + std::to_string(t) + "] is " + std::to_string(rows[t]) +
                        (t == 0 ? ", the hidden state has " : ", where the step before has ") + std::to_string(before) +
                        " rows");
    places[t] = place;
    place += before = rows[t];
  }
  if (place != total_)
    return refuse(Code::invalid_argument, desc_,
                  "batch_sizes add up to " + std::to_string(place) + ", the data has " + std::to_string(total_) +
                      " rows");
  return {};
}

Sequence Recurrence::sequence(const Arguments& arguments) const {
  const plan::RecurrenceArity arity = plan::arityOf(desc_.cell, desc_.gradient, false, desc_.projected);
  Sequence s;
  s.cell = cellOfSteps();
  s.gradient = desc_.gradient;
  s.reverse = desc_.reverse;
  s.projected = desc_.projected;
  s.steps = steps_;
  s.batch = batch_;
  s.hidden = hidden_;
  s.outputs = outputs_;
  s.gates = arity.gates;
  s.packed = level_.tiled ? nullptr : static_cast<const float*>(arguments.b);
  for (size_t i = 0; i < arity.operands; ++i)
    s.operands[i] = tensorOf(desc_.operands[i], arguments.operands[i]);
  for (size_t i = 0; i < arity.results; ++i)
    s.results[i] = tensorOf(desc_.results[i], arguments.results[i]);
  return s;
}

Status Recurrence::preparePacked(Sequence& s, const Arguments& arguments) const {
  const plan::RecurrenceArity arity = plan::arityOf(desc_.cell, desc_.gradient, false, desc_.projected);
  int64_t* places = static_cast<int64_t*>(arguments.scratch);
  s.rows = static_cast<const int64_t*>(arguments.operands.back());
  s.places = places;
  ZEFUSE_RETURN_IF_ERROR(readRows(s.rows, places));
  if (desc_.gradient)
    return {};
  s.last_hidden = tensorOf(desc_.results[arity.results], arguments.results[arity.results]);
  s.hidden_before = tensorOf(desc_.results[arity.results + 1], arguments.results[arity.results + 1]);
  for (int64_t t = 0; t < steps_ && s.hidden_before.data; ++t)  // the steps leave the rest there
    for (int64_t b = s.before(t).rows; b < s.rows[t]; ++b)
      std::memcpy(s.hidden_before.at(places[t], b), s.operands[3].at(0, b), size_t(outputs_) * sizeof(float));
  return {};
}

// What the steps carry on, and where.
void Recurrence::prepareStates(Sequence& s, const Arguments& arguments, float* memory) const {
  const plan::RecurrenceArity arity = plan::arityOf(desc_.cell, desc_.gradient, false, desc_.projected);
  const Scratch parts = scratch();
  s.hidden_carry = {memory + parts.hidden, 0, outputs_};
  s.cell_carry = {memory + parts.cell, 0, hidden_};
  if (desc_.projected && steps_ > 0) {
    packProjection(arguments.operands[placeOfProjection(desc_)], memory + parts.projection);
    s.projection = memory + parts.projection;
    if (!desc_.gradient)
      s.unprojected = {memory + parts.unprojected, 0, hidden_};
  }
  const bool lstm = s.cell == RecurrentCell::lstm;
  if (desc_.gradient) {
    // The states' derivatives stay behind in them.
    if (const Tensor& hidden = s.results[lstm ? 1 : arity.results - 1]; hidden.data)  // its gradient
      s.hidden_carry = hidden;
    if (lstm && s.results[2].data)
      s.cell_carry = s.results[2];
    Tensor last_gradient;  // the last hidden state's
    if (ofLayer())
      last_gradient = s.operands[6];
    else if (desc_.packed)
      last_gradient = tensorOf(desc_.operands[arity.operands], arguments.operands[arity.operands]);
    fill(s.hidden_carry, last_gradient, batch_, outputs_);
    if (lstm)
      fill(s.cell_carry, s.operands[1], batch_, hidden_);
  } else if (lstm && steps_ == 0 && s.results[1].data) {
    fill(s.results[1], s.operands[4], batch_, hidden_);
  }
  if (isLayer()) {
    s.last_hidden = s.results[4];
    if (steps_ == 0 && s.last_hidden.data)
      fill(s.last_hidden, s.operands[3], batch_, hidden_);
  }
}

void Recurrence::prepareTiles(Sequence& s, const Arguments& arguments, float* memory) const {
  const Scratch parts = scratch();
  s.tiles = {static_cast<const uint16_t*>(arguments.b), reinterpret_cast<__bf16*>(memory + parts.rounded), batch_,
             multipliedDepth()};
  std::fill_n(s.tiles.hidden, 2 * batch_ * s.tiles.depth, __bf16(0));
  if (desc_.gradient)
    return;
  if (desc_.projected) {
    s.tiles.projection = reinterpret_cast<const uint16_t*>(memory + parts.projection);
    s.tiles.unprojected = reinterpret_cast<__bf16*>(memory + parts.rounded_cells);
    s.tiles.unprojected_depth = tiledDepth(hidden_);
    std::fill_n(s.tiles.unprojected, batch_ * s.tiles.unprojected_depth, __bf16(0));
  }
  const Tensor& hidden = s.operands[3];
  for (int64_t n = 0; n < (desc_.packed ? 2 : 1); ++n)  // a row that begins at any step finds it
    for (int64_t b = 0; b < batch_; ++b)
      std::transform(hidden.at(0, b), hidden.at(0, b) + outputs_, s.tiles.at(n, b), primitives::toBf16);
}

// A layer's input and its weight, and where its output goes, as the loops have them: there are no gates.
void Recurrence::prepareInput(Sequence& s, const Arguments& arguments, float* memory) const {
  const Scratch parts = scratch();
  const std::byte* packed = static_cast<const std::byte*>(arguments.b) + packedBytesOf(outputs_);
  const Tensor input = s.operands[0], output = s.results[0];
  s.operands[0] = {};
  s.inputs = inputs_;
  s.packed_input = reinterpret_cast<const float*>(packed);
  if (level_.splits) {
    prepareSplits(s, reinterpret_cast<__bf16*>(memory + parts.output - spreadSize()));
  } else if (!level_.tiled) {
    float* near = memory + parts.output - spreadSize();
    if (sharesLines(narrowLayer() ? hidden_ : output.row))
      s.near_hidden = {near, batch_ * spreadRow(hidden_), spreadRow(hidden_)};
    if (sharesLines(narrowLayer() ? inputs_ : input.row))
      s.near_input = {near + 2 * batch_ * spreadRow(hidden_), 0, spreadRow(inputs_)};
  }
  if (!narrowLayer()) {
    s.input = input;
    return;
  }
  const auto* data = reinterpret_cast<const uint16_t*>(input.data);
  Tiles& tiles = s.tiles;
  if (level_.tiled) {
    tiles.packed_input = reinterpret_cast<const uint16_t*>(packed);
    tiles.input = reinterpret_cast<const __bf16*>(data);
    tiles.input_step = input.step;
    tiles.input_row = input.row;
    tiles.input_depth = tiledDepth(inputs_);
    tiles.output = reinterpret_cast<__bf16*>(output.data);
    tiles.output_step = output.step;
    tiles.output_row = output.row;
    s.results[0] = {};
  } else {
    s.results[0] = {memory + parts.output, batch_ * hidden_, hidden_};
  }
  if (!copiesInput())
    return;
  float* copy = memory + parts.input;
  if (!level_.tiled) {
    s.input = widen(input, steps_, batch_, inputs_, copy, primitives::floatOfBf16);
    return;
  }
  auto* padded = reinterpret_cast<uint16_t*>(copy);
  overRows(steps_, batch_, [&](int64_t t, int64_t b) {
    const uint16_t* from = data + t * input.step + b * input.row;
    uint16_t* to = padded + (t * batch_ + b) * tiles.input_depth;
    std::fill_n(std::copy_n(from, inputs_, to), tiles.input_depth - inputs_, uint16_t(0));
  });
  tiles.input = reinterpret_cast<const __bf16*>(padded);
  tiles.input_row = tiles.input_depth;
  tiles.input_step = batch_ * tiles.input_depth;
}

// `memory`: of spreadSize().
void Recurrence::prepareSplits(Sequence& s, __bf16* memory) const {
  auto* of_state = reinterpret_cast<const uint16_t*>(s.packed);
  auto* of_input = reinterpret_cast<const uint16_t*>(s.packed_input);
  const int64_t state_depth = tiledDepth(hidden_), input_depth = tiledDepth(inputs_);
  const int64_t blocks = (hidden_ + level_.lanes - 1) / level_.lanes;
  const bool plain = of_state[blocks * splitBlock(state_depth)] != 0 || of_input[blocks * splitBlock(input_depth)] != 0;
  s.splits = {of_input, of_state, input_depth, state_depth, memory + 2 * batch_ * splitRow(state_depth),
              memory,   batch_,   plain};
}

// What a layer of bf16 keeps for its derivative.
void Recurrence::prepareActivations(Sequence& s, float* memory) const {
  Tensor& activations = s.results[2];
  if (!narrowLayer() || !activations.data)
    return;
  if (level_.tiled) {
    s.narrow_activations = {reinterpret_cast<_Float16*>(activations.data), activations.step, activations.row};
    activations = {};
  } else {
    activations = {memory + scratch().activations, batch_ * 4 * hidden_, 4 * hidden_};
  }
}

// What the derivative of a layer reads and writes in bf16 and f16, and the sums for its bias.
void Recurrence::prepareGradient(Sequence& s, float* memory) const {
  const Scratch parts = scratch();
  if (s.results[3].data) {
    s.rows_of_sum = rowsOfSum();
    s.bias_sums = {memory + parts.sums, 0, 4 * hidden_};
    std::fill_n(s.bias_sums.data, (batch_ + s.rows_of_sum - 1) / s.rows_of_sum * s.bias_sums.row, 0.f);
  }
  if (!narrowLayer())
    return;
  Tensor &gradient = s.operands[0], &activations = s.operands[5], &gates = s.results[0];
  if (level_.tiled) {
    s.narrow_gradient = {reinterpret_cast<__bf16*>(gradient.data), gradient.step, gradient.row};
    s.narrow_activations = {reinterpret_cast<_Float16*>(activations.data), activations.step, activations.row};
    s.narrow_gates = {reinterpret_cast<__bf16*>(gates.data), gates.step, gates.row};
    s.multiplies_gates = s.tiles.depth == 4 * hidden_;  // else zeros are wanted behind them
    return;
  }
  gradient = widen(gradient, steps_, batch_, hidden_, memory + parts.gradient, primitives::floatOfBf16);
  activations = widen(activations, steps_, batch_, 4 * hidden_, memory + parts.activations, primitives::floatOfF16);
  gates = {memory + parts.gradient + steps_ * batch_ * hidden_, batch_ * 4 * hidden_, 4 * hidden_};
}

// Of a layer of bf16 whose loops are of f32.
void Recurrence::roundResults(const Sequence& s, const Arguments& arguments) const {
  auto round = [&](size_t number, int64_t units, auto&& rounded) {
    const Tensor result = tensorOf(desc_.results[number], arguments.results[number]);
    if (!result.data)
      return;
    auto* to = reinterpret_cast<uint16_t*>(result.data);
    overRows(steps_, batch_, [&](int64_t t, int64_t b) {
      const float* from = s.results[number].at(t, b);
      std::transform(from, from + units, to + t * result.step + b * result.row, rounded);
    });
  };
  round(0, desc_.gradient ? 4 * hidden_ : hidden_, primitives::bitsOfBf16);
  if (!desc_.gradient)
    round(2, 4 * hidden_, primitives::f16OfFloat);
}

// The sums for the rows of the batch, in their order.
void Recurrence::sumBias(const Sequence& s, const Arguments& arguments) const {
  auto* bias = static_cast<float*>(arguments.results[3]);
  std::fill_n(bias, 4 * hidden_, 0.f);
  for (int64_t b = 0; s.bias_sums.data && b < batch_; b += s.rows_of_sum)
    std::transform(bias, bias + 4 * hidden_, s.bias_sums.at(0, b / s.rows_of_sum), bias, std::plus<>());
}

// Shares the loops out among the team's threads.
void Recurrence::runShared(const Sequence& s) const {
  const int64_t units = unitsOfBlock(s.cell, desc_.gradient, level_.lanes);
  const int64_t blocks = (hidden_ + units - 1) / units, threads = std::max(1, primitives::maxThreads());
  const double rows = double(total_) / double(steps_);  // of a step
  const int64_t outputs = desc_.projected ? plainBlocks(outputs_, level_.lanes) : 0;
  const double weights = double(s.gates * hidden_ * (outputs_ + s.inputs)) + (outputs ? double(outputs_ * hidden_) : 0);
  const double work = 2.0 * rows * weights;
  const int64_t row_groups = (batch_ + s.rows_of_sum - 1) / s.rows_of_sum;  // no fewer than parts of rows
  auto rowOf = [&](int64_t group) { return std::min(group * s.rows_of_sum, batch_); };
  const int64_t worth = std::clamp<int64_t>(int64_t(work / level_.speed / least_work), 1, threads);
  if (sharesOutRows(level_, threads, batch_, weights)) {
    primitives::overTeam(row_groups, std::max<int64_t>(1, row_groups / worth), [&](int64_t begin, int64_t end) {
      level_.run(s, {begin * s.rows_of_sum, rowOf(end), 0, blocks, nullptr, 1, 0, outputs});
    });
    return;
  }
  const Division wanted = divide(worth, batch_, blocks);
  if (wanted.rows * wanted.blocks == 1) {
    level_.run(s, {0, batch_, 0, blocks, nullptr, 1, 0, outputs});
    return;
  }
  std::array<Meeting, most_row_parts> meetings;
  primitives::togetherOverTeam(wanted.rows * wanted.blocks, [&](int64_t part, int64_t of) {
    // The team may be smaller than asked for.
    const Division d = of == wanted.rows * wanted.blocks ? wanted : divide(of, batch_, blocks);
    const int64_t row = part / d.blocks, block = part % d.blocks;
    if (row < d.rows)
      level_.run(s,
                 {rowOf(row_groups * row / d.rows), rowOf(row_groups * (row + 1) / d.rows), blocks * block / d.blocks,
                  blocks * (block + 1) / d.blocks, d.blocks > 1 ? &meetings[size_t(row)] : nullptr, d.blocks,
                  outputs * block / d.blocks, outputs * (block + 1) / d.blocks});
  });
}

Status Recurrence::run(const Arguments& arguments) const {
  Sequence s = sequence(arguments);
  if (desc_.packed)
    ZEFUSE_RETURN_IF_ERROR(preparePacked(s, arguments));
  float* memory = reinterpret_cast<float*>(static_cast<char*>(arguments.scratch) + placesBytes(desc_, steps_));
  prepareStates(s, arguments, memory);
  const bool sums = ofLayer() && desc_.gradient && s.results[3].data;
  if (steps_ == 0 || batch_ == 0) {
    if (sums)
      sumBias(s, arguments);
    return {};
  }
  if (level_.tiled)
    prepareTiles(s, arguments, memory);
  if (isLayer()) {
    prepareInput(s, arguments, memory);
    prepareActivations(s, memory);
  } else if (ofLayer()) {
    prepareGradient(s, memory);
  }
  runShared(s);
  if (widensLayer())
    roundResults(s, arguments);
  if (sums)
    sumBias(s, arguments);
  return {};
}

}  // namespace zefuse::recurrence
