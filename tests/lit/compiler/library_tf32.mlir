// Where operands of f32 may be rounded to TF32, large products and convolutions of f32 are the library's, as those of 16 bits.
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=sm_90}))' %s | FileCheck %s

// CHECK-LABEL: func.func @rounded
// CHECK: zefuse.matmul {{.*}}zefuse.library = 8388608 : i64} : (tensor<2048x768xf32>
// CHECK: zefuse.convolution {{.*}}zefuse.library = 134217728 : i64
func.func @rounded(%a: tensor<2048x768xf32>, %b: tensor<768x512xf32>, %x: tensor<4x64x56x56xf32>, %w: tensor<64x64x3x3xf32>)
    -> (tensor<2048x512xf32>, tensor<4x64x56x56xf32>) attributes {zefuse.symbols = [], zefuse.tf32_products, zefuse.tf32_convolutions} {
  %0 = zefuse.matmul %a, %b : (tensor<2048x768xf32>, tensor<768x512xf32>) -> tensor<2048x512xf32>
  %1 = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<4x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<4x64x56x56xf32>
  return %0, %1 : tensor<2048x512xf32>, tensor<4x64x56x56xf32>
}

// Each by its own permission.
// CHECK-LABEL: func.func @products
// CHECK: zefuse.matmul {{.*}}zefuse.library
// CHECK-NOT: zefuse.library
func.func @products(%a: tensor<2048x768xf32>, %b: tensor<768x512xf32>, %x: tensor<4x64x56x56xf32>, %w: tensor<64x64x3x3xf32>)
    -> (tensor<2048x512xf32>, tensor<4x64x56x56xf32>) attributes {zefuse.symbols = [], zefuse.tf32_products} {
  %0 = zefuse.matmul %a, %b : (tensor<2048x768xf32>, tensor<768x512xf32>) -> tensor<2048x512xf32>
  %1 = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<4x64x56x56xf32>, tensor<64x64x3x3xf32>) -> tensor<4x64x56x56xf32>
  return %0, %1 : tensor<2048x512xf32>, tensor<4x64x56x56xf32>
}
