// Which convolutions are nodes of kernels, what joins them there, and how their images lie.
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=cpu},zefuse-fuse-library-epilogues))' %s | FileCheck %s --check-prefix=CPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11},zefuse-fuse-library-epilogues,zefuse-outline-kernels))' %s | FileCheck %s --check-prefix=GPU
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=dg2-g11},zefuse-fuse-library-epilogues,zefuse-outline-kernels,zefuse-assign-layouts))' %s | FileCheck %s --check-prefix=LAYOUT

// The CPU's library has an activation behind it.
// CPU: zefuse.convolution "forward"
// CPU-SAME: post_ops = ["relu"]
// CPU-NOT: in_kernel

// On a GPU the activation is a node. What is computed of an image is one too where a 1x1 kernel loads it, but not under
// each of nine taps.
// GPU: zefuse.kernel "kernel"(
// GPU: arith.mulf
// GPU-NOT: zefuse.convolution
// GPU: zefuse.yield
// GPU: zefuse.kernel "convolution_1x4x8x8"(
// GPU-NOT: arith.mulf
// GPU: zefuse.convolution "forward"{{.*}}zefuse.in_kernel = array<i64: 0, 16>
// GPU: arith.maximumf
// GPU: zefuse.kernel "convolution_1x4x8x8"(
// GPU: arith.mulf
// GPU: arith.mulf
// GPU: zefuse.convolution "forward"
// GPU: zefuse.yield

// An image that is loaded as it is has its channels last: the kernel before writes it so. Other operands are found
// anywhere, and what is only returned is written as it is wanted.
// LAYOUT-DAG: #[[FIRST:.*]] = affine_map<(d0, d1, d2, d3) -> (d0 * 256 + d1 * 64 + d2 * 8 + d3)>
// LAYOUT-DAG: #[[LAST:.*]] = affine_map<(d0, d1, d2, d3) -> (d0 * 256 + d1 + d2 * 32 + d3 * 4)>
// LAYOUT: zefuse.kernel "kernel"({{.*}}layouts = [#[[FIRST]], #[[LAST]]]
// LAYOUT: zefuse.kernel "convolution_1x4x8x8"({{.*}}layouts = [#[[LAST]], #{{.*}}, #[[FIRST]]]
// LAYOUT: zefuse.kernel "convolution_1x4x8x8"({{.*}}layouts = [#[[FIRST]], #{{.*}}, #[[FIRST]]]
#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
func.func @graph(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>, %v: tensor<4x4x1x1xf32>, %y: tensor<1x4x8x8xf32>) -> (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>)
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (256, 64, 8, 1)>}, {result = 1, strides = affine_map<() -> (256, 64, 8, 1)>}]} {
  %e = tensor.empty() : tensor<1x4x8x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<1x4x8x8xf32>) outs(%e : tensor<1x4x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.mulf %a, %a : f32
    %t = arith.mulf %r, %a : f32
    linalg.yield %t : f32
  } -> tensor<1x4x8x8xf32>
  %c = zefuse.convolution "forward" %s, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x8x8xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<1x4x8x8xf32>) outs(%e : tensor<1x4x8x8xf32>) attrs = {zefuse.activation = "relu"} {
  ^bb0(%a: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %r = arith.maximumf %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<1x4x8x8xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%y : tensor<1x4x8x8xf32>) outs(%e : tensor<1x4x8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.mulf %a, %a : f32
    %t = arith.mulf %r, %a : f32
    linalg.yield %t : f32
  } -> tensor<1x4x8x8xf32>
  %d = zefuse.convolution "forward" %g, %v {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<1x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<1x4x8x8xf32>
  return %d, %f : tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>
}
