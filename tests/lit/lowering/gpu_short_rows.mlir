// RUN: zefuse-opt --target=dg2-g11 --emit=launch %s | FileCheck %s --check-prefix=LAUNCH
// RUN: zefuse-opt --target=dg2-g11 --emit=spirv %s | FileCheck %s

// A short row per sub-group: sixteen rows in a work-group, nothing in local memory.
func.func @graph(%x: tensor<64x200xf32>) {
  %r = zefuse.kernel "sum"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 200 + d1)>, affine_map<(d0) -> (d0)>]}
      : (tensor<64x200xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64x200xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<64xf32>
    %i = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<64x200xf32>) outs(%i : tensor<64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.addf %p, %o : f32
      linalg.yield %0 : f32
    } -> tensor<64xf32>
    zefuse.yield %s : tensor<64xf32>
  }
  return
}
// LAUNCH: sum: extent 64, grain 16, group 256, exact, schedule: reduction, lanes along the row, a row per sub-group
// CHECK: OpExecutionMode %sum LocalSize 256 1 1
// CHECK-NOT: Workgroup__arr
// CHECK-NOT: OpControlBarrier
// CHECK: OpGroupFAdd
