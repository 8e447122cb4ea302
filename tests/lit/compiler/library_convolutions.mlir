// Convolutions that the vendor's library may take: kernels of their own, of channels-last tensors.
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=sm_90},zefuse-outline-kernels,zefuse-assign-layouts))' %s | FileCheck %s

// CHECK-DAG: #[[LAST:.*]] = affine_map<(d0, d1, d2, d3) -> (d0 * 200704 + d1 + d2 * 3584 + d3 * 64)>
// CHECK-DAG: #[[WEIGHT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0 * 576 + d1 + d2 * 192 + d3 * 64)>

// The image and the weight are copied; the sigmoid behind is another kernel, and so is the copy for the caller.
// CHECK-LABEL: func.func @graph
// CHECK-DAG: zefuse.kernel "layout_copy"({{.*}} #[[WEIGHT]]
// CHECK-DAG: zefuse.kernel "layout_copy"({{.*}} #[[LAST]]
// CHECK: zefuse.kernel "convolution
// CHECK: zefuse.convolution {{.*}}zefuse.library = 134217728 : i64
// CHECK-NEXT: zefuse.yield
// CHECK: math.tanh
func.func @graph(%x: tensor<4x64x56x56xbf16>, %w: tensor<64x64x3x3xbf16>) -> tensor<4x64x56x56xbf16>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (200704, 3136, 56, 1)>}]} {
  %c = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<4x64x56x56xbf16>, tensor<64x64x3x3xbf16>) -> tensor<4x64x56x56xbf16>
  %e = tensor.empty() : tensor<4x64x56x56xbf16>
  %t = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<4x64x56x56xbf16>) outs(%e : tensor<4x64x56x56xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %r = math.tanh %a : bf16
    linalg.yield %r : bf16
  } -> tensor<4x64x56x56xbf16>
  return %t : tensor<4x64x56x56xbf16>
}
