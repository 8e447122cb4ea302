#include "compiler/fuse/analysed_groups.h"

#include "compiler/fuse/outline.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/IR/Operation.h"

using namespace mlir;

namespace zefuse {
namespace {

void put(std::string& text, const void* pointer) {
  text.append(reinterpret_cast<const char*>(&pointer), sizeof pointer);
}
void put(std::string& text, unsigned number) { text.append(reinterpret_cast<const char*>(&number), sizeof number); }

// Names, types and attributes are unique in their context: their addresses stand for them. Locations do not count.
class PieceText {
public:
  explicit PieceText(SmallVector<Value>& reads) : reads_(reads) {}

  void add(Operation* op) {
    put(text, op->getName().getAsOpaquePointer());
    put(text, op->getAttrDictionary().getAsOpaquePointer());
    put(text, op->getNumOperands());
    for (Value operand : op->getOperands())
      read(operand);
    put(text, op->getNumResults());
    for (Value result : op->getResults())
      define(result);
    put(text, op->getNumRegions());
    for (Region& region : op->getRegions()) {
      put(text, unsigned(region.getBlocks().size()));
      for (Block& block : region) {
        put(text, block.getNumArguments());
        for (BlockArgument argument : block.getArguments())
          define(argument);
        put(text, unsigned(block.getOperations().size()));
        for (Operation& inner : block)
          add(&inner);
      }
    }
  }

  std::string text;

private:
  void define(Value value) {
    put(text, value.getType().getAsOpaquePointer());
    defined_[value] = unsigned(defined_.size());
  }
  void read(Value value) {
    const auto found = defined_.find(value);
    put(text, found == defined_.end() ? 0 : found->second + 1);
    if (found == defined_.end())
      reads_.push_back(value);
  }

  SmallVector<Value>& reads_;
  llvm::DenseMap<Value, unsigned> defined_;
};

}  // namespace

KnownAnswers& KnownAnswers::of(MLIRContext* context) {
  Dialect* dialect = context->getOrLoadDialect<ZefuseDialect>();
  if (auto* known = dialect->getRegisteredInterface<KnownAnswers>())
    return *const_cast<KnownAnswers*>(known);
  dialect->addInterface(std::make_unique<KnownAnswers>(dialect));
  return of(context);
}

const AnalysedGroups::Piece& AnalysedGroups::pieceOf(Operation* op) {
  auto [it, fresh] = pieces_.try_emplace(op);
  if (fresh) {
    PieceText piece(it->second.reads);
    piece.add(op);
    it->second.number = known_.pieces.try_emplace(piece.text, unsigned(known_.pieces.size())).first->second;
  }
  return it->second;
}

std::string AnalysedGroups::keyOf(ArrayRef<Operation*> ops) {
  const llvm::DenseSet<Operation*> inside(ops.begin(), ops.end());
  llvm::DenseMap<Value, unsigned> numbers;
  std::string key;
  // Results of these operations have their place among them, others are numbered as they come, with their types.
  auto refer = [&](Value value) {
    const auto [it, fresh] = numbers.try_emplace(value, unsigned(numbers.size()));
    put(key, it->second);
    if (fresh)
      put(key, value.getType().getAsOpaquePointer());
  };
  for (Operation* op : ops) {
    const Piece& piece = pieceOf(op);
    put(key, piece.number);
    for (Value value : piece.reads) {
      Operation* producer = value.getDefiningOp();
      put(key, unsigned(producer && inside.contains(producer)));
      refer(value);
    }
    for (Value result : op->getResults()) {
      refer(result);
      put(key, unsigned(isReadOutside(result, inside)));
    }
  }
  return key;
}

std::optional<std::string> AnalysedGroups::whyNotOneKernel(ArrayRef<Operation*> ops, KernelShape& shape) {
  const KernelBody body = bodyOf(ops);
  auto [it, fresh] = known_.answers.try_emplace(keyOf(body.ops.getArrayRef()));
  KnownAnswers::Answer& answer = it->second;
  if (fresh)
    answer.reason = zefuse::whyNotOneKernel(body.ops.getArrayRef(), &answer.shape);
  shape = answer.shape;
  return answer.reason;
}

}  // namespace zefuse
