// RUN: zefuse-opt --zefuse-divide-refused %s | FileCheck %s

#flat = affine_map<(d0, d1) -> (d0 * 12 + d1)>
#none = affine_map<() -> (0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#vec = affine_map<(d0) -> (d0)>

// Sums of rows, then the product of all of them: the reductions keep different rows. The second has the old group.
// CHECK-LABEL: func.func @graph(
// CHECK-SAME: zefuse.not_joined = [{first = 5 : i64, reason = "the schedule refuses their kernel: {{.*}}", second = 4 : i64}]
// CHECK: %[[S:.*]] = zefuse.kernel {{.*}}groups = array<i64: 5>{{.*}} -> tensor<8xf32>
// CHECK: zefuse.kernel {{.*}}(%[[S]]) {{.*}}groups = array<i64: 4>{{.*}} -> tensor<f32>
func.func @graph(%x: tensor<8x12xf32>) -> tensor<f32> attributes {zefuse.symbols = []} {
  %y = zefuse.kernel "sums"(%x) attributes {layouts = [#flat, #none], groups = array<i64: 4>}
      : (tensor<8x12xf32>) -> tensor<f32> {
  ^bb0(%in: tensor<8x12xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %rows = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%in : tensor<8x12xf32>) outs(%f : tensor<8xf32>) {
    ^bb0(%a: f32, %b: f32):
      %r = arith.addf %a, %b : f32
      linalg.yield %r : f32
    } -> tensor<8xf32>
    %g = tensor.empty() : tensor<f32>
    %h = linalg.fill ins(%zero : f32) outs(%g : tensor<f32>) -> tensor<f32>
    %all = linalg.generic {indexing_maps = [#vec, affine_map<(d0) -> ()>], iterator_types = ["reduction"]}
        ins(%rows : tensor<8xf32>) outs(%h : tensor<f32>) {
    ^bb0(%a: f32, %b: f32):
      %r = arith.mulf %a, %b : f32
      linalg.yield %r : f32
    } -> tensor<f32>
    zefuse.yield %all : tensor<f32>
  }
  return %y : tensor<f32>
}
