// What products in a kernel for the CPU share: packed parts of both operands, in the accumulator's type, are multiplied
// and added to a block of sums, all in private memory. Integers wrap around as their type does (bytes in sums of 16
// bits), sums of f16 are f32, and every sum has one order.
#pragma once

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/products/product_nodes.h"

namespace zefuse {

class CpuProduct {
protected:
  // `element`: of the operands and of the result.
  CpuProduct(const ScheduleContext& context, mlir::Type element);

  // A tile of the sums: rows of `lanes` * `vectors` columns, each of which `sub_rows` are in registers while what is
  // summed over is walked; rows are a multiple of these.
  struct Tile {
    int64_t lanes = 1, vectors = 1, rows = 1, sub_rows = 1;
    int64_t columns() const { return lanes * vectors; }
  };
  static constexpr int64_t tile_bytes = 128, register_rows = 8;  // of a tile's row; sub_rows, at most
  // Rows as few as `rows` has, where that is known.
  static Tile tileOf(std::optional<int64_t> rows, int64_t most_rows, int64_t lanes, int64_t vectors);

  int64_t bytes() const { return type_.getIntOrFloatBitWidth() / 8; }  // of a sum
  mlir::Value buffer(int64_t count);
  mlir::Value load(mlir::Value buffer, mlir::Value index, int64_t lanes);
  void store(mlir::Value buffer, mlir::Value index, mlir::Value value);

  // Between registers of the element's type and the accumulator's.
  mlir::Value widened(mlir::Value value);
  mlir::Value narrowed(mlir::Value value);
  // Of a sum that is complete, where the result's indices are bound.
  mlir::Value withBias(mlir::Value sum, const ProductNodes& nodes);

  // The body stands in the evaluator's innermost scope, and so does what follows.
  void loop(mlir::Value from, mlir::Value to, int64_t step, llvm::function_ref<void(mlir::Value)> body);
  void clear(mlir::Value buffer, mlir::Value from, int64_t count, int64_t lanes);
  // How a packed left side lies: the distance from one row to the next, and from one element of a row to the next.
  struct Strides {
    int64_t row = 0, depth = 1;
  };
  // sums[from...] += a * b for all rows of a tile. `b`: for each of `depth` the columns.
  void multiply(const Tile& tile, mlir::Value a, Strides strides, mlir::Value b, mlir::Value depth, mlir::Value sums,
                mlir::Value from);
  // Likewise; at a depth and of a vector of the tile, its columns in the accumulator's type.
  using Columns = llvm::function_ref<mlir::Value(mlir::Value depth, int64_t vector)>;
  void multiply(const Tile& tile, mlir::Value a, Strides strides, Columns b, mlir::Value depth, mlir::Value sums,
                mlir::Value from);

  mlir::Value multiplyAdd(mlir::Value a, mlir::Value b, mlir::Value sum);

  const ScheduleContext& c_;
  Evaluator& e_;
  mlir::OpBuilder& b_;
  mlir::Location loc_;
  IndexMath i_;
  mlir::Type element_, type_;  // of the result; of sums

private:
  mlir::Value address(mlir::Value buffer, mlir::Value index);
};

}  // namespace zefuse
