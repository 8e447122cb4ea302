// What GPU schedules say about their work-group: ids, barriers, local memory, sub-group operations.
//
// Groups are one-dimensional and whole sub-groups wide. Operations are OpenCL's functions by their mangled names, which
// LLVM's SPIR-V back end turns into instructions of the base profile (capability Groups; no shuffles, which need 1.3).
#pragma once

#include "lowering/schedule/core/context.h"

namespace zefuse {

// A tile of elements of 16 bits in local memory, as products of four sub-groups take it: side by side panels of 64
// columns, `lines` (a multiple of 8) in each. It begins at a multiple of 1024 bytes.
struct PanelShape {
  int64_t lines;
  static constexpr int64_t columns = 64;
  int64_t elements() const { return lines * columns; }  // of a panel
};

class WorkGroup {
public:
  // Fixes the group's size in `function` and `launch`; ids are emitted where `builder` stands, which must dominate all
  // uses. `subgroup`: 0 leaves the sub-group size to the device's compiler.
  WorkGroup(mlir::OpBuilder& builder, mlir::func::FuncOp function, LoweredKernel& launch, int64_t size,
            int64_t subgroup);

  int64_t size() const { return size_; }
  int64_t subgroup() const { return subgroup_; }
  int64_t subgroups() const { return size_ / subgroup_; }
  mlir::Value group() const { return group_; }                   // of the groups of its set (Batch), index
  mlir::Value item() const { return item_; }                     // 0..size, neighbours in one sub-group
  mlir::Value lane() const { return lane_; }                     // 0..subgroup
  mlir::Value subgroupIndex() const { return subgroup_index_; }  // 0..subgroups

  // All work-items of the group; what they wrote to local memory (and to global) is visible to all of them after it.
  void barrier(bool global = false);

  // An array in local memory that this group shares, `count` elements of a memory type; a pointer in address space 3.
  mlir::Value localArray(mlir::Type element, int64_t count, unsigned alignment = 64);
  mlir::Value at(mlir::Value array, mlir::Type element, mlir::Value index);  // element's address

  // The combination of `value` (scalar) over the sub-group, in every work-item. For extrema of floats a NaN wins.
  mlir::Value reduceInSubgroup(mlir::Operation* combiner, mlir::Value value);
  // The combination of the values of all lanes before this one; in the first lane the neutral element. Sums, and
  // extrema of integers, of 32 and 64 bits.
  mlir::Value scanInSubgroup(mlir::Operation* combiner, mlir::Value value);
  mlir::Value sumInSubgroup(mlir::Value value) { return subgroupCall("reduce_add", value); }
  mlir::Value maximumInSubgroup(mlir::Value value) { return subgroupCall("reduce_max", value); }  // NaN: either
  mlir::Value anyOfSubgroup(mlir::Value condition);        // i1: the same in all of the sub-group
  mlir::Value broadcast(mlir::Value value, int64_t lane);  // what that lane has, in all of the sub-group
  // On a matrix engine, over the sub-group: c[m, n] += a[m, k] * b[k, n], m = 1..rows, a lane per n, sums in
  // f32 (cl_intel_subgroup_matrix_multiply_accumulate). a: `rows` (2, 4 or 8) integers, each with the lane's k / lanes
  // columns of that row; b: the lane's column as k / 2 integers of 32 bits; c: its column of rows.
  mlir::Value multiplyMatrices(const MatrixOperation& operation, mlir::Value a, mlir::Value b, mlir::Value c);
  // On an engine whose form is fragments (MatrixForm): a, b, c as they lie there, vectors of 4, 2 integers of 32 bits,
  // 4 sums.
  mlir::Value multiplyFragments(const MatrixOperation& operation, mlir::Value a, mlir::Value b, mlir::Value c);
  // Four blocks of 8 lines of 8 elements of 16 bits in local memory: lane 8i + j points to line j of block i, at a
  // multiple of 16 bytes. Lane 4g + t gets of each, in an integer of 32 bits, elements 2t and 2t + 1 of line g;
  // `transposed`: element g of lines 2t and 2t + 1.
  mlir::Value loadFragments(mlir::Value line, bool transposed);
  // 16 bytes from global to local memory, both at multiples of 16; zeros without `inside` (null: always), where `from`
  // must be readable all the same. They are there for a work-item that waited for their batch, for others behind a
  // barrier after that.
  void copyToLocal(mlir::Value to, mlir::Value from, mlir::Value inside);
  void copyWordToLocal(mlir::Value to, mlir::Value from, mlir::Value inside);  // the same of 4 bytes
  void commitCopies();                   // the copies since the last one are a batch
  void waitForCopies(int64_t but_last);  // all batches but so many
  // Four sub-groups together (MatrixEngine::together), as drivers/cuda/codegen/warpgroup.h has it: `sums` and `rows`
  // are private memory, tiles lie in local memory in panels (panel_columns). All work-items of the four come here. sums
  // (+)= a * b^T of 16 neighbours that begin `k` elements along the lines of both.
  void multiplyTogether(const MatrixOperation& operation, mlir::Value sums, mlir::Value a, mlir::Value b, int64_t k,
                        const PanelShape& a_shape, const PanelShape& b_shape, bool more);
  // The same of a lane's fragments and the 16 lines of b from k on: `columns` of each.
  void multiplyRowsTogether(const MatrixOperation& operation, mlir::Value sums, mlir::Value rows, mlir::Value b,
                            int64_t k, int64_t columns, const PanelShape& b_shape);
  void beginTogether();   // before the first product after sums or rows were written by other means
  void commitTogether();  // the products since the last one are a batch
  // Turns of a number, the same in all of the four: giving waits for nobody, taking for those who give, and what they
  // wrote before is seen then. `items`: of those who give and those who take.
  void takeTurn(mlir::Value number, int64_t items);
  void giveTurn(mlir::Value number, int64_t items);
  // A lane of the four has so many registers from here on: more than at the launch, or fewer.
  void keepRegisters(int64_t count, bool more);
  void computedBeforeWait(mlir::Value number);  // f32, 0 or more: products run beside what leads to it
  // All batches but so many are done: these sums (`count` numbers) may be read. `rows`, or null: these may be written.
  void waitTogether(mlir::Value sums, int64_t count, mlir::Value rows, int64_t rows_count, int64_t but_last);
  void publishToProducts();  // what this item wrote to local memory, for products that begin behind a barrier
  mlir::Value nativeExp2(mlir::Value value);               // f32: by the device's own instruction, within some ulp
  mlir::Value exchanged(mlir::Value value, int64_t mask);  // f32: what the lane of this number xor `mask` has
  // Over the whole group; all reductions share one barrier.
  llvm::SmallVector<mlir::Value> reduceInGroup(llvm::ArrayRef<const Instance*> instances,
                                               llvm::ArrayRef<mlir::Value> values);

private:
  void copy(llvm::StringRef function, llvm::StringRef types, mlir::Value to, mlir::Value from, mlir::Value inside);
  mlir::Value call(llvm::StringRef name, mlir::Type result, mlir::ValueRange operands);
  mlir::Value subgroupCall(llvm::StringRef operation, mlir::Value value);

  mlir::OpBuilder& b_;
  mlir::func::FuncOp function_;
  mlir::Location loc_;
  int64_t size_, subgroup_;
  mlir::Value group_, item_, lane_, subgroup_index_;
  unsigned arrays_ = 0;
};

}  // namespace zefuse
