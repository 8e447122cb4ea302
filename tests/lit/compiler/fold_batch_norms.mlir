// What is x * scale + shift of a library's convolution, made of parameters that are kept, becomes its weight and bias.
// RUN: zefuse-opt --zefuse-choose-kernel-products=target=sm_90 --zefuse-fold-batch-norms --canonicalize %s | FileCheck %s

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>

// CHECK-LABEL: @batch_norm
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%arg1, %arg3 : tensor<64x64x3x3xbf16>, tensor<64xf32>)
// CHECK: arith.mulf
// CHECK: arith.truncf
// CHECK: %[[B:.*]] = linalg.generic {{.*}} outs({{.*}} : tensor<64xbf16>)
// CHECK: %[[R:.*]] = zefuse.convolution "forward" %arg0, %[[W]] bias %[[B]]
// CHECK-NEXT: return %[[R]]
func.func @batch_norm(%x: tensor<8x64x56x56xbf16>, %w: tensor<64x64x3x3xbf16> {zefuse.kind = "parameter"}, %m: tensor<64xf32> {zefuse.kind = "parameter"}, %s: tensor<64xf32> {zefuse.kind = "parameter"}, %b: tensor<64xf32> {zefuse.kind = "parameter"}) -> tensor<8x64x56x56xbf16> attributes {zefuse.kept_weights, zefuse.symbols = []} {
  %r = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x64x56x56xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  %e = tensor.empty() : tensor<8x64x56x56xbf16>
  %y = linalg.generic {indexing_maps = [#map, #channel, #channel, #channel, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%r, %m, %s, %b : tensor<8x64x56x56xbf16>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<8x64x56x56xbf16>) {
  ^bb0(%in: bf16, %mean: f32, %scale: f32, %bias: f32, %out: bf16):
    %0 = arith.extf %in : bf16 to f32
    %1 = arith.subf %0, %mean : f32
    %2 = arith.mulf %1, %scale : f32
    %3 = arith.addf %2, %bias : f32
    %4 = arith.truncf %3 : f32 to bf16
    linalg.yield %4 : bf16
  } -> tensor<8x64x56x56xbf16>
  return %y : tensor<8x64x56x56xbf16>
}

// A scale that each call brings; a graph that keeps nothing.
// CHECK-LABEL: @of_the_call
// CHECK: zefuse.convolution "forward" %arg0, %arg1 {
// CHECK: linalg.generic
func.func @of_the_call(%x: tensor<8x64x56x56xbf16>, %w: tensor<64x64x3x3xbf16> {zefuse.kind = "parameter"}, %s: tensor<64xf32>) -> tensor<8x64x56x56xbf16> attributes {zefuse.kept_weights, zefuse.symbols = []} {
  %r = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x64x56x56xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  %e = tensor.empty() : tensor<8x64x56x56xbf16>
  %y = linalg.generic {indexing_maps = [#map, #channel, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%r, %s : tensor<8x64x56x56xbf16>, tensor<64xf32>) outs(%e : tensor<8x64x56x56xbf16>) {
  ^bb0(%in: bf16, %scale: f32, %out: bf16):
    %0 = arith.extf %in : bf16 to f32
    %1 = arith.mulf %0, %scale : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<8x64x56x56xbf16>
  return %y : tensor<8x64x56x56xbf16>
}

// CHECK-LABEL: @not_kept
// CHECK: zefuse.convolution "forward" %arg0, %arg1 {
// CHECK: linalg.generic
func.func @not_kept(%x: tensor<8x64x56x56xbf16>, %w: tensor<64x64x3x3xbf16> {zefuse.kind = "parameter"}, %s: tensor<64xf32> {zefuse.kind = "parameter"}) -> tensor<8x64x56x56xbf16> attributes {zefuse.symbols = []} {
  %r = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x64x56x56xbf16>, tensor<64x64x3x3xbf16>) -> tensor<8x64x56x56xbf16>
  %e = tensor.empty() : tensor<8x64x56x56xbf16>
  %y = linalg.generic {indexing_maps = [#map, #channel, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%r, %s : tensor<8x64x56x56xbf16>, tensor<64xf32>) outs(%e : tensor<8x64x56x56xbf16>) {
  ^bb0(%in: bf16, %scale: f32, %out: bf16):
    %0 = arith.extf %in : bf16 to f32
    %1 = arith.mulf %0, %scale : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<8x64x56x56xbf16>
  return %y : tensor<8x64x56x56xbf16>
}
