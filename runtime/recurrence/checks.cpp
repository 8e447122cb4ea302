#include "runtime/recurrence/checks.h"

#include <algorithm>

#include "common/plan/dtype.h"

namespace zefuse::recurrence {

using plan::RecurrentCell;
using primitives::TensorDesc;

Status refuse(Code code, const RecurrenceDesc& desc, const std::string& why) {
  return {code, toString(desc) + ": " + why};
}

plan::RecurrenceArity arityOf(const RecurrenceDesc& desc) {
  return plan::arityOf(desc.cell, desc.gradient, desc.packed, desc.projected);
}

const TensorDesc& stateOf(const RecurrenceDesc& desc) {
  return desc.operands[desc.gradient ? desc.operands.size() - 2 : 3];
}

size_t placeOfProjection(const RecurrenceDesc& desc) { return plan::arityOf(desc.cell, desc.gradient).operands; }

namespace {

using Sizes = std::vector<int64_t>;

// What operands and results must be like: T steps, B rows, H units, G gates, P units of the hidden state.
struct Shapes {
  std::vector<Sizes> operands, results;
};

// `positions`: of a sequence, [T, B] or the rows of all steps.
Shapes shapesOf(const RecurrenceDesc& desc, const Sizes& positions, int64_t B, int64_t H, int64_t P) {
  const int64_t G = arityOf(desc).gates;
  auto of = [&](int64_t units) {
    Sizes sizes = positions;
    sizes.push_back(units);
    return sizes;
  };
  const Sizes sequence = of(H), gates = of(G * H), weight{G * H, H}, bias{G * H}, state{B, H}, four = of(4 * H);
  if (desc.projected) {
    const Sizes outputs = of(P), recurrent{G * H, P}, hidden{B, P}, projection{P, H};
    if (desc.gradient)
      return {{outputs, state, recurrent, state, sequence, four, projection}, {gates, hidden, state, outputs}};
    return {{gates, recurrent, bias, hidden, state, projection}, {outputs, state, four, sequence}};
  }
  switch (desc.cell) {
  case RecurrentCell::lstm:
    if (desc.gradient)
      return {{sequence, state, weight, state, sequence, four}, {gates, state, state}};
    return {{gates, weight, bias, state, state}, {sequence, state, four, sequence}};
  case RecurrentCell::gru:
    if (desc.gradient)
      return {{sequence, weight, state, sequence, four}, {gates, gates, state}};
    return {{gates, weight, bias, state}, {sequence, four}};
  case RecurrentCell::lstm_layer: {
    if (desc.gradient)
      return {{sequence, state, weight, state, sequence, four, state}, {gates, state, state, bias}};
    const int64_t I = desc.operands[0].sizes.back();
    return {{desc.operands[0].sizes, {4 * H * I + 4 * H * H}, bias, state, state},
            {sequence, state, four, sequence, state}};
  }
  case RecurrentCell::tanh:
  case RecurrentCell::relu: break;
  }
  if (desc.gradient)
    return {{sequence, weight, sequence}, {gates, state}};
  return {{gates, weight, bias, state}, {sequence}};
}

// `also`: a dtype that it may have instead of f32.
Status checkTensor(const RecurrenceDesc& desc, const TensorDesc& tensor, const Sizes& wanted, const std::string& name,
                   plan::DType also = plan::DType::f32) {
  if (tensor.sizes != wanted || tensor.strides.size() != tensor.sizes.size())
    return refuse(Code::invalid_argument, desc, name + " has sizes that do not fit the others");
  if (tensor.dtype != plan::DType::f32 && tensor.dtype != also)
    return refuse(Code::unsupported, desc,
                  name + (also == plan::DType::f32 ? " is not f32"
                                                   : std::string(" is neither f32 nor ") + plan::EnumNameDType(also)));
  if (tensor.sizes.back() > 1 && tensor.strides.back() != 1)
    return refuse(Code::invalid_argument, desc, name + " has rows that are not contiguous");
  for (int64_t stride : tensor.strides)
    if (stride < 0)
      return refuse(Code::invalid_argument, desc, name + " has a negative stride");
  return {};
}

// How many rows each step of packed sequences has.
Status checkRows(const RecurrenceDesc& desc) {
  const TensorDesc& rows = desc.operands.back();
  if (rows.sizes.size() != 1 || rows.strides.size() != 1 || (rows.sizes[0] > 1 && rows.strides[0] != 1))
    return refuse(Code::invalid_argument, desc, "wants numbers of rows that are contiguous");
  if (rows.dtype != plan::DType::i64)
    return refuse(Code::unsupported, desc, "has numbers of rows that are not i64");
  if (stateOf(desc).sizes.size() != 2)
    return refuse(Code::invalid_argument, desc, "wants states of two dimensions");
  return {};
}

// Of a layer with its input or its derivative: what is bf16 if its weight is, and what is f16 then.
constexpr size_t place_of_activations = 5;  // among the derivative's operands; among the layer's results 2
plan::DType dtypeOfLayersOperand(const RecurrenceDesc& desc, size_t i) {
  const plan::DType dtype = desc.operands[arityOf(desc).weight].dtype;
  if (dtype != plan::DType::bf16)
    return plan::DType::f32;
  if (desc.gradient && i == place_of_activations)
    return plan::DType::f16;
  return i == 0 || i == arityOf(desc).weight ? dtype : plan::DType::f32;
}
plan::DType dtypeOfLayersResult(const RecurrenceDesc& desc, size_t i) {
  if (desc.operands[arityOf(desc).weight].dtype != plan::DType::bf16)
    return plan::DType::f32;
  return i == 0 ? plan::DType::bf16 : i == 2 && !desc.gradient ? plan::DType::f16 : plan::DType::f32;
}

Status checkDtypesOfLayer(const RecurrenceDesc& desc) {
  for (size_t i = 0; i < desc.operands.size(); ++i)
    if (desc.operands[i].dtype != dtypeOfLayersOperand(desc, i))
      return refuse(Code::unsupported, desc,
                    "has operand " + std::to_string(i) + " of a dtype that does not fit its weights");
  for (size_t i = 0; i < desc.results.size(); ++i)
    if (!desc.results[i].sizes.empty() && desc.results[i].dtype != dtypeOfLayersResult(desc, i))
      return refuse(Code::unsupported, desc,
                    "has result " + std::to_string(i) + " of a dtype that does not fit its weights");
  return {};
}

// A layer with its input.
Status checkLayer(const RecurrenceDesc& desc) {
  const Sizes &input = desc.operands[0].sizes, &weights = desc.operands[1].sizes, &state = desc.operands[3].sizes;
  if (desc.packed || desc.projected)
    return refuse(Code::invalid_argument, desc, "is packed or projected");
  if (input.size() != 3 || state.size() != 2 || weights.size() != 1)
    return refuse(Code::invalid_argument, desc, "wants an input of three dimensions, states of two and one of weights");
  constexpr int64_t limit = INT32_MAX / 4;
  for (int64_t size : {input[0], input[1], input[2], state[1]})
    if (size < 0 || size > limit)
      return refuse(Code::invalid_argument, desc, "has an impossible size");
  if (input[2] < 1 || state[1] < 1)
    return refuse(Code::invalid_argument, desc, "has no units");
  const Shapes shapes = shapesOf(desc, {input[0], input[1]}, input[1], state[1], state[1]);
  for (size_t i = 0; i < desc.operands.size(); ++i)
    ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.operands[i], shapes.operands[i], "operand " + std::to_string(i),
                                       dtypeOfLayersOperand(desc, i)));
  if (desc.results[0].sizes.empty())
    return refuse(Code::invalid_argument, desc, "lacks a result that its own steps read");
  for (size_t i = 0; i < desc.results.size(); ++i)
    if (!desc.results[i].sizes.empty())
      ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.results[i], shapes.results[i], "result " + std::to_string(i),
                                         dtypeOfLayersResult(desc, i)));
  return checkDtypesOfLayer(desc);
}

}  // namespace

Status check(const RecurrenceDesc& desc) {
  if (desc.projected && desc.cell != RecurrentCell::lstm)
    return refuse(Code::invalid_argument, desc, "has a projection of another cell than an LSTM's");
  const plan::RecurrenceArity arity = arityOf(desc);
  if (desc.operands.size() != arity.operands || desc.results.size() != arity.results)
    return refuse(Code::invalid_argument, desc, "has another number of operands or results");
  const bool layer = desc.cell == RecurrentCell::lstm_layer;
  if (layer && (!desc.gradient || desc.packed))
    return checkLayer(desc);
  const TensorDesc &sequence = desc.operands[0], &weight = desc.operands[arity.weight];
  if (sequence.sizes.size() != (desc.packed ? 2 : 3) || weight.sizes.size() != 2)
    return refuse(Code::invalid_argument, desc,
                  std::string("wants a sequence of ") + (desc.packed ? "two" : "three") +
                      " dimensions and a weight of two");
  if (desc.packed)
    ZEFUSE_RETURN_IF_ERROR(checkRows(desc));
  const Sizes positions(sequence.sizes.begin(), sequence.sizes.end() - 1);
  const int64_t B = desc.packed ? stateOf(desc).sizes[0] : positions[1], P = weight.sizes[1];
  const int64_t H = desc.projected ? weight.sizes[0] / arity.gates : P;
  constexpr int64_t limit = INT32_MAX;  // so that no product of two sizes and four overflows
  auto possible = [](int64_t size) { return size >= 0 && size <= limit; };
  if (!std::ranges::all_of(positions, possible) || !possible(B) || H < 1 || H > limit / 4 || P < 1 || P > limit / 4)
    return refuse(Code::invalid_argument, desc, "has an impossible size");
  Shapes shapes = shapesOf(desc, positions, B, H, P);
  if (desc.packed) {  // the last hidden state, or its gradient
    (desc.gradient ? shapes.operands : shapes.results).push_back({B, P});
    if (!desc.gradient)
      shapes.results.push_back({positions[0], P});
    shapes.operands.push_back(desc.operands.back().sizes);
  }
  for (size_t i = 0; i < desc.operands.size() - (desc.packed ? 1 : 0); ++i)
    ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.operands[i], shapes.operands[i], "operand " + std::to_string(i),
                                       layer ? dtypeOfLayersOperand(desc, i)
                                       : i == arity.weight || (desc.projected && i == placeOfProjection(desc))
                                           ? plan::DType::bf16
                                           : plan::DType::f32));
  // The loops read a weight as one matrix.
  if (desc.projected)
    if (const TensorDesc& projection = desc.operands[placeOfProjection(desc)]; P > 1 && projection.strides[0] != H)
      return refuse(Code::invalid_argument, desc, "has a projection that is not contiguous");
  if (weight.sizes[0] > 1 && weight.strides[0] != P)
    return refuse(Code::invalid_argument, desc, "has a weight that is not contiguous");
  for (size_t i = 0; i < desc.results.size(); ++i)
    if (!desc.results[i].sizes.empty())
      ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.results[i], shapes.results[i], "result " + std::to_string(i),
                                         layer ? dtypeOfLayersResult(desc, i) : plan::DType::f32));
  if (layer)
    ZEFUSE_RETURN_IF_ERROR(checkDtypesOfLayer(desc));
  // What a step reads of the one before, or the next layer's derivative of all.
  const bool needs_products = desc.gradient && desc.cell == RecurrentCell::gru;
  const bool needs_outputs = desc.gradient && desc.projected;
  if (desc.results[0].sizes.empty() || (needs_products && desc.results[1].sizes.empty()) ||
      (needs_outputs && desc.results[3].sizes.empty()))
    return refuse(Code::invalid_argument, desc, "lacks a result that its own steps read");
  return {};
}

}  // namespace zefuse::recurrence
