// A matmul of f32 by the BLAS that torch brings, MKL's sgemm: on Intel's processors without AVX-512, where oneDNN's
// products take longer.
#pragma once

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// Built by build(); then immutable.
class BlasMatmul final : public Prepared<Matmul> {
public:
  // nullptr where the process has no MKL (a program without torch), it does not take the product (other element types,
  // batches, rows of the result that are not contiguous) or, unless the descriptor asks for this way, oneDNN's is as
  // quick. `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

  Status run(const Primitive::Arguments& arguments) const override;

private:
  // sgemm's operand: 't' where columns are contiguous, and from one row or column to the next.
  struct Operand {
    char transposed;
    int stride;
  };
  explicit BlasMatmul(const MatmulDesc& desc);
  static std::optional<Operand> operandOf(const TensorDesc& desc);

  MatmulDesc desc_;
  bool native_bias_;
  Operand a_{}, b_{};
};

}  // namespace zefuse::primitives
