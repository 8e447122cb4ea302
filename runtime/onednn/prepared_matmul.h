// One matmul as the oneDNN primitives, copies and layouts that carry it out.
#pragma once

#include "runtime/onednn/matmul.h"
#include "runtime/onednn/sequence.h"

namespace zefuse::onednn {

// Built by build(); then immutable.
class PreparedMatmul final : public Prepared<Matmul> {
public:
  // `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

private:
  struct Plan;
  // The type that operands have in the product: their own, f32, or bf16 where they are f32.
  enum class Computing { given, wide, narrow };
  explicit PreparedMatmul(const MatmulDesc& desc);
  Plan makePlan(Computing computing, bool copy) const;
  std::optional<Plan> search(std::string& why);
  // Appends to the sequence; false with a reason in `why` and no steps.
  bool addProduct(const Plan& plan, std::string& why);

  MatmulDesc desc_;
  bool narrow_ = false;    // operands of f32 are copied as bf16, which this CPU multiplies in half the time
  bool no_inner_ = false;  // K = 0: the product is zeros and only the tail runs
};

}  // namespace zefuse::onednn
