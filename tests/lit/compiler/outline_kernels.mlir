// RUN: zefuse-opt --zefuse-outline-kernels --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --zefuse-outline-kernels=merge=false --split-input-file %s | FileCheck %s --check-prefix=APART

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// A reduction takes its producer and its epilogue.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: zefuse.not_joined = []
// CHECK-COUNT-1: zefuse.kernel
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT: zefuse.kernel
// CHECK: return
// APART-LABEL: func.func @rows(
// APART-COUNT-3: zefuse.kernel
// APART-NOT: zefuse.kernel
// APART: return
func.func @rows(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<4xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<4x8xf32>) outs(%g : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  return %z : tensor<4x8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>

// A product between the two keeps them apart, and the function says so of the kernels' groups.
// CHECK-LABEL: func.func @path(
// CHECK-SAME: zefuse.not_joined = [{first = 0 : i64, reason = "one reads what a step between them makes of the other's result", second = 1 : i64}]
// CHECK: zefuse.kernel {{.*}}groups = array<i64: 0>
// CHECK: zefuse.matmul
// CHECK: zefuse.kernel {{.*}}groups = array<i64: 1>
// APART-LABEL: func.func @path(
// APART-SAME: zefuse.not_joined = []
func.func @path(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %m = zefuse.matmul %y, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  return %z : tensor<8x8xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>

// Siblings that read one tensor, one of them transposed, are one kernel with two results.
// CHECK-LABEL: func.func @siblings(
// CHECK: zefuse.kernel {{.*}} -> (tensor<4x8xf32>, tensor<8x4xf32>)
// CHECK-NOT: zefuse.kernel
// CHECK: return
func.func @siblings(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %f = tensor.empty() : tensor<8x4xf32>
  %v = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<4x8xf32> -> tensor<8x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<8x4xf32>) outs(%f : tensor<8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.tanh %a : f32
    linalg.yield %r : f32
  } -> tensor<8x4xf32>
  return %y, %z : tensor<4x8xf32>, tensor<8x4xf32>
}

// -----

#matrix = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#even = affine_map<(d0, d1, d2) -> (d1)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#row = affine_map<(d0, d1) -> (d0)>

// What a product makes of another's few results stays with its own sum, instead of being stored.
// CHECK-LABEL: func.func @product_of_a_product(
// CHECK-SAME: reason = "joined, it would store for a reduction what that reads while it computes it"
// CHECK: zefuse.kernel {{.*}} -> tensor<512xf32>
// CHECK: zefuse.kernel {{.*}} -> tensor<512xf32>
// CHECK-NOT: zefuse.kernel
// CHECK: return
func.func @product_of_a_product(%v: tensor<512x64xf32>, %x: tensor<64xf32>, %w: tensor<512x256xf32>, %u: tensor<512x256xf32>) -> tensor<512xf32> {
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<512xf32>
  %g = linalg.fill ins(%zero : f32) outs(%f : tensor<512xf32>) -> tensor<512xf32>
  %e = tensor.empty() : tensor<512x64xf32>
  %p = linalg.generic {indexing_maps = [#id2, #column, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%v, %x : tensor<512x64xf32>, tensor<64xf32>) outs(%e : tensor<512x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<512x64xf32>
  %y = linalg.generic {indexing_maps = [#id2, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<512x64xf32>) outs(%g : tensor<512xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<512xf32>
  %even = zefuse.view %y affine_map<(d0) -> (d0 * 2)> : tensor<512xf32> -> tensor<256xf32>
  %odd = zefuse.view %y affine_map<(d0) -> (d0 * 2 + 1)> : tensor<512xf32> -> tensor<256xf32>
  %h = tensor.empty() : tensor<512x256xf32>
  %q = linalg.generic {indexing_maps = [#id2, #id2, #column, #column, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w, %u, %even, %odd : tensor<512x256xf32>, tensor<512x256xf32>, tensor<256xf32>, tensor<256xf32>) outs(%h : tensor<512x256xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32, %o: f32):
    %r = arith.mulf %a, %c : f32
    %s = arith.mulf %b, %d : f32
    %t = arith.addf %r, %s : f32
    linalg.yield %t : f32
  } -> tensor<512x256xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row], iterator_types = ["parallel", "reduction"]}
      ins(%q : tensor<512x256xf32>) outs(%g : tensor<512xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<512xf32>
  return %z : tensor<512xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>

// Few groups combine what slices of a reduction made: what makes little of it joins them, what makes much does not.
// CHECK-LABEL: func.func @few(
// CHECK-SAME: zefuse.not_joined = [{{.*}}the few groups that combine 8 result(s) of slices would walk 32768 elements
// CHECK: zefuse.kernel
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]
// CHECK-NOT: zefuse.few_results
// CHECK: math.rsqrt
// CHECK: zefuse.kernel
// CHECK: arith.mulf
func.func @few(%p: tensor<32x8xf32>, %x: tensor<4096x8xf32>) -> tensor<4096x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%p : tensor<32x8xf32>) outs(%f : tensor<8xf32>) attrs = {zefuse.few_results} {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%s : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = math.rsqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<8xf32>
  %g = tensor.empty() : tensor<4096x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %q : tensor<4096x8xf32>, tensor<8xf32>) outs(%g : tensor<4096x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4096x8xf32>
  return %y : tensor<4096x8xf32>
}
