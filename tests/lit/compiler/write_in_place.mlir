// RUN: zefuse-opt --zefuse-write-in-place --split-input-file %s | FileCheck %s

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// The new value of the argument goes where the old one lies: each element is read only where it is written.
// CHECK-LABEL: func.func @in_place(
// CHECK: zefuse.kernel "exp"(%arg0) {{.*}}in_place = array<i64: 0, 0>{{.*}}writes = array<i64: 0>
func.func @in_place(%x: tensor<4x8xf32> {zefuse.strides = affine_map<() -> (8, 1)>}) -> tensor<4x8xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (8, 1)>, written = 0}]} {
  %a = zefuse.kernel "exp"(%x) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %e = tensor.empty() : tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<4x8xf32>
    zefuse.yield %s : tensor<4x8xf32>
  }
  return %a : tensor<4x8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// It is not read at all: written, with nothing shared.
// CHECK-LABEL: func.func @overwritten(
// CHECK-NOT: in_place
// CHECK: zefuse.kernel "exp"(%arg1) {{.*}}writes = array<i64: 0>
func.func @overwritten(%x: tensor<4x8xf32> {zefuse.strides = affine_map<() -> (8, 1)>}, %y: tensor<4x8xf32> {zefuse.strides = affine_map<() -> (8, 1)>}) -> tensor<4x8xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (8, 1)>, written = 0}]} {
  %a = zefuse.kernel "exp"(%y) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %e = tensor.empty() : tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<4x8xf32>
    zefuse.yield %s : tensor<4x8xf32>
  }
  return %a : tensor<4x8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// Somebody reads the old value later, or the result is no output that overwrites.
// CHECK-LABEL: func.func @read_later(
// CHECK-NOT: writes
// CHECK: return
func.func @read_later(%x: tensor<4x8xf32> {zefuse.strides = affine_map<() -> (8, 1)>}) -> (tensor<4x8xf32>, tensor<4x8xf32>)
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (8, 1)>, written = 0}, {result = 1, strides = affine_map<() -> (8, 1)>}]} {
  %a = zefuse.kernel "exp"(%x) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %e = tensor.empty() : tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<4x8xf32>
    zefuse.yield %s : tensor<4x8xf32>
  }
  %b = zefuse.kernel "tanh"(%x) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %e = tensor.empty() : tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.tanh %p : f32
      linalg.yield %r : f32
    } -> tensor<4x8xf32>
    zefuse.yield %s : tensor<4x8xf32>
  }
  return %a, %b : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// The argument lies otherwise than what the kernel writes.
// CHECK-LABEL: func.func @other_strides(
// CHECK-NOT: writes
// CHECK: return
func.func @other_strides(%x: tensor<4x8xf32> {zefuse.strides = affine_map<() -> (1, 4)>}) -> tensor<4x8xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (8, 1)>, written = 0}]} {
  %a = zefuse.kernel "exp"(%x) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %e = tensor.empty() : tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<4x8xf32>
    zefuse.yield %s : tensor<4x8xf32>
  }
  return %a : tensor<4x8xf32>
}
