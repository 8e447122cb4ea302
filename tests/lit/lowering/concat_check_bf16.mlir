// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s
// RUN: zefuse-opt --emit=spirv %s | FileCheck %s --check-prefix=SPIRV

#id = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0) -> (d0)>

// Pieces of whole vectors: a branch per vector picks one, and each piece is still a vector load.
func.func @rotate(%x: tensor<8x32xf32>, %y: tensor<8x32xf32>) {
  %r = zefuse.kernel "rotate"(%x, %y) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 32 + d1)>, affine_map<(d0, d1) -> (d0 * 32 + d1)>, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x64xf32> {
  ^bb0(%a: tensor<8x32xf32>, %b: tensor<8x32xf32>):
    %c = tensor.concat dim(1) %a, %b : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x64xf32>
    zefuse.yield %c : tensor<8x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @rotate(
// CHECK: scf.if {{.*}} -> (vector<16xf32>)
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK: else
// CHECK: llvm.load {{.*}} -> vector<16xf32>

// An index of a whole row is checked once, outside the loop over the row; a bad one stores its check's number.
func.func @embedding(%t: tensor<10x64xf32>, %i: tensor<6xi64>) {
  %r = zefuse.kernel "embedding"(%t, %i) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 64 + d1)>, #one, affine_map<(d0, d1) -> (d0 * 64 + d1)>]}
      : (tensor<10x64xf32>, tensor<6xi64>) -> tensor<6x64xf32> {
  ^bb0(%table: tensor<10x64xf32>, %ids: tensor<6xi64>):
    %e = tensor.empty() : tensor<6x64xf32>
    %v = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, #id], iterator_types = ["parallel", "parallel"]}
        ins(%ids : tensor<6xi64>) outs(%e : tensor<6x64xf32>) {
    ^bb0(%0: i64, %o: f32):
      %n = arith.constant 10 : index
      %k = zefuse.checked_index %0, %n {wrap_negative = true, error = "index_error", message = "index out of range"} : i64
      %j = linalg.index 1 : index
      %w = tensor.extract %table[%k, %j] : tensor<10x64xf32>
      linalg.yield %w : f32
    } -> tensor<6x64xf32>
    zefuse.yield %v : tensor<6x64xf32>
  }
  return
}
// CHECK-LABEL: func.func @embedding(
// CHECK: scf.for
// CHECK: arith.cmpi uge
// CHECK: scf.if
// CHECK-NEXT: arith.constant 1 : i32
// CHECK-NEXT: llvm.store {{.*}}, %arg3
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<16xf32>
// CHECK-NOT: arith.cmpi uge

// bf16 is 16-bit integers from here on.
func.func @bf16(%x: tensor<64xbf16>) {
  %r = zefuse.kernel "bf16"(%x) attributes {layouts = [#one, #one]} : (tensor<64xbf16>) -> tensor<64xbf16> {
  ^bb0(%a: tensor<64xbf16>):
    %e = tensor.empty() : tensor<64xbf16>
    %v = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%a : tensor<64xbf16>) outs(%e : tensor<64xbf16>) {
    ^bb0(%0: bf16, %o: bf16):
      %1 = arith.extf %0 : bf16 to f32
      %2 = math.exp %1 : f32
      %3 = arith.truncf %2 : f32 to bf16
      linalg.yield %3 : bf16
    } -> tensor<64xbf16>
    zefuse.yield %v : tensor<64xbf16>
  }
  return
}
// CHECK-LABEL: func.func @bf16(
// CHECK: llvm.load {{.*}} -> vector<16xi16>
// CHECK: arith.extf {{.*}} : vector<16xbf16> to vector<16xf32>
// CHECK: arith.truncf {{.*}} : vector<16xf32> to vector<16xbf16>
// CHECK: llvm.store {{.*}} : vector<16xi16>
// SPIRV-NOT: OpExtension
// SPIRV-NOT: OpTypeFloat 16

// Two equal checks: LLVM joins their branches and names a block, which must not reach the module.
func.func @twice(%t: tensor<10xf32>, %u: tensor<20xf32>, %i: tensor<64xi64>) {
  %r:2 = zefuse.kernel "twice"(%t, %u, %i) attributes {layouts = [#one, #one, #one, #one, #one]}
      : (tensor<10xf32>, tensor<20xf32>, tensor<64xi64>) -> (tensor<64xf32>, tensor<64xi64>) {
  ^bb0(%a: tensor<10xf32>, %b: tensor<20xf32>, %ids: tensor<64xi64>):
    %e = tensor.empty() : tensor<64xf32>
    %f = tensor.empty() : tensor<64xi64>
    %v = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%ids : tensor<64xi64>) outs(%e : tensor<64xf32>) {
    ^bb0(%0: i64, %o: f32):
      %n = arith.constant 10 : index
      %k = zefuse.checked_index %0, %n {wrap_negative = true, error = "index_error", message = "out of range"} : i64
      %w = tensor.extract %a[%k] : tensor<10xf32>
      linalg.yield %w : f32
    } -> tensor<64xf32>
    %x = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%ids : tensor<64xi64>) outs(%f : tensor<64xi64>) {
    ^bb0(%0: i64, %o: i64):
      %n = arith.constant 10 : index
      %k = zefuse.checked_index %0, %n {wrap_negative = true, error = "index_error", message = "out of range"} : i64
      %w = arith.index_cast %k : index to i64
      linalg.yield %w : i64
    } -> tensor<64xi64>
    zefuse.yield %v, %x : tensor<64xf32>, tensor<64xi64>
  }
  return
}
// CHECK-LABEL: func.func @twice(
// SPIRV-NOT: critedge
