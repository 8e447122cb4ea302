// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s --check-prefix=SCHED
// RUN: zefuse-opt --emit=spirv %s | FileCheck %s --check-prefix=SPIRV

// A bias that does not move with the lanes' dim is a vector load all the same; collapsing leaves no division.
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
#flat = affine_map<(d0, d1) -> (d0 * 1024 + d1)>
#vec = affine_map<(d0) -> (d0)>
func.func @graph(%x: tensor<4096x1024xf32>, %b: tensor<1024xf32>) -> tensor<4096x1024xf32> {
  %r = zefuse.kernel "add_gelu"(%x, %b) attributes {layouts = [#flat, #vec, #flat]} : (tensor<4096x1024xf32>, tensor<1024xf32>) -> tensor<4096x1024xf32> {
  ^bb0(%a: tensor<4096x1024xf32>, %c: tensor<1024xf32>):
    %e = tensor.empty() : tensor<4096x1024xf32>
    %s = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a, %c : tensor<4096x1024xf32>, tensor<1024xf32>) outs(%e : tensor<4096x1024xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.addf %p, %q : f32
      %h = arith.constant 5.000000e-01 : f32
      %k = arith.constant 0.707106781 : f32
      %one = arith.constant 1.0 : f32
      %1 = arith.mulf %0, %k : f32
      %2 = math.erf %1 : f32
      %3 = arith.addf %2, %one : f32
      %4 = arith.mulf %0, %h : f32
      %5 = arith.mulf %4, %3 : f32
      linalg.yield %5 : f32
    } -> tensor<4096x1024xf32>
    zefuse.yield %s : tensor<4096x1024xf32>
  }
  return %r : tensor<4096x1024xf32>
}
// SCHED-LABEL: func.func @add_gelu(
// SCHED-NOT: remui
// SCHED: llvm.load {{.*}} -> vector<16xf32>
// SCHED: math.erf {{.*}} : vector<16xf32>
// SPIRV: OpEntryPoint Kernel {{.*}} "add_gelu"
// SPIRV: OpExtInst %v16float {{.*}} erf
