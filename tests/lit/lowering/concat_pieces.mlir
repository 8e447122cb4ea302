// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s

// Pieces longer than two vectors, at no multiple of one: vectors inside a piece are loads, and only those across the
// border go lane by lane.
func.func @long(%x: tensor<8x45xf32>, %y: tensor<8x38xf32>) {
  %r = zefuse.kernel "long"(%x, %y) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 45 + d1)>, affine_map<(d0, d1) -> (d0 * 38 + d1)>, affine_map<(d0, d1) -> (d0 * 83 + d1)>]}
      : (tensor<8x45xf32>, tensor<8x38xf32>) -> tensor<8x83xf32> {
  ^bb0(%a: tensor<8x45xf32>, %b: tensor<8x38xf32>):
    %c = tensor.concat dim(1) %a, %b : (tensor<8x45xf32>, tensor<8x38xf32>) -> tensor<8x83xf32>
    zefuse.yield %c : tensor<8x83xf32>
  }
  return
}
// CHECK-LABEL: func.func @long(
// CHECK: arith.cmpi ult
// CHECK: scf.if {{.*}} -> (vector<16xf32>)
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: arith.cmpi ult
// CHECK: scf.if {{.*}} -> (vector<16xf32>)
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: vector.from_elements

// Pieces at multiples of a vector, all but the last of which ends there: vectors lie at multiples too, and the last one
// of a row is shorter. None is of two pieces.
func.func @aligned(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>, %z: tensor<8x13xf32>) {
  %r = zefuse.kernel "aligned"(%x, %y, %z) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 16 + d1)>, affine_map<(d0, d1) -> (d0 * 16 + d1)>, affine_map<(d0, d1) -> (d0 * 13 + d1)>, affine_map<(d0, d1) -> (d0 * 45 + d1)>]}
      : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x13xf32>) -> tensor<8x45xf32> {
  ^bb0(%a: tensor<8x16xf32>, %b: tensor<8x16xf32>, %c: tensor<8x13xf32>):
    %d = tensor.concat dim(1) %a, %b, %c : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x13xf32>) -> tensor<8x45xf32>
    zefuse.yield %d : tensor<8x45xf32>
  }
  return
}
// CHECK-LABEL: func.func @aligned(
// CHECK: scf.if {{.*}} -> (vector<16xf32>)
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT: arith.select {{.*}}vector<16xi1>, vector<16xf32>
// CHECK: return

// Two numbers of each element side by side: lanes lie along the elements, which are near each other, not along rows.
func.func @stack(%x: tensor<64x32xf32>) {
  %r = zefuse.kernel "stack"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 37 + d1)>, affine_map<(d0, d1, d2) -> (d0 * 64 + d1 * 2 + d2)>]}
      : (tensor<64x32xf32>) -> tensor<64x32x2xf32> {
  ^bb0(%a: tensor<64x32xf32>):
    %e = tensor.empty() : tensor<64x32xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<64x32xf32>) outs(%e : tensor<64x32xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = math.exp %in : f32
      linalg.yield %s : f32
    } -> tensor<64x32xf32>
    %u = zefuse.view %a affine_map<(d0, d1, d2) -> (d0, d1)> : tensor<64x32xf32> -> tensor<64x32x1xf32>
    %v = zefuse.view %p affine_map<(d0, d1, d2) -> (d0, d1)> : tensor<64x32xf32> -> tensor<64x32x1xf32>
    %c = tensor.concat dim(2) %u, %v : (tensor<64x32x1xf32>, tensor<64x32x1xf32>) -> tensor<64x32x2xf32>
    zefuse.yield %c : tensor<64x32x2xf32>
  }
  return
}
// CHECK-LABEL: func.func @stack(
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: math.exp {{.*}} : vector<16xf32>
