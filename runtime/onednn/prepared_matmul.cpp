#include "runtime/onednn/prepared_matmul.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/plan/plan_generated.h"
#include "runtime/onednn/descriptor.h"
#include "runtime/onednn/engine.h"
#include "runtime/onednn/strided_copy.h"

namespace zefuse::onednn {

namespace {

using dnnl::algorithm;
using plan::DType;
using plan::PostOpKind;

size_t aligned(size_t bytes) { return (bytes + 63) & ~size_t(63); }
size_t bytesOf(const TensorDesc& desc) { return size_t(elements(desc.sizes)) * (desc.dtype == DType::f32 ? 4 : 2); }

TensorDesc dense(const TensorDesc& desc, DType dtype) { return {dtype, desc.sizes, denseStrides(desc.sizes)}; }

// oneDNN describes tensors whose elements do not overlap.
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

// Rows or columns contiguous: what its fast implementations read.
bool describable(const TensorDesc& desc, bool rows_only) {
  size_t rank = desc.sizes.size();
  bool rows = desc.strides[rank - 1] == 1, columns = desc.strides[rank - 2] == 1;
  return (rows || (columns && !rows_only)) && distinct(desc);
}

bool isRow(const TensorDesc& desc) {  // one value per column, or one value
  for (size_t d = 0; d + 1 < desc.sizes.size(); ++d)
    if (desc.sizes[d] != 1)
      return false;
  return desc.strides.back() == 1;
}

bool isDense(const TensorDesc& desc) { return desc.strides == denseStrides(desc.sizes); }

struct Eltwise {
  algorithm kind;
  float alpha, beta;
};

// oneDNN's own relu turns NaN into 0, which would hide it. x * clamp(c * x, 0, 1) keeps it (and makes NaN of -inf);
// adding 0 then turns -0 into 0.
std::vector<Eltwise> eltwise(PostOpKind kind) {
  switch (kind) {
  case PostOpKind::relu: return {{algorithm::eltwise_hardswish, 3e38f, 0}, {algorithm::eltwise_linear, 1, 0}};
  case PostOpKind::gelu_erf: return {{algorithm::eltwise_gelu_erf, 0, 0}};
  case PostOpKind::gelu_tanh: return {{algorithm::eltwise_gelu_tanh, 0, 0}};
  case PostOpKind::silu: return {{algorithm::eltwise_swish, 1, 0}};
  case PostOpKind::tanh: return {{algorithm::eltwise_tanh, 0, 0}};
  default: return {{algorithm::eltwise_logistic, 0, 0}};
  }
}

// By oneDNN's names: "ref:any" multiplies element by element; "brg:..." (matmul) and "brgemm:..." (inner product) block
// for the caches and fuse everything, "gemm:..." sits between.
bool isReference(const std::string& name) { return name.rfind("ref", 0) == 0; }
bool isBlocked(const std::string& name) { return name.rfind("brg", 0) == 0; }

template <typename Description>
PrimitiveStep bind(const Description& description, dnnl::primitive primitive, const dnnl::memory::desc& a,
                   const dnnl::memory::desc& bias, const dnnl::memory::desc& out) {
  PrimitiveStep step{std::move(primitive),
                     {{DNNL_ARG_SRC, slotA, a},
                      {DNNL_ARG_WEIGHTS, slotB, description.weights_desc()},
                      {DNNL_ARG_DST, slotOut, out},
                      {DNNL_ARG_SCRATCHPAD, slotScratchpad, description.scratchpad_desc()}}};
  if (bias.get_ndims() > 0)
    step.bindings.push_back({DNNL_ARG_BIAS, slotBias, bias});
  return step;
}

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

}  // namespace

// One way to carry the product out: every tensor as oneDNN sees it.
struct PreparedMatmul::Plan {
  // After the product, in order: the bias if it is not oneDNN's own, then the post-ops.
  struct Tail {
    PostOpKind kind;
    int slot;  // of the operand of add and mul; -1: none
  };
  TensorDesc a, b, out;
  std::optional<TensorDesc> bias;
  std::vector<TensorDesc> operands;  // one per post-op, unused for those without
  bool native_bias = false;
  std::vector<Tail> tail;
  size_t fused = 0;  // how many of tail are post-ops of the product

  const TensorDesc& operand(const Tail& t) const {
    return t.slot == slotBias ? *bias : operands[size_t(t.slot - firstOperand)];
  }
};

// `widen`: bf16 computes in f32. `copy`: a, b and out through dense copies even where oneDNN could describe them.
PreparedMatmul::Plan PreparedMatmul::makePlan(bool widen, bool copy) const {
  auto fit = [&](const TensorDesc& tensor, bool as_is) {
    DType dtype = widen ? DType::f32 : tensor.dtype;
    return as_is && dtype == tensor.dtype ? tensor : dense(tensor, dtype);
  };
  Plan plan;
  bool operands = desc_.bias && !isRow(*desc_.bias);
  for (const PostOpDesc& op : desc_.post_ops)
    operands |= op.operand.has_value();
  // Fused operands and out are dense: oneDNN 3.2 computes wrong addresses for others in its generated code (seen: a
  // crash with out's memory in the order bac and an operand broadcast over the first two dimensions).
  plan.a = fit(desc_.a, !copy && describable(desc_.a, false));
  plan.b = fit(desc_.b, !copy && describable(desc_.b, false));
  plan.out = fit(desc_.out, !copy && describable(desc_.out, true) && (isDense(desc_.out) || !operands));
  if (desc_.bias) {
    bool narrow = desc_.bias->dtype != DType::f32 && plan.a.dtype == DType::f32;
    plan.bias = narrow ? dense(*desc_.bias, DType::f32) : fit(*desc_.bias, isDense(*desc_.bias));
    plan.native_bias = isRow(*plan.bias) && plan.bias->sizes.back() == desc_.out.sizes.back() && !zero_first_;
    if (!plan.native_bias)
      plan.tail.push_back({PostOpKind::add, slotBias});
  }
  for (size_t i = 0; i < desc_.post_ops.size(); ++i) {
    const PostOpDesc& op = desc_.post_ops[i];
    plan.operands.push_back(op.operand ? fit(*op.operand, isDense(*op.operand)) : TensorDesc());
    plan.tail.push_back({op.kind, op.operand ? int(firstOperand + i) : -1});
  }
  return plan;
}

// In order of preference: as it is; with dense copies of what oneDNN cannot take; computing in f32 on a CPU without
// bf16 instructions. Within each, as many post-ops fused as possible.
std::optional<PreparedMatmul::Plan> PreparedMatmul::search(std::string& why) {
  bool has_bf16 = desc_.a.dtype == DType::bf16 || (desc_.bias && desc_.bias->dtype == DType::bf16);
  for (const PostOpDesc& op : desc_.post_ops)
    has_bf16 |= op.operand && op.operand->dtype == DType::bf16;
  for (bool widen : {false, true})
    for (bool copy : {false, true}) {
      if (widen && !has_bf16)
        continue;
      Plan plan = makePlan(widen, copy);
      size_t most = zero_first_ ? 0 : plan.tail.size();
      for (plan.fused = most + 1; plan.fused-- > 0;)
        if (addProduct(plan, why) && addTail(plan, why))
          return plan;
    }
  return std::nullopt;
}

bool PreparedMatmul::addProduct(const Plan& plan, std::string& why) {
  if (zero_first_) {
    implementation_ = "zeros";
    return true;
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (desc_.fpmath == FpMath::bf16 && desc_.a.dtype == DType::f32)
    attr.set_fpmath_mode(dnnl::fpmath_mode::bf16);
  if (desc_.alpha != 1.0f)
    attr.set_scales_mask(DNNL_ARG_SRC, 0);
  dnnl::post_ops post_ops;
  std::vector<Binding> operands;
  for (size_t i = 0; i < plan.fused; ++i) {
    const Plan::Tail& tail = plan.tail[i];
    if (tail.slot >= 0) {
      operands.push_back(
          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops.len()) | DNNL_ARG_SRC_1, tail.slot, memoryDesc(plan.operand(tail))});
      post_ops.append_binary(tail.kind == PostOpKind::add ? algorithm::binary_add : algorithm::binary_mul,
                             memoryDesc(plan.operand(tail)));
    } else {
      for (Eltwise op : eltwise(tail.kind))
        post_ops.append_eltwise(op.kind, op.alpha, op.beta);
    }
  }
  attr.set_post_ops(post_ops);

  auto a = memoryDesc(plan.a), b = memoryDesc(plan.b), out = memoryDesc(plan.out);
  auto wanted_b =
      desc_.pack_b ? dnnl::memory::desc(plan.b.sizes, dataType(plan.b.dtype), dnnl::memory::format_tag::any) : b;
  dnnl::memory::desc bias = plan.native_bias ? memoryDesc(*plan.bias) : dnnl::memory::desc();
  dnnl::matmul::primitive_desc description(engine(), a, wanted_b, bias, out, attr, /*allow_empty=*/true);
  bool fast = description && isBlocked(description.impl_info_str());

  PrimitiveStep step;
  // Without AVX-512 oneDNN 3.2 has no blocked matmul, but a blocked inner product (measured: up to a third faster).
  if (!fast && desc_.pack_b && plan.a.sizes.size() == 2 && isDense(plan.a) && isDense(plan.out) &&
      desc_.alpha == 1.0f) {
    const auto &sizes = plan.b.sizes, &strides = plan.b.strides;
    dnnl::memory::dims weights{sizes[1], sizes[0]};
    auto type = dataType(plan.b.dtype);
    dnnl::memory::desc row =
        plan.native_bias ? dnnl::memory::desc({sizes[1]}, dataType(plan.bias->dtype), {1}) : dnnl::memory::desc();
    dnnl::inner_product_forward::primitive_desc inner(engine(), dnnl::prop_kind::forward_inference, a,
                                                      {weights, type, dnnl::memory::format_tag::any}, row, out, attr,
                                                      /*allow_empty=*/true);
    if (inner && isBlocked(inner.impl_info_str())) {
      implementation_ = inner.impl_info_str();
      step = bind(inner, dnnl::inner_product_forward(inner), a, row, out);
      b_layout_ = {weights, type, {strides[1], strides[0]}};
      packed_layout_ = inner.weights_desc();
    }
  }
  if (!step.primitive) {
    if (!description) {
      why = "oneDNN has no implementation for these types on this CPU";
      return false;
    }
    implementation_ = description.impl_info_str();
    if (isReference(implementation_)) {
      why = "only oneDNN's reference implementation";
      return false;
    }
    step = bind(description, dnnl::matmul(description), a, bias, out);
    b_layout_ = b;
    packed_layout_ = description.weights_desc();
  }
  if (desc_.alpha != 1.0f)
    step.bindings.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, slotAlpha, {{1}, dnnl::memory::data_type::f32, {1}}});
  step.bindings.insert(step.bindings.end(), operands.begin(), operands.end());
  steps_.push_back(std::move(step));
  return true;
}

// Post-ops that are not fused, as primitives of their own, in place on out.
bool PreparedMatmul::addTail(const Plan& plan, std::string& why) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  auto out = memoryDesc(plan.out);
  // False when oneDNN has no such primitive; then the whole attempt is void.
  auto add = [&](const auto& description, auto make, const Plan::Tail& tail, std::vector<Binding> bindings) {
    if (!description) {
      why = std::string("oneDNN has no ") + plan::EnumNamePostOpKind(tail.kind) + " for these types on this CPU";
      steps_.clear();
      return false;
    }
    bindings.push_back({DNNL_ARG_DST, slotOut, out});
    bindings.push_back({DNNL_ARG_SCRATCHPAD, slotScratchpad, description.scratchpad_desc()});
    steps_.push_back({make(description), std::move(bindings)});
    return true;
  };
  for (size_t i = plan.fused; i < plan.tail.size(); ++i) {
    const Plan::Tail& tail = plan.tail[i];
    implementation_ += std::string("; then ") + plan::EnumNamePostOpKind(tail.kind);
    if (tail.slot >= 0) {
      auto operand = memoryDesc(plan.operand(tail));
      dnnl::binary::primitive_desc description(
          engine(), tail.kind == PostOpKind::add ? algorithm::binary_add : algorithm::binary_mul, out, operand, out,
          attr, /*allow_empty=*/true);
      if (!add(description, [](auto& d) { return dnnl::binary(d); }, tail,
               {{DNNL_ARG_SRC_0, slotOut, out}, {DNNL_ARG_SRC_1, tail.slot, operand}}))
        return false;
    } else {
      for (Eltwise op : eltwise(tail.kind)) {
        dnnl::eltwise_forward::primitive_desc description(engine(), dnnl::prop_kind::forward_inference, op.kind, out,
                                                          out, op.alpha, op.beta, attr, /*allow_empty=*/true);
        if (!add(description, [](auto& d) { return dnnl::eltwise_forward(d); }, tail, {{DNNL_ARG_SRC, slotOut, out}}))
          return false;
      }
    }
  }
  return true;
}

Result<std::shared_ptr<const Matmul>> PreparedMatmul::build(const MatmulDesc& desc) {
  auto self = std::shared_ptr<PreparedMatmul>(new PreparedMatmul(desc));
  if (elements(desc.out.sizes) == 0) {
    self->empty_ = true;
    self->implementation_ = "empty";
    return std::shared_ptr<const Matmul>(std::move(self));
  }
  self->zero_first_ = desc.a.sizes.back() == 0;

  std::optional<Plan> found;
  Status status = guarded(self->text_, [&]() -> Status {
    std::string why;
    found = self->search(why);
    return found ? Status() : Status(Code::unsupported, self->text_ + ": " + why);
  });
  if (!status.ok())
    return status;
  const Plan& plan = *found;

  // Copies and scratch.
  size_t offset = 0;
  auto stage = [&](int slot, const TensorDesc& outside, const TensorDesc& inside,
                   const char* name) -> std::optional<Staging> {
    if (outside == inside)
      return std::nullopt;
    self->implementation_ += std::string("; copies ") + name;
    Staging staging{slot, outside, inside, offset};
    offset += aligned(bytesOf(inside));
    return staging;
  };
  auto stageOperand = [&](int slot, const TensorDesc& outside, const TensorDesc& inside, const char* name) {
    if (auto staging = stage(slot, outside, inside, name))
      self->stagings_.push_back(std::move(*staging));
  };
  if (!self->zero_first_) {
    stageOperand(slotA, desc.a, plan.a, "a");
    self->b_dense_ = plan.b;
    self->b_copied_ = desc.b != plan.b;
    bool packs = desc.pack_b && (self->b_copied_ || self->packed_layout_ != self->b_layout_);
    if (packs) {
      self->packed_bytes_ = self->packed_layout_.get_size();
      status = guarded(self->text_, [&] {
        dnnl::reorder::primitive_desc description(engine(), self->b_layout_, engine(), self->packed_layout_);
        self->pack_ = dnnl::reorder(description);
        return Status();
      });
      if (!status.ok())
        return status;
    } else {
      stageOperand(slotB, desc.b, plan.b, "b");
    }
  }
  if (desc.bias)
    stageOperand(slotBias, *desc.bias, *plan.bias, "bias");
  for (size_t i = 0; i < desc.post_ops.size(); ++i)
    if (desc.post_ops[i].operand)
      stageOperand(int(firstOperand + i), *desc.post_ops[i].operand, plan.operands[i], "a post-op operand");
  self->out_staging_ = stage(slotOut, desc.out, plan.out, "out");
  self->scratchpad_offset_ = offset;
  size_t scratchpad = 0;
  for (const PrimitiveStep& step : self->steps_)
    for (const Binding& binding : step.bindings)
      if (binding.slot == slotScratchpad)
        scratchpad = std::max(scratchpad, binding.layout.get_size());
  self->scratch_bytes_ = offset + aligned(scratchpad);
  return std::shared_ptr<const Matmul>(std::move(self));
}

PreparedMatmul::PreparedMatmul(const MatmulDesc& desc) : desc_(desc), text_(toString(desc)) {}

PreparedMatmul::~PreparedMatmul() { delete spare_.load(); }

std::unique_ptr<PreparedMatmul::Handles> PreparedMatmul::makeHandles() const {
  auto handles = std::make_unique<Handles>();
  handles->addresses.resize(firstOperand + desc_.post_ops.size());
  for (const PrimitiveStep& step : steps_) {
    auto& memories = handles->memories.emplace_back();
    auto& arguments = handles->arguments.emplace_back();
    for (const Binding& binding : step.bindings) {
      memories.emplace_back(binding.layout, engine(), nullptr);
      arguments.push_back({binding.argument, memories.back().get()});
    }
  }
  return handles;
}

bool PreparedMatmul::packsLike(const Matmul& other) const {
  const auto* that = dynamic_cast<const PreparedMatmul*>(&other);
  return that && packed_bytes_ == that->packed_bytes_ && desc_.b == that->desc_.b &&
         packed_layout_ == that->packed_layout_;
}

Status PreparedMatmul::packB(const void* b, void* packed) const {
  if (!packed_bytes_)
    return Status(Code::internal, text_ + ": packB, but b is used as it is");
  return guarded(text_, [&] {
    AlignedBuffer copy(b_copied_ ? bytesOf(b_dense_) : 0);
    if (b_copied_) {
      stridedCopy(desc_.b, b, b_dense_, copy.data);
      b = copy.data;
    }
    dnnl::memory source(b_layout_, engine(), const_cast<void*>(b));
    dnnl::memory target(packed_layout_, engine(), packed);
    dnnl::reorder(*pack_).execute(stream(), source, target);
    return Status();
  });
}

Status PreparedMatmul::run(const Arguments& call) const {
  if (empty_)
    return Status();
  return guarded(text_, [&]() -> Status {
    std::unique_ptr<Handles> handles(spare_.exchange(nullptr));
    if (!handles)
      handles = makeHandles();
    auto& addresses = handles->addresses;
    auto* scratch = static_cast<std::byte*>(call.scratch);
    addresses[slotA] = const_cast<void*>(call.a);
    addresses[slotB] = const_cast<void*>(call.b);
    addresses[slotBias] = const_cast<void*>(call.bias);
    addresses[slotOut] = call.out;
    addresses[slotAlpha] = const_cast<float*>(&desc_.alpha);
    addresses[slotScratchpad] = scratch + scratchpad_offset_;
    for (size_t i = 0; i < desc_.post_ops.size(); ++i)
      addresses[firstOperand + i] =
          i < call.post_op_operands.size() ? const_cast<void*>(call.post_op_operands[i]) : nullptr;

    for (const Staging& staging : stagings_) {
      void* inside = scratch + staging.offset;
      stridedCopy(staging.outside, addresses[staging.slot], staging.inside, inside);
      addresses[staging.slot] = inside;
    }
    if (out_staging_)
      addresses[slotOut] = scratch + out_staging_->offset;
    if (zero_first_)
      stridedZero(out_staging_ ? out_staging_->inside : desc_.out, addresses[slotOut]);
    for (size_t s = 0; s < steps_.size(); ++s) {
      const auto& bindings = steps_[s].bindings;
      for (size_t i = 0; i < bindings.size(); ++i)
        handles->memories[s][i].set_data_handle(addresses[bindings[i].slot]);
      dnnl::error::wrap_c_api(dnnl_primitive_execute(steps_[s].primitive.get(), stream().get(), int(bindings.size()),
                                                     handles->arguments[s].data()),
                              "could not execute a primitive");
    }
    if (out_staging_)
      stridedCopy(out_staging_->inside, addresses[slotOut], out_staging_->outside, call.out);
    delete spare_.exchange(handles.release());
    return Status();
  });
}

}  // namespace zefuse::onednn
