// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s
// RUN: zefuse-opt --emit=launch %s | FileCheck %s --check-prefix=LAUNCH

// Rows that no index addresses run in parallel, 16 at a time; each first takes the init, then its updates in order.
func.func @graph(%init: tensor<10x64xf32>, %updates: tensor<50x64xf32>, %ids: tensor<50xi64>) {
  %r = zefuse.kernel "index_add"(%init, %updates, %ids) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 64 + d1)>,
      affine_map<(d0, d1) -> (d0 * 64 + d1)>, affine_map<(d0) -> (d0)>, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<10x64xf32>, tensor<50x64xf32>, tensor<50xi64>) -> tensor<10x64xf32> {
  ^bb0(%a: tensor<10x64xf32>, %u: tensor<50x64xf32>, %rows: tensor<50xi64>):
    %e = tensor.empty() : tensor<50x64xi64>
    %i = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%rows : tensor<50xi64>) outs(%e : tensor<50x64xi64>) {
    ^bb0(%p: i64, %o: i64):
      linalg.yield %p : i64
    } -> tensor<50x64xi64>
    %s = zefuse.scatter %a, %u (%i) affine_map<(d0, d1, d2) -> (d2, d1)>
        : (tensor<10x64xf32>, tensor<50x64xf32>, tensor<50x64xi64>) -> tensor<10x64xf32> {
    ^bb0(%old: f32, %new: f32):
      %0 = arith.addf %old, %new : f32
      zefuse.yield %0 : f32
    }
    zefuse.yield %s : tensor<10x64xf32>
  }
  return
}
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: llvm.store {{.*}} : vector<16xf32>
// CHECK: %[[NEW:.*]] = llvm.load {{.*}} -> vector<16xf32>
// CHECK: %[[OLD:.*]] = llvm.load {{.*}} -> vector<16xf32>
// CHECK: %[[SUM:.*]] = arith.addf %[[OLD]], %[[NEW]] : vector<16xf32>
// CHECK: llvm.store %[[SUM]]
// LAUNCH: index_add: extent 4, {{.*}} schedule: scatter, parallel over what no index addresses
