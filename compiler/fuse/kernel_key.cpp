#include "compiler/fuse/kernel_key.h"

#include "lowering/dialect/Zefuse.h"
#include "mlir/IR/AsmState.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {

std::string bodyText(KernelOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  // Numbering starts anew inside: a kernel is isolated, so its body's text does not depend on where it stands.
  AsmState state(kernel, OpPrintingFlags().useLocalScope());
  for (Operation& op : kernel.getBody().front()) {
    op.print(stream, state);
    stream << "\n";
  }
  return text;
}

std::string kernelKey(KernelOp kernel) {
  std::string key;
  llvm::raw_string_ostream stream(key);
  stream << kernel.getName() << " " << kernel.getLayouts() << " " << kernel.getOperandTypes() << " -> "
         << kernel.getResultTypes() << " x " << kernel.getBatch() << " " << kernel.getBatchSizesAttr() << " "
         << kernel.getInPlaceAttr() << " " << kernel.getPartsAttr() << "\n"
         << bodyText(kernel);
  return key;
}

std::string hashOfKey(const std::string& key) {
  const auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(key));
  return llvm::toHex(ArrayRef(digest).take_front(16), /*LowerCase=*/true);
}

}  // namespace zefuse
