// What whyNotOneKernel said of a set of operations, found again for another set that is the same but for where it
// stands: a model's layers ask the same questions, and each answer is an analysis of the whole set. Of 3000 questions
// about ViT-S's training (12 layers) 950 were analysed. Answers stay with the graph's context, so that the passes that
// group, and fusing once more without what its schedule refused, ask each question once.
#pragma once

#include <optional>
#include <string>

#include "lowering/analysis/fusible.h"
#include "mlir/IR/DialectInterface.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace zefuse {

// The answers that a context has, beside its dialect. For the one thread that the graph belongs to.
class KnownAnswers : public mlir::DialectInterface::Base<KnownAnswers> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(KnownAnswers)
  explicit KnownAnswers(mlir::Dialect* dialect) : Base(dialect) {}
  static KnownAnswers& of(mlir::MLIRContext* context);

  struct Answer {
    std::optional<std::string> reason;
    KernelShape shape;
  };
  llvm::StringMap<unsigned> pieces;  // an operation's text -> its number
  llvm::StringMap<Answer> answers;   // by what AnalysedGroups says of a set
};

// For as long as the graph stays as it is.
class AnalysedGroups {
public:
  explicit AnalysedGroups(mlir::MLIRContext* context) : known_(KnownAnswers::of(context)) {}

  // Of the body (outline.h) of these operations.
  std::optional<std::string> whyNotOneKernel(llvm::ArrayRef<mlir::Operation*> ops, KernelShape& shape);
  // How many were analysed in this context: all that were asked for, but for those that are the same.
  size_t analyses() const { return known_.answers.size(); }

private:
  // Everything about an operation but who its operands are, which follow in order.
  struct Piece {
    unsigned number;  // the same for pieces that are the same
    llvm::SmallVector<mlir::Value> reads;
  };
  const Piece& pieceOf(mlir::Operation* op);
  std::string keyOf(llvm::ArrayRef<mlir::Operation*> ops);

  llvm::DenseMap<mlir::Operation*, Piece> pieces_;
  KnownAnswers& known_;
};

}  // namespace zefuse
