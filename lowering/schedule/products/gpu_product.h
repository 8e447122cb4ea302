// A matrix product c[m, n] = sum over k of a[m, k] * b[k, n] as tiles of a GPU's work-groups: what matmul, convolution
// (as implicit matrix product) and attention share.
//
// A group computes one tile. For each step of `depth` along k it copies a's and b's parts to local memory (a with k
// outermost, widened to the accumulator's type), then each sub-group multiplies its part: it holds blocks of 8 rows by
// a column for each of its lanes, a work-item holding the 8 rows of its own column. That is the accumulator of a matrix
// engine (dpas with 8 rows), so that an engine replaces the multiplication and nothing around it but the form in local
// memory: 16 bits as they come, k innermost on both sides. Sub-groups are as wide as the engine wants them, else as the
// target has them. On an engine of another form (MatrixForm::fragments), and in f32 where copies to local memory are
// asynchronous, blocks, local memory and the order of the steps are their own (fragment_product, register_product.cpp).
#pragma once

#include <functional>

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/gpu/work_group.h"

namespace zefuse {

constexpr int64_t column_rows = 8;  // of a block, where its columns are the lanes

struct ProductTile {
  int64_t subgroups_m, subgroups_n;  // of a group
  int64_t blocks_m, blocks_n;        // of a sub-group
  int64_t depth = 16;                // in local memory
  int64_t block_columns = 0;         // the lanes of a sub-group, but of fragments
  int64_t block_rows = column_rows;
  int64_t lanes = 0;       // of a sub-group
  bool fragments = false;  // on an engine of that form
  bool wide = false;       // these, of f32 by products of tf32 (fragment_product.cpp)
  bool registers = false;  // register_product.cpp: blocks are 4 x 4 of each work-item

  int64_t rows() const { return subgroups_m * blocks_m * block_rows; }
  int64_t columns() const { return subgroups_n * blocks_n * block_columns; }
  // Bytes, of a sub-group, with elements of `bytes`.
  int64_t accumulatorBytes(int64_t bytes) const { return blocks_m * block_rows * blocks_n * block_columns * bytes; }
  int64_t items() const { return subgroups_m * subgroups_n * lanes; }
};

// By a cost model; unknown sizes count as 256. `bytes`: of an accumulator's element. `engine`: for a matrix engine,
// `wide`: for one of fragments that multiplies f32. `decisions`: null, or where a measurement may choose another tile.
ProductTile chooseTile(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> batches,
                       int64_t bytes, const TargetDescription& target, bool engine = false,
                       Decisions* decisions = nullptr, bool wide = false);

choice::Registers registersOf(const ProductTile& tile, int64_t bytes, const TargetDescription& target, bool engine);

// Groups that the registers of an NVIDIA GPU's engine hold, of fragments or of tiles in registers.
int64_t groupsTogether(const ProductTile& tile);

struct Extent {
  mlir::Value value;                // index
  std::optional<int64_t> constant;  // where it is known
};

// One operand. load(row, column, run) gives `run` neighbours (along the contiguous dimension) in the type that local
// memory holds: the accumulator's, or 16 bits for a matrix engine. It is only called with indices inside.
struct ProductSource {
  bool columns_contiguous = true;  // neighbours in memory are columns, else rows
  int64_t run = 1;                 // loaded at once; divides the contiguous dimension's size
  // Accesses of a work-item under way together: more keep more addresses than there are registers.
  int64_t together = 4;
  std::function<mlir::Value(mlir::Value row, mlir::Value column, int64_t run)> load;
  // Where a run (this one, or 1) lies in memory as local memory takes it, at a multiple of its bytes; null, or none: it
  // does not.
  std::function<mlir::Value(mlir::Value row, mlir::Value column, int64_t run)> address;
};

// How many neighbours along a dimension of this stride and size one access may take.
int64_t accessRun(mlir::AffineExpr stride, mlir::AffineExpr size, mlir::Type element);

// One side of a tile in local memory: indices first, first + 1, ... of `count`, `step` elements apart there.
struct TileSide {
  Extent extent;  // of the whole operand
  mlir::Value first;
  int64_t count = 1, step = 1;
};

// `index` where it is inside; where a tile is not whole, whether it was, joined to `inside`. `access`: neighbours.
void bound(const IndexMath& i, mlir::Value& index, const TileSide& side, int64_t access, mlir::Value& inside);

// The tile once more in local memory, in another order.
struct TileCopy {
  mlir::Value array;
  int64_t row_step, column_step;
};

// Copies a tile of `source` to `array` (elements of `type`), all work-items taking part; neighbouring ones copy
// neighbours in memory. What lies outside is zero. No barrier. `asynchronous`: what has an address in runs of 16 bytes,
// or is elements of 4, goes by WorkGroup::copyToLocal and copyWordToLocal.
void stageTile(mlir::OpBuilder& builder, WorkGroup& group, const ProductSource& source, mlir::Type type,
               const TileSide& rows, const TileSide& columns, mlir::Value array,
               std::optional<TileCopy> again = std::nullopt, bool asynchronous = false);

struct Product {
  Extent m, n, k;
  mlir::Type type;                // accumulator: f32 or f64
  const MatrixOperation* engine;  // null: not on a matrix engine
  ProductSource a, b;
};

// What a work-item has of a block: `value` is a vector of neighbours from (row, column) on, 8 rows of the column, or 2
// or 4 columns of the row, the first at a multiple of them. Rows and columns may lie outside.
struct ProductPart {
  mlir::Value row, column, value;
  bool of_row = false;  // neighbours are columns
};
using ProductStore = llvm::function_ref<void(const ProductPart&)>;

// Operands of a matrix engine in local memory, k innermost: the block at (row, k) and at (k, column), whose column is
// the lane's. `array` has elements of 16 bits, lines of `line` of them.
mlir::Value engineRows(mlir::OpBuilder& builder, WorkGroup& group, mlir::Value array, int64_t line, int64_t rows,
                       mlir::Value row, mlir::Value k);
mlir::Value engineColumn(mlir::OpBuilder& builder, WorkGroup& group, mlir::Value array, int64_t line,
                         mlir::Value column, mlir::Value k);
constexpr int64_t engine_depth = 16;  // of one operation
constexpr int64_t engine_pad = 8;     // of a line: neighbouring ones start in different banks, accesses are aligned

// Copies that are under way at a time, with the one that is multiplied (fragment_product.cpp).
int64_t stagesOf(const ProductTile& tile, const TargetDescription& target);
int64_t fragmentDepth(const ProductTile& tile, const TargetDescription& target);  // of a tile of fragments
int64_t registerDepth(const ProductTile& tile, const TargetDescription& target);  // of one in registers

// Emits the tile at (first_row, first_column) for the whole work-group, which has tile.items() work-items in sub-groups
// of tile.lanes. All of them must come here.
void emitProduct(mlir::OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product,
                 const TargetDescription& target, mlir::Value first_row, mlir::Value first_column, ProductStore store);
void emitFragmentProduct(mlir::OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product,
                         int64_t stages, mlir::Value first_row, mlir::Value first_column, ProductStore store);
void emitRegisterProduct(mlir::OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product,
                         const TargetDescription& target, mlir::Value first_row, mlir::Value first_column,
                         ProductStore store);

}  // namespace zefuse
