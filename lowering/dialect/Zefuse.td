// The zefuse dialect: only what upstream MLIR has no operation for. docs/ir.md describes the contract of each stage.
#ifndef ZEFUSE_DIALECT
#define ZEFUSE_DIALECT

include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "lowering/dialect/Interfaces.td"

def Zefuse_Dialect : Dialect {
  let name = "zefuse";
  let cppNamespace = "::zefuse";
  let summary = "Views, library calls and kernels of a compiled graph";
  // On operations of other dialects; attributes.cpp says what they hold, docs/ir.md what they mean.
  let discardableAttrs = (ins
    "::mlir::ArrayAttr":$symbols, "::mlir::ArrayAttr":$symbol_sources, "::mlir::ArrayAttr":$inputs,
    "::mlir::ArrayAttr":$outputs, "::mlir::ArrayAttr":$not_joined, "::mlir::ArrayAttr":$refused,  // of the graph's function
    "::mlir::StringAttr":$activation, "::mlir::IntegerAttr":$output,           // of linalg.generic; of any operation
    "::mlir::IntegerAttr":$group_size, "::mlir::IntegerAttr":$subgroup_size);  // of a scheduled kernel's function
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
}

class Zefuse_Op<string mnemonic, list<Trait> traits = []> : Op<Zefuse_Dialect, mnemonic, traits>;

def Zefuse_SizeOp : Zefuse_Op<"size", [Pure]> {
  let summary = "the value of a symbolic size expression";
  let description = [{
    `map` has no dimensions, as many symbols as the graph (the same numbering everywhere in a module), one result.
    ```mlir
    %n = zefuse.size affine_map<()[s0] -> (s0 * 2)>
    ```
  }];
  let arguments = (ins AffineMapAttr:$map);
  let results = (outs Index:$result);
  let assemblyFormat = "$map attr-dict";
  let hasVerifier = 1;
}

def Zefuse_ViewOp : Zefuse_Op<"view", [Pure]> {
  let summary = "any single-source view or index rearrangement: result[d...] = source[map(d...)]";
  let description = [{
    Permute, expand, slice, select, reshape, flip, roll, as_strided: one operation, because the schedule only needs the
    index map. `map`: result dimensions (and graph symbols) to source indices; floordiv and mod are allowed. The map
    must stay inside the source for every index of the result.
    ```mlir
    %t = zefuse.view %x affine_map<(d0, d1) -> (d1, d0)> : tensor<3x4xf32> -> tensor<4x3xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$source, AffineMapAttr:$map);
  let results = (outs AnyRankedTensor:$result);
  // The map in full: behind an operand, an alias (#map) would read as the number of a result.
  let assemblyFormat = "$source custom<WholeMap>($map) attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def Zefuse_CheckedIndexOp : Zefuse_Op<"checked_index", [Pure]> {
  let summary = "an index read from tensor data, made safe";
  let description = [{
    Inside a linalg.generic body. Yields `value` (plus `bound` when negative and `wrap_negative`) as an index when it
    lies in [0, bound); otherwise 0, and the run fails with `error` ("index_error", "value_error", "runtime_error") and
    `message`.
  }];
  let arguments = (ins AnySignlessInteger:$value, Index:$bound, BoolAttr:$wrap_negative, StrAttr:$error, StrAttr:$message);
  let results = (outs Index:$result);
  let assemblyFormat = "$value `,` $bound attr-dict `:` type($value)";
}

def Zefuse_Dot4Op : Zefuse_Op<"dot4", [Pure, AllTypesMatch<["a", "b", "sum", "result"]>]> {
  let summary = "four products of bytes, added to a sum";
  let description = [{
    Inside a linalg.generic body, and of vectors in a schedule. sum + a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3, where a0 to a3 are the bytes
    of `a` without a sign and b0 to b3 those of `b` with one, the lowest first; modulo 2^32. lowering/dot_products.cpp says what a target has.
  }];
  let arguments = (ins AnyTypeOf<[I32, VectorOfAnyRankOf<[I32]>]>:$a, AnyTypeOf<[I32, VectorOfAnyRankOf<[I32]>]>:$b,
                       AnyTypeOf<[I32, VectorOfAnyRankOf<[I32]>]>:$sum);
  let results = (outs AnyTypeOf<[I32, VectorOfAnyRankOf<[I32]>]>:$result);
  let assemblyFormat = "$a `,` $b `,` $sum attr-dict `:` type($result)";
}

def Zefuse_PadOp : Zefuse_Op<"pad", [Pure]> {
  let summary = "a tensor inside a larger one of one value";
  let description = [{
    result[d...] = source[d - low...] where that lies inside the source, else `value` (of the element type; i8 for ui8). `low`: how many
    elements come before the source, one per dimension, 0 or more; the result's sizes say what comes after (or is cut off).
    ```mlir
    %p = zefuse.pad %x low [1] value 0.0 : f32 : tensor<3xf32> -> tensor<5xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$source, DenseI64ArrayAttr:$low, TypedAttrInterface:$value);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source `low` $low `value` $value attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Zefuse_ScatterOp : Zefuse_Op<"scatter", [Pure, SingleBlock]> {
  let summary = "combines updates into a tensor at computed places";
  let description = [{
    result = init; then for each index u of `updates`, in row-major order: result[at] = body(result[at], updates[u]) with
    at = coordinates(u..., indices[0][u], indices[1][u], ...). `indices`: i64 tensors of the updates' shape whose values the producer has
    checked. The order is part of the meaning: equal inputs give equal bits, and of two assignments the last stays. Only sums may be taken in
    another one, that the sizes and the target decide.
    The body's arguments and the value it yields have the element type.
    ```mlir
    %r = zefuse.scatter %init, %updates (%i) affine_map<(d0, d1, d2) -> (d2, d1)> : (...) -> tensor<10x6xf32> {
    ^bb0(%old: f32, %new: f32):
      %sum = arith.addf %old, %new : f32
      zefuse.yield %sum : f32
    }
    ```
  }];
  let arguments = (ins AnyRankedTensor:$init, AnyRankedTensor:$updates, Variadic<AnyRankedTensor>:$indices,
                       AffineMapAttr:$coordinates);
  let results = (outs AnyRankedTensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $init `,` $updates `(` $indices `)` $coordinates attr-dict-with-keyword `:` functional-type(operands, results) $body
  }];
  let hasVerifier = 1;
}

def Zefuse_ScanOp : Zefuse_Op<"scan", [Pure, SingleBlock]> {
  let summary = "a running combination along one dimension";
  let description = [{
    result[..., i, ...] = body(result[..., i - 1, ...], input[..., i, ...]) along `dim`, with `initial` before the first.
    The body's arguments and the value it yields have the element type.
    ```mlir
    %r = zefuse.scan %x dim 1 initial 0.0 : f32 : (tensor<4x6xf32>) -> tensor<4x6xf32> {
    ^bb0(%before: f32, %element: f32):
      %sum = arith.addf %before, %element : f32
      zefuse.yield %sum : f32
    }
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$dim, TypedAttrInterface:$initial);
  let results = (outs AnyRankedTensor:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$input `dim` $dim `initial` $initial attr-dict-with-keyword `:` functional-type($input, $result) $body";
  let hasVerifier = 1;
}

def Zefuse_SortOp : Zefuse_Op<"sort", [Pure]> {
  let summary = "the first elements of each row in order, and where they were";
  let description = [{
    Along `dim`, the least elements of the input in ascending order (`descending`: the greatest, in descending order), as many as the
    results hold, and their positions (i64). Equal elements keep their order, -0 equals 0, and NaN is greater than every number. A row has
    fewer than 2^31 elements.
    ```mlir
    %values, %positions = zefuse.sort %x dim 1 descending : (tensor<4x100xf32>) -> (tensor<4x10xf32>, tensor<4x10xi64>)
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$dim, UnitAttr:$descending);
  let results = (outs AnyRankedTensor:$values, AnyRankedTensor:$positions);
  let assemblyFormat = "$input `dim` $dim (`descending` $descending^)? attr-dict `:` functional-type($input, results)";
  let hasVerifier = 1;
}

def Zefuse_MatmulOp : Zefuse_Op<"matmul", [Pure, AttrSizedOperandSegments, Zefuse_PostOpsOpInterface,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["keepsRowsOf", "setLayouts"]>]> {
  let summary = "alpha * a @ b (+ bias) with post-ops: becomes one oneDNN call";
  let description = [{
    a: [batch..., M, K], b: [batch..., K, N], result: [batch..., M, N]; equal rank >= 2; batch dimensions of size 1 broadcast.
    The importer makes it without bias and post-ops (or with bias for addmm/linear); fusion adds them. `post_ops`: an array of strings, in
    order: "relu", "relu6", "gelu_erf", "gelu_tanh", "silu", "hardswish", "tanh", "sigmoid", "add", "mul"; each add/mul takes the next of
    `operands_` (broadcasts to the result). `result_layout`: indices to element offset, set with the layouts of stage 2.
    `bf16_math`: operands of f32 may be rounded to bf16 for the product, where that is faster; sums are f32.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, Optional<AnyRankedTensor>:$bias,
                       Variadic<AnyRankedTensor>:$operands_, DefaultValuedAttr<F32Attr, "1.0f">:$alpha,
                       UnitAttr:$bf16_math,
                       DefaultValuedAttr<StrArrayAttr, "{}">:$post_ops,
                       OptionalAttr<AffineMapAttr>:$result_layout);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $a `,` $b (`bias` $bias^)? (`operands` `(` $operands_^ `)`)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Zefuse_GroupIndexOp : Zefuse_Op<"group_index", [Pure,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["setLayouts"]>]> {
  let summary = "the number of the group whose matrix a zefuse.grouped_matmul asks for";
  let description = [{
    An i64 without dimensions. A kernel that reads it makes the matrix of that group, for one zefuse.grouped_matmul; it runs there, once
    for each group that has rows.
  }];
  let arguments = (ins OptionalAttr<AffineMapAttr>:$result_layout);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Zefuse_GroupedMatmulOp : Zefuse_Op<"grouped_matmul", [Pure,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["keepsRowsOf", "setLayouts"]>]> {
  let summary = "groups of rows, each times a matrix of its own: a call of the CPU's library for each group that has rows";
  let description = [{
    a [S, K], offsets i32 [G] (ascending: where each group's rows end), result [S, N]; rows after the last group hold anything.
    b: [G, K, N]; with `index` (a zefuse.group_index) [K, N], the matrix of that group. `bf16_math`, `result_layout`: as zefuse.matmul's.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, AnyRankedTensor:$offsets, Optional<AnyRankedTensor>:$index,
                       UnitAttr:$bf16_math, OptionalAttr<AffineMapAttr>:$result_layout);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$a `,` $b `,` $offsets (`index` $index^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Zefuse_ConvolutionOp : Zefuse_Op<"convolution", [Pure, AttrSizedOperandSegments, Zefuse_PostOpsOpInterface,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["setLayouts"]>]> {
  let summary = "a convolution (+ bias) with post-ops: becomes one oneDNN call";
  let description = [{
    `kind` and the sizes: plan.fbs, table Convolution. `stride`, `padding` (at the beginning), `dilation`: one number per spatial
    dimension; the result's sizes decide the padding at the end. `post_ops`, `operands_`: as zefuse.matmul's, but an operand has the
    result's rank. `result_layout`: indices to element offset, set with the layouts of stage 2.
    `slices` > 1, a GPU's kernel only: what a result sums (patches: taps and input channels; of weights pixels) is cut into so many
    equal slices, which must divide it, and the result, f32, has a dimension for them in front.
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight, Optional<AnyRankedTensor>:$bias,
                       Variadic<AnyRankedTensor>:$operands_, StrAttr:$kind, DenseI64ArrayAttr:$stride,
                       DenseI64ArrayAttr:$padding, DenseI64ArrayAttr:$dilation, I64Attr:$groups,
                       DefaultValuedAttr<I64Attr, "1">:$slices,
                       DefaultValuedAttr<StrArrayAttr, "{}">:$post_ops,
                       OptionalAttr<AffineMapAttr>:$result_layout);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $kind $input `,` $weight (`bias` $bias^)? (`operands` `(` $operands_^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Zefuse_AttentionOp : Zefuse_Op<"attention", [Pure,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["keepsRowsOf", "setLayouts"]>]> {
  let summary = "softmax(scale * q @ k^T + mask) @ v without scores in memory: one library call, or a node of a GPU's kernel";
  let description = [{
    query [B, H, S, D], key [B, G, T, D], value [B, G, T, E], result [B, H, S, E]; H is a multiple of G. `mask`: of the scores'
    sizes [B, H, S, T] or some of its last dimensions, sizes of 1 broadcast; floats are added, i1 keeps where true. No `scale`:
    1 / sqrt(D), D a symbol. `causal`: query s sees keys 0..s. A query that sees no key gives zeros. `log_sums` [B, H, S], f32: the
    logarithm of the sum of each query's exponentials, which its derivative wants (-inf without a key). `result_layout`, `log_sums_layout`: as
    zefuse.matmul's.
    Stage 1 has it as one of zefuse.alternatives, the other is two zefuse.matmul around a softmax. Stage 2 keeps it where the
    target takes it: as a node of kernels (`zefuse.in_kernel`), or as the library's call: f32 or bf16, rank 4; with a mask f32.
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value, Optional<AnyRankedTensor>:$mask,
                       OptionalAttr<F32Attr>:$scale, BoolAttr:$causal, OptionalAttr<AffineMapAttr>:$result_layout,
                       OptionalAttr<AffineMapAttr>:$log_sums_layout);
  let results = (outs AnyRankedTensor:$result, Optional<AnyRankedTensor>:$log_sums);
  let assemblyFormat = [{
    $query `,` $key `,` $value (`mask` $mask^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Zefuse_AttentionGradientOp : Zefuse_Op<"attention_gradient", [Pure,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["keepsRowsOf", "setLayouts"]>]> {
  let summary = "a derivative of attention without scores in memory: a GPU's kernel (lowerAttentionGradient has the shapes) or one library call";
  let description = [{
    `gradient`: of zefuse.attention's result; `log_sums`: its second result; `delta`: each query's sum of gradient * result, f32.
    One result, the gradient of the queries; `of_keys`: two, of the keys and of the values. Or three, all of these: one launch; where
    the target is better off with two, zefuse-legalize makes two operations of it. `result_layouts`: as zefuse.matmul's, one for each. Stage 1 has it as one of zefuse.alternatives, the other is five zefuse.matmul and what stands between them.
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value, AnyRankedTensor:$gradient,
                       AnyRankedTensor:$log_sums, AnyRankedTensor:$delta, Optional<AnyRankedTensor>:$mask,
                       OptionalAttr<F32Attr>:$scale, BoolAttr:$causal, UnitAttr:$of_keys, OptionalAttr<ArrayAttr>:$result_layouts);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $gradient `,` $log_sums `,` $delta (`mask` $mask^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Zefuse_RecurrenceOp : Zefuse_Op<"recurrence", [Pure,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["getFixedOperandStrides", "keepsRowsOf", "setLayouts"]>]> {
  let summary = "all steps of one direction of a recurrent layer, or their derivative: one call of the host";
  let description = [{
    `cell`: "lstm", "gru", "tanh", "relu" or "lstm_layer"; the operands and results of each, and of its `gradient`: plan.fbs, table Recurrence.
    `reverse`: from the last step to the first. `packed`: of packed sequences. `projected`: an LSTM with a projection. `result_layouts`: as zefuse.matmul's, one for each.
    ```mlir
    %out, %cell, %activations, %cells = zefuse.recurrence "lstm" (%gates, %weight, %bias, %hidden, %start) : ...
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, StrAttr:$cell, UnitAttr:$gradient, UnitAttr:$reverse,
                       UnitAttr:$packed, UnitAttr:$projected, OptionalAttr<ArrayAttr>:$result_layouts);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$cell `(` $inputs `)` attr-dict `:` functional-type($inputs, results)";
  let hasVerifier = 1;
}

def Zefuse_AtenOp : Zefuse_Op<"aten", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["getFixedOperandStrides", "getFixedResultStrides"]>]> {
  let summary = "an operator without a lowering, run by ATen inside the plan";
  let description = [{
    `op`: "aten::foo", `overload`: "bar" or "". `args`: one attribute per schema argument, in order:
      unit                    None
      i64 / f64 / bool / str  that constant
      dense array / array     a list, element-wise as here
      {tensor = n}            the n-th tensor operand
      {size = affine_map}     a symbolic integer
      {formula = affine_map}  a real number that sizes decide: the symbol that has its bits
      {dtype = n}, {layout = n}, {memory_format = n}, {device = "cpu"}   torch's own numbers
    `operand_strides`: for each tensor operand, the strides (affine_map<()[symbols] -> (...)>) it has in eager: the plan
    gives it exactly those. `result_strides`: the same for each result. `reason`: why there is no lowering, for explain.
    `ordered`: it does more than make its results (draws random numbers, raises on bad data, prints). It is kept though nobody
    reads it, equal ones are not merged, and it runs in program order among its like. Without the mark it is pure.
    `draw`: it draws from torch's generator, which is meant to: a seed gives eager's numbers. It counts as a library call.
    `result_positions`: which of the schema's results the operation's are, ascending, where some are no tensors.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, StrAttr:$op, StrAttr:$overload, ArrayAttr:$args,
                       ArrayAttr:$operand_strides, ArrayAttr:$result_strides, StrAttr:$reason,
                       UnitAttr:$ordered, UnitAttr:$draw, OptionalAttr<DenseI64ArrayAttr>:$result_positions);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$op `(` $inputs `)` attr-dict `:` functional-type($inputs, results)";
  let hasVerifier = 1;
}

def Zefuse_KernelOp : Zefuse_Op<"kernel", [Pure, IsolatedFromAbove, SingleBlock,
    DeclareOpInterfaceMethods<Zefuse_StepOpInterface, ["setLayouts"]>]> {
  let summary = "one launch: a region of linalg, tensor and view operations";
  let description = [{
    Block arguments are the inputs, `zefuse.yield` names the outputs. `layouts`: for each input, then each output, the map from indices (and
    graph symbols) to the element offset in its buffer. Kernels that differ only in locations are one kernel.
    `name`: made of the fused operators, a valid C identifier.

    `batch` > 1: one launch that runs the body over so many independent sets of tensors; inputs (and results) are those of
    the first set, then the second, ... Without `batch_sizes` all sets have the body's types and the same layouts. With
    `batch_sizes` the body is elementwise over one dimension of a nominal size, and set i applies it to tensors of any
    shape that hold batch_sizes[i] elements side by side (tensors of one element stay what they are).

    Of the CPU's kernels:
    `parts`: one launch of several iteration spaces, the number of each one's results; parts share inputs and no computation.
    `writes`: per result the function's argument in whose memory it is put at once, or -1.
    `in_place`: pairs (input, result) of the body that share memory; such a kernel is pointwise and reads an element only where it
    writes it, or it is a scatter into that input, which it reads nowhere else.

    `groups`: its numbers in the function's `zefuse.not_joined`, what explain shows, and in its
    `zefuse.refused`; no code depends on it else.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, StrAttr:$name, AffineMapArrayAttr:$layouts,
                       DefaultValuedAttr<I64Attr, "1">:$batch, OptionalAttr<DenseI64ArrayAttr>:$batch_sizes,
                       OptionalAttr<DenseI64ArrayAttr>:$parts, OptionalAttr<DenseI64ArrayAttr>:$writes,
                       OptionalAttr<DenseI64ArrayAttr>:$in_place, OptionalAttr<DenseI64ArrayAttr>:$groups);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name `(` $inputs `)` attr-dict-with-keyword `:` functional-type($inputs, results) $body";
  let builders = [
    OpBuilder<(ins "::mlir::TypeRange":$results, "::mlir::ValueRange":$inputs, "::llvm::StringRef":$name,
                   "::mlir::ArrayAttr":$layouts, CArg<"uint64_t", "1">:$batch), [{
      build($_builder, $_state, results, inputs, name, layouts, batch, nullptr, nullptr, nullptr, nullptr, nullptr);
    }]>
  ];
  let hasVerifier = 1;
}

def Zefuse_AlternativesOp : Zefuse_Op<"alternatives", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "one computation in several forms, best first, of which the target takes one";
  let description = [{
    Stage 1, which is the same for every target. Each form reads values of the graph around it and ends with zefuse.yield of the
    results. Stage 2 begins by putting the first form whose operations the target takes in its place; every target takes the last.
    `zefuse.note_of_refusal` on an operation of a form: what explain says there, with the reason, where the form is kept
    because an earlier one was refused. `zefuse.only_on_host` on one: no GPU takes the form.
    ```mlir
    %r = zefuse.alternatives : tensor<4x6xf16> {
      %p = zefuse.matmul %a, %b : (tensor<4x5xf16>, tensor<5x6xf16>) -> tensor<4x6xf16>
      zefuse.yield %p : tensor<4x6xf16>
    }, {
      %c = zefuse.aten "aten::mm"(%a, %b) {...}
      zefuse.yield %c : tensor<4x6xf16>
    }
    ```
  }];
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region VariadicRegion<SizedRegion<1>>:$forms);
  let assemblyFormat = "attr-dict-with-keyword `:` type($results) $forms";
  let hasVerifier = 1;
}

def Zefuse_YieldOp
    : Zefuse_Op<"yield", [Pure, Terminator, ParentOneOf<["KernelOp", "ScatterOp", "ScanOp", "AlternativesOp"]>]> {
  let summary = "the outputs of a kernel or form, the element of a body";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

#endif
