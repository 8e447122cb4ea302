// RUN: zefuse-opt --zefuse-prepare --split-input-file %s | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>

// Two transposes are none.
// CHECK-LABEL: func.func @views(
// CHECK-SAME: %[[X:.*]]: tensor<3x4xf32>
// CHECK-NOT: zefuse.view
// CHECK: zefuse.matmul %[[X]], %{{.*}}
func.func @views(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>) -> tensor<3x5xf32> {
  %a = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<3x4xf32> -> tensor<4x3xf32>
  %b = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<4x3xf32> -> tensor<3x4xf32>
  %r = zefuse.matmul %b, %w : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// A copy that only a product reads is nothing; one that the caller gets stays: eager's clone is a fresh tensor.
// CHECK-LABEL: func.func @copies(
// CHECK-SAME: %[[X:.*]]: tensor<4x4xf32>
// CHECK: zefuse.matmul %[[X]], %[[X]]
// CHECK: linalg.generic
// CHECK-SAME: zefuse.output = 1
// CHECK-NEXT: ^bb0(%[[E:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: linalg.yield %[[E]]
func.func @copies(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) attributes {zefuse.symbols = [],
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (4, 1)>}, {result = 1, strides = affine_map<() -> (4, 1)>}]} {
  %e = tensor.empty() : tensor<4x4xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x4xf32>
  %m = zefuse.matmul %c, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %m, %c : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Equal products are one; those that both are outputs stay two, since the caller may write to each.
// CHECK-LABEL: func.func @repeated(
// CHECK-COUNT-3: zefuse.matmul
// CHECK-NOT: zefuse.matmul
// CHECK: return
func.func @repeated(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) attributes {zefuse.symbols = [],
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (4, 1)>}, {result = 1, strides = affine_map<() -> (4, 1)>}]} {
  %a = zefuse.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = zefuse.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = zefuse.matmul %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = zefuse.matmul %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %c, %d : tensor<4x4xf32>, tensor<4x4xf32>
}
