// Which ATen operators have a lowering. One register function per family; docs/adding_an_op.md shows how to add one.
#pragma once

#include <functional>
#include <string>

#include "compiler/import/op.h"
#include "llvm/ADT/StringMap.h"

namespace zefuse {

// Emits the operator and returns its results in order; a result without users may be null. May throw NotLowered at any
// point: what it built until then is erased and ATen runs the operator.
using Emitter = std::function<Values(Op&)>;

class OpTable {
public:
  void add(llvm::StringRef target, Emitter emitter);  // "aten.add.Tensor"
  const Emitter* find(llvm::StringRef target) const;
  // The parameters whose numbers eager makes elements of the result's dtype ("fill_value" of "aten::full"), separated
  // by spaces: it raises for one outside of the dtype's range, and through ATen here. Empty: there are none.
  static llvm::StringRef numbersOfItsType(llvm::StringRef op);
  // The tensors that eager wants of the result's dtype (or of f32, where that has 16 bits: parameters of norms),
  // separated by spaces: it raises for others, and through ATen here. Empty: there are none.
  static llvm::StringRef tensorsOfItsType(llvm::StringRef op);
  // Whether eager has no kernel of this operator ("aten::abs") whose result is of this type, bool or another integer:
  // there it raises, and through ATen here. `element` is asked of operators alone that have some.
  static bool refuses(llvm::StringRef op, llvm::function_ref<mlir::Type()> element);
  std::vector<std::string> targets() const;  // sorted

private:
  llvm::StringMap<Emitter> emitters_;
};

void registerPointwise(OpTable& table);
void registerActivations(OpTable& table);
void registerGradients(OpTable& table);
void registerReductions(OpTable& table);
void registerNormalization(OpTable& table);
void registerViews(OpTable& table);
void registerIndexing(OpTable& table);
void registerScans(OpTable& table);
void registerSpecial(OpTable& table);
void registerDivisors(OpTable& table);
void registerSorts(OpTable& table);
void registerScatter(OpTable& table);
void registerWindows(OpTable& table);
void registerMatmul(OpTable& table);
void registerConvolution(OpTable& table);
void registerAttention(OpTable& table);
void registerGroupedMatmul(OpTable& table);
void registerRecurrence(OpTable& table);
void registerCreation(OpTable& table);
void registerRandom(OpTable& table);
void registerConversion(OpTable& table);

// Built once; immutable afterwards, so any thread may read it.
const OpTable& opTable();

}  // namespace zefuse
