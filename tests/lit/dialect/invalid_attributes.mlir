// What the dialect refuses of its attributes on functions, arguments and other operations.
// RUN: zefuse-opt --split-input-file --verify-diagnostics %s

// expected-error@+1 {{'zefuse.symbols' wants an array of strings}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.symbols = [1]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.symbol_sources' wants an array}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.symbol_sources = 1} {
  return
}

// -----

// expected-error@+1 {{'zefuse.inputs' has neither arg nor symbol}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.inputs = [{real}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.inputs' has no arg 1}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.inputs = [{arg = 1}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.inputs' wants a dictionary instead of 1}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.inputs = [1 : i64]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.outputs' wants an array}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.outputs = {result = 0}} {
  return
}

// -----

// expected-error@+1 {{'zefuse.outputs' has neither result nor size}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.outputs = [{strides = affine_map<() -> (4, 1)>}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.outputs' has no result 0}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.outputs = [{result = 0, strides = affine_map<() -> (4, 1)>}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.outputs' wants size of 1 results and no dimensions}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.outputs = [{size = affine_map<(d0) -> (d0)>}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.not_joined' wants a group as second}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.not_joined = [{first = 0, reason = "none"}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.not_joined' wants a reason}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.not_joined = [{first = 0, second = 1}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.group_size' wants a number of 1 or more}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.group_size = 0} {
  return
}

// -----

// expected-error@+1 {{'zefuse.subgroup_size' wants a number of 1 or more}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.subgroup_size = "16"} {
  return
}

// -----

// expected-error@+1 {{'zefuse.grouped' is no attribute of the dialect}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.grouped} {
  return
}

// -----

// expected-error@+1 {{'zefuse.strides' of argument 0 wants a map without dimensions}}
func.func @graph(%x: tensor<4x4xf32> {zefuse.strides = affine_map<() -> (1)>}) {
  return
}

// -----

// expected-error@+1 {{'zefuse.kind' of argument 0 is "user", "parameter" or "constant"}}
func.func @graph(%x: tensor<4x4xf32> {zefuse.kind = "mine"}) {
  return
}

// -----

// expected-error@+1 {{'zefuse.name' of argument 0 wants a string}}
func.func @graph(%x: tensor<4x4xf32> {zefuse.name = 1}) {
  return
}

// -----

// expected-error@+1 {{'zefuse.stride' of argument 0 is no attribute of the dialect}}
func.func @graph(%x: tensor<4x4xf32> {zefuse.stride = 1}) {
  return
}

// -----

// expected-error@+1 {{'zefuse.outputs' has no argument 3}}
func.func @graph(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (4, 1)>, argument = 3}]} {
  return %x : tensor<4x4xf32>
}

// -----

// expected-error@+1 {{'zefuse.outputs' has no written 3}}
func.func @graph(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (4, 1)>, written = 3}]} {
  return %x : tensor<4x4xf32>
}

// -----

// expected-error@+1 {{'zefuse.outputs' wants strides of 2 results and no dimensions}}
func.func @graph(%x: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {
    zefuse.outputs = [{result = 0, strides = affine_map<() -> (4)>}]} {
  return %x : tensor<4x4xf32>
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.activation' names one of a library's activations, of a linalg.generic}}
  %m = zefuse.matmul %x, %x {zefuse.activation = "tanh"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.symbols' is a function's}}
  %m = zefuse.matmul %x, %x {zefuse.symbols = []} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.output' wants a number}}
  %m = zefuse.matmul %x, %x {zefuse.output = "0"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.note' wants a string}}
  %m = zefuse.matmul %x, %x {zefuse.note = 0} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%x: tensor<4x4xf32>) {
  %e = tensor.empty() : tensor<4x4xf32>
  // expected-error@+1 {{'zefuse.activation' names one of a library's activations}}
  %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>)
      attrs = {zefuse.activation = "cosh"} {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%a: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.in_kernel' is [0 or 1, number of operations], of a zefuse.matmul}}
  %p = zefuse.matmul %a, %a {zefuse.in_kernel = array<i64: 2, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%a: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.library' is a number of multiplications, of a zefuse.matmul or zefuse.convolution}}
  %p = zefuse.matmul %a, %a {zefuse.library = "cuBLASLt"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @graph(%a: tensor<4x4xf32>) {
  // expected-error@+1 {{'zefuse.implementation' is a name, of a zefuse.matmul or zefuse.convolution}}
  %p = zefuse.matmul %a, %a {zefuse.implementation = 4 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

// expected-error@+1 {{'zefuse.size_checks' wants source}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.size_checks = [{error = "index_error", message = "none"}]} {
  return
}

// -----

// expected-error@+1 {{'zefuse.size_checks' wants least of 1 results and no dimensions}}
func.func @graph(%x: tensor<4x4xf32>) attributes {zefuse.size_checks = [{
    error = "index_error", message = "none", source = "", least = affine_map<() -> ()>, numbers = affine_map<() -> ()>}]} {
  return
}
