// RUN: zefuse-opt --emit=scheduled %s | FileCheck %s
// RUN: zefuse-opt --emit=launch %s | FileCheck %s --check-prefix=LAUNCH
// RUN: zefuse-opt --target=dg2-g11 --emit=launch %s | FileCheck %s --check-prefix=GPU
// RUN: zefuse-opt --target=dg2-g11 --emit=spirv %s | FileCheck %s --check-prefix=GPU-SPIRV

#flat = affine_map<(d0, d1) -> (d0 * 1000 + d1)>

// A key above its position in 64 bits: one comparison decides. Sorted vectors, then runs of twice the length.
func.func @graph(%x: tensor<64x1000xf32>) {
  %r:2 = zefuse.kernel "sort"(%x) attributes {layouts = [#flat, #flat, #flat]}
      : (tensor<64x1000xf32>) -> (tensor<64x1000xf32>, tensor<64x1000xi64>) {
  ^bb0(%a: tensor<64x1000xf32>):
    %v, %p = zefuse.sort %a dim 1 : (tensor<64x1000xf32>) -> (tensor<64x1000xf32>, tensor<64x1000xi64>)
    zefuse.yield %v, %p : tensor<64x1000xf32>, tensor<64x1000xi64>
  }
  return
}
// CHECK: llvm.alloca {{.*}} !llvm.array<1008 x i64>
// CHECK: arith.minsi {{.*}} : vector<16xi64>
// CHECK-NOT: arith.cmpi {{.*}} : vector<16xi64>
// CHECK: vector.shuffle
// LAUNCH: sort: extent 64, {{.*}} schedule: sort, a network per row
// GPU: sort: extent 64, grain 1, group 512, exact, schedule: sort, a network per row
// GPU-SPIRV: OpExecutionMode %sort LocalSize 512 1 1
// GPU-SPIRV: OpVariable %_ptr_Workgroup__arr_ulong_uint_1000 Workgroup
// GPU-SPIRV: OpControlBarrier
