#include "lowering/schedule/launch_function.h"

#include "lowering/analysis/element_types.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace zefuse {
namespace {

// The kernel's graph symbols in use, ascending.
SmallVector<unsigned> symbolsOf(KernelOp kernel) {
  llvm::SmallBitVector used;
  auto note = [&](AffineMap map) {
    for (AffineExpr result : map.getResults())
      result.walk([&](AffineExpr part) {
        if (auto symbol = dyn_cast<AffineSymbolExpr>(part)) {
          if (symbol.getPosition() >= used.size())
            used.resize(symbol.getPosition() + 1);
          used.set(symbol.getPosition());
        }
      });
  };
  auto noteType = [&](Type type) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      if (auto map = dyn_cast_or_null<AffineMapAttr>(tensor.getEncoding()))
        note(map.getValue());
  };
  for (auto layout : kernel.getLayouts().getAsRange<AffineMapAttr>())
    note(layout.getValue());
  for (BlockArgument argument : kernel.getBody().getArguments())
    noteType(argument.getType());
  kernel.getBody().walk([&](Operation* op) {
    for (Type type : op->getResultTypes())
      noteType(type);
    for (NamedAttribute attribute : op->getAttrs())
      if (auto map = dyn_cast<AffineMapAttr>(attribute.getValue()))
        note(map.getValue());
  });
  return llvm::to_vector(used.set_bits());
}

// Equal checks under one number.
void numberChecks(KernelOp kernel, LoweredKernel& launch, Evaluator::Arguments& arguments) {
  kernel.getBody().walk([&](CheckedIndexOp op) {
    auto same = llvm::find_if(launch.checks, [&](const KernelCheck& check) {
      return check.error == op.getError() && check.message == op.getMessage();
    });
    arguments.checks[op] = same - launch.checks.begin();
    if (same == launch.checks.end())
      launch.checks.push_back({op.getError().str(), op.getMessage().str()});
  });
}

// The body's inputs, then its results, in whose memory there are both.
llvm::SmallBitVector sharedMemory(KernelOp kernel) {
  Block& body = kernel.getBody().front();
  const unsigned inputs = body.getNumArguments();
  llvm::SmallBitVector shared(inputs + body.getTerminator()->getNumOperands());
  if (auto pairs = kernel.getInPlace())
    for (unsigned i = 0; i + 1 < pairs->size(); i += 2)
      shared.set((*pairs)[i]).set(inputs + (*pairs)[i + 1]);
  return shared;
}

// What LLVM may assume of pointer `number`, to such a tensor.
void describePointer(func::FuncOp function, unsigned number, RankedTensorType tensor, int64_t alignment, bool alone,
                     bool read_only) {
  Builder b(function.getContext());
  if (alone)
    function.setArgAttr(number, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  function.setArgAttr(number, LLVM::LLVMDialect::getAlignAttrName(),
                      b.getI64IntegerAttr(std::max<int64_t>(alignment, bytesInMemory(tensor.getElementType()))));
  if (read_only)
    function.setArgAttr(number, LLVM::LLVMDialect::getReadonlyAttrName(), b.getUnitAttr());
}

}  // namespace

LaunchFunction beginFunction(OpBuilder& builder, KernelOp kernel, int64_t alignment, unsigned graph_symbols,
                             Batch& batch, LoweredKernel& launch) {
  MLIRContext* context = kernel.getContext();
  Location loc = kernel.getLoc();
  Block& body = kernel.getBody().front();
  LaunchFunction function;
  launch.name = kernel.getName().str();
  SmallVector<unsigned> symbols = symbolsOf(kernel);
  launch.symbols.assign(symbols.begin(), symbols.end());
  numberChecks(kernel, launch, function.arguments);

  // Pointers, status, scratch, symbols (plan.fbs, Launch).
  const unsigned inputs = body.getNumArguments(), results = body.getTerminator()->getNumOperands();
  const unsigned all_inputs = inputs * batch.sets, pointers = (inputs + results) * batch.sets;
  const bool checks = !launch.checks.empty(), scratch = bool(launch.scratch_bytes);
  SmallVector<Type> types(pointers + checks + scratch, LLVM::LLVMPointerType::get(context, 1));
  types.append(launch.symbols.size(), builder.getI64Type());
  function.op = func::FuncOp::create(builder, loc, launch.name, builder.getFunctionType(types, {}));
  Block* entry = function.op.addEntryBlock();
  builder.setInsertionPointToStart(entry);

  const llvm::SmallBitVector shared = sharedMemory(kernel);
  function.in_place = shared.any();
  unsigned next = 0;
  for (; next < pointers; ++next) {
    const bool input = next < all_inputs;
    const unsigned number = input ? next % inputs : (next - all_inputs) % results;
    const Value tensor = input ? Value(body.getArgument(number)) : body.getTerminator()->getOperand(number);
    const bool alone = !shared.test(input ? number : inputs + number);
    describePointer(function.op, next, cast<RankedTensorType>(tensor.getType()), alignment, alone, input && alone);
    (input ? batch.inputs : batch.outputs).push_back(entry->getArgument(next));
  }
  for (auto [argument, tensor] : llvm::zip(batch.inputs, body.getArguments()))
    function.arguments.inputs[tensor] = argument;
  if (checks)
    function.arguments.status = entry->getArgument(next++);
  if (scratch) {
    function.op.setArgAttr(next, LLVM::LLVMDialect::getNoAliasAttrName(), builder.getUnitAttr());
    function.scratch = entry->getArgument(next++);
  }
  function.arguments.alignment = alignment;
  function.arguments.symbols.assign(graph_symbols, Value());
  for (unsigned symbol : launch.symbols)
    function.arguments.symbols[symbol] =
        arith::IndexCastOp::create(builder, loc, builder.getIndexType(), entry->getArgument(next++));
  return function;
}

}  // namespace zefuse
