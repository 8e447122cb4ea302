// Strips: what the lanes of a row's dim would load one by one, and what several values of a row are computed into, is
// held beside the partial results and not made anew at each place.
// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s

#x = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#group = affine_map<(d0, d1, d2) -> (d1)>
#row = affine_map<(d0, d1, d2) -> (d1, d2)>

// Groups of ten channels, of each of which one number is read: rows are all 320 channels, in vectors of 16.
func.func @channels_of_groups(%x: tensor<4096x32x10xf32>, %m: tensor<32xf32>) {
  %r = zefuse.kernel "channels_of_groups"(%x, %m)
      attributes {layouts = [affine_map<(d0, d1, d2) -> (d0 * 320 + d1 * 10 + d2)>, affine_map<(d0) -> (d0)>,
                             affine_map<(d0, d1) -> (d0 * 10 + d1)>]}
      : (tensor<4096x32x10xf32>, tensor<32xf32>) -> tensor<32x10xf32> {
  ^bb0(%a: tensor<4096x32x10xf32>, %b: tensor<32xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<32x10xf32>
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<32x10xf32>) -> tensor<32x10xf32>
    %s = linalg.generic {indexing_maps = [#x, #group, #row], iterator_types = ["reduction", "parallel", "parallel"]}
        ins(%a, %b : tensor<4096x32x10xf32>, tensor<32xf32>) outs(%init : tensor<32x10xf32>) {
    ^bb1(%one: f32, %mean: f32, %acc: f32):
      %d = arith.subf %one, %mean : f32
      %n = arith.addf %acc, %d : f32
      linalg.yield %n : f32
    } -> tensor<32x10xf32>
    zefuse.yield %s : tensor<32x10xf32>
  }
  return
}
// CHECK-LABEL: func.func @channels_of_groups(
// CHECK: llvm.alloca
// CHECK-NOT: dense<0.000000e+00>
// CHECK: vector.from_elements {{.*}} : vector<16xf32>
// CHECK-NOT: vector.from_elements
