// RUN: zefuse-opt --zefuse-refuse-fallbacks --verify-diagnostics %s
// RUN: zefuse-opt --pass-pipeline='builtin.module(zefuse-fuse{strict=true})' --verify-diagnostics %s

// Random numbers are meant to be drawn by torch.
func.func @graph(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %d = zefuse.aten "aten::rand"() {overload = "", args = [], reason = "draws", draw, operand_strides = [],
      result_strides = [affine_map<() -> (1)>]} : () -> tensor<4xf32>
  // expected-error@+1 {{aten::foo runs in ATen (no lowering): options={'strict': False} allows it}}
  %f = zefuse.aten "aten::foo"(%x) {overload = "", args = [{tensor = 0}], reason = "no lowering",
      operand_strides = [affine_map<() -> (1)>], result_strides = [affine_map<() -> (1)>]} : (tensor<4xf32>) -> tensor<4xf32>
  return %d, %f : tensor<4xf32>, tensor<4xf32>
}
