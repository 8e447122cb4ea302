// All of stage 2 around products and attention, for the CPU's library and as a GPU's kernels.
// RUN: zefuse-opt --zefuse-fuse --split-input-file %s | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: zefuse-opt --zefuse-fuse=target=dg2-g11 --split-input-file %s | FileCheck %s --check-prefixes=CHECK,GPU

#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>

// Linear, gelu, linear: the transposes are strides. For the library the activation is a post-op and the rest one kernel;
// on a GPU all of it is one.
// CHECK-LABEL: func.func @feed_forward(
// CPU: %[[A:.*]] = zefuse.view %arg1
// CPU: %[[M:.*]] = zefuse.matmul %arg0, %[[A]] {post_ops = ["gelu_erf"], result_layout
// CPU: %[[K:.*]] = zefuse.kernel {{.*}}(%[[M]], %arg2)
// GPU: %[[K:.*]] = zefuse.kernel "matmul_16x64"(%arg0, %arg1, %arg2)
// GPU: zefuse.matmul {{.*}}zefuse.in_kernel
// CHECK-NOT: zefuse.kernel
// CHECK: return %[[K]]
func.func @feed_forward(%x: tensor<16x32xf32>, %w: tensor<64x32xf32>, %b: tensor<64xf32>) -> tensor<16x64xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (64, 1)>}]} {
  %t = zefuse.view %w affine_map<(d0, d1) -> (d1, d0)> : tensor<64x32xf32> -> tensor<32x64xf32>
  %m = zefuse.matmul %x, %t : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %e = tensor.empty() : tensor<16x64xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<16x64xf32>) outs(%e : tensor<16x64xf32>) attrs = {zefuse.activation = "gelu_erf"} {
  ^bb0(%a: f32, %o: f32):
    %r = math.erf %a : f32
    linalg.yield %r : f32
  } -> tensor<16x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %b : tensor<16x64xf32>, tensor<64xf32>) outs(%e : tensor<16x64xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.mulf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// Attention as two products: softmax between them is one kernel.
// CHECK-LABEL: func.func @attention(
// GPU: zefuse.kernel "matmul_16x16"
// CHECK: zefuse.matmul
// CHECK: zefuse.kernel
// CHECK-COUNT-4: linalg.generic
// CHECK: zefuse.yield
// CPU-NOT: zefuse.kernel
// GPU: zefuse.kernel "matmul_16x8"
// CHECK: zefuse.matmul
func.func @attention(%q: tensor<16x8xf32>, %k: tensor<16x8xf32>, %v: tensor<16x8xf32>) -> tensor<16x8xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (8, 1)>}]} {
  %kt = zefuse.view %k affine_map<(d0, d1) -> (d1, d0)> : tensor<16x8xf32> -> tensor<8x16xf32>
  %s = zefuse.matmul %q, %kt {alpha = 0.5 : f32} : (tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %r = tensor.empty() : tensor<16xf32>
  %e = tensor.empty() : tensor<16x16xf32>
  %mi = linalg.fill ins(%least : f32) outs(%r : tensor<16xf32>) -> tensor<16xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<16x16xf32>) outs(%mi : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<16x16xf32>, tensor<16xf32>) outs(%e : tensor<16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x16xf32>
  %ti = linalg.fill ins(%zero : f32) outs(%r : tensor<16xf32>) -> tensor<16xf32>
  %t = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<16x16xf32>) outs(%ti : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<16x16xf32>, tensor<16xf32>) outs(%e : tensor<16x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<16x16xf32>
  %y = zefuse.matmul %p, %v : (tensor<16x16xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %y : tensor<16x8xf32>
}

// -----

// As one call, or a kernel, with what its readers ask of the rows.
// CHECK-LABEL: func.func @call(
// CPU: zefuse.attention %arg0, %arg0, %arg0 {causal = true, result_layout = #{{.*}}, scale = 5.000000e-01 : f32
// GPU: zefuse.kernel "attention_1x2x16x8"(%arg0)
// GPU: zefuse.attention {{.*}}zefuse.in_kernel
// CHECK-NOT: zefuse.kernel
// CHECK: return
func.func @call(%q: tensor<1x2x16x8xf32>) -> tensor<1x2x16x8xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (256, 8, 16, 1)>}]} {
  %a = zefuse.attention %q, %q, %q {scale = 0.5 : f32, causal = true}
      : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) -> tensor<1x2x16x8xf32>
  return %a : tensor<1x2x16x8xf32>
}
