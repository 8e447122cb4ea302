#include "runtime/primitives/core/tensor_desc.h"

#include <algorithm>

#include "common/base/number_list.h"
#include "common/plan/plan_generated.h"

namespace zefuse::primitives {

int64_t elements(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes)
    count *= size;
  return count;
}

std::vector<int64_t> denseStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

std::string toString(const TensorDesc& desc) {
  return std::string(plan::EnumNameDType(desc.dtype)) + numberList(desc.sizes, ",") + " strides " +
         numberList(desc.strides, ",");
}

}  // namespace zefuse::primitives
