#include "runtime/primitives/core/sequence.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/engine.h"
#include "runtime/primitives/core/strided_copy.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"

namespace zefuse::primitives {

namespace {

using dnnl::algorithm;
using plan::DType;
using plan::PostOpKind;

size_t aligned(size_t bytes) { return (bytes + 63) & ~size_t(63); }

struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes) : data(std::aligned_alloc(64, aligned(bytes))) {
    if (!data && bytes)
      throw std::bad_alloc();
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data); }
  void* data;
};

// Dimensions of one element have no stride to speak of.
bool sameLayout(const TensorDesc& a, const TensorDesc& b) {
  if (a.dtype != b.dtype || a.sizes != b.sizes)
    return false;
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d])
      return false;
  return true;
}

}  // namespace

bool hasCodes(const TensorDesc& tensor) { return tensor.dtype == DType::u8 || tensor.dtype == DType::i8; }

size_t bytesOf(const TensorDesc& desc) {
  return size_t(elements(desc.sizes)) * (hasCodes(desc) ? 1 : desc.dtype == DType::f32 ? 4 : 2);
}

TensorDesc dense(const TensorDesc& desc, DType dtype) { return {dtype, desc.sizes, denseStrides(desc.sizes)}; }

bool distinct(const TensorDesc& desc) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < desc.sizes.size(); ++d)
    if (desc.sizes[d] > 1)
      dims.emplace_back(desc.strides[d], desc.sizes[d]);
  std::sort(dims.begin(), dims.end());
  int64_t extent = 1;
  for (auto [stride, size] : dims) {
    if (stride < extent)
      return false;
    extent = stride * size;
  }
  return true;
}

// oneDNN's own relu and clip turn NaN into a number. elu with alpha 0 keeps NaN and takes -inf to 0 as well; adding 0
// turns -0 into 0. For relu6, clip's lower bound then marks NaN as -inf, of which x * clamp(3e38 * x, 0, 1) makes NaN
// again.
std::vector<Eltwise> eltwise(PostOpKind kind) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  switch (kind) {
  case PostOpKind::relu: return {{algorithm::eltwise_elu, 0, 0}, {algorithm::eltwise_linear, 1, 0}};
  case PostOpKind::relu6:
    return {{algorithm::eltwise_elu, 0, 0},
            {algorithm::eltwise_clip, -inf, 6},
            {algorithm::eltwise_hardswish, 3e38f, 0},
            {algorithm::eltwise_linear, 1, 0}};
  case PostOpKind::hardswish: return {{algorithm::eltwise_hardswish, 1.0f / 6, 0.5f}};
  case PostOpKind::gelu_erf: return {{algorithm::eltwise_gelu_erf, 0, 0}};
  case PostOpKind::gelu_tanh: return {{algorithm::eltwise_gelu_tanh, 0, 0}};
  case PostOpKind::silu: return {{algorithm::eltwise_swish, 1, 0}};
  case PostOpKind::tanh: return {{algorithm::eltwise_tanh, 0, 0}};
  default: return {{algorithm::eltwise_logistic, 0, 0}};
  }
}

void appendPostOps(const std::vector<TailOp>& tail, size_t count, dnnl::post_ops& post_ops,
                   std::vector<Binding>& bindings) {
  for (size_t i = 0; i < count; ++i) {
    if (tail[i].slot < 0) {
      for (Eltwise op : eltwise(tail[i].kind))
        post_ops.append_eltwise(op.kind, op.alpha, op.beta);
      continue;
    }
    auto operand = memoryDesc(tail[i].operand);
    bindings.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops.len()) | DNNL_ARG_SRC_1, tail[i].slot, operand});
    post_ops.append_binary(tail[i].kind == PostOpKind::add ? algorithm::binary_add : algorithm::binary_mul, operand);
  }
}

bool appendTail(Sequence& sequence, const std::vector<TailOp>& tail, size_t first, const TensorDesc& out_desc,
                std::string& why) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  auto out = memoryDesc(out_desc);
  // False when oneDNN has no such primitive; then the whole attempt is void.
  auto add = [&](const auto& description, auto make, PostOpKind kind, std::vector<Binding> bindings) {
    if (!description) {
      why = std::string("oneDNN has no ") + plan::EnumNamePostOpKind(kind) + " for these types on this CPU";
      sequence.steps.clear();
      return false;
    }
    bindings.push_back({DNNL_ARG_DST, slotOut, out});
    bindings.push_back({DNNL_ARG_SCRATCHPAD, slotScratchpad, description.scratchpad_desc()});
    sequence.steps.push_back({make(description), std::move(bindings)});
    return true;
  };
  for (size_t i = first; i < tail.size(); ++i) {
    sequence.implementation += std::string("; then ") + plan::EnumNamePostOpKind(tail[i].kind);
    if (tail[i].slot >= 0) {
      auto operand = memoryDesc(tail[i].operand);
      dnnl::binary::primitive_desc description(
          engine(), tail[i].kind == PostOpKind::add ? algorithm::binary_add : algorithm::binary_mul, out, operand, out,
          attr, /*allow_empty=*/true);
      if (!add(description, [](auto& d) { return dnnl::binary(d); }, tail[i].kind,
               {{DNNL_ARG_SRC_0, slotOut, out}, {DNNL_ARG_SRC_1, tail[i].slot, operand}}))
        return false;
      continue;
    }
    for (Eltwise op : eltwise(tail[i].kind)) {
      dnnl::eltwise_forward::primitive_desc description(engine(), dnnl::prop_kind::forward_inference, op.kind, out, out,
                                                        op.alpha, op.beta, attr, /*allow_empty=*/true);
      if (!add(description, [](auto& d) { return dnnl::eltwise_forward(d); }, tail[i].kind,
               {{DNNL_ARG_SRC, slotOut, out}}))
        return false;
    }
  }
  return true;
}

Sequence::~Sequence() { delete spare_.load(); }

size_t Sequence::reserve(size_t bytes) { return std::exchange(scratch_bytes, scratch_bytes + aligned(bytes)); }

void Sequence::stageOperand(int slot, const TensorDesc& outside, const TensorDesc& inside, const char* name,
                            size_t origin) {
  if (sameLayout(outside, inside))
    return;
  implementation += std::string("; copies ") + name;
  stagings_.push_back({slot, outside, inside, reserve(bytesOf(inside)), origin});
}

void Sequence::stagePadded(int slot, const TensorDesc& outside, const TensorDesc& padded,
                           const std::vector<int64_t>& begin, const char* name) {
  implementation += std::string("; pads ") + name;
  Staging staging{slot, outside, {padded.dtype, outside.sizes, padded.strides}, reserve(bytesOf(padded)), 0, padded};
  for (size_t d = 0; d < begin.size(); ++d)
    staging.inner += size_t(begin[d] * padded.strides[d]) * bytesOf({padded.dtype, {}, {}});
  stagings_.push_back(std::move(staging));
}

void Sequence::stageOut(const TensorDesc& outside, const TensorDesc& inside) {
  if (sameLayout(outside, inside))
    return;
  implementation += "; copies out";
  out_staging_ = Staging{slotOut, outside, inside, reserve(bytesOf(inside))};
}

void Sequence::preparePacking(const TensorDesc& b, const TensorDesc& dense, size_t origin) {
  b_ = b;
  b_origin_ = origin;
  b_dense_ = dense;
  packed_bytes = packed_layout.get_size();
  pack_ = dnnl::reorder(dnnl::reorder::primitive_desc(engine(), b_layout, engine(), packed_layout));
}

void Sequence::prepareOwnPacking(const TensorDesc& b, size_t bytes) {
  b_ = b;
  packed_bytes = bytes;
}

void Sequence::placeScratchpad() {
  size_t bytes = 0;
  for (const PrimitiveStep& step : steps)
    for (const Binding& binding : step.bindings)
      if (binding.slot == slotScratchpad)
        bytes = std::max(bytes, binding.layout.get_size());
  scratchpad_offset_ = reserve(bytes);
}

std::unique_ptr<Sequence::Handles> Sequence::makeHandles() const {
  auto handles = std::make_unique<Handles>();
  handles->addresses.resize(firstOperand + post_ops);
  for (const PrimitiveStep& step : steps) {
    auto& memories = handles->memories.emplace_back();
    auto& arguments = handles->arguments.emplace_back();
    for (const Binding& binding : step.bindings) {
      memories.emplace_back(binding.layout, engine(), nullptr);
      arguments.push_back({binding.argument, memories.back().get()});
    }
  }
  return handles;
}

bool Sequence::packsLike(const Sequence& other) const {
  return packed_bytes == other.packed_bytes && b_ == other.b_ && packed_layout == other.packed_layout &&
         (own != nullptr) == (other.own != nullptr);
}

Status Sequence::packB(const void* b, void* packed) const {
  if (!packed_bytes)
    return Status(Code::internal, text + ": packB, but b is used as it is");
  return guarded(text, [&] {
    if (own) {
      const OneThread alone(one_thread);
      own->pack(b, packed);
      return Status();
    }
    const bool copied = b_ != b_dense_;
    AlignedBuffer copy(copied ? bytesOf(b_dense_) : 0);
    if (copied) {
      stridedCopy(b_, static_cast<const std::byte*>(b) + b_origin_, b_dense_, copy.data);
      b = copy.data;
    }
    dnnl::memory source(b_layout, engine(), const_cast<void*>(b));
    dnnl::memory target(packed_layout, engine(), packed);
    dnnl::reorder(*pack_).execute(stream(), source, target);
    return Status();
  });
}

Status Sequence::run(const Primitive::Arguments& call) const {
  if (empty)
    return Status();
  const OneThread alone(one_thread);
  return guarded(text, [&]() -> Status {
    std::unique_ptr<Handles> handles(spare_.exchange(nullptr));
    if (!handles)
      handles = makeHandles();
    auto& addresses = handles->addresses;
    auto* scratch = static_cast<std::byte*>(call.scratch);
    addresses[slotA] = const_cast<void*>(call.a);
    addresses[slotB] = const_cast<void*>(call.b);
    addresses[slotBias] = const_cast<void*>(call.bias);
    addresses[slotOut] = call.out;
    addresses[slotAlpha] = const_cast<float*>(&alpha);
    addresses[slotScratchpad] = scratch + scratchpad_offset_;
    addresses[slotWeights] = weights_offset ? scratch + *weights_offset
                             : call.b_given ? nullptr
                                            : const_cast<void*>(call.b);
    for (size_t i = 0; i < post_ops; ++i)
      addresses[firstOperand + i] =
          i < call.post_op_operands.size() ? const_cast<void*>(call.post_op_operands[i]) : nullptr;

    for (const Staging& staging : stagings_) {
      std::byte* inside = scratch + staging.offset;
      if (staging.zeroed)
        stridedZero(*staging.zeroed, inside);
      stridedCopy(staging.outside, static_cast<std::byte*>(addresses[staging.slot]) + staging.origin, staging.inside,
                  inside + staging.inner);
      addresses[staging.slot] = inside;
    }
    if (out_staging_)
      addresses[slotOut] = scratch + out_staging_->offset;
    if (zero_first)
      stridedZero(*zero_first, addresses[slotOut]);
    if (own)
      own->run(addresses, scratch);
    for (size_t s = 0; s < steps.size(); ++s) {
      const auto& bindings = steps[s].bindings;
      for (size_t i = 0; i < bindings.size(); ++i)
        handles->memories[s][i].set_data_handle(addresses[bindings[i].slot]);
      dnnl::error::wrap_c_api(dnnl_primitive_execute(steps[s].primitive.get(), stream().get(), int(bindings.size()),
                                                     handles->arguments[s].data()),
                              "could not execute a primitive");
    }
    if (own_tail)
      own_tail->run(addresses, scratch);
    if (out_staging_)
      stridedCopy(out_staging_->inside, addresses[slotOut], out_staging_->outside, call.out);
    delete spare_.exchange(handles.release());
    return Status();
  });
}

}  // namespace zefuse::primitives
