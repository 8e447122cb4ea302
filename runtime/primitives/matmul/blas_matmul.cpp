#include "runtime/primitives/matmul/blas_matmul.h"

#include <algorithm>
#include <dlfcn.h>
#include <limits>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/matmul/matmul_tail.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

using plan::LibraryWay;

namespace {

// Fortran's interface, of 32-bit integers: matrices are column by column.
using Sgemm = void(const char* transposed_a, const char* transposed_b, const int* m, const int* n, const int* k,
                   const float* alpha, const float* a, const int* a_stride, const float* b, const int* b_stride,
                   const float* beta, float* c, const int* c_stride);

// torch's, whose symbols are not in everybody's reach; null where it is no MKL, or not in this process.
Sgemm* sgemm() {
  static Sgemm* const found = []() -> Sgemm* {
    void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library || !dlsym(library, "MKL_Get_Version_String"))
      return nullptr;
    return reinterpret_cast<Sgemm*>(dlsym(library, "sgemm_"));
  }();
  return found;
}

// One thread of a Xeon (family 6, model 207) with AVX2 alone, ms of oneDNN's packed inner product or, not packed, its
// gemm, and MKL's: 128x768x3072 6.7, 5.4; 128x3072x768 6.2, 5.6; not packed 256x768x3072 12.8, 10.4, 768x256x3072 10.5,
// 10.2; packed 32x768x768 0.51 (all of a call) and 0.52. MKL has other loops for other makers' processors.
bool pays(const MatmulDesc& desc) {
  static const bool slower_without = __builtin_cpu_is("intel") && !hasIsa(dnnl_cpu_isa_avx512_core);
  constexpr double least = 1 << 18;  // products: a call and the result's second pass
  constexpr int64_t fewest_packed_rows = 64;
  return slower_without && (!desc.pack_b || desc.out.sizes[0] >= fewest_packed_rows) &&
         double(desc.out.sizes[0]) * double(desc.out.sizes[1]) * double(desc.a.sizes.back()) >= least;
}

}  // namespace

std::optional<BlasMatmul::Operand> BlasMatmul::operandOf(const TensorDesc& desc) {
  const int64_t row = desc.strides[0], column = desc.strides[1];
  const bool rows = column == 1;
  const int64_t stride = rows ? row : column, length = rows ? desc.sizes[1] : desc.sizes[0];
  if ((!rows && row != 1) || stride < std::max<int64_t>(length, 1) || stride > std::numeric_limits<int>::max())
    return std::nullopt;
  return Operand{rows ? 'n' : 't', int(stride)};
}

Result<std::shared_ptr<const Matmul>> BlasMatmul::build(const MatmulDesc& desc) {
  const bool wanted = desc.way == LibraryWay::blas;
  if (!(wanted || desc.way == LibraryWay::automatic) || desc.out.sizes.size() != 2 || !endsInPlace(desc) ||
      desc.fpmath != FpMath::strict || elements(desc.out.sizes) == 0 || desc.a.sizes.back() == 0 ||
      !(wanted || pays(desc)) || !sgemm())
    return std::shared_ptr<const Matmul>();
  const std::optional<Operand> a = operandOf(desc.a), b = operandOf(desc.b), out = operandOf(desc.out);
  const int64_t largest = std::max({desc.out.sizes[0], desc.out.sizes[1], desc.a.sizes[1]});
  if (!a || !b || !out || out->transposed != 'n' || largest > std::numeric_limits<int>::max())
    return std::shared_ptr<const Matmul>();
  auto self = std::shared_ptr<BlasMatmul>(new BlasMatmul(desc));
  self->a_ = *a;
  self->b_ = *b;
  if (!prepareTail(self->sequence_, desc))
    return std::shared_ptr<const Matmul>();
  return std::shared_ptr<const Matmul>(std::move(self));
}

BlasMatmul::BlasMatmul(const MatmulDesc& desc)
    : Prepared(toString(desc)), desc_(desc), native_bias_(isColumnBias(desc)) {
  sequence_.implementation = "mkl:sgemm";
  const double products = double(desc.out.sizes[0] * desc.out.sizes[1]) * double(desc.a.sizes[1]);
  constexpr double products_per_nanosecond = 45;
  sequence_.one_thread = threadsWorth(products / products_per_nanosecond, maxThreads()) == 1;
}

// The result column by column is its transpose: out' = b' a'.
Status BlasMatmul::run(const Primitive::Arguments& arguments) const {
  const OneThread alone(sequence_.one_thread);
  auto* out = static_cast<float*>(arguments.out);
  const int m = int(desc_.out.sizes[0]), n = int(desc_.out.sizes[1]), k = int(desc_.a.sizes[1]);
  const int out_stride = int(desc_.out.strides[0]);
  if (native_bias_) {
    const auto* bias = static_cast<const float*>(arguments.bias);
    overTeam(m, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        std::copy_n(bias, n, out + row * out_stride);
    });
  }
  const float beta = native_bias_ ? 1.0f : 0.0f;
  sgemm()(&b_.transposed, &a_.transposed, &n, &m, &k, &desc_.alpha, static_cast<const float*>(arguments.b), &b_.stride,
          static_cast<const float*>(arguments.a), &a_.stride, &beta, out, &out_stride);
  return sequence_.steps.empty() ? Status() : sequence_.run(arguments);
}

}  // namespace zefuse::primitives
