// Frame's weights: what is kept of parameters, and weights as libraries want them packed, kept or made for a single
// use.
#include <algorithm>
#include <utility>

#include "common/plan/recurrence.h"
#include "runtime/executor/frame.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::executor {

void Frame::takeKept(std::span<const CallInput> inputs) {
  use_of_kept_ = kept_->begin(inputs, *binding_, shared_.weights.generation());
  const bool keeps = use_of_kept_ != KeptWeights::Use::none;
  for (size_t i = 0; i < base_.size(); ++i)
    if (shared_.program.kept[i])
      base_[i] = keeps ? kept_->data() + binding_->kept.offset[i] : arena_.data() + binding_->arena_offset[i];
}

void Frame::countKept() {
  const auto steps = uint64_t(std::ranges::count(shared_.program.derived, true));
  if (use_of_kept_ == KeptWeights::Use::reuse) {
    counted_.weight_packs_reused += steps;
    return;
  }
  counted_.weights_packed += steps;
  kept_->made();
}

WeightStamp Frame::stampOf(const BoundLibraryCall& bound, std::span<const CallInput> inputs) {
  const uint64_t generation = shared_.weights.generation();
  if (bound.packed_kept >= 0)
    return {base_[size_t(bound.packed_kept)], kept_->number(), 0, generation};
  const size_t number = size_t(bound.packed_input);
  return executor::stampOf(inputs[number].tensor, binding_->inputs[number], generation);
}

Status Frame::packFor(size_t step, uint32_t view, const void* b, std::span<const CallInput> inputs,
                      Counters::OfCall& counted) {
  const BoundLibraryCall& bound = binding_->library_calls[step];
  LibraryState& state = library_states_[step];
  const bool asked = std::exchange(state.asked, false);
  if (asked && !state.packed)
    return {};
  const WeightStamp stamp = stampOf(bound, inputs);
  if (state.packed && state.packed->stamp == stamp && state.packer == bound.primitive) {
    counted.weight_packs_reused += !asked;
    return {};
  }
  state.packed.reset();  // its memory may serve again
  const uint32_t number = bound.packed_kept >= 0
                              ? uint32_t(shared_.program.plan.inputs.size()) + uint32_t(bound.packed_kept)
                              : uint32_t(bound.packed_input);
  auto packed = shared_.weights.get(number, binding_->values[view], b, stamp, bound.primitive, counted);
  if (!packed.ok())
    return packed.status();
  state.packed = std::move(*packed);
  state.packer = bound.primitive;
  return {};
}

// The copies that are kept all at once, each by one thread: one after the other by the whole team, threads wait for
// each other at every page that is touched for the first time. (MiniLM's 42 MB: 12 ms, 7 so.)
Status Frame::packWeights(std::span<const CallInput> inputs) {
  const plan::PlanT& plan = shared_.program.plan;
  struct Weight {
    size_t step;
    uint32_t view;
    size_t bytes;
  };
  std::vector<Weight> weights;
  size_t total = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const BoundLibraryCall& bound = binding_->library_calls[i];
    // One that the plan writes is packed when its step comes.
    if (bound.packed_input < 0 || plan.inputs[size_t(bound.packed_input)]->written || library_states_[i].packed)
      continue;
    const plan::StepKindUnion& kind = plan.steps[i]->kind;
    uint32_t view;
    if (const auto* matmul = kind.AsMatmul())
      view = matmul->b;
    else if (const auto* convolution = kind.AsConvolution())
      view = convolution->weight;
    else if (const auto* recurrence = kind.AsRecurrence())
      view = recurrence->operands[plan::arityOf(recurrence->cell, recurrence->gradient, recurrence->packed).weight];
    else
      continue;  // no other call packs anything
    weights.push_back({i, view, bound.primitive->packedBytes()});
    total += weights.back().bytes;
  }
  const size_t lanes = size_t(std::max(1, primitives::maxThreads()));
  std::vector<std::vector<Weight>> of_lane(lanes);
  size_t before = 0;
  for (const Weight& weight : weights) {
    of_lane[std::min(lanes - 1, before * lanes / std::max<size_t>(total, 1))].push_back(weight);
    before += weight.bytes;
  }
  std::vector<Status> statuses(lanes);
  std::vector<Counters::OfCall> counted(lanes);
  primitives::overTeam(int64_t(lanes), 1, [&](int64_t begin, int64_t end) {
    for (size_t lane = size_t(begin); lane < size_t(end); ++lane)
      for (const Weight& weight : of_lane[lane]) {
        statuses[lane] = packFor(weight.step, weight.view, address(weight.view), inputs, counted[lane]);
        if (!statuses[lane].ok())
          break;
        library_states_[weight.step].asked = true;
      }
  });
  for (const Counters::OfCall& each : counted) {
    counted_.weights_packed += each.weights_packed;
    counted_.weight_packs_reused += each.weight_packs_reused;
  }
  for (Status& status : statuses)
    ZEFUSE_RETURN_IF_ERROR(status);
  size_t streamed_bytes = 0;
  for (const Weight& weight : weights)
    if (!library_states_[weight.step].packed && !binding_->library_calls[weight.step].primitive->takesGivenB())
      streamed_bytes = std::max(streamed_bytes, weight.bytes);
  packed_ = std::ranges::all_of(weights,
                                [&](const Weight& weight) { return library_states_[weight.step].packed != nullptr; });
  if (packed_)
    streamed_ = {};
  return streamed_.reserve(streamed_bytes);
}

Result<const void*> Frame::packedOrStreamed(size_t step, uint32_t view, std::span<const CallInput> inputs) {
  const BoundLibraryCall& bound = binding_->library_calls[step];
  const void* weight = address(view);
  if (bound.packed_input >= 0 || (bound.packed_kept >= 0 && use_of_kept_ != KeptWeights::Use::none)) {
    ZEFUSE_RETURN_IF_ERROR(packFor(step, view, weight, inputs, counted_));
    if (const auto& packed = library_states_[step].packed)
      return static_cast<const void*>(packed->memory.data());
  }
  ++counted_.weights_streamed;
  if (bound.primitive->takesGivenB())
    return weight;
  ZEFUSE_RETURN_IF_ERROR(streamed_.reserve(bound.primitive->packedBytes()));
  ZEFUSE_RETURN_IF_ERROR(bound.primitive->packB(weight, streamed_.data()));
  return static_cast<const void*>(streamed_.data());
}

}  // namespace zefuse::executor
