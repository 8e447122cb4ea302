// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s

// How lanes step through memory decides the load: not at all, by one, otherwise.
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#flat = affine_map<(d0, d1) -> (d0 * 64 + d1)>
#one = affine_map<(d0) -> (d0)>
func.func @graph(%x: tensor<32x64xf32>, %s: tensor<32xf32>, %t: tensor<32x64xf32>) {
  %r = zefuse.kernel "loads"(%x, %s, %t) attributes {layouts = [#flat, #one, affine_map<(d0, d1) -> (d0 * 2048 + d1 * 32)>, #flat]}
      : (tensor<32x64xf32>, tensor<32xf32>, tensor<32x64xf32>) -> tensor<32x64xf32> {
  ^bb0(%a: tensor<32x64xf32>, %b: tensor<32xf32>, %c: tensor<32x64xf32>):
    %e = tensor.empty() : tensor<32x64xf32>
    %v = linalg.generic {indexing_maps = [#id, #row, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b, %c : tensor<32x64xf32>, tensor<32xf32>, tensor<32x64xf32>) outs(%e : tensor<32x64xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32, %o: f32):
      %3 = arith.addf %0, %1 : f32
      %4 = arith.addf %3, %2 : f32
      linalg.yield %4 : f32
    } -> tensor<32x64xf32>
    zefuse.yield %v : tensor<32x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @loads(%arg0
// The row's scalar is loaded and repeated outside the inner loop.
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> f32
// CHECK: vector.broadcast {{.*}} : f32 to vector<16xf32>
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// A stride of 32: a load per lane.
// CHECK-COUNT-16: llvm.load {{.*}} -> f32
// CHECK: vector.from_elements
// CHECK: llvm.store {{.*}} : vector<16xf32>

// A transposed load is walked in tiles: strips of 16 rows, whose cache lines stay until they are used up.
func.func @transposed(%x: tensor<64x32xf32>) {
  %r = zefuse.kernel "transposed"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 32 + d1)>, #flat]}
      : (tensor<64x32xf32>) -> tensor<32x64xf32> {
  ^bb0(%a: tensor<64x32xf32>):
    %v = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<64x32xf32> -> tensor<32x64xf32>
    zefuse.yield %v : tensor<32x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @transposed(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for
// CHECK-COUNT-16: llvm.load {{.*}} -> f32
// CHECK: llvm.store {{.*}} : vector<16xf32>

// Rows of 4 KiB: the tile's 16 lines would share a set of the first-level cache, which 8 lanes' lines fit into.
func.func @colliding(%x: tensor<64x1024xf32>) {
  %r = zefuse.kernel "colliding"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 1024 + d1)>, #flat]}
      : (tensor<64x1024xf32>) -> tensor<1024x64xf32> {
  ^bb0(%a: tensor<64x1024xf32>):
    %v = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : tensor<64x1024xf32> -> tensor<1024x64xf32>
    zefuse.yield %v : tensor<1024x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @colliding(
// CHECK-NOT: vector<16xf32>
// CHECK: llvm.store {{.*}} : vector<8xf32>

// Lanes across rows, memory one step after the other: each step of 32 bytes fetches ahead once, by its first load.
#blocks = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#lane = affine_map<(d0, d1, d2) -> (d0, d2)>
#steps = affine_map<(d0, d1, d2, d3) -> (d0 * 16384 + d1 * 32 + d2 * 16 + d3)>
func.func @streamed(%x: tensor<64x512x2x16xi8>) {
  %r = zefuse.kernel "streamed"(%x) attributes {layouts = [#steps, affine_map<(d0, d1) -> (d0 * 16 + d1)>]}
      : (tensor<64x512x2x16xi8>) -> tensor<64x16xi32> {
  ^bb0(%a: tensor<64x512x2x16xi8>):
    %l = zefuse.view %a affine_map<(d0, d1, d2) -> (d0, d1, 0, d2)> : tensor<64x512x2x16xi8> -> tensor<64x512x16xi8>
    %h = zefuse.view %a affine_map<(d0, d1, d2) -> (d0, d1, 1, d2)> : tensor<64x512x2x16xi8> -> tensor<64x512x16xi8>
    %zero = arith.constant 0 : i32
    %e = tensor.empty() : tensor<64x16xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<64x16xi32>) -> tensor<64x16xi32>
    %w = tensor.empty() : tensor<64x512x16xi32>
    %p = linalg.generic {indexing_maps = [#blocks, #blocks, #blocks], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%l, %h : tensor<64x512x16xi8>, tensor<64x512x16xi8>) outs(%w : tensor<64x512x16xi32>) {
    ^bb0(%0: i8, %1: i8, %o: i32):
      %2 = arith.extsi %0 : i8 to i32
      %3 = arith.extsi %1 : i8 to i32
      %4 = arith.addi %2, %3 : i32
      linalg.yield %4 : i32
    } -> tensor<64x512x16xi32>
    %v = linalg.generic {indexing_maps = [#blocks, #lane], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%p : tensor<64x512x16xi32>) outs(%f : tensor<64x16xi32>) {
    ^bb0(%0: i32, %o: i32):
      %1 = arith.addi %o, %0 : i32
      linalg.yield %1 : i32
    } -> tensor<64x16xi32>
    zefuse.yield %v : tensor<64x16xi32>
  }
  return
}
// CHECK-LABEL: func.func @streamed(
// CHECK: llvm.load {{.*}} -> vector<16xi8>
// CHECK: call @_Z8prefetch
// CHECK-NOT: call @_Z8prefetch
// CHECK: return

// A step of two cache lines fetches both.
func.func @lines(%x: tensor<64x512x2x16xi32>) {
  %r = zefuse.kernel "lines"(%x) attributes {layouts = [#steps, affine_map<(d0, d1) -> (d0 * 16 + d1)>]}
      : (tensor<64x512x2x16xi32>) -> tensor<64x16xi32> {
  ^bb0(%a: tensor<64x512x2x16xi32>):
    %l = zefuse.view %a affine_map<(d0, d1, d2) -> (d0, d1, 0, d2)> : tensor<64x512x2x16xi32> -> tensor<64x512x16xi32>
    %h = zefuse.view %a affine_map<(d0, d1, d2) -> (d0, d1, 1, d2)> : tensor<64x512x2x16xi32> -> tensor<64x512x16xi32>
    %zero = arith.constant 0 : i32
    %e = tensor.empty() : tensor<64x16xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<64x16xi32>) -> tensor<64x16xi32>
    %w = tensor.empty() : tensor<64x512x16xi32>
    %p = linalg.generic {indexing_maps = [#blocks, #blocks, #blocks], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%l, %h : tensor<64x512x16xi32>, tensor<64x512x16xi32>) outs(%w : tensor<64x512x16xi32>) {
    ^bb0(%0: i32, %1: i32, %o: i32):
      %4 = arith.addi %0, %1 : i32
      linalg.yield %4 : i32
    } -> tensor<64x512x16xi32>
    %v = linalg.generic {indexing_maps = [#blocks, #lane], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%p : tensor<64x512x16xi32>) outs(%f : tensor<64x16xi32>) {
    ^bb0(%0: i32, %o: i32):
      %1 = arith.addi %o, %0 : i32
      linalg.yield %1 : i32
    } -> tensor<64x16xi32>
    zefuse.yield %v : tensor<64x16xi32>
  }
  return
}
// CHECK-LABEL: func.func @lines(
// CHECK: call @_Z8prefetch
// CHECK: call @_Z8prefetch
// CHECK-NOT: call @_Z8prefetch
// CHECK: return
