// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s
// RUN: zefuse-opt --emit=spirv %s | FileCheck %s --check-prefix=SPIRV

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#flat = affine_map<(d0, d1) -> (d0 * 200 + d1)>

// softmax: max, then exp and its sum (exp is kept), then the division. 200 = 12 * 16 + 8: a masked, overlapping vector.
func.func @graph(%x: tensor<64x200xf32>) -> tensor<64x200xf32> {
  %r = zefuse.kernel "softmax"(%x) attributes {layouts = [#flat, #flat]} : (tensor<64x200xf32>) -> tensor<64x200xf32> {
  ^bb0(%a: tensor<64x200xf32>):
    %ninf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %er = tensor.empty() : tensor<64xf32>
    %e = tensor.empty() : tensor<64x200xf32>
    %i0 = linalg.fill ins(%ninf : f32) outs(%er : tensor<64xf32>) -> tensor<64xf32>
    %i1 = linalg.fill ins(%zero : f32) outs(%er : tensor<64xf32>) -> tensor<64xf32>
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<64x200xf32>) outs(%i0 : tensor<64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.maximumf %p, %o : f32
      linalg.yield %0 : f32
    } -> tensor<64xf32>
    %ex = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a, %m : tensor<64x200xf32>, tensor<64xf32>) outs(%e : tensor<64x200xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.subf %p, %q : f32
      %1 = math.exp %0 : f32
      linalg.yield %1 : f32
    } -> tensor<64x200xf32>
    %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%ex : tensor<64x200xf32>) outs(%i1 : tensor<64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.addf %p, %o : f32
      linalg.yield %0 : f32
    } -> tensor<64xf32>
    %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%ex, %s : tensor<64x200xf32>, tensor<64xf32>) outs(%e : tensor<64x200xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.divf %p, %q : f32
      linalg.yield %0 : f32
    } -> tensor<64x200xf32>
    zefuse.yield %d : tensor<64x200xf32>
  }
  return %r : tensor<64x200xf32>
}
// CHECK-LABEL: func.func @softmax(
// CHECK: llvm.alloca
// CHECK: math.exp {{.*}} : vector<16xf32>
// CHECK: arith.select {{.*}} : vector<16xi1>, vector<16xf32>
// CHECK: vector.shuffle
// CHECK: arith.divf {{.*}} : vector<16xf32>
// SPIRV: OpEntryPoint Kernel {{.*}} "softmax"
