// One convolution as the oneDNN primitives, copies and layouts that carry it out.
#pragma once

#include "runtime/primitives/convolution/convolution.h"
#include "runtime/primitives/core/post_op_pass.h"
#include "runtime/primitives/core/sequence.h"

namespace zefuse::primitives {

// One channel in each group, and as many results.
inline bool isDepthwise(const ConvolutionDesc& desc) {
  const auto& weight = (desc.kind == plan::ConvolutionKind::weights ? desc.out : desc.weight).sizes;
  return desc.groups > 1 && weight[0] == desc.groups && weight[1] == 1;
}

// Built by build(); then immutable.
class PreparedConvolution final : public Prepared<Convolution> {
public:
  // `desc` has passed its checks.
  static Result<std::shared_ptr<const Convolution>> build(const ConvolutionDesc& desc);

private:
  // One way to carry the convolution out: every tensor as oneDNN sees it.
  struct Plan {
    TensorDesc input, weight, out;
    std::optional<TensorDesc> bias;
    std::vector<TensorDesc> operands;  // one per post-op, unused for those without
    std::vector<TailOp> tail;
    size_t fused = 0;  // how many of tail are post-ops
    bool mirrored = false;
    bool padded = false;      // the input is copied with its padding
    bool bias_apart = false;  // the first of tail adds it
    TensorDesc given;         // the weight as it lies, mirrored if the plan is
    size_t given_origin = 0;  // bytes to its element of index 0
  };
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
  // Not by its kernels for convolutions (own_convolutions.cpp); nullopt where they do not take it, or do not pay.
  std::optional<Plan> searchWinograd();
  std::optional<Plan> searchSequenceProduct();
  std::optional<Plan> searchPanels();
  std::optional<Plan> searchPanelGradient();
  std::optional<Plan> searchOwnDepthwise();
  // As many of the plan's post-ops, from the first on, as our loops compute by rows of channels, for a result that is
  // dense and channels last; `fused` is how many. All images are one batch where they may.
  PostOpShape rowPostOps(Plan& plan) const;
  bool tailByPass(Plan& plan, Kind kind, std::string& why);
  // The weight with the groups as a dimension of their own, input and output channels in oneDNN's order.
  dnnl::memory::desc weightLayout(const TensorDesc& weight, bool transposed) const;

  ConvolutionDesc desc_;
};

}  // namespace zefuse::primitives
