// RUN: zefuse-opt --target=dg2-g11 --emit=spirv %s | FileCheck %s
// RUN: zefuse-opt --target=cpu --emit=spirv %s | FileCheck %s --check-prefix=CPU

// Vectors are as aligned as offset, strides and the device's buffers make them: x + y[1:, 4:] of 128-byte rows.
func.func @graph(%x: tensor<63x64xf16>, %y: tensor<63x64xf16>) {
  %r = zefuse.kernel "sum"(%x, %y) attributes {layouts = [
      affine_map<(d0, d1) -> (d0 * 64 + d1)>, affine_map<(d0, d1) -> (d0 * 72 + d1 + 76)>, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<63x64xf16>, tensor<63x64xf16>) -> tensor<63x64xf16> {
  ^bb0(%a: tensor<63x64xf16>, %b: tensor<63x64xf16>):
    %e = tensor.empty() : tensor<63x64xf16>
    %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b : tensor<63x64xf16>, tensor<63x64xf16>) outs(%e : tensor<63x64xf16>) {
    ^bb0(%p: f16, %q: f16, %o: f16):
      %0 = arith.extf %p : f16 to f32
      %1 = arith.extf %q : f16 to f32
      %2 = arith.addf %0, %1 : f32
      %3 = arith.truncf %2 : f32 to f16
      linalg.yield %3 : f16
    } -> tensor<63x64xf16>
    zefuse.yield %s : tensor<63x64xf16>
  }
  return
}
// CHECK-COUNT-3: OpDecorate %{{.*}} Alignment 64
// CHECK: OpLoad %v8ushort %{{.*}} Aligned 16
// CHECK: OpLoad %v8ushort %{{.*}} Aligned 8
// CHECK: OpStore %{{.*}} Aligned 16

// The caller's memory, of which nothing is known.
// CPU-COUNT-3: OpDecorate %{{.*}} Alignment 2
// CPU: OpLoad %v16ushort %{{.*}} Aligned 2
// CPU: OpStore %{{.*}} Aligned 2
