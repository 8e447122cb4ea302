// RUN: zefuse-opt --zefuse-join-side-by-side --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --zefuse-join-side-by-side=target=dg2-g11 --split-input-file %s | FileCheck %s --check-prefix=GPU
// RUN: not zefuse-opt --zefuse-join-side-by-side=target=nothing --split-input-file %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: 'nothing' is no target; `zefuse targets` lists

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>
#vec = affine_map<(d0) -> (d0)>

// Two iteration spaces over one tensor: one launch of two parts, the tensor one argument.
// CHECK-LABEL: func.func @parts(
// CHECK: %{{.*}}:2 = zefuse.kernel "exp_beside_sum"(%arg0) {{.*}}groups = array<i64: 0, 1>{{.*}}parts = array<i64: 1, 1>
// CHECK-NOT: zefuse.kernel
// CHECK: return
// GPU-LABEL: func.func @parts(
// GPU-SAME: zefuse.not_joined = [{first = 0 : i64, reason = "not side by side in one launch: on a GPU {{.*}}", second = 1 : i64}]
// GPU-COUNT-2: zefuse.kernel
func.func @parts(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
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
  %b = zefuse.kernel "sum"(%x) attributes {layouts = [#flat, #vec], groups = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%f : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = arith.addf %p, %o : f32
      linalg.yield %r : f32
    } -> tensor<8xf32>
    zefuse.yield %s : tensor<8xf32>
  }
  return %a, %b : tensor<4x8xf32>, tensor<8xf32>
}

// -----

#flat = affine_map<(d0, d1) -> (d0 * 8 + d1)>
#five = affine_map<(d0, d1) -> (d0 * 5 + d1)>
#columns = affine_map<(d0, d1) -> (d0 + d1 * 4)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>
#vec = affine_map<(d0) -> (d0)>

// What writes in place stays alone.
// CHECK-LABEL: func.func @writes(
// CHECK-COUNT-2: zefuse.kernel
// CHECK: return
func.func @writes(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
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
  %b = zefuse.kernel "sum"(%x) attributes {layouts = [#flat, #vec], groups = array<i64: 1>, writes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<8xf32> {
  ^bb0(%in: tensor<4x8xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
        ins(%in : tensor<4x8xf32>) outs(%f : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %r = arith.addf %p, %o : f32
      linalg.yield %r : f32
    } -> tensor<8xf32>
    zefuse.yield %s : tensor<8xf32>
  }
  return %a, %b : tensor<4x8xf32>, tensor<8xf32>
}
