// Operands of 16 bits whose rows begin between two multiples of 16 bytes are copied with longer rows.
// RUN: zefuse-opt --zefuse-pad-products=target=sm_90 --zefuse-prepare %s | FileCheck %s
// RUN: zefuse-opt --zefuse-pad-products="target=sm_90 library=never" %s | FileCheck %s --check-prefix=NEVER
// RUN: zefuse-opt --zefuse-pad-products=target=dg2-g11 %s | FileCheck %s --check-prefix=NEVER

// NEVER-NOT: zefuse.pad

// Both derivatives of a projection share the copy of the gradient.
// CHECK-LABEL: @projection
// CHECK: %[[G:.*]] = zefuse.pad %arg0 {{.*}} : tensor<1024x1001xbf16> -> tensor<1024x1008xbf16>
// CHECK: %[[W:.*]] = zefuse.pad %arg1 {{.*}} : tensor<1001x768xbf16> -> tensor<1008x768xbf16>
// CHECK: zefuse.matmul %[[G]], %[[W]] {{.*}}rows of 1001 elements{{.*}} -> tensor<1024x768xbf16>
// CHECK: %[[T:.*]] = zefuse.view %[[G]] {{.*}} -> tensor<1008x1024xbf16>
// CHECK-NOT: zefuse.pad
// CHECK: %[[R:.*]] = zefuse.matmul %[[T]], %arg2 {{.*}} -> tensor<1008x768xbf16>
// CHECK: zefuse.view %[[R]] {{.*}} -> tensor<1001x768xbf16>
func.func @projection(%grad: tensor<1024x1001xbf16>, %weight: tensor<1001x768xbf16>, %x: tensor<1024x768xbf16>)
    -> (tensor<1024x768xbf16>, tensor<1001x768xbf16>) attributes {zefuse.symbols = []} {
  %dx = zefuse.matmul %grad, %weight : (tensor<1024x1001xbf16>, tensor<1001x768xbf16>) -> tensor<1024x768xbf16>
  %t = zefuse.view %grad affine_map<(d0, d1) -> (d1, d0)> : tensor<1024x1001xbf16> -> tensor<1001x1024xbf16>
  %dw = zefuse.matmul %t, %x : (tensor<1001x1024xbf16>, tensor<1024x768xbf16>) -> tensor<1001x768xbf16>
  return %dx, %dw : tensor<1024x768xbf16>, tensor<1001x768xbf16>
}

// The projection itself: its result's rows are longer in memory, and its bias too.
// CHECK-LABEL: @result
// CHECK-DAG: %[[W:.*]] = zefuse.pad %arg1 {{.*}} : tensor<1001x768xbf16> -> tensor<1008x768xbf16>
// CHECK-DAG: %[[B:.*]] = zefuse.pad %arg2 {{.*}} : tensor<1001xbf16> -> tensor<1008xbf16>
// CHECK: %[[T:.*]] = zefuse.view %[[W]] {{.*}} -> tensor<768x1008xbf16>
// CHECK: %[[R:.*]] = zefuse.matmul %arg0, %[[T]] bias %[[B]] {{.*}}rows of 1001 elements{{.*}} -> tensor<1024x1008xbf16>
// CHECK: zefuse.view %[[R]] {{.*}} -> tensor<1024x1001xbf16>
func.func @result(%x: tensor<1024x768xbf16>, %weight: tensor<1001x768xbf16>, %bias: tensor<1001xbf16>)
    -> tensor<1024x1001xbf16> attributes {zefuse.symbols = []} {
  %t = zefuse.view %weight affine_map<(d0, d1) -> (d1, d0)> : tensor<1001x768xbf16> -> tensor<768x1001xbf16>
  %r = zefuse.matmul %x, %t bias %bias : (tensor<1024x768xbf16>, tensor<768x1001xbf16>, tensor<1001xbf16>) -> tensor<1024x1001xbf16>
  return %r : tensor<1024x1001xbf16>
}

// Rows that are whole, elements of 32 bits, and products too small to pay for a copy stay.
// CHECK-LABEL: @others
// CHECK-NOT: zefuse.pad
func.func @others(%a: tensor<1024x1008xbf16>, %b: tensor<1008x768xbf16>, %c: tensor<1024x1001xf32>, %d: tensor<1001x768xf32>,
                  %e: tensor<1024x1001xbf16>, %f: tensor<1001x64xbf16>, %g: tensor<128x768xbf16>, %h: tensor<1001x768xbf16>)
    -> (tensor<1024x768xbf16>, tensor<1024x768xf32>, tensor<1024x64xbf16>, tensor<128x1001xbf16>) attributes {zefuse.symbols = []} {
  %r = zefuse.matmul %a, %b : (tensor<1024x1008xbf16>, tensor<1008x768xbf16>) -> tensor<1024x768xbf16>
  %s = zefuse.matmul %c, %d : (tensor<1024x1001xf32>, tensor<1001x768xf32>) -> tensor<1024x768xf32>
  %t = zefuse.matmul %e, %f : (tensor<1024x1001xbf16>, tensor<1001x64xbf16>) -> tensor<1024x64xbf16>
  %u = zefuse.view %h affine_map<(d0, d1) -> (d1, d0)> : tensor<1001x768xbf16> -> tensor<768x1001xbf16>
  %v = zefuse.matmul %g, %u : (tensor<128x768xbf16>, tensor<768x1001xbf16>) -> tensor<128x1001xbf16>
  return %r, %s, %t, %v : tensor<1024x768xbf16>, tensor<1024x768xf32>, tensor<1024x64xbf16>, tensor<128x1001xbf16>
}

// Rows of windows of an image lie in no strides: they are copied once for both products that read them, in this order, which
// zefuse-prepare keeps. So is what a copy in the graph puts in order.
// CHECK-LABEL: func.func @windows(
// CHECK: %[[V:.*]] = zefuse.view %arg0
// CHECK: %[[C:.*]] = linalg.generic {{.*}} ins(%[[V]] : tensor<3136x96xbf16>) {{.*}} attrs =  {zefuse.kept_copy}
// CHECK: zefuse.matmul %[[C]], %arg1
// CHECK: %[[T:.*]] = zefuse.view %[[C]]
// CHECK: zefuse.matmul %[[T]], %arg2
func.func @windows(%x: tensor<56x56x96xbf16>, %w: tensor<96x96xbf16>, %y: tensor<3136x96xbf16>) -> (tensor<3136x96xbf16>, tensor<96x96xbf16>) {
  %v = zefuse.view %x affine_map<(d0, d1) -> ((d0 floordiv 392) * 7 + (d0 mod 49) floordiv 7, ((d0 floordiv 49) mod 8) * 7 + d0 mod 7, d1)> : tensor<56x56x96xbf16> -> tensor<3136x96xbf16>
  %a = zefuse.matmul %v, %w : (tensor<3136x96xbf16>, tensor<96x96xbf16>) -> tensor<3136x96xbf16>
  %t = zefuse.view %v affine_map<(d0, d1) -> (d1, d0)> : tensor<3136x96xbf16> -> tensor<96x3136xbf16>
  %b = zefuse.matmul %t, %y : (tensor<96x3136xbf16>, tensor<3136x96xbf16>) -> tensor<96x96xbf16>
  return %a, %b : tensor<3136x96xbf16>, tensor<96x96xbf16>
}
