#include "runtime/executor/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/plan/program.h"

namespace zefuse::executor {
namespace {

struct Dim {
  int64_t size, to, from;  // strides in elements
};

template <typename T> void copyRow(char* to, const char* from, const Dim& dim) {
  for (int64_t i = 0; i < dim.size; ++i)
    std::memcpy(to + i * dim.to * int64_t(sizeof(T)), from + i * dim.from * int64_t(sizeof(T)), sizeof(T));
}

void copyInner(char* to, const char* from, const Dim& dim, size_t element) {
  if (dim.to == 1 && dim.from == 1) {
    std::memcpy(to, from, size_t(dim.size) * element);
    return;
  }
  switch (element) {
  case 1: return copyRow<uint8_t>(to, from, dim);
  case 2: return copyRow<uint16_t>(to, from, dim);
  case 4: return copyRow<uint32_t>(to, from, dim);
  default: return copyRow<uint64_t>(to, from, dim);
  }
}

}  // namespace

void stridedCopy(void* destination, std::span<const int64_t> destination_strides, const void* source,
                 std::span<const int64_t> source_strides, std::span<const int64_t> sizes, size_t element_size) {
  std::array<Dim, plan::max_rank> dims;
  size_t rank = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0)
      return;
    if (sizes[i] != 1)
      dims[rank++] = {sizes[i], destination_strides[i], source_strides[i]};
  }
  // Innermost last: writes as sequential as they can be. Then fold what both sides hold
  // contiguously.
  std::sort(dims.begin(), dims.begin() + rank, [](const Dim& a, const Dim& b) { return a.to > b.to; });
  size_t folded = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (folded && dims[folded - 1].to == dims[i].to * dims[i].size &&
        dims[folded - 1].from == dims[i].from * dims[i].size)
      dims[folded - 1] = {dims[folded - 1].size * dims[i].size, dims[i].to, dims[i].from};
    else
      dims[folded++] = dims[i];
  }
  if (folded == 0)
    dims[folded++] = {1, 1, 1};

  const Dim inner = dims[folded - 1];
  const size_t outer = folded - 1;
  std::array<int64_t, plan::max_rank> index{};
  char* to = static_cast<char*>(destination);
  const char* from = static_cast<const char*>(source);
  const int64_t element = int64_t(element_size);
  while (true) {
    copyInner(to, from, inner, element_size);
    size_t d = outer;
    for (; d > 0; --d) {
      const Dim& dim = dims[d - 1];
      to += dim.to * element;
      from += dim.from * element;
      if (++index[d - 1] < dim.size)
        break;
      to -= dim.to * dim.size * element;
      from -= dim.from * dim.size * element;
      index[d - 1] = 0;
    }
    if (d == 0)
      return;
  }
}

}  // namespace zefuse::executor
