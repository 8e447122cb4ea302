#include "runtime/recurrence/recurrence.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/plan/recurrence.h"
#include "runtime/onednn/bf16.h"
#include "runtime/onednn/descriptor.h"
#include "runtime/onednn/team.h"
#include "runtime/recurrence/sequence.h"

namespace zefuse::recurrence {

using onednn::TensorDesc;
using plan::RecurrentCell;

namespace {

// Below this a meeting of the threads takes as long as what they share.
constexpr double least_work = 50000;  // floating point operations of a thread in a step
// A weight that each core's second-level cache holds is quicker read by all than its units are shared out.
constexpr int64_t cached_weight = 1 << 18;  // floats

Status refuse(Code code, const RecurrenceDesc& desc, const std::string& why) {
  return {code, toString(desc) + ": " + why};
}

using Sizes = std::vector<int64_t>;

// What operands and results must be like: T steps, B rows, H units, G gates.
struct Shapes {
  std::vector<Sizes> operands, results;
};

Shapes shapesOf(const RecurrenceDesc& desc, int64_t T, int64_t B, int64_t H) {
  const int64_t G = plan::arityOf(desc.cell, desc.gradient).gates;
  const Sizes sequence{T, B, H}, gates{T, B, G * H}, weight{G * H, H}, bias{G * H}, state{B, H}, four{T, B, 4 * H};
  switch (desc.cell) {
  case RecurrentCell::lstm:
    if (desc.gradient)
      return {{sequence, state, weight, state, sequence, four}, {gates, state, state}};
    return {{gates, weight, bias, state, state}, {sequence, state, four, sequence}};
  case RecurrentCell::gru:
    if (desc.gradient)
      return {{sequence, weight, state, sequence, four}, {gates, gates, state}};
    return {{gates, weight, bias, state}, {sequence, four}};
  case RecurrentCell::tanh:
  case RecurrentCell::relu: break;
  }
  if (desc.gradient)
    return {{sequence, weight, sequence}, {gates, state}};
  return {{gates, weight, bias, state}, {sequence}};
}

Status checkTensor(const RecurrenceDesc& desc, const TensorDesc& tensor, const Sizes& wanted, const std::string& name,
                   bool narrow = false) {
  if (tensor.sizes != wanted || tensor.strides.size() != tensor.sizes.size())
    return refuse(Code::invalid_argument, desc, name + " has sizes that do not fit the others");
  if (tensor.dtype != plan::DType::f32 && !(narrow && tensor.dtype == plan::DType::bf16))
    return refuse(Code::unsupported, desc, name + (narrow ? " is neither f32 nor bf16" : " is not f32"));
  if (tensor.sizes.back() > 1 && tensor.strides.back() != 1)
    return refuse(Code::invalid_argument, desc, name + " has rows that are not contiguous");
  for (int64_t stride : tensor.strides)
    if (stride < 0)
      return refuse(Code::invalid_argument, desc, name + " has a negative stride");
  return {};
}

Status check(const RecurrenceDesc& desc) {
  const plan::RecurrenceArity arity = plan::arityOf(desc.cell, desc.gradient);
  if (desc.operands.size() != arity.operands || desc.results.size() != arity.results)
    return refuse(Code::invalid_argument, desc, "has another number of operands or results");
  const TensorDesc &sequence = desc.operands[0], &weight = desc.operands[arity.weight];
  if (sequence.sizes.size() != 3 || weight.sizes.size() != 2)
    return refuse(Code::invalid_argument, desc, "wants a sequence of three dimensions and a weight of two");
  const int64_t T = sequence.sizes[0], B = sequence.sizes[1], H = weight.sizes[1];
  constexpr int64_t limit = INT32_MAX;  // so that no product of two sizes and four overflows
  if (T < 0 || B < 0 || H < 1 || T > limit || B > limit || H > limit / 4)
    return refuse(Code::invalid_argument, desc, "has an impossible size");
  const Shapes shapes = shapesOf(desc, T, B, H);
  for (size_t i = 0; i < desc.operands.size(); ++i)
    ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.operands[i], shapes.operands[i], "operand " + std::to_string(i),
                                       /*narrow=*/i == arity.weight));
  // The loops read the weight as one matrix.
  if (weight.sizes[0] > 1 && weight.strides[0] != H)
    return refuse(Code::invalid_argument, desc, "has a weight that is not contiguous");
  for (size_t i = 0; i < desc.results.size(); ++i)
    if (!desc.results[i].sizes.empty())
      ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.results[i], shapes.results[i], "result " + std::to_string(i)));
  // What a step reads of the one before, or the next layer's derivative of all.
  const bool needs_products = desc.gradient && desc.cell == RecurrentCell::gru;
  if (desc.results[0].sizes.empty() || (needs_products && desc.results[1].sizes.empty()))
    return refuse(Code::invalid_argument, desc, "lacks a result that its own steps read");
  return {};
}

Tensor tensorOf(const TensorDesc& desc, const void* data) {
  Tensor tensor;
  if (desc.sizes.empty())
    return tensor;
  tensor.data = static_cast<float*>(const_cast<void*>(data));
  const size_t rank = desc.sizes.size();
  tensor.row = rank > 1 ? desc.strides[rank - 2] : 0;
  tensor.step = rank > 2 ? desc.strides[0] : 0;
  return tensor;
}

const TensorDesc& weightOf(const RecurrenceDesc& desc) {
  return desc.operands[plan::arityOf(desc.cell, desc.gradient).weight];
}

const Level& levelOf(const RecurrenceDesc& desc) {
  return level(!desc.gradient && weightOf(desc).dtype == plan::DType::bf16);
}

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
    text += (i ? ", " : " ") + onednn::toString(desc.operands[i]);
  return text + (desc.reverse ? ", reversed" : "");
}

Result<std::shared_ptr<const Recurrence>> Recurrence::get(const RecurrenceDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(check(desc));
  return std::make_shared<const Recurrence>(desc);
}

Recurrence::Recurrence(RecurrenceDesc desc)
    : desc_(std::move(desc)), steps_(desc_.operands[0].sizes[0]), batch_(desc_.operands[0].sizes[1]),
      hidden_(weightOf(desc_).sizes[1]), level_(levelOf(desc_)),
      implementation_(std::string(level_.tiled ? "steps in " : "steps in registers: ") + level_.name) {}

size_t Recurrence::packedBytes() const {
  const int64_t gates = plan::arityOf(desc_.cell, desc_.gradient).gates;
  if (level_.tiled)
    return size_t(packedTiles(desc_.cell, gates, hidden_)) * sizeof(__bf16);
  return size_t(packedSize(desc_.cell, desc_.gradient, gates, hidden_, level_.lanes)) * sizeof(float);
}

Status Recurrence::packB(const void* weight, void* packed) const {
  const int64_t gates = plan::arityOf(desc_.cell, desc_.gradient).gates;
  if (level_.tiled)
    packTiles(desc_.cell, gates, hidden_, level_.together, static_cast<const uint16_t*>(weight),
              static_cast<uint16_t*>(packed));
  else if (weightOf(desc_).dtype == plan::DType::bf16)
    pack(desc_.cell, desc_.gradient, gates, hidden_, level_.lanes, static_cast<const __bf16*>(weight),
         static_cast<float*>(packed));
  else
    pack(desc_.cell, desc_.gradient, gates, hidden_, level_.lanes, static_cast<const float*>(weight),
         static_cast<float*>(packed));
  return {};
}

bool Recurrence::packsLike(const Primitive& other) const {
  const auto* same = dynamic_cast<const Recurrence*>(&other);
  return same && same->desc_.cell == desc_.cell && same->desc_.gradient == desc_.gradient && same->hidden_ == hidden_ &&
         weightOf(same->desc_).dtype == weightOf(desc_).dtype;
}

// The states that one step leaves for the next, and in tiles the hidden state twice.
size_t Recurrence::scratchBytes() const {
  const size_t states = size_t(2 * batch_ * hidden_) * sizeof(float);
  return level_.tiled ? states + size_t(2 * batch_ * tiledDepth(hidden_)) * sizeof(__bf16) : states;
}

Status Recurrence::run(const Arguments& arguments) const {
  const plan::RecurrenceArity arity = plan::arityOf(desc_.cell, desc_.gradient);
  Sequence s{desc_.cell,
             desc_.gradient,
             desc_.reverse,
             steps_,
             batch_,
             hidden_,
             arity.gates,
             level_.tiled ? nullptr : static_cast<const float*>(arguments.b),
             {},
             {},
             {},
             {},
             {}};
  for (size_t i = 0; i < desc_.operands.size(); ++i)
    s.operands[i] = tensorOf(desc_.operands[i], arguments.operands[i]);
  for (size_t i = 0; i < desc_.results.size(); ++i)
    s.results[i] = tensorOf(desc_.results[i], arguments.results[i]);

  float* scratch = static_cast<float*>(arguments.scratch);
  s.hidden_carry = {scratch, 0, hidden_};
  s.cell_carry = {scratch + batch_ * hidden_, 0, hidden_};
  const bool lstm = desc_.cell == RecurrentCell::lstm;
  if (desc_.gradient) {
    // The states' derivatives stay behind in them.
    if (const Tensor& hidden = s.results[lstm ? 1 : arity.results - 1]; hidden.data)
      s.hidden_carry = hidden;
    if (lstm && s.results[2].data)
      s.cell_carry = s.results[2];
    fill(s.hidden_carry, {}, batch_, hidden_);
    if (lstm)
      fill(s.cell_carry, s.operands[1], batch_, hidden_);
  } else if (lstm && steps_ == 0 && s.results[1].data) {
    fill(s.results[1], s.operands[4], batch_, hidden_);
  }
  if (steps_ == 0 || batch_ == 0)
    return {};
  if (level_.tiled) {
    s.tiles = {static_cast<const uint16_t*>(arguments.b), reinterpret_cast<__bf16*>(scratch + 2 * batch_ * hidden_),
               batch_, tiledDepth(hidden_)};
    std::fill_n(s.tiles.hidden, 2 * batch_ * s.tiles.depth, __bf16(0));
    const Tensor& hidden = s.operands[3];
    for (int64_t b = 0; b < batch_; ++b)
      std::transform(hidden.at(0, b), hidden.at(0, b) + hidden_, s.tiles.at(0, b), onednn::toBf16);
  }

  const int64_t units = unitsOfBlock(desc_.cell, desc_.gradient, level_.lanes);
  const int64_t blocks = (hidden_ + units - 1) / units, threads = std::max(1, onednn::maxThreads());
  const double work = 2.0 * double(batch_) * double(arity.gates) * double(hidden_) * double(hidden_);
  const int64_t worth = std::clamp<int64_t>(int64_t(work / level_.speed / least_work), 1, threads);
  if (batch_ >= 2 * threads && arity.gates * hidden_ * hidden_ <= cached_weight * (level_.tiled ? 2 : 1)) {
    // Rows do not depend on each other.
    onednn::overTeam(batch_, std::max<int64_t>(1, batch_ / worth),
                     [&](int64_t begin, int64_t end) { level_.run(s, {begin, end, 0, blocks, nullptr, 1}); });
    return {};
  }
  const Division wanted = divide(worth, batch_, blocks);
  if (wanted.rows * wanted.blocks == 1) {
    level_.run(s, {0, batch_, 0, blocks, nullptr, 1});
    return {};
  }
  std::array<Meeting, most_row_parts> meetings;
  onednn::togetherOverTeam(wanted.rows * wanted.blocks, [&](int64_t part, int64_t of) {
    // The team may be smaller than asked for.
    const Division d = of == wanted.rows * wanted.blocks ? wanted : divide(of, batch_, blocks);
    const int64_t row = part / d.blocks, block = part % d.blocks;
    if (row < d.rows)
      level_.run(s, {batch_ * row / d.rows, batch_ * (row + 1) / d.rows, blocks * block / d.blocks,
                     blocks * (block + 1) / d.blocks, d.blocks > 1 ? &meetings[size_t(row)] : nullptr, d.blocks});
  });
  return {};
}

}  // namespace zefuse::recurrence
