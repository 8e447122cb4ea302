// RUN: zefuse-opt --zefuse-split-reductions --split-input-file %s | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>

// 60 slices of 1000 rows, the largest divisor up to 64, then their sum.
// CHECK-LABEL: func.func @few_results(
// CHECK: %[[V:.*]] = zefuse.view %{{.*}} : tensor<60000x8xf32> -> tensor<60x1000x8xf32>
// CHECK: %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]{{.*}} ins(%[[V]] : {{.*}} outs(%{{.*}} : tensor<60x8xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]{{.*}} ins(%[[P]] :
func.func @few_results(%x: tensor<60000x8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<60000x8xf32>) outs(%f : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>

// Short sums, sums with results enough for all threads, and sums that start from something else stay whole.
// CHECK-LABEL: func.func @whole(
// CHECK-NOT: zefuse.view
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT: linalg.generic
func.func @whole(%x: tensor<600x8xf32>, %y: tensor<600x4096xf32>, %z: tensor<60000x8xf32>)
    -> (tensor<8xf32>, tensor<4096xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %g = linalg.fill ins(%one : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %h = tensor.empty() : tensor<4096xf32>
  %i = linalg.fill ins(%zero : f32) outs(%h : tensor<4096xf32>) -> tensor<4096xf32>
  %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<600x8xf32>) outs(%f : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %t = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<600x4096xf32>) outs(%i : tensor<4096xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4096xf32>
  %u = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%z : tensor<60000x8xf32>) outs(%g : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  return %s, %t, %u : tensor<8xf32>, tensor<4096xf32>, tensor<8xf32>
}
