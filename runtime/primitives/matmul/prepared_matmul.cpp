#include "runtime/primitives/matmul/prepared_matmul.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "common/base/fork.h"
#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/engine.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

namespace {

using dnnl::algorithm;
using plan::DType;
using plan::LibraryWay;
using plan::PostOpKind;

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

// By oneDNN's names: "brg:..." (matmul) and "brgemm:..." (inner product) block for the caches and fuse everything,
// "gemm:..." does not.
bool isBlocked(const std::string& name) { return name.rfind("brg", 0) == 0; }

// Whose right side nobody packs (a training step's), so that a blocked product copies both sides in each call, slowly
// where rows are wide: x^T y of 768x256x3072 took 13.0 ms and gemm 6.9, x w of 256x3072x768 9.3 and 7.9 (f32, one
// thread of a Sapphire Rapids, oneDNN 3.2). Of twelve other forms gemm was 12 % behind in one, 512x64x512 with y = x w,
// and within 3 % or ahead in the others.
bool prefersGemm(const MatmulDesc& desc, const TensorDesc& a, const TensorDesc& b) {
  constexpr double large = 1 << 24;
  if (desc.pack_b || desc.fpmath != FpMath::strict || desc.alpha != 1.0f || a.sizes.size() != 2)
    return false;
  for (const TensorDesc* each : {&desc.a, &desc.b, &desc.out})
    if (each->dtype != DType::f32)
      return false;
  return double(a.sizes[0]) * double(a.sizes[1]) * double(b.sizes[1]) >= large;
}

// oneDNN's first implementation whose name begins so, if it has one for this product; else the description is made
// again: copies of one are the same object inside, so what was passed over is gone.
template <typename Make> void take(dnnl::matmul::primitive_desc& description, std::string_view name, const Make& make) {
  do {
    if (std::string_view(description.impl_info_str()).starts_with(name))
      return;
  } while (description.next_impl());
  description = make();
}

enum class Bf16Products { none, of_bf16, of_f32_too };

// What the CPU multiplies. In AMX's tiles oneDNN rounds operands of f32 by itself; with AVX-512's instructions alone it
// computes in f32 whatever is permitted.
Bf16Products bf16Products() {
  return hasIsa(dnnl_cpu_isa_avx512_core_amx)    ? Bf16Products::of_f32_too
         : hasIsa(dnnl_cpu_isa_avx512_core_bf16) ? Bf16Products::of_bf16
                                                 : Bf16Products::none;
}

// Whether a product in half the time makes up for its operands' copies as bf16: of b once where it is packed. One
// thread of a Zen 5, oneDNN 3.2: 240 GFLOP/s of f32, 480 of bf16; a copied number takes as long as 64 products.
bool worthNarrowing(const TensorDesc& a, const TensorDesc& b, bool pack_b) {
  constexpr double copy = 64, least = 1 << 17;
  const double m = double(a.sizes[a.sizes.size() - 2]), k = double(a.sizes.back()), n = double(b.sizes.back());
  return k >= 32 && m * n * k >= least && m * n >= copy * (m + (pack_b ? 0 : n));
}

// How long one thread takes: as it multiplies (MACs a nanosecond on a Xeon with AMX, on a Zen 5 without, both of f32)
// or reads. Batches of small products are slower.
double nanoseconds(const MatmulDesc& desc) {
  const bool narrow = desc.a.dtype != DType::f32 || desc.fpmath == FpMath::bf16;
  const Bf16Products narrow_products = bf16Products();
  double rate = 80;
  if (desc.out.sizes.size() > 2)
    rate = 40;
  else if (narrow && narrow_products != Bf16Products::none)
    rate = narrow_products == Bf16Products::of_f32_too ? 500 : 150;
  const double products = double(elements(desc.out.sizes)) * double(desc.a.sizes.back());
  constexpr double bytes_per_nanosecond = 20;
  double bytes = 0;
  for (const TensorDesc* each : {&desc.a, &desc.b, &desc.out})
    bytes += double(bytesOf(*each));
  return std::max(products / rate, bytes / bytes_per_nanosecond);
}

// The same order in memory, without gaps.
TensorDesc compact(const TensorDesc& tensor, DType dtype) {
  std::vector<size_t> order(tensor.sizes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return tensor.strides[x] != tensor.strides[y] ? tensor.strides[x] > tensor.strides[y] : x < y;
  });
  TensorDesc result{dtype, tensor.sizes, tensor.strides};
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0; stride *= std::max<int64_t>(tensor.sizes[order[i]], 1))
    result.strides[order[i]] = stride;
  return result;
}

// Matrices one behind the other, in which rows or columns are contiguous as they were.
TensorDesc inMatrices(const TensorDesc& tensor, DType dtype) {
  TensorDesc result = dense(tensor, dtype);
  const size_t row = tensor.sizes.size() - 2, column = row + 1;
  if (tensor.strides[column] != 1 && tensor.strides[row] == 1) {
    result.strides[row] = 1;
    result.strides[column] = std::max<int64_t>(tensor.sizes[row], 1);
  }
  return result;
}

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

}  // namespace

// One way to carry the product out: every tensor as oneDNN sees it.
struct PreparedMatmul::Plan {
  TensorDesc a, b, out;
  std::optional<TensorDesc> bias;
  std::vector<TensorDesc> operands;  // one per post-op, unused for those without
  bool native_bias = false;
  std::vector<TailOp> tail;  // after the product, in order: the bias if it is not oneDNN's own, then the post-ops
  size_t fused = 0;          // how many of tail are post-ops of the product
};

PreparedMatmul::Plan PreparedMatmul::makePlan(Computing computing, Layout layout) const {
  auto fit = [&](const TensorDesc& tensor, bool as_is) {
    DType dtype = computing == Computing::wide ? DType::f32 : tensor.dtype;
    if (!as_is)
      return dense(tensor, dtype);
    return dtype == tensor.dtype ? tensor : compact(tensor, dtype);
  };
  Plan plan;
  bool operands = desc_.bias && !isRow(*desc_.bias);
  for (const PostOpDesc& op : desc_.post_ops)
    operands |= op.operand.has_value();
  // Fused operands and out are dense: oneDNN 3.2 computes wrong addresses for others in its generated code (seen: a
  // crash with out's memory in the order bac and an operand broadcast over the first two dimensions).
  auto operand = [&](const TensorDesc& tensor) {
    TensorDesc fitting = layout == Layout::matrices
                             ? inMatrices(tensor, computing == Computing::wide ? DType::f32 : tensor.dtype)
                             : fit(tensor, layout == Layout::given && describable(tensor, false));
    if (computing == Computing::narrow)
      fitting = compact(fitting, DType::bf16);
    return fitting;
  };
  plan.a = operand(desc_.a);
  plan.b = operand(desc_.b);
  plan.out =
      fit(desc_.out, layout != Layout::dense && describable(desc_.out, true) && (isDense(desc_.out) || !operands));
  if (desc_.bias) {
    bool narrow = desc_.bias->dtype != DType::f32 && plan.a.dtype == DType::f32;
    plan.bias = narrow ? dense(*desc_.bias, DType::f32) : fit(*desc_.bias, isDense(*desc_.bias));
    plan.native_bias = isRow(*plan.bias) && plan.bias->sizes.back() == desc_.out.sizes.back() && !no_inner_;
    if (!plan.native_bias)
      plan.tail.push_back({PostOpKind::add, slotBias, *plan.bias});
  }
  for (size_t i = 0; i < desc_.post_ops.size(); ++i) {
    const PostOpDesc& op = desc_.post_ops[i];
    plan.operands.push_back(op.operand ? fit(*op.operand, isDense(*op.operand)) : TensorDesc());
    plan.tail.push_back({op.kind, op.operand ? int(firstOperand + i) : -1, plan.operands.back()});
  }
  return plan;
}

std::optional<PreparedMatmul::Plan> PreparedMatmul::planned(Computing computing, Layout layout, std::string& why) {
  sequence_.steps.clear();
  sequence_.scratch_bytes = 0;
  Plan plan = makePlan(computing, layout);
  const size_t most = no_inner_ ? 0 : plan.tail.size();
  for (plan.fused = most + 1; plan.fused-- > 0;)
    if (addProduct(plan, why) && appendTail(sequence_, plan.tail, plan.fused, plan.out, why))
      return plan;
  return std::nullopt;
}

// Many small products of bf16 whose operands are cut out of wider rows, as queries and keys of one projection are:
// oneDNN has none but gemm for those, which with AMX takes 2.0 ms for 12 of 128x64x128 on a Xeon (family 6, model 207),
// where the blocked one takes 0.1. Without AMX (Zen 5) it is 77 us and 60, which the copies cost.
bool PreparedMatmul::mayGainByCopies(const Plan& planned) const {
  const auto &a = planned.a, &b = planned.b;
  if (desc_.pack_b || a.sizes.size() < 3 || a.dtype != DType::bf16 || b.dtype != DType::bf16 ||
      isBlocked(sequence_.implementation))
    return false;
  if (desc_.way != LibraryWay::automatic)
    return desc_.way == LibraryWay::blocked;
  constexpr double copy = 4;  // a copied number takes as long as so many products by gemm
  const double m = double(a.sizes[a.sizes.size() - 2]), n = double(b.sizes.back());
  return bf16Products() == Bf16Products::of_f32_too && m * n > copy * (m + n);
}

// In order of preference: operands rounded to bf16 where that is permitted and pays; as it is; with dense copies of
// what oneDNN cannot take; computing in f32 on a CPU without instructions for bf16 or f16.
std::optional<PreparedMatmul::Plan> PreparedMatmul::search(std::string& why) {
  bool has_narrow = desc_.a.dtype != DType::f32 || (desc_.bias && desc_.bias->dtype != DType::f32);
  for (const PostOpDesc& op : desc_.post_ops)
    has_narrow |= op.operand && op.operand->dtype != DType::f32;
  for (Computing computing : {Computing::narrow, Computing::given, Computing::wide}) {
    if (computing == Computing::wide ? !has_narrow : computing == Computing::narrow && !narrow_)
      continue;
    std::optional<Plan> found = planned(computing, Layout::given, why);
    if (found && mayGainByCopies(*found)) {
      std::string unused;
      std::optional<Plan> copied = planned(computing, Layout::matrices, unused);
      found = copied && isBlocked(sequence_.implementation) ? copied : planned(computing, Layout::given, why);
    }
    if (!found)
      found = planned(computing, Layout::dense, why);
    if (found)
      return found;
  }
  return std::nullopt;
}

bool PreparedMatmul::addProduct(const Plan& plan, std::string& why) {
  if (no_inner_) {
    sequence_.implementation = "zeros";
    return true;
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (desc_.fpmath == FpMath::bf16 && plan.a.dtype == DType::f32)
    attr.set_fpmath_mode(dnnl::fpmath_mode::bf16);
  if (desc_.alpha != 1.0f)
    attr.set_scales_mask(DNNL_ARG_SRC, 0);
  dnnl::post_ops post_ops;
  std::vector<Binding> operands;
  appendPostOps(plan.tail, plan.fused, post_ops, operands);
  attr.set_post_ops(post_ops);

  auto a = memoryDesc(plan.a), b = memoryDesc(plan.b), out = memoryDesc(plan.out);
  auto wanted_b =
      desc_.pack_b ? dnnl::memory::desc(plan.b.sizes, dataType(plan.b.dtype), dnnl::memory::format_tag::any) : b;
  dnnl::memory::desc bias = plan.native_bias ? memoryDesc(*plan.bias) : dnnl::memory::desc();
  auto describe = [&] {
    return dnnl::matmul::primitive_desc(engine(), a, wanted_b, bias, out, attr, /*allow_empty=*/true);
  };
  dnnl::matmul::primitive_desc description = describe();
  const bool automatic = desc_.way == LibraryWay::automatic;
  if (description && (automatic ? prefersGemm(desc_, plan.a, plan.b) : desc_.way == LibraryWay::gemm))
    take(description, "gemm:jit", describe);
  else if (description && desc_.way == LibraryWay::blocked)
    take(description, "brg", describe);
  bool fast =
      description && (automatic ? isBlocked(description.impl_info_str()) : desc_.way != LibraryWay::inner_product);

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
      sequence_.implementation = inner.impl_info_str();
      step = bind(inner, dnnl::inner_product_forward(inner), a, row, out);
      sequence_.b_layout = {weights, type, {strides[1], strides[0]}};
      sequence_.packed_layout = inner.weights_desc();
    }
  }
  if (!step.primitive) {
    if (!description) {
      why = "oneDNN has no implementation for these types on this CPU";
      return false;
    }
    sequence_.implementation = description.impl_info_str();
    if (isReference(sequence_.implementation)) {
      why = "only oneDNN's reference implementation";
      return false;
    }
    step = bind(description, dnnl::matmul(description), a, bias, out);
    sequence_.b_layout = b;
    sequence_.packed_layout = description.weights_desc();
  }
  if (desc_.alpha != 1.0f)
    step.bindings.push_back({DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, slotAlpha, {{1}, dnnl::memory::data_type::f32, {1}}});
  step.bindings.insert(step.bindings.end(), operands.begin(), operands.end());
  sequence_.steps.push_back(std::move(step));
  return true;
}

Result<std::shared_ptr<const Matmul>> PreparedMatmul::build(const MatmulDesc& desc) {
  auto self = std::shared_ptr<PreparedMatmul>(new PreparedMatmul(desc));
  Sequence& sequence = self->sequence_;
  if (elements(desc.out.sizes) == 0) {
    sequence.empty = true;
    sequence.implementation = "empty";
    return std::shared_ptr<const Matmul>(std::move(self));
  }
  self->no_inner_ = desc.a.sizes.back() == 0;
  sequence.one_thread = threadsWorth(nanoseconds(desc), maxThreads()) == 1;
  const OneThread alone(sequence.one_thread);

  Status status = guarded(sequence.text, [&]() -> Status {
    const WithoutFork without_fork;  // oneDNN's caches have locks of their own, and promises that this thread keeps
    std::string why;
    std::optional<Plan> found = self->search(why);
    if (!found)
      return Status(Code::unsupported, sequence.text + ": " + why);
    const Plan& plan = *found;
    if (!self->no_inner_) {
      sequence.stageOperand(slotA, desc.a, plan.a, "a");
      if (desc.pack_b && (desc.b != plan.b || sequence.packed_layout != sequence.b_layout))
        sequence.preparePacking(desc.b, plan.b);
      else
        sequence.stageOperand(slotB, desc.b, plan.b, "b");
    }
    if (desc.bias)
      sequence.stageOperand(slotBias, *desc.bias, *plan.bias, "bias");
    for (size_t i = 0; i < desc.post_ops.size(); ++i)
      if (desc.post_ops[i].operand)
        sequence.stageOperand(int(firstOperand + i), *desc.post_ops[i].operand, plan.operands[i], "a post-op operand");
    sequence.stageOut(desc.out, plan.out);
    if (self->no_inner_)
      sequence.zero_first = plan.out;
    sequence.placeScratchpad();
    return Status();
  });
  if (!status.ok())
    return status;
  return std::shared_ptr<const Matmul>(std::move(self));
}

PreparedMatmul::PreparedMatmul(const MatmulDesc& desc) : Prepared(toString(desc)), desc_(desc) {
  if (desc.fpmath == FpMath::bf16 && bf16Products() != Bf16Products::of_f32_too) {
    narrow_ = bf16Products() == Bf16Products::of_bf16 && desc.a.dtype == DType::f32 && desc.b.dtype == DType::f32 &&
              desc.out.dtype == DType::f32 && worthNarrowing(desc.a, desc.b, desc.pack_b);
    desc_.fpmath = FpMath::strict;
  }
  sequence_.post_ops = desc.post_ops.size();
  sequence_.alpha = desc.alpha;
}

}  // namespace zefuse::primitives
