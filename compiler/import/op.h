// One operator call being imported: its arguments by schema name, its results' types, and the builder. Accessors throw
// NotLowered when an argument has a form that the emitter does not expect, so emitters read as straight lines.
#pragma once

#include "compiler/builder/dtype.h"
#include "compiler/builder/not_lowered.h"
#include "compiler/builder/tensor_builder.h"
#include "compiler/import/errors.h"
#include "compiler/import/fx_graph.h"

namespace zefuse {

using Values = llvm::SmallVector<mlir::Value, 1>;

inline Exprs exprs(const fx::Sizes& sizes) { return Exprs(sizes.begin(), sizes.end()); }

// A tensor, or a Python number standing in for one.
struct TensorOrNumber {
  mlir::Value tensor;                                       // null for a number
  fx::Argument number;                                      // integer, real, boolean, symbolic size or real
  mlir::Type numberType(mlir::MLIRContext* context) const;  // i1, i64 or f32: what it promotes as
};

class Op {
public:
  Op(const fx::Graph& graph, const fx::Node& node, llvm::ArrayRef<Values> values, TensorBuilder& build)
      : node(node), build(build), graph_(graph), values_(values) {}

  const fx::Argument& argument(llvm::StringRef name) const;
  bool takes(llvm::StringRef name) const;  // whether the schema has such a parameter
  bool isNone(llvm::StringRef name) const { return argument(name).kind == fx::Argument::Kind::none; }

  mlir::Value tensor(llvm::StringRef name) const;  // of a type that arith can compute with
  mlir::Value tensorOf(const fx::Argument& argument, llvm::StringRef name) const;
  mlir::Value optionalTensor(llvm::StringRef name) const;  // null for None
  llvm::SmallVector<mlir::Value> tensors(llvm::StringRef name) const;
  TensorOrNumber operand(llvm::StringRef name) const;
  int64_t integer(llvm::StringRef name) const;
  double real(llvm::StringRef name) const;  // any number
  bool boolean(llvm::StringRef name) const;
  llvm::StringRef text(llvm::StringRef name) const;
  mlir::AffineExpr size(llvm::StringRef name) const;
  Exprs sizes(llvm::StringRef name) const;
  llvm::SmallVector<int64_t> integers(llvm::StringRef name) const;
  // A dimension of a tensor of this rank, negative values wrapped.
  int64_t dim(llvm::StringRef name, int64_t rank) const;
  // A list of dimensions (or one), wrapped; None or an empty list: all of them.
  llvm::SmallVector<int64_t> dims(llvm::StringRef name, int64_t rank) const;

  // Result `index`; its sizes and dtype are torch's own (meta["val"]).
  const fx::TensorMeta& meta(unsigned index = 0) const;
  const fx::TensorMeta& metaOf(llvm::StringRef name) const;  // of a tensor argument
  // The dense tensor in whose memory a tensor argument lies (itself where it is no view), as one row, and where
  // the row and the argument begin in eager's storage.
  struct Memory {
    mlir::Value row;
    mlir::AffineExpr begin, offset;
    bool whole;  // the row is all of the storage: it is no input, behind which there may be more
  };
  Memory memoryOf(llvm::StringRef name) const;
  mlir::RankedTensorType resultType(unsigned index = 0) const;
  mlir::Type element(unsigned index = 0) const { return resultType(index).getElementType(); }
  bool used(unsigned index) const { return index < node.used.size() && node.used[index]; }
  unsigned numResults() const;

  [[noreturn]] void refuse(const llvm::Twine& reason) const;  // "aten::foo: <reason>"
  [[noreturn]] void refuseType(mlir::Type type) const;        // eager has no kernel of it for that, and raises
  void refuseOtherType(llvm::StringRef name) const;  // a tensor of another dtype than the result's: eager raises
  void refuseOverflow(llvm::StringRef name) const;   // a number that does not fit the result's dtype: eager raises

  // Eager raises where `least` is negative: refused where that is known, else checked when the sizes are, at each call.
  // Tracing guards no unbacked size, and torch 2.11 not every other. In the message "{}" stands for each of `numbers`.
  struct Requirement {
    mlir::AffineExpr least;
    std::string error, message;  // "index_error", "runtime_error", "value_error"; eager's text
    Exprs numbers;
  };
  void require(mlir::AffineExpr least, llvm::StringRef error, const llvm::Twine& message, const Exprs& numbers = {});
  llvm::ArrayRef<Requirement> requirements() const { return requirements_; }

  // The operator in several forms, best first, all of them emitted: stage 2 keeps the first that the target takes
  // (zefuse.alternatives). A form that throws NotLowered is left out; where the last one does, which every target is to
  // take, a call through ATen takes its place, as elseFallback says.
  Values alternatives(llvm::ArrayRef<llvm::function_ref<Values()>> forms);
  // What was emitted is not for every target: the others call ATen, for this reason.
  void elseFallback(const llvm::Twine& reason);
  // "aten::foo: <reason>", the first one given; empty: every target takes what was emitted.
  llvm::StringRef fallbackReason() const { return fallback_reason_; }
  // `value`, result `index`, with its sizes as torch writes them: its guards may know that two symbols are equal.
  mlir::Value inTorchsForm(unsigned index, mlir::Value value);

  const fx::Node& node;
  TensorBuilder& build;

private:
  const fx::Graph& graph_;
  llvm::ArrayRef<Values> values_;  // each FX node's results
  std::string fallback_reason_;
  llvm::SmallVector<Requirement, 0> requirements_;
};

}  // namespace zefuse
