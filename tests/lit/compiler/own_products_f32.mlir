// Large products of f32 are a matrix engine's, in three products of tf32; smaller ones and other types the library's.
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=sm_90}))' %s | FileCheck %s
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-choose-kernel-products{target=sm_90 library=always}))' %s | FileCheck %s --check-prefix=ALWAYS

// CHECK: zefuse.matmul {{.*}} {zefuse.in_kernel = array<i64: 1, 16>} : (tensor<2048x768xf32>
// CHECK-NEXT: zefuse.matmul {{.*}}zefuse.library = 8388608 : i64} : (tensor<256x768xf32>
// CHECK-NEXT: zefuse.matmul {{.*}}zefuse.library = 8388608 : i64} : (tensor<32x768xf32>
// CHECK-NEXT: zefuse.matmul {{.*}}zefuse.library = 8388608 : i64} : (tensor<2048x768xbf16>
// ALWAYS-COUNT-4: zefuse.library
func.func @graph(%a: tensor<2048x768xf32>, %b: tensor<768x512xf32>, %c: tensor<256x768xf32>, %d: tensor<32x768xf32>,
                 %w: tensor<768x32768xf32>, %e: tensor<2048x768xbf16>, %f: tensor<768x512xbf16>)
    -> (tensor<2048x512xf32>, tensor<256x512xf32>, tensor<32x32768xf32>, tensor<2048x512xbf16>) attributes {zefuse.symbols = []} {
  %0 = zefuse.matmul %a, %b : (tensor<2048x768xf32>, tensor<768x512xf32>) -> tensor<2048x512xf32>
  %1 = zefuse.matmul %c, %b : (tensor<256x768xf32>, tensor<768x512xf32>) -> tensor<256x512xf32>
  %2 = zefuse.matmul %d, %w : (tensor<32x768xf32>, tensor<768x32768xf32>) -> tensor<32x32768xf32>
  %3 = zefuse.matmul %e, %f : (tensor<2048x768xbf16>, tensor<768x512xbf16>) -> tensor<2048x512xbf16>
  return %0, %1, %2, %3 : tensor<2048x512xf32>, tensor<256x512xf32>, tensor<32x32768xf32>, tensor<2048x512xbf16>
}
