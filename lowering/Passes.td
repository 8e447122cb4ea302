// Stage 2 to stage 4 as passes, kernel by kernel: what lowerKernel (lower.h) does before LLVM's SPIR-V back end.
#ifndef ZEFUSE_LOWERING_PASSES
#define ZEFUSE_LOWERING_PASSES

include "mlir/Pass/PassBase.td"

def CheckLegal : Pass<"zefuse-check-legal"> {
  let summary = "Fails at the first operation of a kernel that has no SPIR-V lowering";
  let description = [{
    Before: stage 2. After: each operation in a zefuse.kernel is in the closed set that LLVM's SPIR-V back end takes
    (analysis/legality.h), which ends the process on others.
  }];
}

def ScheduleKernels : Pass<"zefuse-schedule", "::mlir::ModuleOp"> {
  let summary = "Each kernel becomes a function of loops and vectors for the target";
  let description = [{
    Before: stage 2, with layouts. After: stage 3: the module holds one scheduled function per distinct name of a kernel, as
    lowerKernel schedules it, and the builtins that they call; nothing else. Sizes of work-groups are `zefuse.group_size` and
    `zefuse.subgroup_size`.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def HalfConversions : Pass<"zefuse-half-conversions", "::mlir::ModuleOp"> {
  let summary = "Conversions of bf16 and f16 become what the target has";
  let description = [{
    Before: stage 3, where bf16 and f16 are converted from and to f32, and are bits else. After: an instruction, a call
    of a function that our compiler knows, or integer arithmetic; bf16 is gone, and so is f16 where the target does not compute with it.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect"];
}

def DotProducts : Pass<"zefuse-dot-products", "::mlir::ModuleOp"> {
  let summary = "Dot products of bytes become what the target has";
  let description = [{
    Before: stage 3. After: each zefuse.dot4 is a call of a function that our compiler knows, or integer arithmetic.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect"];
}

def ConvertToLLVM : Pass<"zefuse-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "Scheduled functions become SPIR-V kernels in the LLVM dialect";
  let description = [{
    Before: stage 3. After: the LLVM dialect alone. Functions with a body are kernels, with their work-group's sizes;
    math is calls of OpenCL's builtins; declarations have SPIR-V's calling convention.
  }];
  let options = [Option<"index_bits", "index-bits", "unsigned", "64", "how wide an index becomes">];
  let dependentDialects = ["::mlir::cf::ControlFlowDialect", "::mlir::LLVM::LLVMDialect"];
}

#endif
