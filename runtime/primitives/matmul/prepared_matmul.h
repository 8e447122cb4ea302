// One matmul as the oneDNN primitives, copies and layouts that carry it out.
#pragma once

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// Built by build(); then immutable.
class PreparedMatmul final : public Prepared<Matmul> {
public:
  // `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

private:
  struct Plan;
  // The type that operands have in the product: their own, f32, or bf16 where they are f32.
  enum class Computing { given, wide, narrow };
  // How a, b and out lie in it: as they do where oneDNN can describe that; one matrix behind the other without gaps,
  // rows and columns as they were; dense, by copies.
  enum class Layout { given, matrices, dense };
  explicit PreparedMatmul(const MatmulDesc& desc);
  Plan makePlan(Computing computing, Layout layout) const;
  // The first that oneDNN takes, with as many post-ops fused as possible; what there was in the sequence is gone.
  std::optional<Plan> planned(Computing computing, Layout layout, std::string& why);
  std::optional<Plan> search(std::string& why);
  // Whether copies as Layout::matrices may gain more than they cost, when the sequence has what was `planned` as given.
  bool mayGainByCopies(const Plan& planned) const;
  // Appends to the sequence; false with a reason in `why` and no steps.
  bool addProduct(const Plan& plan, std::string& why);

  MatmulDesc desc_;
  bool narrow_ = false;    // operands of f32 are copied as bf16, which this CPU multiplies in half the time
  bool no_inner_ = false;  // K = 0: the product is zeros and only the tail runs
};

}  // namespace zefuse::primitives
