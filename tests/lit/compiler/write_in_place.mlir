// RUN: zefuse-opt --zefuse-write-in-place --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --zefuse-write-in-place=target=sm_90 --split-input-file %s | FileCheck %s --check-prefix=GPU
// RUN: not zefuse-opt --zefuse-write-in-place=target=none --split-input-file %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: 'none' is no target

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// The new value of the argument goes where the old one lies: each element is read only where it is written.
// GPU-LABEL: func.func @in_place(
// GPU: in_place = array<i64: 0, 0>
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

// -----

// A scatter stores its updates where its init lies, on a GPU too.
// CHECK-LABEL: func.func @updates(
// CHECK: zefuse.kernel "index_add"(%arg0, %arg1, %arg2) {{.*}}in_place = array<i64: 0, 0>{{.*}}writes = array<i64: 0>
// GPU-LABEL: func.func @updates(
// GPU: zefuse.kernel "index_add"(%arg0, %arg1, %arg2) {{.*}}in_place = array<i64: 0, 0>{{.*}}writes = array<i64: 0>
func.func @updates(%init: tensor<10x64xf32> {zefuse.strides = affine_map<() -> (64, 1)>}, %updates: tensor<50x64xf32> {zefuse.strides = affine_map<() -> (64, 1)>}, %ids: tensor<50xi64> {zefuse.strides = affine_map<() -> (1)>}) -> tensor<10x64xf32>
    attributes {zefuse.symbols = [], zefuse.outputs = [{result = 0, strides = affine_map<() -> (64, 1)>, written = 0}]} {
  %r = zefuse.kernel "index_add"(%init, %updates, %ids) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 64 + d1)>,
      affine_map<(d0, d1) -> (d0 * 64 + d1)>, affine_map<(d0) -> (d0)>, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<10x64xf32>, tensor<50x64xf32>, tensor<50xi64>) -> tensor<10x64xf32> {
  ^bb0(%a: tensor<10x64xf32>, %u: tensor<50x64xf32>, %rows: tensor<50xi64>):
    %e = tensor.empty() : tensor<50x64xi64>
    %i = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%rows : tensor<50xi64>) outs(%e : tensor<50x64xi64>) {
    ^bb0(%p: i64, %o: i64):
      linalg.yield %p : i64
    } -> tensor<50x64xi64>
    %s = zefuse.scatter %a, %u (%i) affine_map<(d0, d1, d2) -> (d2, d1)>
        : (tensor<10x64xf32>, tensor<50x64xf32>, tensor<50x64xi64>) -> tensor<10x64xf32> {
    ^bb0(%old: f32, %new: f32):
      %0 = arith.addf %old, %new : f32
      zefuse.yield %0 : f32
    }
    zefuse.yield %s : tensor<10x64xf32>
  }
  return %r : tensor<10x64xf32>
}
