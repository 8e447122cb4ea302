// What a tensor is to a library call: shape, strides and element type, without memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zefuse::plan {
enum class DType : uint8_t;
}  // namespace zefuse::plan

namespace zefuse::primitives {

// Strides are in elements.
struct TensorDesc {
  plan::DType dtype{};
  std::vector<int64_t> sizes, strides;
  bool operator==(const TensorDesc&) const = default;
};

// "f32[128,384] strides [384,1]"
std::string toString(const TensorDesc& desc);

int64_t elements(const std::vector<int64_t>& sizes);
std::vector<int64_t> denseStrides(const std::vector<int64_t>& sizes);
inline bool isDense(const TensorDesc& desc) { return desc.strides == denseStrides(desc.sizes); }

}  // namespace zefuse::primitives
