// Post-ops in one pass over the result, by loops of our own: oneDNN's activations take an exponential for each number
// (sequence.h, eltwise), within some of its kernels longer than all else.
#pragma once

#include <vector>

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/simd/row_post_ops.h"

namespace zefuse::primitives {

// A dense result [batch, rows, columns] of f32.
struct PostOpShape {
  int64_t batch, rows, columns;
  std::vector<RowPostOp> post_ops;
};

bool postOpPassAvailable();  // whether this processor has AVX2

class PostOpPass final : public OwnStep {
public:
  explicit PostOpPass(PostOpShape shape) : shape_(std::move(shape)) {}

  void pack(const void*, void*) const override {}  // there is no weight
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  PostOpShape shape_;
};

}  // namespace zefuse::primitives
