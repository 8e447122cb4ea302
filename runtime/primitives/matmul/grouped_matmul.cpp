#include "runtime/primitives/matmul/grouped_matmul.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>

#include "common/plan/dtype.h"
#include "common/plan/plan_generated.h"
#include "runtime/primitives/matmul/descriptor.h"

namespace zefuse::primitives {

namespace {

// Between neighbouring numbers of rows, from 4 on. A row too many costs what a row does; a number of its own, about a
// millisecond at first.
int64_t stepAt(int64_t rows) {
  return std::max<int64_t>(4, int64_t(std::bit_floor(uint64_t(std::max<int64_t>(rows, 1)))) / 8);
}

// The matrix of one group; without groups (none has rows then) of nobody.
MatmulDesc ofRows(const GroupedMatmulDesc& desc, int64_t rows) {
  MatmulDesc product;
  product.a = desc.a;
  product.b = desc.b;
  product.out = desc.out;
  product.a.sizes[0] = product.out.sizes[0] = rows;
  product.fpmath = desc.fpmath;
  return product;
}

}  // namespace

int64_t groupRowsAbove(int64_t rows) {
  if (rows <= 2)
    return rows;
  const int64_t step = stepAt(rows);
  return (rows + step - 1) / step * step;
}

int64_t groupRowsBelow(int64_t rows) {
  if (rows < 4)
    return std::min<int64_t>(rows, 2);
  return rows / stepAt(rows) * stepAt(rows);
}

Result<std::shared_ptr<const GroupedMatmul>> GroupedMatmul::get(const GroupedMatmulDesc& desc) {
  if (desc.a.sizes.size() != 2 || desc.b.sizes.size() != 2 || desc.out.sizes.size() != 2)
    return Status(Code::invalid_argument, "a product of groups of rows wants matrices");
  ZEFUSE_RETURN_IF_ERROR(Matmul::check(ofRows(desc, desc.a.sizes[0])));
  auto self = std::make_shared<GroupedMatmul>(desc);
  auto whole = self->productOf(groupRowsBelow(desc.a.sizes[0]));
  if (!whole.ok())
    return whole.status();
  self->scratch_bytes_ = (*whole)->scratchBytes();
  self->implementation_ = (*whole)->implementation() + " for each group of rows";
  return std::shared_ptr<const GroupedMatmul>(std::move(self));
}

Result<std::shared_ptr<const Matmul>> GroupedMatmul::productOf(int64_t rows) const {
  {
    const std::lock_guard lock(mutex_);
    for (const Made& made : made_)
      if (made.rows == rows)
        return made.product;
  }
  auto product = Matmul::get(ofRows(desc_, rows));  // takes milliseconds at first
  if (product.ok()) {
    const std::lock_guard lock(mutex_);
    made_.push_back({rows, *product});
  }
  return product;
}

Status GroupedMatmul::multiply(const Arguments& arguments, int64_t first, int64_t rows) const {
  auto product = productOf(rows);
  if (!product.ok())
    return product.status();
  auto at = [&](const void* matrix, const TensorDesc& desc) {
    return static_cast<const std::byte*>(matrix) + first * desc.strides[0] * int64_t(plan::elementSize(desc.dtype));
  };
  Arguments of_rows = arguments;
  of_rows.a = at(arguments.a, desc_.a);
  of_rows.out = const_cast<std::byte*>(at(arguments.out, desc_.out));
  std::unique_ptr<void, decltype(&std::free)> more(nullptr, &std::free);
  if (const size_t bytes = (*product)->scratchBytes(); bytes > scratch_bytes_) {  // copies, for few rows alone
    more.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    if (!more)
      return {Code::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes"};
    of_rows.scratch = more.get();
  }
  return (*product)->run(of_rows);
}

Status GroupedMatmul::runGroup(const Arguments& arguments, int64_t first, int64_t rows) const {
  if (rows == 0)
    return {};
  const int64_t above = groupRowsAbove(rows);
  if (first + above <= this->rows())
    return multiply(arguments, first, above);
  // The second product ends where the group does, and computes rows of the first once more.
  const int64_t below = groupRowsBelow(rows);
  ZEFUSE_RETURN_IF_ERROR(multiply(arguments, first, below));
  if (below == rows)
    return {};
  const int64_t rest = std::min(groupRowsAbove(rows - below), groupRowsBelow(rows));
  return multiply(arguments, first + rows - rest, rest);
}

}  // namespace zefuse::primitives
