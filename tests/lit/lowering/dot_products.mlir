// What dot products of bytes become, by target.
// RUN: zefuse-opt --zefuse-dot-products %s | FileCheck %s --check-prefixes=ALL,CALL
// RUN: zefuse-opt --zefuse-dot-products=target=sm_90 %s | FileCheck %s --check-prefixes=ALL,CALL
// RUN: zefuse-opt --zefuse-dot-products=target=dg2-g11 %s | FileCheck %s --check-prefixes=ALL,INTEL
// RUN: not zefuse-opt --zefuse-dot-products=target=nothing %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: 'nothing' is no target

// ALL-LABEL: func.func @lanes
// CALL: llvm.call spir_funccc @zefuse_dot4_8(%arg0, %arg1, %arg2)
// INTEL-NOT: dot4
// INTEL-COUNT-4: arith.muli
// INTEL-NOT: arith.muli
// ALL: return
func.func @lanes(%a: vector<8xi32>, %b: vector<8xi32>, %sum: vector<8xi32>) -> vector<8xi32> {
  %result = zefuse.dot4 %a, %b, %sum : vector<8xi32>
  return %result : vector<8xi32>
}

// ALL-LABEL: func.func @scalar
// CALL: llvm.call spir_funccc @zefuse_dot4_(
// INTEL: arith.shrsi
func.func @scalar(%a: i32, %b: i32, %sum: i32) -> i32 {
  %result = zefuse.dot4 %a, %b, %sum : i32
  return %result : i32
}
