// An affine expression over a graph's symbols, for those who see no MLIR: what reads a graph is compiled without its
// headers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/api.h"

namespace mlir {
class AffineExpr;
class MLIRContext;
}  // namespace mlir

namespace zefuse::fx {

// An mlir::AffineExpr under another name: a value, simplified by MLIR as it is made, one pointer. Null by default; only
// operator bool and == may be asked of a null one. Must not outlive its context. As thread-safe as that is.
class ZEFUSE_API SizeExpr {
public:
  SizeExpr() = default;
  explicit SizeExpr(mlir::AffineExpr expr);
  operator mlir::AffineExpr() const;

  static SizeExpr constant(mlir::MLIRContext& context, int64_t value);
  static SizeExpr symbol(mlir::MLIRContext& context, unsigned position);

  explicit operator bool() const { return expr_ != nullptr; }
  // Each expression is in its context once. Products of symbols have no one form, though (lowering/dialect/shape.h).
  bool operator==(const SizeExpr&) const = default;

  std::optional<int64_t> constant() const;       // where it is a constant
  std::optional<unsigned> symbol() const;        // where it is a symbol alone
  std::vector<unsigned> symbolsWithin() const;   // in the order of a walk, each as often as it is there
  std::vector<int64_t> constantsWithin() const;  // the same
  SizeExpr constantLike(int64_t value) const;    // in the same context

  SizeExpr operator+(SizeExpr other) const;
  SizeExpr operator*(SizeExpr other) const;
  SizeExpr operator*(int64_t factor) const;
  SizeExpr operator%(SizeExpr other) const;
  SizeExpr floorDiv(SizeExpr other) const;
  SizeExpr floorDiv(int64_t divisor) const;

private:
  const void* expr_ = nullptr;
};

using Sizes = std::vector<SizeExpr>;

}  // namespace zefuse::fx
