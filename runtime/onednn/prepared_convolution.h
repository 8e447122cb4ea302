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
  struct Way {
    bool widen, channels_last, mirrored, padded;
  };
  enum class Kind : uint8_t { depthwise, direct, product, reference };  // of oneDNN's implementations
  explicit PreparedConvolution(const ConvolutionDesc& desc);
  Plan makePlan(const Way& way) const;
  bool mirrors() const;
  bool mayPad() const;
  bool hasElementOverPaddingAlone() const;
  std::vector<int64_t> paddedSizes() const;
  Kind kindOf(const std::string& implementation) const;
  std::optional<Plan> search(std::string& why);
  // `paddings`: whether the input may lie as it does (false), and be copied with its padding (true).
  std::optional<Plan> searchAmong(std::initializer_list<Kind> kinds, std::initializer_list<bool> paddings,
                                  std::string& why);
  // Each appends to the sequence; false with a reason in `why` and no steps.
  bool add(const Plan& plan, Kind kind, std::string& why);
  bool addWeights(const Plan& plan, Kind kind, std::string& why);
  std::optional<Plan> searchWinograd();
  std::optional<Plan> searchOwnDepthwise();
  // The weight with the groups as a dimension of their own, input and output channels in oneDNN's order.
  dnnl::memory::desc weightLayout(const TensorDesc& weight, bool transposed) const;

  ConvolutionDesc desc_;
};

}  // namespace zefuse::onednn
