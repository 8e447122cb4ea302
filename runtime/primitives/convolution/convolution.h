// A oneDNN convolution with post-ops, prepared once for concrete shapes. See plan.fbs, table Convolution, for its
// meaning.
#pragma once

#include <memory>

#include "runtime/primitives/core/primitive.h"

namespace zefuse::plan {
enum class ConvolutionKind : uint8_t;
enum class LibraryWay : uint8_t;
}  // namespace zefuse::plan

namespace zefuse::primitives {

struct ConvolutionDesc {
  plan::ConvolutionKind kind{};
  TensorDesc input, weight, out;   // by torch's order of dimensions; `weight` of kind weights: out's gradient
  std::optional<TensorDesc> bias;  // [O]
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  std::vector<PostOpDesc> post_ops;  // operands have out's rank
  bool pack_weight = false;          // the weight is a parameter: reorder it once
  bool weight_changes = false;       // from call to call, as in training: packing is part of each
  plan::LibraryWay way{};            // what a measurement chose; automatic: the order of PreparedConvolution::search
  bool operator==(const ConvolutionDesc&) const = default;
};

// Element types: f32 or bf16, the same for all; bias and post-op operands may differ. Or codes: a forward convolution
// of u8 or i8 by i8, whose exact sums post-ops make numbers of; the result is f32, or u8 or i8, rounded to the nearest.
// Strides are not negative. Images that are dense and channels last are used where they lie, others are copied through
// scratch. Immutable and thread-safe after creation.
class Convolution : public Primitive {
public:
  // From the process-wide cache (primitive_cache.h). invalid_argument when shapes do not fit together; unsupported for
  // element types and ranks outside the above, and where oneDNN has no implementation at all.
  static Result<std::shared_ptr<const Convolution>> get(const ConvolutionDesc& desc);
  // Whether get() has nothing to build now; false for what it would refuse.
  static bool isCached(const ConvolutionDesc& desc);
};

// "convolution forward f32[1,3,8,8] strides [...] x f32[...] ... -> ..."
std::string toString(const ConvolutionDesc& desc);

}  // namespace zefuse::primitives
