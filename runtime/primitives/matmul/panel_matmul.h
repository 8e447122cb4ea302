// A matmul of f32 whose right side is packed once, in panels of 16 columns, by loops of our own (panel_step.h): on
// processors with AVX2 and without AVX-512, where MKL's sgemm packs a weight anew in each call and oneDNN's products
// take longer still.
#pragma once

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// Built by build(); then immutable.
class PanelMatmul final : public Prepared<Matmul> {
public:
  // nullptr where it does not take the product (other element types, scaled ones, a right side that is not packed or
  // has batches, rows of the result that are not contiguous) or, unless the descriptor asks for this way, others are
  // expected to be as quick. `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

  bool packsLike(const Primitive& other) const override;

private:
  explicit PanelMatmul(const MatmulDesc& desc);

  TensorDesc b_;
};

}  // namespace zefuse::primitives
