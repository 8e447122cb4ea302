// What converts bf16 and f16, by target.
// RUN: zefuse-opt --zefuse-half-conversions %s | FileCheck %s --check-prefixes=ALL,CPU
// RUN: zefuse-opt --zefuse-half-conversions=target=dg2-g11 %s | FileCheck %s --check-prefixes=ALL,INTEL
// RUN: zefuse-opt --zefuse-half-conversions=target=sm_90 %s | FileCheck %s --check-prefixes=ALL,NVIDIA
// RUN: not zefuse-opt --zefuse-half-conversions=target=nothing %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: 'nothing' is no target

// NVIDIA: llvm.func spir_funccc @zefuse_to_bfloat16_8(vector<8xf32>) -> vector<8xi16>
// ALL-LABEL: func.func @bf16
// CPU-NOT: {{extf|truncf|xbf16}}
// CPU: arith.shli
// CPU: arith.cmpf uno
// INTEL-NOT: {{extf|truncf|xbf16}}
// INTEL: arith.shli
// INTEL: arith.cmpf uno
// NVIDIA-NOT: {{extf|truncf|xbf16|cmpf}}
// NVIDIA: arith.shli
// NVIDIA: llvm.call spir_funccc @zefuse_to_bfloat16_8(
// ALL: return
func.func @bf16(%bits: vector<8xi16>) -> vector<8xi16> {
  %narrow = arith.bitcast %bits : vector<8xi16> to vector<8xbf16>
  %wide = arith.extf %narrow : vector<8xbf16> to vector<8xf32>
  %doubled = arith.addf %wide, %wide : vector<8xf32>
  %rounded = arith.truncf %doubled : vector<8xf32> to vector<8xbf16>
  %result = arith.bitcast %rounded : vector<8xbf16> to vector<8xi16>
  return %result : vector<8xi16>
}

// ALL-LABEL: func.func @f16
// CPU-NOT: {{extf|truncf|f16 }}
// CPU: arith.mulf
// INTEL: arith.extf {{.*}} : f16 to f32
// INTEL: arith.truncf {{.*}} : f32 to f16
// NVIDIA: arith.extf {{.*}} : f16 to f32
// NVIDIA: arith.truncf {{.*}} : f32 to f16
// ALL: return
func.func @f16(%bits: i16) -> i16 {
  %narrow = arith.bitcast %bits : i16 to f16
  %wide = arith.extf %narrow : f16 to f32
  %doubled = arith.addf %wide, %wide : f32
  %rounded = arith.truncf %doubled : f32 to f16
  %result = arith.bitcast %rounded : f16 to i16
  return %result : i16
}
