// RUN: zefuse-opt --target=dg2-g11 --emit=launch %s | FileCheck %s --check-prefix=LAUNCH

// Loads across the lanes go through tiles in local memory, but not those that a pad surrounds: a tile would read outside.
func.func @graph(%x: tensor<64x96x64xf32>) {
  %t = zefuse.kernel "transpose"(%x) attributes {layouts = [affine_map<(d0, d1, d2) -> (d0 * 6144 + d1 + d2 * 96)>, affine_map<(d0, d1, d2) -> (d0 * 6144 + d1 * 64 + d2)>]}
      : (tensor<64x96x64xf32>) -> tensor<64x96x64xf32> {
  ^bb0(%a: tensor<64x96x64xf32>):
    %e = tensor.empty() : tensor<64x96x64xf32>
    %n = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%a : tensor<64x96x64xf32>) outs(%e : tensor<64x96x64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.negf %p : f32
      linalg.yield %0 : f32
    } -> tensor<64x96x64xf32>
    zefuse.yield %n : tensor<64x96x64xf32>
  }
  %p = zefuse.kernel "transpose_padded"(%x) attributes {layouts = [affine_map<(d0, d1, d2) -> (d0 * 6144 + d1 + d2 * 96)>, affine_map<(d0, d1, d2) -> (d0 * 6528 + d1 * 66 + d2)>]}
      : (tensor<64x96x64xf32>) -> tensor<64x99x66xf32> {
  ^bb0(%a: tensor<64x96x64xf32>):
    %r = zefuse.pad %a low [0, 2, 1] value 0.000000e+00 : f32 : tensor<64x96x64xf32> -> tensor<64x99x66xf32>
    zefuse.yield %r : tensor<64x99x66xf32>
  }
  return
}
// LAUNCH: transpose: extent 384, {{.*}}tiles of 32 x 32 through local memory for 1 loads
// LAUNCH: transpose_padded: {{.*}}tiled for a transposed load, 2 vectors of 4 per work-item
