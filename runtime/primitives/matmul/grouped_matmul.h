// Groups of rows, each times a matrix of its own; how many rows a group has is known when it runs. See plan.fbs, table
// GroupedMatmul, for its meaning.
#pragma once

#include <memory>
#include <vector>

#include "common/base/fork.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

struct GroupedMatmulDesc {
  TensorDesc a, b, out;  // [S, K]; one group's matrix [K, N]; [S, N]
  FpMath fpmath = FpMath::strict;
  bool operator==(const GroupedMatmulDesc&) const = default;
};

// Thread-safe. Products are made for some numbers of rows, at most eight between a power of two and the next. A group's
// is the next larger one where the matrices have so many rows left: what it writes beyond the group, later groups
// overwrite. So groups run in ascending order. At the end of the matrices a group is two products.
class GroupedMatmul : public Primitive {
public:
  // As Matmul::get, for all of the rows.
  static Result<std::shared_ptr<const GroupedMatmul>> get(const GroupedMatmulDesc& desc);

  explicit GroupedMatmul(const GroupedMatmulDesc& desc) : desc_(desc) {}

  size_t scratchBytes() const override { return scratch_bytes_; }
  // All rows are one group's.
  Status run(const Arguments& arguments) const override { return runGroup(arguments, 0, desc_.a.sizes[0]); }
  // The group of these rows; b is its matrix. Rows after them hold anything afterwards.
  Status runGroup(const Arguments& arguments, int64_t first, int64_t rows) const;
  int64_t rows() const { return desc_.a.sizes[0]; }
  const std::string& implementation() const override { return implementation_; }

private:
  Result<std::shared_ptr<const Matmul>> productOf(int64_t rows) const;
  Status multiply(const Arguments& arguments, int64_t first, int64_t rows) const;

  GroupedMatmulDesc desc_;
  size_t scratch_bytes_ = 0;
  std::string implementation_;
  // Made as groups ask for them: a prompt has groups of few of the numbers.
  struct Made {
    int64_t rows;
    std::shared_ptr<const Matmul> product;
  };
  mutable ForkMutex mutex_;
  mutable std::vector<Made> made_;
};

// The least number of rows that a product is made for and is no less; the greatest that is no more.
int64_t groupRowsAbove(int64_t rows);
int64_t groupRowsBelow(int64_t rows);

}  // namespace zefuse::primitives
