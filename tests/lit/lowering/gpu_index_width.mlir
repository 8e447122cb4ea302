// RUN: zefuse-opt --target=sm_90 --emit=llvm %s | FileCheck %s
// RUN: zefuse-opt --target=dg2-g11 --emit=llvm %s | FileCheck %s
// RUN: zefuse-opt --target=cpu --emit=llvm %s | FileCheck %s --check-prefix=CPU

// Indices of a GPU's kernel have 32 bits where none can pass 2^31.
// CHECK-LABEL: @small(
// CHECK-NOT: {{(mul|add|udiv|urem|icmp slt)}} i64
// CHECK: mul i32
// CHECK-NOT: {{(mul|add|udiv|urem|icmp slt)}} i64
// CHECK: ret void
// CPU-LABEL: @small(
// CPU-NOT: {{(mul|udiv)}} i32
// CPU: ret void
func.func @fits(%x: tensor<63x60xf32>, %y: tensor<60x63xf32>) {
  %r = zefuse.kernel "small"(%x, %y) attributes {layouts = [
      affine_map<(d0, d1) -> (d0 * 60 + d1)>, affine_map<(d0, d1) -> (d0 * 70 + d1)>, affine_map<(d0, d1) -> (d0 * 60 + d1)>]}
      : (tensor<63x60xf32>, tensor<60x63xf32>) -> tensor<63x60xf32> {
  ^bb0(%a: tensor<63x60xf32>, %b: tensor<60x63xf32>):
    %e = tensor.empty() : tensor<63x60xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b : tensor<63x60xf32>, tensor<60x63xf32>) outs(%e : tensor<63x60xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.addf %p, %q : f32
      linalg.yield %0 : f32
    } -> tensor<63x60xf32>
    zefuse.yield %s : tensor<63x60xf32>
  }
  return
}

// Elements that lie 2^31 apart.
// CHECK-LABEL: @apart(
// CHECK: mul i64
// CHECK: ret void
func.func @does_not_fit(%x: tensor<3x1000xf32>) {
  %r = zefuse.kernel "apart"(%x) attributes {layouts = [
      affine_map<(d0, d1) -> (d0 * 1073741824 + d1)>, affine_map<(d0, d1) -> (d0 * 1000 + d1)>]}
      : (tensor<3x1000xf32>) -> tensor<3x1000xf32> {
  ^bb0(%a: tensor<3x1000xf32>):
    %e = tensor.empty() : tensor<3x1000xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<3x1000xf32>) outs(%e : tensor<3x1000xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.negf %p : f32
      linalg.yield %0 : f32
    } -> tensor<3x1000xf32>
    zefuse.yield %s : tensor<3x1000xf32>
  }
  return
}

// A size that is not known.
// CHECK-LABEL: @symbolic(
// CHECK: mul i64
// CHECK: ret void
func.func @unknown(%x: tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>) attributes {zefuse.symbols = ["s0"]} {
  %r = zefuse.kernel "symbolic"(%x) attributes {layouts = [
      affine_map<(d0, d1)[s0] -> (d0 * 64 + d1)>, affine_map<(d0, d1)[s0] -> (d0 * 60 + d1)>]}
      : (tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>) -> tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>> {
  ^bb0(%a: tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>):
    %n = zefuse.size affine_map<()[s0] -> (s0)>
    %e = tensor.empty(%n) : tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>
    %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>) outs(%e : tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.negf %p : f32
      linalg.yield %0 : f32
    } -> tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>
    zefuse.yield %s : tensor<?x60xf32, affine_map<()[s0] -> (s0, 60)>>
  }
  return
}
