#map = affine_map<() -> (1)>
module {
  func.func @graph(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = zefuse.aten "aten::foo"(%arg0) {args = [{tensor = 0 : i64}], operand_strides = [#map], overload = "", reason = "no lowering", result_strides = [#map]} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

{-#
  external_resources: {
    mlir_reproducer: {
      pipeline: "builtin.module(func.func(zefuse-legalize{target=cpu},zefuse-refuse-fallbacks,zefuse-prepare,zefuse-choose-kernel-products{convolutions=auto library=auto target=cpu},zefuse-fuse-library-epilogues,zefuse-split-reductions{target=cpu},zefuse-repeat-cheap-producers,zefuse-recompute-for-reductions,zefuse-outline-kernels{merge=true},zefuse-assign-layouts,zefuse-divide-refused,zefuse-batch-kernels{target=cpu},zefuse-write-in-place,zefuse-join-side-by-side{target=cpu}))",
      disable_threading: false,
      verify_each: true
    }
  }
#-}
