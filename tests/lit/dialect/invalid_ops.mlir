// What each verifier of an operation refuses.
// RUN: zefuse-opt --split-input-file --verify-diagnostics %s

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants a map without dimensions and with one result}}
  %n = zefuse.size affine_map<(d0) -> (d0)>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{map has 1 dimensions, the result has rank 2}}
  %v = zefuse.view %x affine_map<(d0) -> (d0, d0)> : tensor<4x4xf32> -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{map has 1 results, the source has rank 2}}
  %v = zefuse.view %x affine_map<(d0, d1) -> (d0)> : tensor<4x4xf32> -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{changes the element type}}
  %v = zefuse.view %x affine_map<(d0, d1) -> (d0, d1)> : tensor<4x4xf32> -> tensor<4x4xf64>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants source, result and low of one rank and one element type}}
  %p = zefuse.pad %x low [1] value 0.0 : f32 : tensor<4x4xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants no negative padding}}
  %p = zefuse.pad %x low [-1, 0] value 0.0 : f32 : tensor<4x4xf32> -> tensor<5x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has no dimension 2}}
  %v, %p = zefuse.sort %x dim 2 : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xi64>)
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants values of the input's element type and i64 positions}}
  %v, %p = zefuse.sort %x dim 1 : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xi32>)
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants results of the input's sizes but along dimension 1}}
  %v, %p = zefuse.sort %x dim 1 : (tensor<4x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xi64>)
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has no dimension 2}}
  %r = zefuse.scan %x dim 2 initial 0.0 : f32 : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: f32, %b: f32):
    zefuse.yield %a : f32
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants an initial value of the element type}}
  %r = zefuse.scan %x dim 1 initial 0.0 : f64 : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: f32, %b: f32):
    zefuse.yield %a : f32
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants a body from two elements to one}}
  %r = zefuse.scan %x dim 1 initial 0.0 : f32 : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: f32, %b: f32):
    zefuse.yield %a, %b : f32, f32
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %i: tensor<4x4xi32>) {
  // expected-error@+1 {{wants indices of i64 in the updates' shape}}
  %r = zefuse.scatter %x, %x (%i) affine_map<(d0, d1, d2) -> (d2, d1)> : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xi32>) -> tensor<4x4xf32> {
  ^bb0(%a: f32, %b: f32):
    zefuse.yield %b : f32
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %i: tensor<4x4xi64>) {
  // expected-error@+1 {{wants coordinates from the updates' dimensions}}
  %r = zefuse.scatter %x, %x (%i) affine_map<(d0, d1) -> (d1, d0)> : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xi64>) -> tensor<4x4xf32> {
  ^bb0(%a: f32, %b: f32):
    zefuse.yield %b : f32
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %y: tensor<4xf32>) {
  // expected-error@+1 {{wants a, b and result of one rank, 2 or more}}
  %m = zefuse.matmul %x, %y : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{unknown post-op 'cosh'}}
  %m = zefuse.matmul %x, %x {post_ops = ["cosh"]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has 0 operands for 1 add and mul post-ops}}
  %m = zefuse.matmul %x, %x {post_ops = ["add"]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has a layout that does not map indices of its result to one offset}}
  %m = zefuse.matmul %x, %x {result_layout = affine_map<(d0) -> (d0)>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%i: tensor<1x4x4xf32>, %w: tensor<4x4xf32>) {
  // expected-error@+1 {{wants input, weight and result of one rank, 3 to 5}}
  %c = zefuse.convolution "forward" %i, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x4x4xf32>, tensor<4x4xf32>) -> tensor<1x1x1xf32>
  return
}

// -----

func.func @graph(%i: tensor<1x4x4xf32>, %w: tensor<1x4x4xf32>) {
  // expected-error@+1 {{wants stride, padding and dilation of 1 numbers each}}
  %c = zefuse.convolution "forward" %i, %w {stride = array<i64: 1, 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x1x1xf32>
  return
}

// -----

func.func @graph(%i: tensor<1x4x4xf32>, %w: tensor<1x4x4xf32>) {
  // expected-error@+1 {{unknown kind 'sideways'}}
  %c = zefuse.convolution "sideways" %i, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64} : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x1x1xf32>
  return
}

// -----

func.func @graph(%i: tensor<1x4x4xf32>, %w: tensor<1x4x4xf32>) {
  // expected-error@+1 {{of weights has neither bias nor post-ops}}
  %c = zefuse.convolution "weights" %i, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64, post_ops = ["relu"]} : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x1x1xf32>
  return
}

// -----

func.func @graph(%i: tensor<1x4x4xf32>, %w: tensor<1x4x4xf32>) {
  // expected-error@+1 {{wants one f32 result for each slice, neither bias nor post-ops}}
  %c = zefuse.convolution "forward" %i, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64, slices = 2 : i64} : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x1x1xf32>
  return
}

// -----

func.func @graph(%i: tensor<1x4x4xf32>, %w: tensor<1x4x4xf32>) {
  // expected-error@+1 {{unknown post-op 'cosh'}}
  %c = zefuse.convolution "forward" %i, %w {stride = array<i64: 1>, padding = array<i64: 0>, dilation = array<i64: 1>, groups = 1 : i64, post_ops = ["cosh"]} : (tensor<1x4x4xf32>, tensor<1x4x4xf32>) -> tensor<1x1x1xf32>
  return
}

// -----

func.func @graph(%q: tensor<1x2x16x8xbf16>, %m: tensor<16x16xbf16>) {
  // expected-error@+1 {{has a mask, which the library's call takes of f32 or i1, with tensors of f32}}
  %a = zefuse.attention %q, %q, %q mask %m {scale = 0.5 : f32, causal = true, result_layout = affine_map<(d0, d1, d2, d3) -> (d0 * 256 + d1 * 128 + d2 * 8 + d3)>} : (tensor<1x2x16x8xbf16>, tensor<1x2x16x8xbf16>, tensor<1x2x16x8xbf16>, tensor<16x16xbf16>) -> tensor<1x2x16x8xbf16>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants tensors of f32, or of bf16, and rank 4}}
  %a = zefuse.attention %x, %x, %x {scale = 0.5 : f32, causal = true, result_layout = affine_map<(d0, d1) -> (d0 * 4 + d1)>} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%q: tensor<1x2x16x8xf32>, %s: tensor<1x2x16xf32>) {
  // expected-error@+1 {{wants one result, the queries' gradient, or all three, or with of_keys two}}
  %g = zefuse.attention_gradient %q, %q, %q, %q, %s, %s {scale = 0.5 : f32, causal = true, of_keys} : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  return
}

// -----

func.func @graph(%q: tensor<1x2x16x8xf32>, %s: tensor<1x2x16xf32>) {
  // expected-error@+1 {{wants a layout for each result}}
  %g = zefuse.attention_gradient %q, %q, %q, %q, %s, %s {scale = 0.5 : f32, causal = true, result_layouts = []} : (tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16xf32>, tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has strides of 0 for 1 operands}}
  %f = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}], reason = "a test", operand_strides = [], result_strides = [affine_map<() -> (4, 1)>]} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants strides without dimensions, one for each dimension}}
  %f = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}], reason = "a test", operand_strides = [affine_map<() -> (4, 1)>], result_strides = [affine_map<() -> (4)>]} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants an ascending position for each result}}
  %f = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}], reason = "a test", operand_strides = [affine_map<() -> (4, 1)>], result_strides = [affine_map<() -> (4, 1)>], result_positions = array<i64: 0, 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants an ascending position for each result}}
  %f = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}], reason = "a test", operand_strides = [affine_map<() -> (4, 1)>], result_strides = [affine_map<() -> (4, 1)>], result_positions = array<i64: -1>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants a layout for each input and each output}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>]} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{inputs and results are not 2 times the body}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], batch = 2 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has 2 sizes for 1 sets}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], batch_sizes = array<i64: 16, 16>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{block arguments do not match the inputs}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>]} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x5xf32>):
    zefuse.yield %a : tensor<4x5xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{layout 1 does not map indices of its tensor to one offset}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0) -> (d0)>]} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has parts that are not its 1 results}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], parts = array<i64: 1, 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has parts that are not its 1 results}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], parts = array<i64: 0, 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{writes 2 of 1 results}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], writes = array<i64: -1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{writes 1, which is no argument of a result}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], writes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %y: tensor<4x5xf32>) {
  // expected-error@+1 {{writes 1, which is no argument of a result}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], writes = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{wants pairs of an input and a result in place}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], writes = array<i64: 0>, in_place = array<i64: 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has no input 1 and result 0 of one type}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], writes = array<i64: 0>, in_place = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{is in place and writes nothing}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], in_place = array<i64: 0, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{has a negative group}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], groups = array<i64: -1>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.parts' is no attribute of the dialect}}
  %k = zefuse.kernel "k"(%x) attributes {layouts = [affine_map<(d0, d1) -> (d0 * 4 + d1)>, affine_map<(d0, d1) -> (d0 * 4 + d1)>], zefuse.parts = array<i64: 1>} : (tensor<4x4xf32>) -> tensor<4x4xf32> {
  ^bb0(%a: tensor<4x4xf32>):
    zefuse.yield %a : tensor<4x4xf32>
  }
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %b: tensor<2x4x4xf32>, %o: tensor<2xi64>) {
  // expected-error@+1 {{wants offsets of i32}}
  %r = zefuse.grouped_matmul %x, %b, %o : (tensor<4x4xf32>, tensor<2x4x4xf32>, tensor<2xi64>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %b: tensor<4x4xf32>, %o: tensor<2xi32>) {
  // expected-error@+1 {{b of rank 3 (2 with an index)}}
  %r = zefuse.grouped_matmul %x, %b, %o : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<2xi32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>, %o: tensor<2xi32>, %i: tensor<i64>) {
  // expected-error@+1 {{wants a zefuse.group_index}}
  %r = zefuse.grouped_matmul %x, %x, %o index %i : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<2xi32>, tensor<i64>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph() {
  // expected-error@+1 {{is an i64 without dimensions}}
  %i = zefuse.group_index : tensor<1xi64>
  return
}
