// Where attention is a node of kernels, what joins it there, and what does not.
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=cpu}))' %s | FileCheck %s --check-prefix=CPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11}))' %s | FileCheck %s --check-prefix=GPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11},zefuse-outline-kernels))' %s | FileCheck %s --check-prefix=JOINED
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11},zefuse-outline-kernels,zefuse-assign-layouts))' %s | FileCheck %s --check-prefix=LAYOUT

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// A tile of many queries pays for as much work where keys are loaded as a product's; one of few queries for less.
// CPU-NOT: in_kernel
// GPU-LABEL: @training
// GPU: zefuse.attention {{.*}}zefuse.in_kernel = array<i64: 0, 16>
// GPU-LABEL: @decoding
// GPU: zefuse.attention {{.*}}zefuse.in_kernel = array<i64: 0, 8>

// What keys and mask are computed from, and what becomes of both results: the sums of rows are one element for each row
// of the result.
// JOINED-LABEL: func.func @training(
// JOINED: %[[K:.*]]:2 = zefuse.kernel "attention_1x2x16x8"(
// JOINED: arith.mulf
// JOINED: arith.subf
// JOINED: %[[R:.*]], %[[L:.*]] = zefuse.attention
// JOINED: ins(%[[R]], %{{.*}} :
// JOINED: arith.addf
// JOINED: ins(%[[L]] :
// JOINED: arith.negf
// JOINED: zefuse.yield
// JOINED-NOT: zefuse.kernel
// JOINED: return %[[K]]#0, %[[K]]#1
// The result is written as its reader wants it.
// LAYOUT-DAG: #[[RESULT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0 * 256 + d1 * 8 + d2 * 16 + d3)>
// LAYOUT-DAG: #[[SUMS:.*]] = affine_map<(d0, d1, d2) -> (d0 * 32 + d1 * 16 + d2)>
// LAYOUT: zefuse.kernel "attention_1x2x16x8"({{.*}}layouts = [{{.*}}, #[[RESULT]], #[[SUMS]]]
func.func @training(%q: tensor<1x2x16x8xf32>, %k: tensor<1x2x16x8xf32>, %v: tensor<1x2x16x8xf32>, %m: tensor<16x16xf32>, %x: tensor<1x2x16x8xf32>)
    -> (tensor<1x2x16x8xf32>, tensor<1x2x16xf32>)
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (256, 8, 16, 1)>}, {result = 1, strides = affine_map<() -> (32, 16, 1)>}]} {
  %e = tensor.empty() : tensor<1x2x16x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k : tensor<1x2x16x8xf32>) outs(%e : tensor<1x2x16x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.mulf %a, %a : f32
    linalg.yield %t : f32
  } -> tensor<1x2x16x8xf32>
  %em = tensor.empty() : tensor<16x16xf32>
  %n = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<16x16xf32>) outs(%em : tensor<16x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %t = arith.subf %one, %a : f32
    linalg.yield %t : f32
  } -> tensor<16x16xf32>
  %r, %l = zefuse.attention %q, %s, %v mask %n {scale = 0.5 : f32, causal = true}
      : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<16x16xf32>) -> (tensor<1x2x16x8xf32>, tensor<1x2x16xf32>)
  %f = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%r, %x : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) outs(%e : tensor<1x2x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<1x2x16x8xf32>
  %el = tensor.empty() : tensor<1x2x16xf32>
  %g = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%l : tensor<1x2x16xf32>) outs(%el : tensor<1x2x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.negf %a : f32
    linalg.yield %t : f32
  } -> tensor<1x2x16xf32>
  return %f, %g : tensor<1x2x16x8xf32>, tensor<1x2x16xf32>
}

// One query: nine operations for each of its keys' elements are more than the eight that a tile of so few pays for. A
// reduction of its result has rows that no tile makes.
// JOINED-LABEL: func.func @decoding(
// JOINED-SAME: zefuse.not_joined = [{first = 0 : i64, reason = "each tile of the product would compute what it reads again, with 9 operations per element", second = 1 : i64}, {first = 1 : i64, reason = "tiles of a product make no whole rows
// JOINED: zefuse.kernel "kernel"(
// JOINED: zefuse.kernel "attention_1x2x1x8"(
// JOINED: zefuse.kernel "kernel"(
// JOINED-NOT: zefuse.kernel
// JOINED: return
func.func @decoding(%q: tensor<1x2x1x8xf32>, %k: tensor<1x2x16x8xf32>, %v: tensor<1x2x16x8xf32>) -> tensor<1x2x1xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (2, 1, 1)>}]} {
  %e = tensor.empty() : tensor<1x2x16x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k : tensor<1x2x16x8xf32>) outs(%e : tensor<1x2x16x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t1 = arith.mulf %a, %a : f32
    %t2 = arith.mulf %t1, %a : f32
    %t3 = arith.addf %t2, %a : f32
    %t4 = arith.mulf %t3, %a : f32
    %t5 = arith.addf %t4, %a : f32
    %t6 = arith.mulf %t5, %a : f32
    %t7 = arith.addf %t6, %a : f32
    %t8 = arith.mulf %t7, %a : f32
    %t9 = arith.addf %t8, %a : f32
    linalg.yield %t9 : f32
  } -> tensor<1x2x16x8xf32>
  %r = zefuse.attention %q, %s, %v {scale = 0.5 : f32, causal = false}
      : (tensor<1x2x1x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) -> tensor<1x2x1x8xf32>
  %zero = arith.constant 0.0 : f32
  %te = tensor.empty() : tensor<1x2x1xf32>
  %ti = linalg.fill ins(%zero : f32) outs(%te : tensor<1x2x1xf32>) -> tensor<1x2x1xf32>
  %t = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%r : tensor<1x2x1x8xf32>) outs(%ti : tensor<1x2x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %u = arith.addf %a, %o : f32
    linalg.yield %u : f32
  } -> tensor<1x2x1xf32>
  return %t : tensor<1x2x1xf32>
}
