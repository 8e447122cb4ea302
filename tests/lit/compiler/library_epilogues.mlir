// RUN: zefuse-opt --zefuse-fuse-library-epilogues --split-input-file %s | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// The importer's mark makes the loop an activation; the product takes it.
// CHECK-LABEL: func.func @activation(
// CHECK: zefuse.matmul {{.*}}post_ops = ["tanh"]
// CHECK-NOT: linalg.generic
func.func @activation(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %m = zefuse.matmul %x, %w : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) attrs = {zefuse.activation = "tanh"} {
  ^bb0(%a: f32, %o: f32):
    %r = math.tanh %a : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#last = affine_map<(d0, d1, d2) -> (d2)>

// A vector that is added to each row, behind a view of the rows, is the product's bias.
// CHECK-LABEL: func.func @bias(
// CHECK-SAME: %[[B:[^:]*]]: tensor<4xf32>)
// CHECK: zefuse.matmul {{.*}} bias %[[B]]
// CHECK-NOT: linalg.generic
func.func @bias(%x: tensor<6x8xf32>, %w: tensor<8x4xf32>, %b: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %m = zefuse.matmul %x, %w : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %v = zefuse.view %m affine_map<(d0, d1, d2) -> (d0 * 3 + d1, d2)> : tensor<6x4xf32> -> tensor<2x3x4xf32>
  %e = tensor.empty() : tensor<2x3x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #last, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %b : tensor<2x3x4xf32>, tensor<4xf32>) outs(%e : tensor<2x3x4xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#rows = affine_map<(d0, d1, d2) -> (d1)>

// One number for each row is none.
// CHECK-LABEL: func.func @one_number_a_row(
// CHECK-NOT: bias
// CHECK: linalg.generic
func.func @one_number_a_row(%x: tensor<8x8xf32>, %w: tensor<8x4xf32>, %b: tensor<4xf32>) -> tensor<2x4x4xf32> {
  %m = zefuse.matmul %x, %w : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %v = zefuse.view %m affine_map<(d0, d1, d2) -> (d0 * 4 + d1, d2)> : tensor<8x4xf32> -> tensor<2x4x4xf32>
  %e = tensor.empty() : tensor<2x4x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #rows, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %b : tensor<2x4x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x4x4xf32>
  return %y : tensor<2x4x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// Without the mark it stays, and the product says why.
// CHECK-LABEL: func.func @unmarked(
// CHECK: zefuse.matmul {{.*}}left_out = "an elementwise operation is not its epilogue: the library's epilogue of a product is an activation; a kernel does the rest"
// CHECK: linalg.generic
func.func @unmarked(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %m = zefuse.matmul %x, %w : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>
#scalar = affine_map<() -> ()>

// Zeros around the image are the convolution's padding; x * scale + residual its post-ops, the scale a vector.
// CHECK-LABEL: func.func @convolution(
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x3x6x6xf32>, %[[W:[^:]*]]: tensor<8x3x3x3xf32>, %{{[^:]*}}: tensor<8xf32>, %[[R:[^:]*]]: tensor<1x8x6x6xf32>
// CHECK: %[[S:.*]] = zefuse.view %{{.*}} : tensor<8xf32> -> tensor<1x8x1x1xf32>
// CHECK: zefuse.convolution "forward" %[[X]], %[[W]] operands(%[[S]], %[[R]])
// CHECK-SAME: padding = array<i64: 1, 1>
// CHECK-SAME: post_ops = ["mul", "add"]
// CHECK-NEXT: return
func.func @convolution(%x: tensor<1x3x6x6xf32>, %w: tensor<8x3x3x3xf32>, %s: tensor<8xf32>, %r: tensor<1x8x6x6xf32>)
    -> tensor<1x8x6x6xf32> attributes {zefuse.symbols = []} {
  %p = zefuse.pad %x low [0, 0, 1, 1] value 0.0 : f32 : tensor<1x3x6x6xf32> -> tensor<1x3x8x8xf32>
  %c = zefuse.convolution "forward" %p, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>,
      dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %e = tensor.empty() : tensor<1x8x6x6xf32>
  %y = linalg.generic {indexing_maps = [#id, #channel, #id, #id],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c, %s, %r : tensor<1x8x6x6xf32>, tensor<8xf32>, tensor<1x8x6x6xf32>) outs(%e : tensor<1x8x6x6xf32>) {
  ^bb0(%a: f32, %b: f32, %d: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %d : f32
    linalg.yield %1 : f32
  } -> tensor<1x8x6x6xf32>
  return %y : tensor<1x8x6x6xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// Two readers need the result as it is.
// CHECK-LABEL: func.func @two_readers(
// CHECK: zefuse.matmul {{.*}}left_out = {{.*}}its result has 2 readers
// CHECK: linalg.generic
func.func @two_readers(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %m = zefuse.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) attrs = {zefuse.activation = "tanh"} {
  ^bb0(%a: f32, %o: f32):
    %r = math.tanh %a : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %m, %y : tensor<4x4xf32>, tensor<4x4xf32>
}
