// RUN: zefuse-opt --zefuse-outline-kernels --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --zefuse-outline-kernels=merge=false --split-input-file %s | FileCheck %s --check-prefix=APART

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// A reduction takes its producer and its epilogue.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: zefuse.not_joined = []
// CHECK-COUNT-1: zefuse.kernel
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT: zefuse.kernel
// CHECK: return
// APART-LABEL: func.func @rows(
// APART-COUNT-3: zefuse.kernel
// APART-NOT: zefuse.kernel
// APART: return
func.func @rows(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<4xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<4x8xf32>) outs(%g : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  return %z : tensor<4x8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// A product between the two keeps them apart, and the function says so of the kernels' groups.
// CHECK-LABEL: func.func @path(
// CHECK-SAME: zefuse.not_joined = [{first = 0 : i64, reason = "one reads what a step between them makes of the other's result", second = 1 : i64}]
// CHECK: zefuse.kernel {{.*}}groups = array<i64: 0>
// CHECK: zefuse.matmul
// CHECK: zefuse.kernel {{.*}}groups = array<i64: 1>
// APART-LABEL: func.func @path(
// APART-SAME: zefuse.not_joined = []
func.func @path(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %m = zefuse.matmul %y, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  return %z : tensor<8x8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>

// Siblings that read one tensor, one of them transposed, are one kernel with two results.
// CHECK-LABEL: func.func @siblings(
// CHECK: zefuse.kernel {{.*}} -> (tensor<4x8xf32>, tensor<8x4xf32>)
// CHECK-NOT: zefuse.kernel
// CHECK: return
func.func @siblings(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %f = tensor.empty() : tensor<8x4xf32>
  %v = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<4x8xf32> -> tensor<8x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<8x4xf32>) outs(%f : tensor<8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.tanh %a : f32
    linalg.yield %r : f32
  } -> tensor<8x4xf32>
  return %y, %z : tensor<4x8xf32>, tensor<8x4xf32>
}
