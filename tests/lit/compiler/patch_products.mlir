// A convolution of windows that do not overlap, of an image of few channels, is a product where a GPU's library multiplies.
// RUN: zefuse-opt --zefuse-patch-products=target=sm_90 --canonicalize %s | FileCheck %s
// RUN: zefuse-opt --zefuse-patch-products="target=sm_90 library=never" %s | FileCheck %s --check-prefix=NEVER
// RUN: zefuse-opt --zefuse-patch-products=target=dg2-g11 %s | FileCheck %s --check-prefix=NEVER

// NEVER-NOT: zefuse.matmul

// CHECK-LABEL: @forward
// CHECK: %[[P:.*]] = zefuse.view %arg0 {{.*}} -> tensor<25088x48xbf16>
// CHECK: %[[W:.*]] = zefuse.view %arg1 {{.*}} -> tensor<48x96xbf16>
// CHECK: %[[M:.*]] = zefuse.matmul %[[P]], %[[W]] bias %arg2 {{.*}}do not overlap{{.*}} -> tensor<25088x96xbf16>
// CHECK: %[[R:.*]] = zefuse.view %[[M]] affine_map<(d0, d1, d2, d3) -> (d0 * 3136 + d2 * 56 + d3, d1)>
// CHECK: return %[[R]]
func.func @forward(%x: tensor<8x3x224x224xbf16>, %w: tensor<96x3x4x4xbf16>, %b: tensor<96xbf16>) -> tensor<8x96x56x56xbf16> attributes {zefuse.symbols = []} {
  %r = zefuse.convolution "forward" %x, %w bias %b {stride = array<i64: 4, 4>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x3x224x224xbf16>, tensor<96x3x4x4xbf16>, tensor<96xbf16>) -> tensor<8x96x56x56xbf16>
  return %r : tensor<8x96x56x56xbf16>
}

// CHECK-LABEL: @by_the_weight
// CHECK-DAG: %[[G:.*]] = zefuse.view %arg1 {{.*}} -> tensor<96x25088xbf16>
// CHECK-DAG: %[[P:.*]] = zefuse.view %arg0 {{.*}} -> tensor<25088x48xbf16>
// CHECK: zefuse.matmul %[[G]], %[[P]] {{.*}} -> tensor<96x48xbf16>
func.func @by_the_weight(%x: tensor<8x3x225x224xbf16>, %g: tensor<8x96x56x56xbf16>) -> tensor<96x3x4x4xbf16> attributes {zefuse.symbols = []} {
  %r = zefuse.convolution "weights" %x, %g {stride = array<i64: 4, 4>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x3x225x224xbf16>, tensor<8x96x56x56xbf16>) -> tensor<96x3x4x4xbf16>
  return %r : tensor<96x3x4x4xbf16>
}

// CHECK-LABEL: @by_the_image
// CHECK: %[[M:.*]] = zefuse.matmul {{.*}} -> tensor<25088x48xbf16>
// CHECK: zefuse.view %[[M]] {{.*}} -> tensor<8x3x224x224xbf16>
func.func @by_the_image(%g: tensor<8x96x56x56xbf16>, %w: tensor<96x3x4x4xbf16>) -> tensor<8x3x224x224xbf16> attributes {zefuse.symbols = []} {
  %r = zefuse.convolution "transposed" %g, %w {stride = array<i64: 4, 4>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x96x56x56xbf16>, tensor<96x3x4x4xbf16>) -> tensor<8x3x224x224xbf16>
  return %r : tensor<8x3x224x224xbf16>
}

// Windows that overlap, an image of many channels, a small one: as they are.
// CHECK-LABEL: @others
// CHECK-NOT: zefuse.matmul
func.func @others(%x: tensor<8x3x224x224xbf16>, %w: tensor<96x3x4x4xbf16>, %c: tensor<8x96x56x56xbf16>, %v: tensor<192x96x2x2xbf16>, %s: tensor<1x3x16x16xbf16>) -> (tensor<8x96x111x111xbf16>, tensor<8x192x28x28xbf16>, tensor<1x96x4x4xbf16>) attributes {zefuse.symbols = []} {
  %a = zefuse.convolution "forward" %x, %w {stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x3x224x224xbf16>, tensor<96x3x4x4xbf16>) -> tensor<8x96x111x111xbf16>
  %b = zefuse.convolution "forward" %c, %v {stride = array<i64: 2, 2>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x96x56x56xbf16>, tensor<192x96x2x2xbf16>) -> tensor<8x192x28x28xbf16>
  %d = zefuse.convolution "forward" %s, %w {stride = array<i64: 4, 4>, padding = array<i64: 0, 0>, dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x16x16xbf16>, tensor<96x3x4x4xbf16>) -> tensor<1x96x4x4xbf16>
  return %a, %b, %d : tensor<8x96x111x111xbf16>, tensor<8x192x28x28xbf16>, tensor<1x96x4x4xbf16>
}
