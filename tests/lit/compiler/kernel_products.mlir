// Which products are nodes of kernels, and what joins them there.
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=cpu}))' %s | FileCheck %s --check-prefix=CPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11}))' %s | FileCheck %s --check-prefix=GPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11},zefuse-outline-kernels))' %s | FileCheck %s --check-prefix=JOINED
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=sm_90 library=always},zefuse-outline-kernels))' %s | FileCheck %s --check-prefix=LIBRARY
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=sm_90},zefuse-outline-kernels))' %s | FileCheck %s --check-prefix=SMALL

// The CPU's library takes f32; f64 is a kernel of its own there, and none on a device without double precision.
// CPU: zefuse.matmul %{{.*}}, %{{[a-z0-9]+}} : (tensor<4x8xf32>
// CPU: zefuse.matmul {{.*}} {zefuse.in_kernel = array<i64: 1, 0>} : (tensor<4x8xf64>
// GPU: zefuse.matmul {{.*}} {zefuse.in_kernel = array<i64: 0, 16>} : (tensor<4x8xf32>
// GPU: zefuse.matmul %{{.*}}, %{{[a-z0-9]+}} : (tensor<4x8xf64>

// A product that the vendor's library may take has a kernel of its own; that of f64 is none.
// LIBRARY: zefuse.kernel
// LIBRARY-NOT: zefuse.matmul
// LIBRARY: zefuse.kernel "matmul_4x4"(
// LIBRARY-NEXT: ^bb0
// LIBRARY-NEXT: zefuse.matmul {{.*}} {zefuse.in_kernel = array<i64: 1, 16>, zefuse.library = 0 : i64} : (tensor<4x8xf32>
// LIBRARY-NEXT: zefuse.yield
// LIBRARY: zefuse.matmul {{.*}} {zefuse.in_kernel = array<i64: 1, 16>} : (tensor<4x8xf64>
// SMALL-NOT: zefuse.library

// What is added to the product's rows, and what scales its operand, are in its kernel; a reduction is not.
// JOINED: zefuse.kernel "matmul_4x4"(
// JOINED: arith.mulf
// JOINED: zefuse.matmul
// JOINED: arith.addf
// JOINED: zefuse.yield
// JOINED: zefuse.kernel "kernel"(
// JOINED-NOT: zefuse.kernel
// JOINED: zefuse.matmul %{{.*}} : (tensor<4x8xf64>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @graph(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>, %c: tensor<4xf32>, %y: tensor<4x8xf64>, %v: tensor<8x4xf64>)
    -> (tensor<4xf32>, tensor<4x4xf64>)
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (1)>}, {result = 1, strides = affine_map<() -> (4, 1)>}]} {
  %se = tensor.empty() : tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%se : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.mulf %a, %a : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %p = zefuse.matmul %s, %w : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %q = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %c : tensor<4x4xf32>, tensor<4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  %zero = arith.constant 0.0 : f32
  %te = tensor.empty() : tensor<4xf32>
  %ti = linalg.fill ins(%zero : f32) outs(%te : tensor<4xf32>) -> tensor<4xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%q : tensor<4x4xf32>) outs(%ti : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %d = zefuse.matmul %y, %v : (tensor<4x8xf64>, tensor<8x4xf64>) -> tensor<4x4xf64>
  return %t, %d : tensor<4xf32>, tensor<4x4xf64>
}
