// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s

// How lanes step through memory decides the load: not at all, by one, otherwise.
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#flat = affine_map<(d0, d1) -> (d0 * 64 + d1)>
#one = affine_map<(d0) -> (d0)>
func.func @graph(%x: tensor<32x64xf32>, %s: tensor<32xf32>, %t: tensor<32x64xf32>) {
  %r = zefuse.kernel "loads"(%x, %s, %t) attributes {layouts = [#flat, #one, affine_map<(d0, d1) -> (d0 * 2048 + d1 * 32)>, #flat]}
      : (tensor<32x64xf32>, tensor<32xf32>, tensor<32x64xf32>) -> tensor<32x64xf32> {
  ^bb0(%a: tensor<32x64xf32>, %b: tensor<32xf32>, %c: tensor<32x64xf32>):
    %e = tensor.empty() : tensor<32x64xf32>
    %v = linalg.generic {indexing_maps = [#id, #row, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b, %c : tensor<32x64xf32>, tensor<32xf32>, tensor<32x64xf32>) outs(%e : tensor<32x64xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32, %o: f32):
      %3 = arith.addf %0, %1 : f32
      %4 = arith.addf %3, %2 : f32
      linalg.yield %4 : f32
    } -> tensor<32x64xf32>
    zefuse.yield %v : tensor<32x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @loads(%arg0
// The row's scalar is loaded and repeated outside the inner loop.
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> f32
// CHECK: vector.broadcast {{.*}} : f32 to vector<16xf32>
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// A stride of 32: a load per lane.
// CHECK-COUNT-16: llvm.load {{.*}} -> f32
// CHECK: vector.from_elements
// CHECK: llvm.store {{.*}} : vector<16xf32>

// A transposed load is walked in tiles: strips of 16 rows, whose cache lines stay until they are used up.
func.func @transposed(%x: tensor<64x32xf32>) {
  %r = zefuse.kernel "transposed"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 32 + d1)>, #flat]}
      : (tensor<64x32xf32>) -> tensor<32x64xf32> {
  ^bb0(%a: tensor<64x32xf32>):
    %v = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<64x32xf32> -> tensor<32x64xf32>
    zefuse.yield %v : tensor<32x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @transposed(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for
// CHECK-COUNT-16: llvm.load {{.*}} -> f32
// CHECK: llvm.store {{.*}} : vector<16xf32>
