// RUN: zefuse-opt --zefuse-assign-layouts --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --pass-pipeline='builtin.module(func.func(zefuse-assign-layouts{target=dg2-g11}))' --split-input-file %s | FileCheck %s --check-prefix=GPU

// A kernel writes the strides that eager gave the output: no copy.
#flat = affine_map<(d0, d1) -> (d0 * 4 + d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK: #[[FLAT:.*]] = affine_map<(d0, d1) -> (d0 * 4 + d1)>
// CHECK: #[[COLUMNS:.*]] = affine_map<(d0, d1) -> (d0 + d1 * 8)>
// CHECK-LABEL: func.func @output(
// CHECK: zefuse.kernel {{.*}}layouts = [#[[FLAT]], #[[COLUMNS]]]
// CHECK-NOT: layout_copy
func.func @output(%x: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {zefuse.symbols = [],
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (1, 8)>}]} {
  %y = zefuse.kernel "exp"(%x) attributes {layouts = [#flat, #flat]} : (tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%a: tensor<8x4xf32>):
    %e = tensor.empty() : tensor<8x4xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<8x4xf32>
    zefuse.yield %s : tensor<8x4xf32>
  }
  return %y : tensor<8x4xf32>
}

// -----

// Attention's end: [B, H, S, D] permuted and reshaped for the next product, which the first one writes at once.
// CHECK: #[[HEADS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0 * 96 + d1 * 8 + d2 * 24 + d3)>
// CHECK-LABEL: func.func @heads(
// CHECK: zefuse.matmul {{.*}}result_layout = #[[HEADS]]
// CHECK-NOT: zefuse.kernel
func.func @heads(%p: tensor<2x3x4x4xf32>, %v: tensor<2x3x4x8xf32>, %w: tensor<24x5xf32>) -> tensor<8x5xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (5, 1)>}]} {
  %o = zefuse.matmul %p, %v : (tensor<2x3x4x4xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %r = zefuse.view %o affine_map<(d0, d1) -> (d0 floordiv 4, d1 floordiv 8, d0 mod 4, d1 mod 8)>
      : tensor<2x3x4x8xf32> -> tensor<8x24xf32>
  %y = zefuse.matmul %r, %w : (tensor<8x24xf32>, tensor<24x5xf32>) -> tensor<8x5xf32>
  return %y : tensor<8x5xf32>
}

// -----

// A convolution reads and writes channels last: what lies otherwise is copied, and the output copied back.
// CHECK-LABEL: func.func @convolution(
// CHECK: %[[X:.*]] = zefuse.kernel "layout_copy"(%arg0)
// CHECK: zefuse.convolution "forward" %[[X]], %arg1
// CHECK: zefuse.kernel "layout_copy"
func.func @convolution(%x: tensor<1x4x6x6xf32>, %w: tensor<8x4x1x1xf32>) -> tensor<1x8x6x6xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (288, 36, 6, 1)>}]} {
  %c = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>,
      dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x4x6x6xf32>, tensor<8x4x1x1xf32>) -> tensor<1x8x6x6xf32>
  return %c : tensor<1x8x6x6xf32>
}

// -----

// ATen gets eager's strides; a library's attention rows that lie side by side.
// CHECK-LABEL: func.func @attention(
// CHECK: %[[K:.*]] = zefuse.kernel "layout_copy"
// CHECK: %[[A:.*]] = zefuse.attention %{{.*}}, %[[K]], %{{.*}} {{.*}}result_layout
// CHECK: %[[C:.*]] = zefuse.kernel "layout_copy"(%[[A]])
// CHECK: zefuse.aten "aten::foo"(%[[C]])
func.func @attention(%q: tensor<1x2x16x8xf32>, %kt: tensor<1x2x8x16xf32>) -> tensor<1x2x16x8xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (256, 128, 8, 1)>}]} {
  %k = zefuse.view %kt affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)> : tensor<1x2x8x16xf32> -> tensor<1x2x16x8xf32>
  %a = zefuse.attention %q, %k, %q {scale = 0.5 : f32, causal = false}
      : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) -> tensor<1x2x16x8xf32>
  %f = zefuse.aten "aten::foo"(%a) {overload = "", args = [{tensor = 0}], reason = "a test",
      operand_strides = [affine_map<() -> (512, 256, 16, 2)>], result_strides = [affine_map<() -> (256, 128, 8, 1)>]}
      : (tensor<1x2x16x8xf32>) -> tensor<1x2x16x8xf32>
  return %f : tensor<1x2x16x8xf32>
}

// -----

// Codes that became numbers, rows in blocks of sixteen, are written as the product counts a matrix: of so many dimensions not every
// order is tried.
// CHECK: #[[MATRIX:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 16 + d1 * 512 + d2 * 256 + d3 * 64 + d4)>
// CHECK-LABEL: func.func @codes(
// CHECK: zefuse.kernel "numbers"{{.*}}layouts = [#{{.*}}, #[[MATRIX]]]
// CHECK-NOT: layout_copy
#wide = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 1024 + d1 * 256 + d2 * 128 + d3 * 16 + d4)>
#all = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
func.func @codes(%x: tensor<8x16xf32>, %c: tensor<4x2x2x4x16xf32>) -> tensor<8x64xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (64, 1)>}]} {
  %n = zefuse.kernel "numbers"(%c) attributes {layouts = [#wide, #wide]}
      : (tensor<4x2x2x4x16xf32>) -> tensor<4x2x2x4x16xf32> {
  ^bb0(%a: tensor<4x2x2x4x16xf32>):
    %e = tensor.empty() : tensor<4x2x2x4x16xf32>
    %s = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}
        ins(%a : tensor<4x2x2x4x16xf32>) outs(%e : tensor<4x2x2x4x16xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<4x2x2x4x16xf32>
    zefuse.yield %s : tensor<4x2x2x4x16xf32>
  }
  %w = zefuse.view %n affine_map<(d0, d1) -> (d1 floordiv 16, d0 floordiv 8, (d0 floordiv 4) mod 2, d0 mod 4, d1 mod 16)>
      : tensor<4x2x2x4x16xf32> -> tensor<16x64xf32>
  %y = zefuse.matmul %x, %w : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

// -----

// A reduction's kernel walks in one order: the large image that lies otherwise is copied first. GPUs were not measured.
// CHECK-LABEL: func.func @two_orders(
// CHECK: %[[COPY:.*]] = zefuse.kernel "layout_copy"(%arg1)
// CHECK: zefuse.kernel "add_sum"(%arg0, %[[COPY]])
// GPU-LABEL: func.func @two_orders(
// GPU: zefuse.kernel "add_sum"(%arg0, %arg1)
#image = affine_map<(d0, d1, d2, d3) -> (d0 * 262144 + d1 * 8192 + d2 * 64 + d3)>
#sums = affine_map<(d0) -> (d0)>
#all = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>
func.func @two_orders(%x: tensor<2x32x128x64xf32>, %y: tensor<2x32x128x64xf32> {zefuse.strides = affine_map<() -> (262144, 1, 2048, 32)>})
    -> (tensor<2x32x128x64xf32>, tensor<32xf32>) attributes {zefuse.symbols = [],
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (262144, 8192, 64, 1)>}, {result = 1, strides = affine_map<() -> (1)>}]} {
  %r:2 = zefuse.kernel "add_sum"(%x, %y) attributes {layouts = [#image, #image, #image, #sums]}
      : (tensor<2x32x128x64xf32>, tensor<2x32x128x64xf32>) -> (tensor<2x32x128x64xf32>, tensor<32xf32>) {
  ^bb0(%a: tensor<2x32x128x64xf32>, %b: tensor<2x32x128x64xf32>):
    %e = tensor.empty() : tensor<2x32x128x64xf32>
    %s = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%a, %b : tensor<2x32x128x64xf32>, tensor<2x32x128x64xf32>) outs(%e : tensor<2x32x128x64xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %t = arith.addf %p, %q : f32
      linalg.yield %t : f32
    } -> tensor<2x32x128x64xf32>
    %zero = arith.constant 0.0 : f32
    %f = tensor.empty() : tensor<32xf32>
    %i = linalg.fill ins(%zero : f32) outs(%f : tensor<32xf32>) -> tensor<32xf32>
    %z = linalg.generic {indexing_maps = [#all, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
        ins(%s : tensor<2x32x128x64xf32>) outs(%i : tensor<32xf32>) {
    ^bb0(%p: f32, %o: f32):
      %t = arith.addf %o, %p : f32
      linalg.yield %t : f32
    } -> tensor<32xf32>
    zefuse.yield %s, %z : tensor<2x32x128x64xf32>, tensor<32xf32>
  }
  return %r#0, %r#1 : tensor<2x32x128x64xf32>, tensor<32xf32>
}
