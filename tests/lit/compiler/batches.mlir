// RUN: zefuse-opt --zefuse-batch-kernels --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --zefuse-batch-kernels=target=dg2-g11 --split-input-file %s | FileCheck %s --check-prefix=GPU
// On a GPU sets have as many groups as the largest: of sizes that differ by less than four times, or are one group's.
// GPU: @one_shape
// GPU: zefuse.kernel "exp"(%arg0, %arg1) {{.*}}batch = 2 : i64
// GPU: @any_sizes
// GPU: zefuse.kernel "exp"(%arg0, %arg1) {{.*}}batch = 2 : i64, batch_sizes = array<i64: 32, 15>

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// Of one shape: the body stays as it is.
// CHECK-LABEL: func.func @one_shape(
// CHECK: %{{.*}}:2 = zefuse.kernel "exp"(%arg0, %arg1) {{.*}}batch = 2 : i64, groups = array<i64: 0, 1>, layouts =
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<4x8xf32>):
// CHECK-NOT: zefuse.kernel
// CHECK: return
func.func @one_shape(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = zefuse.kernel "exp"(%x) attributes {layouts = [#flat, #flat], groups = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  %b = zefuse.kernel "exp"(%y) attributes {layouts = [#flat, #flat], groups = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  return %a, %b : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// Of any sizes, elementwise on contiguous tensors: one dimension of a nominal size.
// CHECK-LABEL: func.func @any_sizes(
// CHECK: zefuse.kernel "exp"(%arg0, %arg1) {{.*}}batch = 2 : i64, batch_sizes = array<i64: 32, 15>
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<1048576xf32>):
// CHECK-NOT: zefuse.kernel
// CHECK: return
func.func @any_sizes(%x: tensor<4x8xf32>, %y: tensor<3x5xf32>) -> (tensor<4x8xf32>, tensor<3x5xf32>) {
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
  %b = zefuse.kernel "exp"(%y) attributes {layouts = [#five, #five]} : (tensor<3x5xf32>) -> tensor<3x5xf32> {
  ^bb0(%in: tensor<3x5xf32>):
    %e = tensor.empty() : tensor<3x5xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in : tensor<3x5xf32>) outs(%e : tensor<3x5xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = math.exp %p : f32
      linalg.yield %r : f32
    } -> tensor<3x5xf32>
    zefuse.yield %s : tensor<3x5xf32>
  }
  return %a, %b : tensor<4x8xf32>, tensor<3x5xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// One reads the other's result; another operation; another layout: all stay alone.
// CHECK-LABEL: func.func @alone(
// CHECK-NOT: batch =
// CHECK: return
func.func @alone(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
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
  %b = zefuse.kernel "exp"(%a) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  %c = zefuse.kernel "tanh"(%x) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  %d = zefuse.kernel "exp"(%x) attributes {layouts = [#columns, #columns]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  return %b, %c, %d : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 8)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// Each is read before the next one stands there, but both read what is there at first: on a GPU they run where the first
// one stood, behind the view that the second one reads. What reads a later result does not move.
// CHECK-LABEL: func.func @early(
// CHECK-NOT: batch =
// CHECK: return
// GPU-LABEL: func.func @early(
// GPU: %[[VIEW:.*]] = zefuse.view %arg1
// GPU-NEXT: %[[BOTH:.*]]:2 = zefuse.kernel "exp"(%arg0, %[[VIEW]]) {{.*}}batch = 2 : i64
// GPU: %[[A:.*]] = zefuse.kernel "tanh"(%[[BOTH]]#0)
// GPU: zefuse.kernel "tanh"(%[[BOTH]]#1)
// GPU: zefuse.kernel "exp"(%[[A]])
func.func @early(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
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
  %b = zefuse.kernel "tanh"(%a) attributes {layouts = [#flat, #columns]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  %v = zefuse.view %y affine_map<(d0, d1) -> ((d0 * 8 + d1) floordiv 4, (d0 * 8 + d1) mod 4)> : tensor<8x4xf32> -> tensor<4x8xf32>
  %c = zefuse.kernel "exp"(%v) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  %d = zefuse.kernel "tanh"(%c) attributes {layouts = [#flat, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  %f = zefuse.kernel "exp"(%b) attributes {layouts = [#columns, #flat]} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
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
  return %d, %f : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#scalar = affine_map<() -> (0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>

// A group's matrix is made for its product, which is not the other one's.
// CHECK-LABEL: func.func @of_groups(
// CHECK-NOT: batch = 2
// CHECK: return
func.func @of_groups(%x: tensor<4x8xi64>, %y: tensor<4x8xi64>) -> (tensor<4x8xi64>, tensor<4x8xi64>) {
  %i = zefuse.group_index {result_layout = #scalar} : tensor<i64>
  %a = zefuse.kernel "add"(%x, %i) attributes {layouts = [#flat, #scalar, #flat], groups = array<i64: 0>} : (tensor<4x8xi64>, tensor<i64>) -> tensor<4x8xi64> {
  ^bb0(%in: tensor<4x8xi64>, %number: tensor<i64>):
    %e = tensor.empty() : tensor<4x8xi64>
    %s = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in, %number : tensor<4x8xi64>, tensor<i64>) outs(%e : tensor<4x8xi64>) {
    ^bb0(%p: i64, %n: i64, %o: i64):
      %r = arith.addi %p, %n : i64
      linalg.yield %r : i64
    } -> tensor<4x8xi64>
    zefuse.yield %s : tensor<4x8xi64>
  }
  %b = zefuse.kernel "add"(%y, %i) attributes {layouts = [#flat, #scalar, #flat], groups = array<i64: 1>} : (tensor<4x8xi64>, tensor<i64>) -> tensor<4x8xi64> {
  ^bb0(%in: tensor<4x8xi64>, %number: tensor<i64>):
    %e = tensor.empty() : tensor<4x8xi64>
    %s = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in, %number : tensor<4x8xi64>, tensor<i64>) outs(%e : tensor<4x8xi64>) {
    ^bb0(%p: i64, %n: i64, %o: i64):
      %r = arith.addi %p, %n : i64
      linalg.yield %r : i64
    } -> tensor<4x8xi64>
    zefuse.yield %s : tensor<4x8xi64>
  }
  return %a, %b : tensor<4x8xi64>, tensor<4x8xi64>
}
