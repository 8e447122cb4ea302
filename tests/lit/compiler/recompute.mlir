// RUN: zefuse-opt --zefuse-recompute-for-reductions %s | FileCheck %s
// RUN: zefuse-opt --zefuse-recompute-for-reductions --zefuse-outline-kernels %s | FileCheck %s --check-prefix=KERNELS

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>

// A norm's rows, and the gradient of its weight: the sum over the rows of what the rows' kernel would have to store. It is
// computed again from what both read.
// CHECK-LABEL: func.func @graph(
// CHECK: arith.subf
// CHECK: zefuse.late
// CHECK: arith.subf
// CHECK: zefuse.late
// CHECK: arith.mulf
// CHECK: iterator_types = ["reduction", "parallel"]
// CHECK: return
// KERNELS-LABEL: func.func @graph(
// KERNELS: zefuse.kernel {{.*}} -> (tensor<512xf32>, tensor<512x512xf32>)
// KERNELS: zefuse.kernel {{.*}} -> tensor<512xf32>
// KERNELS-NOT: zefuse.late
// KERNELS-NOT: zefuse.kernel
func.func @graph(%x: tensor<512x512xf32>, %g: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512xf32>) {
  %zero = arith.constant 0.0 : f32
  %v = tensor.empty() : tensor<512xf32>
  %e = tensor.empty() : tensor<512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%v : tensor<512xf32>) -> tensor<512xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<512x512xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<512xf32>
  %h = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<512x512xf32>, tensor<512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<512x512xf32>
  %p = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %h : tensor<512x512xf32>, tensor<512x512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<512x512xf32>
  %c = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%p : tensor<512x512xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<512xf32>
  return %h, %c : tensor<512x512xf32>, tensor<512xf32>
}

// What leads to it is too much to do again, but the rounded elements are stored for another reader: the sum reads those.
// KERNELS-LABEL: func.func @rounded(
// KERNELS: zefuse.kernel {{.*}} -> tensor<512x512xbf16>
// KERNELS: zefuse.kernel {{.*}} : (tensor<512x512xbf16>) -> tensor<512xf32>
// KERNELS-NOT: zefuse.kernel
func.func @rounded(%x: tensor<512x512xf32>) -> (tensor<512x512xbf16>, tensor<512xf32>) {
  %zero = arith.constant 0.0 : f32
  %v = tensor.empty() : tensor<512xf32>
  %e = tensor.empty() : tensor<512x512xf32>
  %b = tensor.empty() : tensor<512x512xbf16>
  %f = linalg.fill ins(%zero : f32) outs(%v : tensor<512xf32>) -> tensor<512xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<512x512xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<512xf32>
  %t = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %m : tensor<512x512xf32>, tensor<512xf32>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: f32, %s: f32, %o: f32):
    %d = arith.subf %a, %s : f32
    %r = math.tanh %d : f32
    linalg.yield %r : f32
  } -> tensor<512x512xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<512x512xf32>) outs(%b : tensor<512x512xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %r = arith.truncf %a : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<512x512xbf16>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%n : tensor<512x512xbf16>) outs(%e : tensor<512x512xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %r = arith.extf %a : bf16 to f32
    linalg.yield %r : f32
  } -> tensor<512x512xf32>
  %c = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%w : tensor<512x512xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %o : f32
    linalg.yield %r : f32
  } -> tensor<512xf32>
  return %n, %c : tensor<512x512xbf16>, tensor<512xf32>
}
