// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s
// RUN: zefuse-opt --emit=launch %s | FileCheck %s --check-prefix=LAUNCH

// Five of many: a vector with nothing better than the fifth is dropped.
func.func @graph(%x: tensor<64x1000xi64>) {
  %r = zefuse.kernel "topk"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 1000 + d1)>, affine_map<(d0, d1) -> (d0 * 5 + d1)>]}
      : (tensor<64x1000xi64>) -> tensor<64x5xi64> {
  ^bb0(%a: tensor<64x1000xi64>):
    %v, %p = zefuse.sort %a dim 1 descending : (tensor<64x1000xi64>) -> (tensor<64x5xi64>, tensor<64x5xi64>)
    zefuse.yield %p : tensor<64x5xi64>
  }
  return
}
// A key and a position each: 16 of both.
// CHECK: llvm.alloca {{.*}} !llvm.array<32 x i64>
// CHECK: arith.cmpi slt, {{.*}} : vector<16xi64>
// CHECK: scf.if
// LAUNCH: topk: extent 64, {{.*}} schedule: sort, the best of a row
