// RUN: zefuse-opt --zefuse-repeat-cheap-producers %s | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// A mask of its indices alone is made for each product that reads it, and what nobody reads goes.
// CHECK-LABEL: func.func @graph(
// CHECK-NOT: math.exp
// CHECK-COUNT-2: linalg.index 0
// CHECK-NOT: linalg.index
// CHECK: return
func.func @graph(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %mask = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<8x8xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i64
    %f = arith.sitofp %j : i64 to f32
    linalg.yield %f : f32
  } -> tensor<8x8xf32>
  %dead = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mask : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mask : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  return %y, %z : tensor<8x8xf32>, tensor<8x8xf32>
}

// So is the f32 of a 16-bit tensor: each reader widens what it reads.
// CHECK-LABEL: func.func @widened(
// CHECK-COUNT-2: arith.extf
// CHECK-NOT: arith.extf
// CHECK: return
func.func @widened(%x: tensor<8x8xbf16>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xbf16>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %r = arith.extf %a : bf16 to f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = math.sqrt %a : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %a, %a : f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  return %s, %p : tensor<8x8xf32>, tensor<8x8xf32>
}

// A reader of several views of it, as a stack of zeros and of few gradients is, has one copy.
// CHECK-LABEL: func.func @stack(
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @stack(%x: tensor<1xf32>) -> (tensor<5xf32>, tensor<2xf32>) {
  %e = tensor.empty() : tensor<f32>
  %zero = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%e : tensor<f32>) {
  ^bb0(%o: f32):
    %c = arith.constant 0.0 : f32
    linalg.yield %c : f32
  } -> tensor<f32>
  %a = zefuse.view %zero affine_map<(d0) -> ()> : tensor<f32> -> tensor<1xf32>
  %b = zefuse.view %zero affine_map<(d0) -> ()> : tensor<f32> -> tensor<1xf32>
  %c = zefuse.view %zero affine_map<(d0) -> ()> : tensor<f32> -> tensor<1xf32>
  %d = zefuse.view %zero affine_map<(d0) -> ()> : tensor<f32> -> tensor<1xf32>
  %s = tensor.concat dim(0) %a, %b, %x, %c, %c : (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<5xf32>
  %t = tensor.concat dim(0) %x, %d : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  return %s, %t : tensor<5xf32>, tensor<2xf32>
}
