#include "compiler/kernel_transfer.h"

#include "lowering/dialect/Zefuse.h"
#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr StringRef layouts_name = "zefuse.transferred_layouts";

AffineExpr inContext(AffineExpr expr, MLIRContext* context) {
  switch (expr.getKind()) {
  case AffineExprKind::Constant: return getAffineConstantExpr(cast<AffineConstantExpr>(expr).getValue(), context);
  case AffineExprKind::DimId: return getAffineDimExpr(cast<AffineDimExpr>(expr).getPosition(), context);
  case AffineExprKind::SymbolId: return getAffineSymbolExpr(cast<AffineSymbolExpr>(expr).getPosition(), context);
  default: break;
  }
  auto binary = cast<AffineBinaryOpExpr>(expr);
  return getAffineBinaryOpExpr(expr.getKind(), inContext(binary.getLHS(), context),
                               inContext(binary.getRHS(), context));
}

}  // namespace

std::string packKernel(Operation* op, ArrayRef<AffineMap> layouts) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(op->getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  auto function = func::FuncOp::create(builder, op->getLoc(), "graph",
                                       builder.getFunctionType(op->getOperandTypes(), op->getResultTypes()));
  function->setAttr(layouts_name, builder.getAffineMapArrayAttr(layouts));
  Block* block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  Operation* copy = builder.clone(*op);
  copy->setOperands(block->getArguments());
  func::ReturnOp::create(builder, op->getLoc(), copy->getResults());
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  if (failed(writeBytecodeToFile(*module, stream)))
    llvm_unreachable("the newest version can be written");
  return bytes;
}

PackedKernel unpackKernel(StringRef bytes, MLIRContext& context) {
  PackedKernel kernel{
      parseSourceString<ModuleOp>(bytes, ParserConfig(&context, /*verifyAfterParse=*/false)), nullptr, {}};
  auto function = *kernel.module->getOps<func::FuncOp>().begin();
  kernel.op = &function.getBody().front().front();
  llvm::append_range(kernel.layouts, function->getAttrOfType<ArrayAttr>(layouts_name).getAsValueRange<AffineMapAttr>());
  return kernel;
}

void moveTo(MLIRContext* context, LoweredKernel& kernel) {
  for (AffineExpr* expr : {&kernel.extent, &kernel.scratch_bytes})
    if (*expr && expr->getContext() != context)
      *expr = inContext(*expr, context);
}

KernelContexts::Borrowed KernelContexts::borrow() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      MLIRContext* context = free_.back();
      free_.pop_back();
      return {*this, context};
    }
  }
  DialectRegistry registry;
  registerDialects(registry);
  auto context = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  std::lock_guard lock(mutex_);
  return {*this, made_.emplace_back(std::move(context)).get()};
}

KernelContexts::Borrowed::~Borrowed() {
  std::lock_guard lock(from_.mutex_);
  from_.free_.push_back(context_);
}

}  // namespace zefuse
