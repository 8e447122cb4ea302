// What fusion and layout assignment ask of the operations that become steps of a plan, whatever they compute.
#ifndef ZEFUSE_INTERFACES
#define ZEFUSE_INTERFACES

include "mlir/IR/OpBase.td"

def Zefuse_StepOpInterface : OpInterface<"StepOpInterface"> {
  let cppNamespace = "::zefuse";
  let description = [{
    One step of the plan: a kernel, or a call that behaves like one. Its tensor operands are read from memory, its results are written to
    memory, and it says how they may lie there.
  }];
  let methods = [
    InterfaceMethod<"How the operand of this number has to lie in memory.",
                    "::zefuse::OperandRule", "getOperandRule", (ins "unsigned":$operand)>,
    InterfaceMethod<[{The strides (a map without dimensions) that the operand has in any case; null but for OperandRule::fixed.}],
                    "::mlir::AffineMap", "getFixedOperandStrides", (ins "unsigned":$operand), "", [{ return {}; }]>,
    InterfaceMethod<"The strides that the result has in any case; null: the compiler chooses, and the plan allocates.",
                    "::mlir::AffineMap", "getFixedResultStrides", (ins "unsigned":$result), "", [{ return {}; }]>,
    InterfaceMethod<"Whether the result's last dimension stays innermost where the compiler chooses.",
                    "bool", "keepsRowsOf", (ins "unsigned":$result), "", [{ return false; }]>,
    InterfaceMethod<[{Notes the chosen layouts, from indices (and graph symbols) to the element offset; of an operand that is a view of what lies
                    in memory, null.}],
                    "void", "setLayouts", (ins "::llvm::ArrayRef<::mlir::AffineMap>":$operands,
                                               "::llvm::ArrayRef<::mlir::AffineMap>":$results)>,
  ];
}

def Zefuse_PostOpsOpInterface : OpInterface<"PostOpsOpInterface"> {
  let cppNamespace = "::zefuse";
  let description = [{
    A call with an epilogue: `post_ops` in order, each add and mul with the next of `operands_` (zefuse.matmul).
  }];
  let methods = [
    InterfaceMethod<"The names of the post-ops.", "::mlir::ArrayAttr", "getPostOps">,
    InterfaceMethod<"What add and mul take, in order.", "::mlir::OperandRange", "getPostOperands", (ins),
                    [{ return $_op.getOperands_(); }]>,
    InterfaceMethod<"Adds a post-op behind the others; `operand` for add and mul, else null.", "void", "appendPostOp",
                    (ins "::llvm::StringRef":$name, "::mlir::Value":$operand), [{
      ::mlir::Builder builder($_op->getContext());
      ::llvm::SmallVector<::mlir::Attribute> post_ops($_op.getPostOps().getValue());
      post_ops.push_back(builder.getStringAttr(name));
      $_op.setPostOpsAttr(builder.getArrayAttr(post_ops));
      if (operand)
        $_op.getOperands_Mutable().append(operand);
    }]>,
  ];
  let verify = [{ return ::zefuse::verifyPostOps($_op); }];
}

#endif
