// RUN: zefuse-opt --emit=llvm %s | FileCheck %s
// RUN: zefuse-opt --emit=spirv %s | FileCheck %s --check-prefix=SPIRV

// IR that the SPIR-V back end would write as a module that spirv-val rejects (lowering/spirv/workarounds.h).

#flat16 = affine_map<(d0, d1) -> (d0 * 16 + d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#vec = affine_map<(d0) -> (d0)>

// Rows of the padding hold another constant: the branch of a row becomes a select of two vectors by one bit.
func.func @padded() {
  %r = zefuse.kernel "padded"() attributes {layouts = [#flat16]} : () -> tensor<6x16xf32> {
    %e = tensor.empty() : tensor<4x16xf32>
    %one = arith.constant 1.0 : f32
    %s = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x16xf32>) {
    ^bb0(%o: f32):
      linalg.yield %one : f32
    } -> tensor<4x16xf32>
    %p = zefuse.pad %s low [1, 0] value 0.0 : f32 : tensor<4x16xf32> -> tensor<6x16xf32>
    zefuse.yield %p : tensor<6x16xf32>
  }
  return
}
// CHECK-LABEL: @padded(
// CHECK-NOT: select i1 {{.*}}<16 x float>
// CHECK: select <16 x i1> {{.*}}, <16 x float>
// SPIRV: OpEntryPoint Kernel {{.*}} "padded"
// SPIRV: OpSelect %v16float

// A narrowing to u8 and a widening to another width than it came from.
func.func @narrower(%x: tensor<64xi32>) {
  %r = zefuse.kernel "narrower"(%x) attributes {layouts = [#vec, #vec]} : (tensor<64xi32>) -> tensor<64xi16> {
  ^bb0(%a: tensor<64xi32>):
    %e = tensor.empty() : tensor<64xi16>
    %s = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%a : tensor<64xi32>) outs(%e : tensor<64xi16>) {
    ^bb0(%p: i32, %o: i16):
      %0 = arith.trunci %p : i32 to i8
      %1 = arith.extui %0 : i8 to i16
      linalg.yield %1 : i16
    } -> tensor<64xi16>
    zefuse.yield %s : tensor<64xi16>
  }
  return
}
// CHECK-LABEL: @narrower(
// CHECK: trunc <[[N:.*]] x i32> {{.*}} to <[[N]] x i16>
// CHECK-NEXT: and <[[N]] x i16> {{.*}}, splat (i16 255)
// SPIRV: OpEntryPoint Kernel {{.*}} "narrower"
// SPIRV: OpUConvert %v{{[0-9]+}}ushort
// SPIRV: OpBitwiseAnd %v{{[0-9]+}}ushort

func.func @wider(%x: tensor<64xi32>) {
  %r = zefuse.kernel "wider"(%x) attributes {layouts = [#vec, #vec]} : (tensor<64xi32>) -> tensor<64xi64> {
  ^bb0(%a: tensor<64xi32>):
    %e = tensor.empty() : tensor<64xi64>
    %s = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%a : tensor<64xi32>) outs(%e : tensor<64xi64>) {
    ^bb0(%p: i32, %o: i64):
      %0 = arith.trunci %p : i32 to i8
      %1 = arith.extui %0 : i8 to i64
      linalg.yield %1 : i64
    } -> tensor<64xi64>
    zefuse.yield %s : tensor<64xi64>
  }
  return
}
// CHECK-LABEL: @wider(
// CHECK: zext <[[M:.*]] x i32> {{.*}} to <[[M]] x i64>
// CHECK-NEXT: and <[[M]] x i64> {{.*}}, splat (i64 255)
// SPIRV: OpEntryPoint Kernel {{.*}} "wider"
// SPIRV: OpUConvert %v{{[0-9]+}}ulong
// SPIRV: OpBitwiseAnd %v{{[0-9]+}}ulong
