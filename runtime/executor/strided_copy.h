// Copies between strided tensors of equal sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zefuse::executor {

// Strides count elements and may be 0 in the source. Sizes, strides: equal rank. Source and
// destination must not overlap.
void stridedCopy(void* destination, std::span<const int64_t> destination_strides, const void* source,
                 std::span<const int64_t> source_strides, std::span<const int64_t> sizes, size_t element_size);

}  // namespace zefuse::executor
