// RUN: zefuse-opt %s | zefuse-opt | FileCheck %s
// RUN: zefuse-opt --mlir-print-op-generic %s | zefuse-opt | FileCheck %s

// What is printed is read again, aliases of maps included, and says the same.

#flat = affine_map<(d0, d1) -> (d0 * 4 + d1)>

// CHECK-LABEL: func.func @views(
// CHECK: zefuse.view %{{.*}} affine_map<(d0, d1) -> (d1, d0)> : tensor<3x4xf32> -> tensor<4x3xf32>
// CHECK: zefuse.view %{{.*}} affine_map<(d0, d1) -> (d1, d0)> : tensor<4x3xf32> -> tensor<3x4xf32>
// CHECK: zefuse.size #{{.*}}
// CHECK: zefuse.pad %{{.*}} low [1, 0] value 0.000000e+00 : f32 : tensor<3x4xf32> -> tensor<5x4xf32>
func.func @views(%x: tensor<3x4xf32> {zefuse.name = "x", zefuse.kind = "user", zefuse.strides = affine_map<()[s0] -> (4, 1)>})
    -> (tensor<3x4xf32>, tensor<5x4xf32>)
    attributes {zefuse.symbols = ["s0"], zefuse.symbol_sources = [{input = 0, dim = 0}], zefuse.inputs = [{arg = 0}, unit],
      zefuse.outputs = [{result = 0, strides = affine_map<()[s0] -> (4, 1)>}, {size = affine_map<()[s0] -> (s0)>}, unit]} {
  %a = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<3x4xf32> -> tensor<4x3xf32>
  %b = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<4x3xf32> -> tensor<3x4xf32>
  %n = zefuse.size affine_map<()[s0] -> (s0 * 2)>
  %p = zefuse.pad %b low [1, 0] value 0.0 : f32 : tensor<3x4xf32> -> tensor<5x4xf32>
  return %b, %p : tensor<3x4xf32>, tensor<5x4xf32>
}

// CHECK-LABEL: func.func @ordered(
// CHECK: zefuse.scatter %{{.*}}, %{{.*}}(%{{.*}}) #{{.*}} : (tensor<10x6xf32>, tensor<3x6xf32>, tensor<3x6xi64>) -> tensor<10x6xf32> {
// CHECK: zefuse.scan %{{.*}} dim 1 initial 0.000000e+00 : f32 : (tensor<10x6xf32>) -> tensor<10x6xf32> {
// CHECK: zefuse.sort %{{.*}} dim 1 descending : (tensor<10x6xf32>) -> (tensor<10x2xf32>, tensor<10x2xi64>)
func.func @ordered(%x: tensor<10x6xf32>, %u: tensor<3x6xf32>, %i: tensor<3x6xi64>) -> tensor<10x2xf32> {
  %r = zefuse.scatter %x, %u (%i) affine_map<(d0, d1, d2) -> (d2, d1)>
      : (tensor<10x6xf32>, tensor<3x6xf32>, tensor<3x6xi64>) -> tensor<10x6xf32> {
  ^bb0(%old: f32, %new: f32):
    %sum = arith.addf %old, %new : f32
    zefuse.yield %sum : f32
  }
  %s = zefuse.scan %r dim 1 initial 0.0 : f32 : (tensor<10x6xf32>) -> tensor<10x6xf32> {
  ^bb0(%before: f32, %element: f32):
    %sum = arith.addf %before, %element : f32
    zefuse.yield %sum : f32
  }
  %v, %p = zefuse.sort %s dim 1 descending : (tensor<10x6xf32>) -> (tensor<10x2xf32>, tensor<10x2xi64>)
  return %v : tensor<10x2xf32>
}

// CHECK-LABEL: func.func @calls(
// CHECK: zefuse.matmul %{{.*}}, %{{.*}} bias %{{.*}} operands(%{{.*}}) {alpha = 5.000000e-01 : f32, post_ops = ["relu", "add"], result_layout = #{{.*}}}
// CHECK: zefuse.convolution "forward" %{{.*}}, %{{.*}} {dilation = array<i64: 1>, groups = 1 : i64
// CHECK: zefuse.attention %{{.*}}, %{{.*}}, %{{.*}} mask %{{.*}} {causal = true, scale = 5.000000e-01 : f32}
// CHECK: zefuse.attention_gradient {{.*}} {causal = true, of_keys, scale = 5.000000e-01 : f32}
// CHECK: zefuse.aten "aten::foo"(%{{.*}}) {args = [{tensor = 0 : i64}, unit], {{.*}}result_positions = array<i64: 1>
func.func @calls(%x: tensor<4x4xf32>, %b: tensor<4xf32>, %i: tensor<1x4x4xf32>, %q: tensor<1x2x16x8xf32>, %m: tensor<16x16xf32>) {
  %0 = zefuse.matmul %x, %x bias %b operands(%x) {alpha = 0.5 : f32, post_ops = ["relu", "add"], result_layout = #flat}
      : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = zefuse.convolution "forward" %i, %i {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>,
      groups = 1 : i64} : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x1x1xf32>
  %2, %3 = zefuse.attention %q, %q, %q mask %m {scale = 0.5 : f32, causal = true}
      : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<16x16xf32>)
      -> (tensor<1x2x16x8xf32>, tensor<1x2x16xf32>)
  %4:2 = zefuse.attention_gradient %q, %q, %q, %2, %3, %3 {scale = 0.5 : f32, causal = true, of_keys}
      : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16xf32>,
         tensor<1x2x16xf32>) -> (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>)
  %5 = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}, unit], reason = "a test", ordered,
      operand_strides = [affine_map<() -> (4, 1)>], result_strides = [affine_map<() -> (1, 4)>],
      result_positions = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// CHECK-LABEL: func.func @kernels(
// CHECK: zefuse.kernel "k"(%{{.*}}) attributes {groups = array<i64: 1, 2>, in_place = array<i64: 0, 0>, layouts = [#{{.*}}, #{{.*}}], parts = array<i64: 1>, writes = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
// CHECK: zefuse.kernel "b"(%{{.*}}, %{{.*}}) attributes {batch = 2 : i64, batch_sizes = array<i64: 16, 16>
func.func @kernels(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) {
  %r = zefuse.kernel "k"(%x) attributes {layouts = [#flat, #flat], parts = array<i64: 1>, groups = array<i64: 1, 2>,
      writes = array<i64: 0>, in_place = array<i64: 0, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    %v = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<4x4xf32> -> tensor<4x4xf32>
    zefuse.yield %v : tensor<4x4xf32>
  }
  %s:2 = zefuse.kernel "b"(%x, %y) attributes {layouts = [#flat, #flat, #flat, #flat], batch = 2 : i64,
      batch_sizes = array<i64: 16, 16>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  ^bb0(%a: tensor<32xf32>):
    zefuse.yield %a : tensor<32xf32>
  }
  return
}
