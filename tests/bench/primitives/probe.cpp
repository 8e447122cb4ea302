// A C interface to primitives::Matmul for matmul.py, and the inner_product primitive it is measured against.
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <optional>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/engine.h"
#include "runtime/primitives/matmul/matmul.h"

using namespace zefuse;

namespace {

thread_local std::string lastError;

struct Probe {
  std::shared_ptr<const primitives::Matmul> matmul;
  void* packed = nullptr;
  void* scratch = nullptr;
};

void* allocate(size_t bytes) { return std::aligned_alloc(64, (bytes + 127) & ~size_t(63)); }

// rank, sizes..., strides...; nullptr for none
primitives::TensorDesc read(plan::DType dtype, const int64_t* geometry) {
  int64_t rank = geometry[0];
  return {dtype, {geometry + 1, geometry + 1 + rank}, {geometry + 1 + rank, geometry + 1 + 2 * rank}};
}

struct InnerProduct {
  dnnl::inner_product_forward primitive;
  dnnl::memory a, packed, bias, out, scratchpad;
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* probe_error() { return lastError.c_str(); }

EXPORT void* probe_create(int bf16, const int64_t* a, const int64_t* b, const int64_t* out, const int64_t* bias,
                          const int* kinds, const int64_t* const* operands, int post_ops, float alpha, int pack,
                          int bf16_math, const void* b_data, int out_f32, int way) {
  plan::DType dtype = bf16 ? plan::DType::bf16 : plan::DType::f32;
  primitives::MatmulDesc desc;
  desc.a = read(dtype, a);
  desc.b = read(dtype, b);
  desc.out = read(out_f32 ? plan::DType::f32 : dtype, out);
  desc.way = plan::LibraryWay(way);
  if (bias)
    desc.bias = read(dtype, bias);
  for (int i = 0; i < post_ops; ++i)
    desc.post_ops.push_back(
        {plan::PostOpKind(kinds[i]), operands[i] ? std::optional(read(dtype, operands[i])) : std::nullopt});
  desc.alpha = alpha;
  desc.pack_b = pack;
  desc.fpmath = bf16_math ? primitives::FpMath::bf16 : primitives::FpMath::strict;
  auto matmul = primitives::Matmul::get(desc);
  if (!matmul.ok()) {
    lastError = matmul.status().toString();
    return nullptr;
  }
  auto* probe = new Probe{*matmul};
  probe->scratch = allocate(probe->matmul->scratchBytes());
  if (probe->matmul->packedBytes()) {
    probe->packed = allocate(probe->matmul->packedBytes());
    (void)probe->matmul->packB(b_data, probe->packed);
  }
  return probe;
}

EXPORT const char* probe_implementation(Probe* probe) { return probe->matmul->implementation().c_str(); }

// For contents that are used once: packed for this call, or as they are.
EXPORT int probe_run_once(Probe* probe, const void* a, const void* b, const void* bias, void* out) {
  const bool given = probe->matmul->takesGivenB();
  if (probe->packed && !given && !probe->matmul->packB(b, probe->packed).ok())
    return false;
  const void* right = probe->packed && !given ? probe->packed : b;
  return probe->matmul->run({a, right, bias, out, {}, probe->scratch, {}, {}, given}).ok();
}

EXPORT int probe_run(Probe* probe, const void* a, const void* b, const void* bias, void* out, const void* operand) {
  const void* operands[4] = {operand, operand, operand, operand};
  return probe->matmul->run({a, probe->packed ? probe->packed : b, bias, out, operands, probe->scratch}).ok();
}

// [m, k] x [n, k]^T + [n]
EXPORT void* ip_create(int bf16, int64_t m, int64_t k, int64_t n, const void* weight) {
  using dnnl::memory;
  auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const auto& engine = primitives::engine();
  memory::desc a({m, k}, type, memory::format_tag::nc), out({m, n}, type, memory::format_tag::nc),
      bias({n}, type, memory::format_tag::x), plain({n, k}, type, memory::format_tag::oi),
      any({n, k}, type, memory::format_tag::any);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::inner_product_forward::primitive_desc description(engine, dnnl::prop_kind::forward_inference, a, any, bias, out,
                                                          attr);
  auto* ip = new InnerProduct{dnnl::inner_product_forward(description),
                              {a, engine, nullptr},
                              {description.weights_desc(), engine},
                              {bias, engine, nullptr},
                              {out, engine, nullptr},
                              {description.scratchpad_desc(), engine}};
  memory source(plain, engine, const_cast<void*>(weight));
  dnnl::reorder(source, ip->packed).execute(primitives::stream(), source, ip->packed);
  return ip;
}

EXPORT void ip_run(InnerProduct* ip, const void* a, const void* bias, void* out) {
  ip->a.set_data_handle(const_cast<void*>(a));
  ip->bias.set_data_handle(const_cast<void*>(bias));
  ip->out.set_data_handle(out);
  ip->primitive.execute(primitives::stream(), {{DNNL_ARG_SRC, ip->a},
                                               {DNNL_ARG_WEIGHTS, ip->packed},
                                               {DNNL_ARG_BIAS, ip->bias},
                                               {DNNL_ARG_DST, ip->out},
                                               {DNNL_ARG_SCRATCHPAD, ip->scratchpad}});
}
