// One convolution as the oneDNN primitives, copies and layouts that carry it out.
#pragma once

#include "runtime/onednn/convolution.h"
#include "runtime/onednn/sequence.h"

namespace zefuse::onednn {

// Built by build(); then immutable.
class PreparedConvolution final : public Prepared<Convolution> {
public:
  // `desc` has passed its checks.
  static Result<std::shared_ptr<const Convolution>> build(const ConvolutionDesc& desc);

private:
  struct Plan;
  explicit PreparedConvolution(const ConvolutionDesc& desc);
  Plan makePlan(bool widen, bool channels_last, bool mirrored) const;
  bool mirrors() const;
  std::optional<Plan> search(std::string& why);
  // Each appends to the sequence; false with a reason in `why` and no steps.
  bool add(const Plan& plan, bool reference, std::string& why);
  bool addWeights(const Plan& plan, bool reference, std::string& why);
  // The weight with the groups as a dimension of their own, input and output channels in oneDNN's order.
  dnnl::memory::desc weightLayout(const TensorDesc& weight, bool transposed) const;

  ConvolutionDesc desc_;
};

}  // namespace zefuse::onednn
