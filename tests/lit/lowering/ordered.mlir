// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s
// RUN: zefuse-opt --emit=launch %s | FileCheck %s --check-prefix=LAUNCH
// RUN: zefuse-opt --target=dg2-g11 --emit=launch %s | FileCheck %s --check-prefix=GPU

// Sums along the outer dimension: the loop carries a vector of rows, each element is stored where it is made.
func.func @graph(%x: tensor<100x64xf32>) {
  %r = zefuse.kernel "cumsum"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 64 + d1)>, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<100x64xf32>) -> tensor<100x64xf32> {
  ^bb0(%a: tensor<100x64xf32>):
    %s = zefuse.scan %a dim 0 initial 0.0 : f32 : (tensor<100x64xf32>) -> tensor<100x64xf32> {
    ^bb0(%before: f32, %element: f32):
      %0 = arith.addf %before, %element : f32
      zefuse.yield %0 : f32
    }
    zefuse.yield %s : tensor<100x64xf32>
  }
  return
}
// CHECK: scf.for {{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}) -> (vector<16xf32>)
// CHECK: %[[SUM:.*]] = arith.addf %[[BEFORE]], %{{.*}} : vector<16xf32>
// CHECK: llvm.store %[[SUM]]
// CHECK: scf.yield %[[SUM]]
// LAUNCH: cumsum: extent 4, {{.*}} schedule: scan, parallel over the other dims
// GPU: cumsum: extent 64, {{.*}} schedule: scan, parallel over the other dims, a row per work-item
