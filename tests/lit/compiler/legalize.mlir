// Of each zefuse.alternatives the first form that the target takes.
// RUN: zefuse-opt --zefuse-legalize=target=cpu %s | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: zefuse-opt --zefuse-legalize=target=dg2-g11 %s | FileCheck %s --check-prefixes=CHECK,DG2
// RUN: zefuse-opt --zefuse-legalize=target=pvc %s | FileCheck %s --check-prefixes=CHECK,PVC
// RUN: not zefuse-opt --zefuse-legalize=target=z80 %s 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: 'z80' is no target

// Products of f64 are for the CPU alone, and there where eager's library is not quicker, which is then the reason.
// CHECK-LABEL: @large_double
// CHECK-NOT: zefuse.alternatives
// CPU: zefuse.aten "aten::mm"
// CPU-SAME: reason = "aten::mm: matrix product of f64: eager's library is quicker with 2097152 multiplications"
// CPU-NOT: zefuse.matmul
// DG2: zefuse.aten {{.*}}reason = "f64"
// PVC: zefuse.aten {{.*}}reason = "f64"
func.func @large_double(%a: tensor<128x128xf64>) -> tensor<128x128xf64> {
  %r = zefuse.alternatives : tensor<128x128xf64> {
    %p = zefuse.matmul %a, %a : (tensor<128x128xf64>, tensor<128x128xf64>) -> tensor<128x128xf64>
    zefuse.yield %p : tensor<128x128xf64>
  }, {
    %c = zefuse.aten "aten::mm"(%a, %a) {overload = "", args = [{tensor = 0}, {tensor = 1}], reason = "f64",
        operand_strides = [affine_map<() -> (128, 1)>, affine_map<() -> (128, 1)>], result_strides = [affine_map<() -> (128, 1)>]}
        : (tensor<128x128xf64>, tensor<128x128xf64>) -> tensor<128x128xf64>
    zefuse.yield %c : tensor<128x128xf64>
  }
  return %r : tensor<128x128xf64>
}

// CHECK-LABEL: @integers
// CPU: zefuse.matmul
// CPU-NOT: zefuse.aten
// DG2: zefuse.aten {{.*}}reason = "i8"
// PVC: zefuse.aten {{.*}}reason = "i8"
func.func @integers(%a: tensor<4x4xi8>) -> tensor<4x4xi8> {
  %r = zefuse.alternatives : tensor<4x4xi8> {
    %p = zefuse.matmul %a, %a : (tensor<4x4xi8>, tensor<4x4xi8>) -> tensor<4x4xi8>
    zefuse.yield %p : tensor<4x4xi8>
  }, {
    %c = zefuse.aten "aten::mm"(%a, %a) {overload = "", args = [{tensor = 0}, {tensor = 1}], reason = "i8",
        operand_strides = [affine_map<() -> (4, 1)>, affine_map<() -> (4, 1)>], result_strides = [affine_map<() -> (4, 1)>]}
        : (tensor<4x4xi8>, tensor<4x4xi8>) -> tensor<4x4xi8>
    zefuse.yield %c : tensor<4x4xi8>
  }
  return %r : tensor<4x4xi8>
}

// CHECK-LABEL: @half
// CPU: zefuse.matmul
// CPU-NOT: zefuse.aten
// DG2: zefuse.matmul
// DG2-NOT: zefuse.aten
// PVC: zefuse.matmul
func.func @half(%a: tensor<4x5xf16>, %b: tensor<5x6xf16>) -> tensor<4x6xf16> {
  %r = zefuse.alternatives : tensor<4x6xf16> {
    %p = zefuse.matmul %a, %b : (tensor<4x5xf16>, tensor<5x6xf16>) -> tensor<4x6xf16>
    zefuse.yield %p : tensor<4x6xf16>
  }, {
    %c = zefuse.aten "aten::mm"(%a, %b) {overload = "", args = [{tensor = 0}, {tensor = 1}], reason = "f16",
        operand_strides = [affine_map<() -> (5, 1)>, affine_map<() -> (6, 1)>], result_strides = [affine_map<() -> (6, 1)>]}
        : (tensor<4x5xf16>, tensor<5x6xf16>) -> tensor<4x6xf16>
    zefuse.yield %c : tensor<4x6xf16>
  }
  return %r : tensor<4x6xf16>
}

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

// Attention, and in its other form f16 products whose sums stay f32, which no kernel for the CPU has: a form is taken where each of its operations is, one of whose forms may do.
// CHECK-LABEL: @nested
// CPU: zefuse.aten
// DG2: zefuse.attention
// PVC: zefuse.attention
func.func @nested(%q: tensor<1x2x6x64xf16>) -> tensor<1x2x6x64xf16> {
  %r = zefuse.alternatives : tensor<1x2x6x64xf16> {
    %whole = zefuse.alternatives : tensor<1x2x6x64xf16> {
      %a = zefuse.attention %q, %q, %q {scale = 1.0 : f32, causal = false}
          : (tensor<1x2x6x64xf16>, tensor<1x2x6x64xf16>, tensor<1x2x6x64xf16>) -> tensor<1x2x6x64xf16>
      zefuse.yield %a : tensor<1x2x6x64xf16>
    }, {
      %k = zefuse.view %q affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)> : tensor<1x2x6x64xf16> -> tensor<1x2x64x6xf16>
      %s = zefuse.matmul %q, %k {zefuse.note_of_refusal = "no kernel"}
          : (tensor<1x2x6x64xf16>, tensor<1x2x64x6xf16>) -> tensor<1x2x6x6xf32>
      %e = tensor.empty() : tensor<1x2x6x6xf16>
      %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
          ins(%s : tensor<1x2x6x6xf32>) outs(%e : tensor<1x2x6x6xf16>) {
      ^bb0(%x: f32, %y: f16):
        %t = arith.truncf %x : f32 to f16
        linalg.yield %t : f16
      } -> tensor<1x2x6x6xf16>
      %o = zefuse.matmul %n, %q : (tensor<1x2x6x6xf16>, tensor<1x2x6x64xf16>) -> tensor<1x2x6x64xf16>
      zefuse.yield %o : tensor<1x2x6x64xf16>
    }
    zefuse.yield %whole : tensor<1x2x6x64xf16>
  }, {
    %c = zefuse.aten "aten::attention"(%q) {overload = "", args = [{tensor = 0}], reason = "f16",
        operand_strides = [affine_map<() -> (768, 384, 64, 1)>], result_strides = [affine_map<() -> (768, 384, 64, 1)>]}
        : (tensor<1x2x6x64xf16>) -> tensor<1x2x6x64xf16>
    zefuse.yield %c : tensor<1x2x6x64xf16>
  }
  return %r : tensor<1x2x6x64xf16>
}

// What a kernel was refused for stands where the form wants it said; a target that never has one says nothing.
// CHECK-LABEL: @refused
// CHECK-NOT: note_of_refusal
// CPU-NOT: zefuse.note
// DG2: zefuse.matmul {{.*}}zefuse.note = "no kernel: heads of 1024 and 1024 elements do not fit into local memory"
func.func @refused(%q: tensor<1x2x6x1024xf32>, %k: tensor<1x2x1024x6xf32>) -> tensor<1x2x6x1024xf32> {
  %r = zefuse.alternatives : tensor<1x2x6x1024xf32> {
    %a = zefuse.attention %q, %q, %q {scale = 1.0 : f32, causal = false}
        : (tensor<1x2x6x1024xf32>, tensor<1x2x6x1024xf32>, tensor<1x2x6x1024xf32>) -> tensor<1x2x6x1024xf32>
    zefuse.yield %a : tensor<1x2x6x1024xf32>
  }, {
    %s = zefuse.matmul %q, %k {zefuse.note_of_refusal = "no kernel"}
        : (tensor<1x2x6x1024xf32>, tensor<1x2x1024x6xf32>) -> tensor<1x2x6x6xf32>
    %o = zefuse.matmul %s, %q : (tensor<1x2x6x6xf32>, tensor<1x2x6x1024xf32>) -> tensor<1x2x6x1024xf32>
    zefuse.yield %o : tensor<1x2x6x1024xf32>
  }
  return %r : tensor<1x2x6x1024xf32>
}

// The CPU's call takes a mask of f32 or i1, where rows fill a panel.
// CHECK-LABEL: @masked
// CPU: zefuse.attention {{.*}} mask
// CPU-NOT: zefuse.attention
// CPU: zefuse.matmul
func.func @masked(%q: tensor<1x4x32x8xf32>, %k: tensor<1x4x8x32xf32>, %m: tensor<32x32xi1>, %f: tensor<1x4x8x8xf32>, %n: tensor<8x32xf32>)
    -> (tensor<1x4x32x8xf32>, tensor<1x4x8x8xf32>) {
  %many = zefuse.alternatives : tensor<1x4x32x8xf32> {
    %a = zefuse.attention %q, %q, %q mask %m {scale = 1.0 : f32, causal = false}
        : (tensor<1x4x32x8xf32>, tensor<1x4x32x8xf32>, tensor<1x4x32x8xf32>, tensor<32x32xi1>) -> tensor<1x4x32x8xf32>
    zefuse.yield %a : tensor<1x4x32x8xf32>
  }, {
    %s = zefuse.matmul %q, %k : (tensor<1x4x32x8xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x32x32xf32>
    %o = zefuse.matmul %s, %q : (tensor<1x4x32x32xf32>, tensor<1x4x32x8xf32>) -> tensor<1x4x32x8xf32>
    zefuse.yield %o : tensor<1x4x32x8xf32>
  }
  %few = zefuse.alternatives : tensor<1x4x8x8xf32> {
    %a = zefuse.attention %f, %q, %q mask %n {scale = 1.0 : f32, causal = false}
        : (tensor<1x4x8x8xf32>, tensor<1x4x32x8xf32>, tensor<1x4x32x8xf32>, tensor<8x32xf32>) -> tensor<1x4x8x8xf32>
    zefuse.yield %a : tensor<1x4x8x8xf32>
  }, {
    %s = zefuse.matmul %f, %k : (tensor<1x4x8x8xf32>, tensor<1x4x8x32xf32>) -> tensor<1x4x8x32xf32>
    %o = zefuse.matmul %s, %q : (tensor<1x4x8x32xf32>, tensor<1x4x32x8xf32>) -> tensor<1x4x8x8xf32>
    zefuse.yield %o : tensor<1x4x8x8xf32>
  }
  return %many, %few : tensor<1x4x32x8xf32>, tensor<1x4x8x8xf32>
}

// Sums in f64 where there is f64.
// CHECK-LABEL: @wide
// CPU: zefuse.scan {{.*}}tensor<4xf64>
// DG2: zefuse.scan {{.*}}tensor<4xf32>
// PVC: zefuse.scan {{.*}}tensor<4xf64>
func.func @wide(%x: tensor<4xf32>, %y: tensor<4xf64>) -> tensor<4xf32> {
  %r = zefuse.alternatives : tensor<4xf32> {
    %w = zefuse.scan %y dim 0 initial 0.0 : f64 : (tensor<4xf64>) -> tensor<4xf64> {
    ^bb0(%before: f64, %element: f64):
      %sum = arith.addf %before, %element : f64
      zefuse.yield %sum : f64
    }
    %e = tensor.empty() : tensor<4xf32>
    %n = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        ins(%w : tensor<4xf64>) outs(%e : tensor<4xf32>) {
    ^bb0(%a: f64, %b: f32):
      %t = arith.truncf %a : f64 to f32
      linalg.yield %t : f32
    } -> tensor<4xf32>
    zefuse.yield %n : tensor<4xf32>
  }, {
    %s = zefuse.scan %x dim 0 initial 0.0 : f32 : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%before: f32, %element: f32):
      %sum = arith.addf %before, %element : f32
      zefuse.yield %sum : f32
    }
    zefuse.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
