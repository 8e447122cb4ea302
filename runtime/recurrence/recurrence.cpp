#include "runtime/recurrence/recurrence.h"

#include <algorithm>
#include <cstring>

#include "common/plan/recurrence.h"
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

Status checkTensor(const RecurrenceDesc& desc, const TensorDesc& tensor, const Sizes& wanted, const std::string& name) {
  if (tensor.sizes != wanted || tensor.strides.size() != tensor.sizes.size())
    return refuse(Code::invalid_argument, desc, name + " has sizes that do not fit the others");
  if (tensor.dtype != plan::DType::f32)
    return refuse(Code::unsupported, desc, name + " is not f32");
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
    ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.operands[i], shapes.operands[i], "operand " + std::to_string(i)));
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
      hidden_(desc_.operands[plan::arityOf(desc_.cell, desc_.gradient).weight].sizes[1]),
      implementation_(std::string("steps in registers: ") + level().name) {}

size_t Recurrence::packedBytes() const {
  const int64_t gates = plan::arityOf(desc_.cell, desc_.gradient).gates;
  return size_t(packedSize(desc_.cell, desc_.gradient, gates, hidden_, level().lanes)) * sizeof(float);
}

Status Recurrence::packB(const void* weight, void* packed) const {
  const int64_t gates = plan::arityOf(desc_.cell, desc_.gradient).gates;
  pack(desc_.cell, desc_.gradient, gates, hidden_, level().lanes, static_cast<const float*>(weight),
       static_cast<float*>(packed));
  return {};
}

bool Recurrence::packsLike(const Primitive& other) const {
  const auto* same = dynamic_cast<const Recurrence*>(&other);
  return same && same->desc_.cell == desc_.cell && same->desc_.gradient == desc_.gradient && same->hidden_ == hidden_;
}

// The states that one step leaves for the next.
size_t Recurrence::scratchBytes() const { return size_t(2 * batch_ * hidden_) * sizeof(float); }

Status Recurrence::run(const Arguments& arguments) const {
  const plan::RecurrenceArity arity = plan::arityOf(desc_.cell, desc_.gradient);
  Sequence s{desc_.cell,
             desc_.gradient,
             desc_.reverse,
             steps_,
             batch_,
             hidden_,
             arity.gates,
             static_cast<const float*>(arguments.b),
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

  const int64_t units = unitsOfBlock(desc_.cell, desc_.gradient, level().lanes);
  const int64_t blocks = (hidden_ + units - 1) / units, threads = std::max(1, onednn::maxThreads());
  const double work = 2.0 * double(batch_) * double(arity.gates) * double(hidden_) * double(hidden_);
  const int64_t worth = std::clamp<int64_t>(int64_t(work / least_work), 1, threads);
  if (batch_ >= 2 * threads && arity.gates * hidden_ * hidden_ <= cached_weight) {
    // Rows do not depend on each other.
    onednn::overTeam(batch_, std::max<int64_t>(1, batch_ / worth),
                     [&](int64_t begin, int64_t end) { level().run(s, {begin, end, 0, blocks, nullptr, 1}); });
    return {};
  }
  const int64_t parts = std::min(worth, blocks);
  if (parts == 1) {
    level().run(s, {0, batch_, 0, blocks, nullptr, 1});
    return {};
  }
  Meeting meeting;
  onednn::togetherOverTeam(parts, [&](int64_t part, int64_t of) {
    level().run(s, {0, batch_, blocks * part / of, blocks * (part + 1) / of, of > 1 ? &meeting : nullptr, of});
  });
  return {};
}

}  // namespace zefuse::recurrence
