// Stages 3 and 4 by their passes.
// RUN: zefuse-opt --zefuse-check-legal --zefuse-schedule %s | FileCheck %s
// RUN: zefuse-opt --zefuse-schedule=target=dg2-g11 %s | FileCheck %s --check-prefix=GPU
// RUN: zefuse-opt --zefuse-schedule --zefuse-convert-to-llvm %s | FileCheck %s --check-prefix=LLVM
// RUN: zefuse-opt --zefuse-schedule=target=dg2-g11 --zefuse-convert-to-llvm %s | FileCheck %s --check-prefix=GPU-LLVM
// RUN: not zefuse-opt --zefuse-schedule=target=nothing %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: 'nothing' is no target; `zefuse targets` lists

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#flat = affine_map<(d0, d1) -> (d0 * 4096 + d1)>
#vec = affine_map<(d0) -> (d0)>

// CHECK-NOT: zefuse.kernel
// CHECK: func.func @exp(%{{.*}}: !llvm.ptr<1> {{.*}}, %{{.*}}: !llvm.ptr<1>
// CHECK: math.exp {{.*}} : vector<16xf32>
// CHECK: func.func @sum(
// CHECK: scf.for
// GPU: func.func @exp({{.*}}zefuse.group_size = 256
// GPU: func.func @sum({{.*}}zefuse.group_size = {{[0-9]+}} : i64, zefuse.subgroup_size
// LLVM-NOT: {{scf|arith|math|func}}.
// LLVM: llvm.func spir_kernelcc @exp(
// LLVM: llvm.call spir_funccc @_Z3expDv16_f(
// LLVM: llvm.func spir_kernelcc @sum(
// GPU-LLVM: llvm.func spir_kernelcc @exp({{.*}}reqd_work_group_size = array<i32: 256, 1, 1>
// GPU-LLVM-NOT: zefuse.
func.func @graph(%x: tensor<64x4096xf32>) -> (tensor<64x4096xf32>, tensor<64xf32>) {
  %y = zefuse.kernel "exp"(%x) attributes {layouts = [#flat, #flat]} : (tensor<64x4096xf32>) -> tensor<64x4096xf32> {
  ^bb0(%a: tensor<64x4096xf32>):
    %e = tensor.empty() : tensor<64x4096xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<64x4096xf32>) outs(%e : tensor<64x4096xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = math.exp %p : f32
      linalg.yield %0 : f32
    } -> tensor<64x4096xf32>
    zefuse.yield %s : tensor<64x4096xf32>
  }
  %z = zefuse.kernel "sum"(%y) attributes {layouts = [#flat, #vec]} : (tensor<64x4096xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<64x4096xf32>):
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<64xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<64x4096xf32>) outs(%f : tensor<64xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.addf %p, %o : f32
      linalg.yield %0 : f32
    } -> tensor<64xf32>
    zefuse.yield %s : tensor<64xf32>
  }
  return %y, %z : tensor<64x4096xf32>, tensor<64xf32>
}
