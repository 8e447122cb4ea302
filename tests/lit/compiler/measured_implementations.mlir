// Who was measured to be quickest (zefuse.implementation) decides in place of the cost model.
// RUN: zefuse-opt --zefuse-legalize=target=cpu %s | FileCheck %s --check-prefixes=LEGAL
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-legalize{target=cpu},zefuse-choose-kernel-products{target=cpu}))' %s | FileCheck %s --check-prefixes=KERNEL

// A kernel of its own, though eager's library is taken for quicker (legalize.mlir).
// LEGAL-LABEL: @large_double
// LEGAL: zefuse.matmul
// LEGAL-NOT: zefuse.aten
// KERNEL-LABEL: @large_double
// KERNEL: zefuse.matmul {{.*}}zefuse.in_kernel
func.func @large_double(%a: tensor<128x128xf64>) -> tensor<128x128xf64> {
  %r = zefuse.alternatives : tensor<128x128xf64> {
    %p = zefuse.matmul %a, %a {zefuse.implementation = "kernel"} : (tensor<128x128xf64>, tensor<128x128xf64>) -> tensor<128x128xf64>
    zefuse.yield %p : tensor<128x128xf64>
  }, {
    %c = zefuse.aten "aten::mm"(%a, %a) {overload = "", args = [{tensor = 0}, {tensor = 1}], reason = "f64",
        operand_strides = [affine_map<() -> (128, 1)>, affine_map<() -> (128, 1)>], result_strides = [affine_map<() -> (128, 1)>]}
        : (tensor<128x128xf64>, tensor<128x128xf64>) -> tensor<128x128xf64>
    zefuse.yield %c : tensor<128x128xf64>
  }
  return %r : tensor<128x128xf64>
}

// Of f32 and bf16, which the library takes else; its own ways stay calls.
// LEGAL-LABEL: @library
// KERNEL-LABEL: @library
// KERNEL: zefuse.matmul {{.*}}zefuse.implementation = "kernel", zefuse.in_kernel{{.*}}f32>
// KERNEL: zefuse.matmul {{.*}}zefuse.implementation = "kernel", zefuse.in_kernel{{.*}}bf16>
// KERNEL: zefuse.matmul
// KERNEL-NOT: zefuse.in_kernel
// KERNEL-SAME: zefuse.implementation = "gemm"
func.func @library(%a: tensor<8x8xf32>, %b: tensor<8x8xbf16>) -> (tensor<8x8xf32>, tensor<8x8xbf16>, tensor<8x8xf32>) {
  %p = zefuse.matmul %a, %a {zefuse.implementation = "kernel"} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %q = zefuse.matmul %b, %b {zefuse.implementation = "kernel"} : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
  %r = zefuse.matmul %a, %a {zefuse.implementation = "gemm"} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %p, %q, %r : tensor<8x8xf32>, tensor<8x8xbf16>, tensor<8x8xf32>
}
