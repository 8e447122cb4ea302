#include "runtime/primitives/core/post_op_pass.h"

#include <algorithm>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

namespace {

constexpr int lanes = 8, vectors = 4;
constexpr int64_t columns_at_once = lanes * vectors;

// All columns of some rows of one matrix: as many columns at once as registers hold.
[[ZEFUSE_AVX2]] void passOver(const RowOperands& first, int64_t rows, int64_t columns, float* out) {
  for (int64_t column = 0; column < columns; column += columns_at_once) {
    const RowOperands operands = first.at(0, column);
    if (columns - column >= columns_at_once)
      finishRows<lanes, vectors, true>(operands, rows, columns_at_once, out + column, columns);
    else
      finishRows<lanes, vectors, false>(operands, rows, columns - column, out + column, columns);
  }
}

}  // namespace

bool postOpPassAvailable() { return hasIsa(dnnl_cpu_isa_avx2); }

void PostOpPass::run(std::span<void* const> addresses, std::byte*) const {
  auto* out = static_cast<float*>(addresses[slotOut]);
  const int64_t batch = shape_.batch, rows = shape_.rows, columns = shape_.columns;
  // A piece of rows stays in the nearest cache while its columns go by.
  constexpr int64_t numbers = 4096;
  const int64_t piece = std::max<int64_t>(1, numbers / columns), pieces = (rows + piece - 1) / piece;
  overTeam(batch * pieces, 4, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t image = at / pieces, row = at % pieces * piece;
      passOver({shape_.post_ops, addresses.data(), image, row, 0}, std::min(piece, rows - row), columns,
               out + (image * rows + row) * columns);
    }
  });
}

}  // namespace zefuse::primitives
