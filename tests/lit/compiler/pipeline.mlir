// The pipeline as the compiler builds it, and mlir-opt's tools with it.
// RUN: zefuse-opt --pass-pipeline='builtin.module(zefuse-fuse)' --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=CPU
// RUN: not zefuse-opt --pass-pipeline='builtin.module(zefuse-fuse{target=dg2-g11 strict=true})' --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(zefuse-fuse{fuse=false})' --dump-pass-pipeline %s 2>&1 | FileCheck %s --check-prefix=APART
// RUN: zefuse-opt --zefuse-fuse --mlir-timing %s 2>&1 | FileCheck %s --check-prefix=TIMING
// RUN: zefuse-opt --help | FileCheck %s --check-prefix=HELP
// RUN: not zefuse-opt --pass-pipeline='builtin.module(zefuse-fuse{strict=true})' --mlir-print-ir-after-failure --mlir-pass-pipeline-crash-reproducer=%t.mlir %s 2>&1 | FileCheck %s --check-prefix=FAILED
// RUN: FileCheck %s --check-prefix=REPRODUCER --input-file=%t.mlir
// RUN: not zefuse-opt --run-reproducer %t.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN

// CPU: func.func(
// CPU-NEXT: zefuse-legalize{target=cpu},
// CPU-NEXT: zefuse-prepare,
// CPU-NEXT: zefuse-choose-kernel-products{convolutions=auto library=auto target=cpu},
// CPU-NEXT: zefuse-fuse-library-epilogues,
// CPU-NEXT: zefuse-split-reductions{target=cpu},
// CPU-NEXT: zefuse-repeat-cheap-producers,
// CPU-NEXT: zefuse-recompute-for-reductions,
// CPU-NEXT: zefuse-outline-kernels{merge=true},
// CPU-NEXT: zefuse-assign-layouts{target=cpu},
// CPU-NEXT: zefuse-divide-refused,
// CPU-NEXT: zefuse-batch-kernels{target=cpu},
// CPU-NEXT: zefuse-write-in-place{target=cpu},
// CPU-NEXT: zefuse-join-side-by-side{target=cpu}
// CPU-NEXT: )
// GPU: func.func(
// GPU-NEXT: zefuse-legalize{target=dg2-g11},
// GPU-NEXT: zefuse-split-products{convolutions=auto library=auto target=dg2-g11},
// GPU-NEXT: zefuse-refuse-fallbacks,
// GPU-NEXT: zefuse-prepare,
// GPU-NEXT: zefuse-choose-kernel-products{convolutions=auto library=auto target=dg2-g11},
// GPU-NEXT: zefuse-fuse-library-epilogues,
// GPU-NEXT: zefuse-split-reductions{target=dg2-g11},
// GPU-NEXT: zefuse-repeat-cheap-producers,
// GPU-NEXT: zefuse-recompute-for-reductions,
// GPU-NEXT: zefuse-outline-kernels{merge=true},
// GPU-NEXT: zefuse-assign-layouts{target=dg2-g11},
// GPU-NEXT: zefuse-divide-refused,
// GPU-NEXT: zefuse-batch-kernels{target=dg2-g11},
// GPU-NEXT: zefuse-write-in-place{target=dg2-g11},
// GPU-NEXT: zefuse-join-side-by-side{target=dg2-g11}
// GPU-NEXT: )
// APART: func.func(
// APART-NEXT: zefuse-legalize{target=cpu},
// APART-NEXT: zefuse-prepare,
// APART-NEXT: zefuse-choose-kernel-products{convolutions=auto library=auto target=cpu},
// APART-NEXT: zefuse-fuse-library-epilogues,
// APART-NEXT: zefuse-repeat-cheap-producers,
// APART-NEXT: zefuse-outline-kernels{merge=false},
// APART-NEXT: zefuse-assign-layouts{target=cpu},
// APART-NEXT: zefuse-divide-refused,
// APART-NEXT: zefuse-write-in-place{target=cpu}
// APART-NEXT: )

// TIMING: AssignLayouts

// HELP: --zefuse-assign-layouts
// HELP: --zefuse-write-in-place
// HELP: Pass Pipelines:
// HELP: --zefuse-fuse 

// FAILED: error: aten::foo runs in ATen
// FAILED: IR Dump After RefuseFallbacks Failed (zefuse-refuse-fallbacks)
// REPRODUCER: pipeline: "builtin.module(func.func(zefuse-legalize{target=cpu},zefuse-refuse-fallbacks,zefuse-prepare
// AGAIN: error: aten::foo runs in ATen

func.func @graph(%x: tensor<4xf32>) -> tensor<4xf32> {
  %f = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}], reason = "no lowering",
      operand_strides = [affine_map<() -> (1)>], result_strides = [affine_map<() -> (1)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return %f : tensor<4xf32>
}
