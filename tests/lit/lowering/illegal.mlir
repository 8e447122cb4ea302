// RUN: zefuse-opt --zefuse-check-legal --verify-diagnostics %s

#id = affine_map<(d0) -> (d0)>

func.func @graph(%x: tensor<8xi32>) -> tensor<8xi32> {
  %y = zefuse.kernel "add"(%x) attributes {layouts = [#id, #id]} : (tensor<8xi32>) -> tensor<8xi32> {
  ^bb0(%a: tensor<8xi32>):
    %e = tensor.empty() : tensor<8xi32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%a : tensor<8xi32>) outs(%e : tensor<8xi32>) {
    ^bb0(%p: i32, %o: i32):
      // expected-error@+1 {{in kernel add: math.cttz}}
      %0 = math.cttz %p : i32
      linalg.yield %0 : i32
    } -> tensor<8xi32>
    zefuse.yield %s : tensor<8xi32>
  }
  return %y : tensor<8xi32>
}
