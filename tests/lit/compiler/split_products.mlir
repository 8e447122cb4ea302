// Products with few tiles and a long sum become slices, and their sum.
// RUN: zefuse-opt --zefuse-split-products=target=dg2-g11 %s | FileCheck %s
// RUN: not zefuse-opt --zefuse-split-products=target=cpu %s 2>&1 | FileCheck %s --check-prefix=CPU

// CPU: 'cpu' has no products as kernels

// CHECK-LABEL: @long
// CHECK: %[[A:.*]] = zefuse.view %{{.*}} : tensor<48x16384xf32> -> tensor<64x48x256xf32>
// CHECK: %[[B:.*]] = zefuse.view %{{.*}} : tensor<16384x40xf32> -> tensor<64x256x40xf32>
// CHECK: zefuse.matmul %[[A]], %[[B]] {{.*}}k in 64 slices{{.*}} -> tensor<64x48x40xf32>
// CHECK: linalg.generic {{.*}}"reduction", "parallel", "parallel"
func.func @long(%a: tensor<48x16384xf32>, %b: tensor<16384x40xf32>, %bias: tensor<40xf32>) -> tensor<48x40xf32>
    attributes {zefuse.symbols = []} {
  %r = zefuse.matmul %a, %b bias %bias : (tensor<48x16384xf32>, tensor<16384x40xf32>, tensor<40xf32>) -> tensor<48x40xf32>
  return %r : tensor<48x40xf32>
}

// CHECK-LABEL: @convolution
// CHECK: zefuse.convolution {{.*}}slices = 16{{.*}} -> tensor<16x1x512x7x7xf32>
func.func @convolution(%x: tensor<1x512x7x7xf32>, %w: tensor<512x512x3x3xf32>) -> tensor<1x512x7x7xf32>
    attributes {zefuse.symbols = []} {
  %r = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<1x512x7x7xf32>, tensor<512x512x3x3xf32>) -> tensor<1x512x7x7xf32>
  return %r : tensor<1x512x7x7xf32>
}

// Many tiles, or a short sum: as it is.
// CHECK-LABEL: @short
// CHECK-NOT: slices
func.func @short(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>) -> tensor<8x4xf32> attributes {zefuse.symbols = []} {
  %r = zefuse.matmul %a, %b : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}
