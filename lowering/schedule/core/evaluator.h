// Emits the value of any tensor of the kernel at given indices, where it is asked for ("pull").
//
// The schedule opens scopes (a function body, a loop body) that bind dims to SSA indices; one dim may be bound to
// several lanes at once. The evaluator emits each node once, in the outermost scope that binds all dims it depends on,
// so that row-level values leave the inner loop by construction. The affine form of an offset tells how lanes step
// through memory: not at all (scalar load), by one (vector load) or otherwise (a scalar load per lane).
#pragma once

#include <memory>

#include "lowering/analysis/domain.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"

namespace zefuse {

// A value kept from its first stage for later ones, in memory that one unit of work owns.
struct Kept {
  Node node;
  mlir::Type type;          // register type
  unsigned axes;            // the axis set it varies over
  mlir::AffineExpr offset;  // element in the buffer
  mlir::AffineExpr elements;
  mlir::Value buffer;    // pointer, set by the schedule
  bool stored = false;   // set by the evaluator: the current stage computes and stores it
  bool written = false;  // set by the schedule after that stage: later ones load it
};

class Evaluator {
public:
  struct Arguments {
    llvm::DenseMap<mlir::Value, mlir::Value> inputs;    // input tensor: pointer
    mlir::Value status;                                 // pointer, null without checks
    llvm::SmallVector<mlir::Value> symbols;             // per graph symbol: index, null when the kernel does not use it
    llvm::DenseMap<mlir::Operation*, unsigned> checks;  // zefuse.checked_index: its number
    int64_t alignment = 1;                              // bytes: of all pointers to tensors, a power of two
  };

  Evaluator(mlir::OpBuilder& builder, Domain& domain, const KernelGraph& graph, Arguments arguments)
      : builder_(builder), space_(domain.space), graph_(graph), arguments_(std::move(arguments)) {}

  // The first op that could not be emitted, and why. Once set, values are null and nothing more is emitted.
  const Refusal& failure() const { return failure_; }
  bool failed() const { return !failure_.reason.empty(); }

  //===-- scopes --------------------------------------------------------------------------------===//
  void enter(mlir::Block* block);
  // Scopes down to the block in which the builder stands and which others opened; where that is the innermost scope's
  // own, one more. Returns how many: leave() each, which moves the builder.
  unsigned enterHere();
  void leave();
  void bind(unsigned dim, mlir::Value index);
  // `aligned`: base is a multiple of `lanes`. `limit`: null, or the dim's size when base + lanes may exceed it; lanes
  // past it then repeat the last index.
  void bindLanes(unsigned dim, mlir::Value base, unsigned lanes, bool aligned, mlir::Value limit = nullptr);
  void bindValue(Node node, mlir::Value value);  // a reduction's result, at the current scope
  // For a scope that is pinned: an input's pointer and a symbol's value hold there and in what it holds.
  void bindInput(mlir::Value tensor, mlir::Value pointer) { arguments_.inputs[tensor] = pointer; }
  void bindSymbol(unsigned symbol, mlir::Value value);
  void pin() { scopes_.back().barrier = true; }  // no load moves out of the current scope

  // A loop from lower to upper; its body is a new scope. The induction variable and the carried values are returned.
  struct Loop {
    mlir::scf::ForOp op;
    mlir::Value index() { return op.getInductionVar(); }
    mlir::ValueRange carried() { return op.getRegionIterArgs(); }
  };
  Loop openLoop(mlir::Value lower, mlir::Value upper, mlir::Value step, mlir::ValueRange init = {});
  mlir::ValueRange closeLoop(Loop loop, mlir::ValueRange yields = {});
  // A scope for one element (or vector) of a stage in straight-line code: what is bound and evaluated in it holds until
  // suspend(), and again from resume() on, which needs the same scopes around it. So that a later stage has in
  // registers what an earlier one made.
  struct Frame;
  void openFrame();
  std::unique_ptr<Frame> suspend();
  void resume(std::unique_ptr<Frame> frame);

  void openIf(mlir::Value condition);  // without results: a guard. Nothing inside moves out.
  void closeIf();

  //===-- values --------------------------------------------------------------------------------===//
  // Scalar, or a vector of the current lanes when it depends on the laned dim.
  mlir::Value evaluate(Node node);
  mlir::Value index(mlir::AffineExpr expr);  // scalar; at lane 0
  // Where the current lanes of an input lie as neighbours, at a multiple of all their bytes; with no lanes, the
  // element. Null: they lie otherwise, or this is no input.
  mlir::Value addressOf(Node node);
  void store(mlir::Value pointer, mlir::AffineExpr offset, mlir::Value value, mlir::Type type);
  // pointer[offset] = next(pointer[offset]), here: nothing moves out. Lanes step by one.
  void modify(mlir::Value pointer, mlir::AffineExpr offset, mlir::Type type,
              llvm::function_ref<mlir::Value(mlir::Value)> next);
  // A body of scalar ops (zefuse.scatter's) applied to these values, which have equal lanes.
  mlir::Value emitBody(mlir::Block& body, mlir::ValueRange arguments);
  mlir::Value anyLane(mlir::Location loc, mlir::Value condition);  // one i1, here
  void keep(std::vector<Kept>* kept) { kept_ = kept; }
  // Vector loads of inputs whose offset depends on one of `dims` fetch what lies 8 KiB further on as well, each cache
  // line once if the loads are number 0, 1, ... (`number`) of those that follow each other. No dims: none do.
  void fetchAhead(Dims dims, unsigned number = 0) {
    streamed_ = dims, stream_number_ = number;
    stream_step_.reset();
  }
  // The same where lanes lie across rows: of the loads in a step along `walked`, the first of each cache line.
  void fetchStepsAhead(Dims dims, unsigned walked) { streamed_ = dims, stream_step_ = walked; }
  // Vector loads of inputs whose offset depends on all of `dims` are of what nobody reads again. No dims: none are.
  void readOnce(Dims dims) { once_ = dims; }
  mlir::Value status() const { return arguments_.status; }  // where a failed check's number is; null without checks

  mlir::OpBuilder& builder() { return builder_; }
  void toInnermost() { insertAt(scopes_.size() - 1); }

private:
  struct Placed {
    mlir::Value value;
    unsigned depth = 0;
  };
  struct Scope {
    mlir::Block* block;
    mlir::Operation* nested = nullptr;  // the op in `block` that holds the next scope
    bool barrier = false;
    llvm::DenseMap<std::pair<mlir::Value, mlir::AffineMap>, Placed> values;
    llvm::DenseMap<mlir::AffineExpr, Placed> indices, lane_indices;
    llvm::DenseMap<std::pair<mlir::Value, unsigned>, mlir::Value> splats;
    llvm::SmallVector<unsigned> dims;
    bool laned = false;
  };
  struct Binding {
    mlir::Value value;
    unsigned depth;
  };
  struct Lanes {
    unsigned dim = ~0u, count = 1, depth = 0;
    bool aligned = false;
    mlir::Value limit;
  };

public:
  // A suspended scope. Made by suspend() alone.
  struct Frame {
  private:
    friend class Evaluator;
    Scope scope;
    llvm::SmallVector<std::pair<unsigned, Binding>> dims;
    Lanes lanes;
    unsigned depth = 0;
  };

private:
  Placed fail(mlir::Operation* op, const llvm::Twine& reason);
  void insertAt(unsigned depth);
  void setNested(mlir::Operation* nested);  // of the innermost scope and those around it in the same block
  unsigned barrier() const;
  Placed remember(Node node, Placed placed);

  Placed emit(Node node);
  Placed emitUncached(Node node);
  Placed emitLoad(Node node);
  bool isStreamed(Node node, mlir::AffineExpr offset);
  void emitPrefetch(mlir::Location loc, mlir::Value pointer, mlir::Type memory, mlir::Value index);
  unsigned alignmentAt(mlir::AffineExpr offset, mlir::Type type, bool kept);
  // kept: a buffer of kept values, where lanes are neighbours and a last partial vector has room. once: see readOnce.
  Placed emitLoadAt(mlir::Location loc, mlir::Value pointer, mlir::AffineExpr offset, mlir::Type type, bool kept,
                    bool once = false);
  Placed nothing(mlir::Operation* op, mlir::Type type);
  Placed emitConcat(mlir::tensor::ConcatOp op, mlir::AffineMap at);
  // Whether each vector of lanes lies in one piece. `along`: the index in the dimension of the pieces.
  bool lanesShareAPiece(mlir::AffineExpr along, llvm::ArrayRef<Piece> pieces);
  bool mostShareAPiece(mlir::AffineExpr along, llvm::ArrayRef<Piece> pieces);
  mlir::Value pieceOfAllLanes(mlir::tensor::ConcatOp op, llvm::ArrayRef<Piece> pieces, mlir::AffineMap at);
  mlir::Value pieceOfMostLanes(mlir::tensor::ConcatOp op, llvm::ArrayRef<Piece> pieces, mlir::AffineMap at);
  mlir::Value pieceOfEachLane(mlir::tensor::ConcatOp op, llvm::ArrayRef<Piece> pieces, mlir::AffineMap at);
  bool isEmitted(Node node) const;  // where the next operation is inserted, its value is known
  class PadEmitter;
  Placed emitPad(PadOp op, mlir::AffineMap at);
  // scf.if whose branches make one value each, in scopes of their own.
  mlir::Value branch(mlir::Location loc, mlir::Value condition, mlir::Type type, llvm::function_ref<mlir::Value()> then,
                     llvm::function_ref<mlir::Value()> otherwise);
  mlir::Value allPositive(mlir::Location loc, llvm::ArrayRef<mlir::AffineExpr> sizes);  // one i1, here
  unsigned checkedFrom(unsigned depth) const;
  Placed emitCheckedIndex(mlir::Operation* op, mlir::AffineMap at);
  Placed emitExtract(mlir::tensor::ExtractOp op, mlir::AffineMap node_at);
  Placed emitKept(Kept& kept);
  void storeAt(mlir::Location loc, mlir::Value pointer, mlir::AffineExpr offset, mlir::Value value, mlir::Type type,
               bool kept);

  Placed emitIndex(mlir::AffineExpr expr);
  Placed emitLaneIndex(mlir::AffineExpr expr);  // a vector, or a scalar when all lanes agree
  bool dependsOnLanes(mlir::AffineExpr expr);
  // The step of expr from lane to lane; null when it is not uniform.
  mlir::AffineExpr laneStep(mlir::AffineExpr expr);
  mlir::Value splatAt(Placed placed, unsigned lanes);
  mlir::Value address(mlir::Location loc, mlir::Type element, mlir::Value pointer, mlir::Value index, int64_t plus = 0);

  mlir::OpBuilder& builder_;
  IndexSpace& space_;
  const KernelGraph& graph_;
  Arguments arguments_;
  llvm::SmallVector<Scope> scopes_;
  llvm::DenseMap<unsigned, Binding> dims_;
  llvm::DenseMap<unsigned, Binding> symbols_;                    // bound by a scope; the others are arguments
  llvm::DenseMap<mlir::AffineExpr, mlir::Value> bound_opaques_;  // indices clamped into a concat's piece
  Lanes lanes_;
  std::vector<Kept>* kept_ = nullptr;
  Dims streamed_, once_;
  unsigned stream_number_ = 0;
  std::optional<unsigned> stream_step_;
  Refusal failure_;
};

}  // namespace zefuse
