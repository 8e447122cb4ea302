// Stage 1 to stage 2 as passes. Each runs on @graph alone and says what it wants and what it leaves; docs/ir.md has the
// two stages in full. buildFusePipeline (pipeline.h) is their order.
#ifndef ZEFUSE_FUSE_PASSES
#define ZEFUSE_FUSE_PASSES

include "mlir/Pass/PassBase.td"

// "graph": a function of one block whose attributes docs/ir.md names; the dialect's verifier has seen them.
class GraphPass<string argument> : Pass<argument, "::mlir::func::FuncOp"> {
  let dependentDialects = ["::zefuse::ZefuseDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

class TargetPass<string argument> : GraphPass<argument> {
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">];
}

def LegalizeForTarget : TargetPass<"zefuse-legalize"> {
  let summary = "Keeps of each zefuse.alternatives the first form that the target takes";
  let description = [{
    Before: stage 1, which is the same for every target. After: stage 1 for one target, without zefuse.alternatives; zefuse.attention
    is there where the library or a kernel takes it. What a form was refused for is where it asked for it (`zefuse.note_of_refusal`).
  }];
}

// Also told which products the library of the target's vendor may take ("never", "auto", "always").
class ProductPass<string argument> : GraphPass<argument> {
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">,
                 Option<"library", "library", "std::string", "\"auto\"", "products of a vendor's library: never, auto, always">,
                 Option<"convolutions", "convolutions", "std::string", "\"auto\"", "convolutions of a vendor's library: likewise">];
}

def FoldBatchNorms : GraphPass<"zefuse-fold-batch-norms"> {
  let summary = "A batch norm of given statistics becomes part of the weight and the bias of a convolution of the vendor's library";
  let description = [{
    Before: stage 1 after zefuse-choose-kernel-products, of a graph that keeps what is made of parameters (`zefuse.kept_weights`).
    After: the same. Of a convolution for the library whose result only x * scale + shift reads (dimension 1), all of it of
    parameters: weight * scale and bias * scale + shift, rounded to the weight's type.
  }];
}

def PatchProducts : ProductPass<"zefuse-patch-products"> {
  let summary = "A convolution of windows that do not overlap, of an image of few channels, becomes a product of its patches";
  let description = [{
    Before: stage 1, legal. After: the same. Of static sizes, forward and both derivatives, where the library of the vendor may take
    the product.
    ```mlir
    %r = zefuse.convolution "forward" %x, %w {stride = array<i64: 4, 4>, ...} : (tensor<8x3x224x224xbf16>, tensor<96x3x4x4xbf16>) -> ...
    // becomes
    %p = zefuse.view %x ... -> tensor<25088x48xbf16>
    %t = zefuse.view %w ... -> tensor<48x96xbf16>
    %m = zefuse.matmul %p, %t : (tensor<25088x48xbf16>, tensor<48x96xbf16>) -> tensor<25088x96xbf16>
    %r = zefuse.view %m ... -> tensor<8x96x56x56xbf16>
    ```
  }];
}

def PadProducts : ProductPass<"zefuse-pad-products"> {
  let summary = "A product's 16-bit operand or result whose rows begin between two multiples of 16 bytes becomes a copy whose rows do not";
  let description = [{
    Before: stage 1, legal. After: the same. Of products that the library of the vendor may take, of static sizes, where each
    copied element is multiplied 256 times or more.
    ```mlir
    %r = zefuse.matmul %a, %b : (tensor<1024x1001xbf16>, tensor<1001x768xbf16>) -> tensor<1024x768xbf16>
    // becomes
    %c = zefuse.pad %a low [0, 0] value 0.0 : bf16 : tensor<1024x1001xbf16> -> tensor<1024x1008xbf16>
    %d = zefuse.pad %b low [0, 0] value 0.0 : bf16 : tensor<1001x768xbf16> -> tensor<1008x768xbf16>
    %r = zefuse.matmul %c, %d : (tensor<1024x1008xbf16>, tensor<1008x768xbf16>) -> tensor<1024x768xbf16>
    ```
  }];
}

def SplitProducts : ProductPass<"zefuse-split-products"> {
  let summary = "A product with too few tiles becomes slices of its long sum and their combination";
  let description = [{
    Before: stage 1, legal for a target that has products as kernels. After: the same. The schedule's cost model says how many
    slices (chooseSplits). What the library of the vendor may take stays whole.
  }];
}

def RefuseFallbacks : GraphPass<"zefuse-refuse-fallbacks"> {
  let summary = "Fails at the first operator that would run in ATen";
  let description = [{
    Before: any stage. After: no zefuse.aten but those with `draw`, which random numbers are meant to be. For options={'strict': True}.
  }];
}

def PrepareGraph : GraphPass<"zefuse-prepare"> {
  let summary = "Composes views, turns copies into views, removes what is dead or repeated";
  let description = [{
    Before: stage 1. After: stage 1, where
      * no view reads a view, and a linalg.generic that only moves elements is the memory of an output;
      * outputs that eager gave memory of their own share none with an argument or with another output;
      * no two operations compute the same, but for what makes distinct outputs (marked `zefuse.output`).
    ```mlir
    %t = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<3x4xf32> -> tensor<4x3xf32>
    %u = zefuse.view %t affine_map<(d0, d1) -> (d1, d0)> : tensor<4x3xf32> -> tensor<3x4xf32>  // becomes %x
    ```
  }];
}

def ChooseKernelProducts : ProductPass<"zefuse-choose-kernel-products"> {
  let summary = "Says which products are nodes of kernels";
  let description = [{
    Before: stage 1, prepared. After: every zefuse.matmul, zefuse.convolution and zefuse.attention that the target has a kernel for has
    `zefuse.in_kernel`, the limits of that kernel; the other passes group it as they group compute operations. The others stay calls.
    A zefuse.matmul or zefuse.convolution that the library of the vendor may take has `zefuse.library` as well.
  }];
}

def FuseLibraryEpilogues : GraphPass<"zefuse-fuse-library-epilogues"> {
  let summary = "Products and convolutions take what stands around them";
  let description = [{
    Before: stage 1, prepared (one reader means one use). After: the same, where
      * a product of f32 without a bias has the vector as its bias that was added to each row (a linear layer of a permuted image);
      * a product's `post_ops`, of one without `in_kernel`, hold the activation that was its only reader;
      * a convolution's hold activations and whatever is x * scale + shift + residual, and its padding the zeros that stood before it;
      * `left_out` says of each call why an elementwise operation that reads it is no epilogue.
  }];
}

def SplitReductions : TargetPass<"zefuse-split-reductions"> {
  let summary = "A reduction with too few results for several threads or work-groups becomes slices and their combination";
  let description = [{
    Before: stage 1, prepared. After: stage 1. The number of slices depends on sizes and the target alone. On the CPU static sizes
    that slices divide; on a GPU any, where a group for each result would leave most of the device idle.
  }];
}

def RepeatCheapProducers : GraphPass<"zefuse-repeat-cheap-producers"> {
  let summary = "What is had from an index alone is made in each of its readers";
  let description = [{
    Before: stage 1, prepared. After: the same, where a compute operation of little work that reads less than it makes (a mask, arange, full) has
    one reader each, behind views of its own, and nothing dead is left: no memory holds it.
  }];
}

def RecomputeForReductions : GraphPass<"zefuse-recompute-for-reductions"> {
  let summary = "What only a reduction of another kernel reads is computed there again";
  let description = [{
    Before: stage 1, prepared, cheap producers repeated. After: the same, where such elementwise operations stand before their
    reduction once more if less memory is moved so, marked `zefuse.late`: they join no producer before their reduction has
    them. Keeps the analysis Grouping where nothing is.
  }];
}

def OutlineKernels : GraphPass<"zefuse-outline-kernels"> {
  let summary = "Groups compute operations into zefuse.kernel operations";
  let description = [{
    Before: stage 1, prepared. After: every compute operation is in exactly one zefuse.kernel, all layouts are contiguous, the
    block is in order. `zefuse.not_joined` on the function says what was left apart and why, by the kernels' `groups`.
  }];
  let options = [Option<"merge", "merge", "bool", "true", "false: one kernel per compute operation">];
}

def AssignLayouts : TargetPass<"zefuse-assign-layouts"> {
  let summary = "Chooses how each value lies in memory";
  let description = [{
    Before: kernels with contiguous layouts, calls without any. After: every kernel, product, convolution and attention has its
    layouts; each reader with an opinion (a library's operand, ATen's, an output's strides) has it or reads a copy, which
    is a kernel; views outside kernels are strided. On the CPU the large tensors of one shape that a reduction's kernel walks
    through lie in one order.
  }];
}

def DivideRefusedKernels : GraphPass<"zefuse-divide-refused"> {
  let summary = "A kernel that its schedule refuses becomes a kernel per operation";
  let description = [{
    Before: layouts are assigned. After: whyNotScheduled has nothing to say of a kernel of more than one operation, and
    `zefuse.not_joined` has the reason. What zefuse-outline-kernels asks of the schedule leaves nothing here: this keeps
    a disagreement of the two from costing the graph. So does a kernel of `zefuse.refused`, which turned out not to lower.
  }];
}

def BatchKernels : TargetPass<"zefuse-batch-kernels"> {
  let summary = "Kernels that do the same to different tensors become one launch";
  let description = [{
    Before: layouts are assigned. After: such kernels that may run at one point are one with `batch`, where the last of them
    stood. On a GPU those whose tensors have the same shapes, and a MiB in all at most.
  }];
}

def WriteInPlace : GraphPass<"zefuse-write-in-place"> {
  let summary = "Results that overwrite an argument go straight into its memory";
  let description = [{
    Before: layouts are assigned, batches made. After: a kernel's `writes` and `in_place` say which do: nobody reads the old
    value later, and the kernel reads an element only where it writes it. What is not said is copied at the plan's
    end.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">];
}

def JoinSideBySide : GraphPass<"zefuse-join-side-by-side"> {
  let summary = "Kernels of different iteration spaces that read the same data become one launch of parts";
  let description = [{
    Before: the last of stage 2: nothing else looks into kernels of several parts. After: such kernels that need nothing of
    each other are one, with `parts`. What writes in place stays alone. On a GPU none are joined, and each pair that reads
    the same data is in `zefuse.not_joined`.
  }];
  let options = [Option<"target", "target", "std::string", "\"cpu\"", "cpu, or a GPU such as dg2-g11">];
}

#endif
