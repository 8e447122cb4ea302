// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s

// Whole vectors inside are loads, whole vectors outside the value, and only those across the border go lane by lane.
func.func @graph(%x: tensor<30x60xf32>) {
  %r = zefuse.kernel "pad"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 60 + d1)>, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<30x60xf32>) -> tensor<32x64xf32> {
  ^bb0(%a: tensor<30x60xf32>):
    %p = zefuse.pad %a low [1, 2] value -1.0 : f32 : tensor<30x60xf32> -> tensor<32x64xf32>
    zefuse.yield %p : tensor<32x64xf32>
  }
  return
}
// CHECK: scf.if
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: vector.from_elements
// CHECK: dense<-1.000000e+00> : vector<16xf32>
