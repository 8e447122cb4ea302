// RUN: zefuse-opt --zefuse-split-reductions=target=sm_90 --split-input-file %s | FileCheck %s
// RUN: zefuse-opt --zefuse-split-reductions=target=dg2-g11 --split-input-file %s | FileCheck %s --check-prefix=SMALL

#id = affine_map<(d0, d1) -> (d0, d1)>
#none = affine_map<(d0, d1) -> ()>

// 1024 slices for the 528 groups of 512 that an H100 runs at a time, 64 for 32.
// CHECK-LABEL: func.func @all(
// CHECK: %[[V:.*]] = zefuse.view %{{.*}} : tensor<8192x4096xf32> -> tensor<1024x8x4096xf32>
// CHECK: %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "reduction"]{{.*}} ins(%[[V]] : {{.*}} outs(%{{.*}} : tensor<1024xf32>) attrs =  {zefuse.note = "partial results of slices, which the next kernel combines: too few results to fill the device"}
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction"]{{.*}} ins(%[[P]] :
// CHECK-NOT: linalg.generic
// SMALL-LABEL: func.func @all(
// SMALL: zefuse.view %{{.*}} : tensor<8192x4096xf32> -> tensor<64x128x4096xf32>
func.func @all(%x: tensor<8192x4096xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<8192x4096xf32>) outs(%f : tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %s : tensor<f32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>

// What slices leave over is reduced by itself; slices of an inner loop begin at multiples of 8 elements. Partial results of
// a row lie together.
// CHECK-LABEL: func.func @rest(
// CHECK: %[[V:.*]] = zefuse.view %{{.*}} : tensor<3x1000003xf32> -> tensor<3x[[S:[0-9]+]]x[[L:[0-9]+]]xf32>
// CHECK: %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]{{.*}} ins(%[[V]] : {{.*}} outs(%{{.*}} : tensor<3x[[S]]xf32>)
// CHECK: %[[W:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]{{.*}} ins(%[[P]] :
// CHECK: %[[R:.*]] = zefuse.view %{{.*}} : tensor<3x1000003xf32> -> tensor<3x3xf32>
// CHECK: %[[T:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]{{.*}} ins(%[[R]] :
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel"]{{.*}} ins(%[[W]], %[[T]] :
// CHECK: arith.maximumf
func.func @rest(%x: tensor<3x1000003xf32>) -> tensor<3xf32> {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<3x1000003xf32>) outs(%f : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.maximumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<3xf32>
  return %s : tensor<3xf32>
}

// -----

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#none = affine_map<(d0, d1, d2) -> ()>

// Outer loops are slices as a whole while they are few.
// CHECK-LABEL: func.func @outer(
// CHECK: zefuse.view %{{.*}} : tensor<5x40x100000xf32> -> tensor<5x40x5x20000xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]{{.*}} outs(%{{.*}} : tensor<5x40x5xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "reduction", "reduction"]
func.func @outer(%x: tensor<5x40x100000xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%x : tensor<5x40x100000xf32>) outs(%f : tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %s : tensor<f32>
}

// -----

#id = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>

// A symbolic size leaves over what it must.
// CHECK: affine_map<()[s0] -> (128, ((s0 * 1001) floordiv 1024) * 8)>
// CHECK: affine_map<()[s0] -> ((s0 * 1001) mod 1024)>
// CHECK-LABEL: func.func @symbolic(
// CHECK-COUNT-4: linalg.generic
// CHECK-NOT: linalg.generic
func.func @symbolic(%x: tensor<?xf32, affine_map<()[s0] -> (s0 * 1001)>>) -> tensor<f32>
    attributes {zefuse.symbols = ["s0"]} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%x : tensor<?xf32, affine_map<()[s0] -> (s0 * 1001)>>) outs(%f : tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %s : tensor<f32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#none = affine_map<(d0, d1) -> ()>

// Rows and columns enough for the device, and short sums, stay whole.
// CHECK-LABEL: func.func @whole(
// CHECK-NOT: zefuse.view
// CHECK-COUNT-3: linalg.generic
// CHECK-NOT: linalg.generic
func.func @whole(%x: tensor<256x300000xf32>, %y: tensor<8192x16384xf32>, %z: tensor<300x300xf32>)
    -> (tensor<256xf32>, tensor<16384xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<256xf32>) -> tensor<256xf32>
  %h = tensor.empty() : tensor<16384xf32>
  %i = linalg.fill ins(%zero : f32) outs(%h : tensor<16384xf32>) -> tensor<16384xf32>
  %j = tensor.empty() : tensor<f32>
  %k = linalg.fill ins(%zero : f32) outs(%j : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<256x300000xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<256xf32>
  %t = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8192x16384xf32>) outs(%i : tensor<16384xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<16384xf32>
  %u = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction"]}
      ins(%z : tensor<300x300xf32>) outs(%k : tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  return %s, %t, %u : tensor<256xf32>, tensor<16384xf32>, tensor<f32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>

// A group takes as many columns as its sub-groups' accesses hold: 128 of f32, 256 of bf16, of which 32 and 16 groups leave
// most of the device idle.
// CHECK-LABEL: func.func @columns(
// CHECK: zefuse.view %{{.*}} : tensor<8192x4096xf32> -> tensor<32x256x4096xf32>
// CHECK: zefuse.view %{{.*}} : tensor<8192x4096xf32> -> tensor<64x128x4096xf32>
func.func @columns(%x: tensor<8192x4096xf32>, %y: tensor<8192x4096xbf16>) -> (tensor<4096xf32>, tensor<4096xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4096xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4096xf32>) -> tensor<4096xf32>
  %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8192x4096xf32>) outs(%f : tensor<4096xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4096xf32>
  %g = tensor.empty() : tensor<8192x4096xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8192x4096xbf16>) outs(%g : tensor<8192x4096xf32>) {
  ^bb0(%a: bf16, %b: f32):
    %w = arith.extf %a : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<8192x4096xf32>
  %t = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%c : tensor<8192x4096xf32>) outs(%f : tensor<4096xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4096xf32>
  return %s, %t : tensor<4096xf32>, tensor<4096xf32>
}

// -----

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>

// What convolutions make lies channels last: its channels are columns, which two groups hold here, and not rows of a group
// each. The combination is marked, so that nobody joins it who makes much of its results. An image that the caller gives
// row by row has a group for each channel, which is enough.
// CHECK-LABEL: func.func @channels(
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]{{.*}} outs(%{{.*}} : tensor<8x28x256xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "reduction", "parallel"]{{.*}} outs(%{{.*}} : tensor<256xf32>) attrs =  {zefuse.few_results}
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "reduction", "reduction"]
// CHECK-NOT: linalg.generic
func.func @channels(%x: tensor<8x64x56x56xf32>, %w: tensor<256x64x1x1xf32>, %y: tensor<8x256x56x56xf32>) -> (tensor<256xf32>, tensor<256xf32>) {
  %zero = arith.constant 0.0 : f32
  %c = zefuse.convolution "forward" %x, %w {stride = array<i64: 1, 1>, padding = array<i64: 0, 0>,
      dilation = array<i64: 1, 1>, groups = 1 : i64} : (tensor<8x64x56x56xf32>, tensor<256x64x1x1xf32>) -> tensor<8x256x56x56xf32>
  %e = tensor.empty() : tensor<256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<256xf32>) -> tensor<256xf32>
  %s = linalg.generic {indexing_maps = [#id, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%c : tensor<8x256x56x56xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<256xf32>
  %t = linalg.generic {indexing_maps = [#id, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%y : tensor<8x256x56x56xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<256xf32>
  return %s, %t : tensor<256xf32>, tensor<256xf32>
}

// -----

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d1)>

// Rows of channels seen as an image lie so too: the gradient of a bias behind which a layer norm stood.
// CHECK-LABEL: func.func @rows(
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "reduction", "parallel"]{{.*}} outs(%{{.*}} : tensor<256xf32>) attrs =  {zefuse.few_results}
func.func @rows(%x: tensor<8x56x56x256xf32>) -> tensor<256xf32> {
  %zero = arith.constant 0.0 : f32
  %m = tensor.empty() : tensor<8x56x56x256xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<8x56x56x256xf32>) outs(%m : tensor<8x56x56x256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = math.exp %a : f32
    linalg.yield %r : f32
  } -> tensor<8x56x56x256xf32>
  %v = zefuse.view %y affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)> : tensor<8x56x56x256xf32> -> tensor<8x256x56x56xf32>
  %e = tensor.empty() : tensor<256xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<256xf32>) -> tensor<256xf32>
  %s = linalg.generic {indexing_maps = [#id, #channel], iterator_types = ["reduction", "parallel", "reduction", "reduction"]}
      ins(%v : tensor<8x256x56x56xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<256xf32>
  return %s : tensor<256xf32>
}
