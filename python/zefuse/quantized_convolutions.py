"""Convolutions of models quantized by export (PT2E), as convolutions of their codes.

Such a graph makes numbers of codes, convolves them in f32, and often makes codes of the result. In its place comes one operator that
multiplies the codes, exactly in i32, and does what follows (scales, bias, a residual, relu, codes again) where a sum is complete.
Taken are convolutions of u8 or i8 with one scale, by weights of i8 with a scale for each channel of the result and zero points that
are 0. That these are 0 is seen when the graph is compiled, and checked in each call.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

_RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def taken(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> torch.fx.GraphModule:
    """A graph of Dynamo's with our operator in the place of such convolutions; without any, the graph itself."""
    if not any(_is(node, *_convolutions()) for node in gm.graph.nodes):
        return gm
    if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in example_inputs):
        return gm
    known = dict(zip((node.name for node in gm.graph.nodes if node.op == "placeholder"), example_inputs, strict=False))
    graph = copy.deepcopy(gm.graph)
    # Copying keeps no examples of values; names are the same.
    return torch.fx.GraphModule(gm, graph) if _take_each(graph, known, _shapes(gm.graph)) else gm


def decomposed(program: torch.export.ExportedProgram, table: dict[Any, Any]) -> torch.export.ExportedProgram:
    """A program of torch.export's by ``table``, with our operator in the place of such convolutions; for the CPU."""
    from zefuse import decomposed_quantization

    quantizers = decomposed_quantization.decompositions()
    if any(node.target in quantizers for node in program.graph.nodes):
        program = program.run_decompositions({op: made for op, made in table.items() if op not in quantizers})
        known = {
            spec.arg.name: program.constants.get(spec.target, program.state_dict.get(spec.target))
            for spec in program.graph_signature.input_specs
            if spec.target is not None
        }
        if _take_each(program.graph, known, _shapes(program.graph)):
            program.graph_module.recompile()
    return program.run_decompositions(table)


def _shapes(graph: torch.fx.Graph) -> dict[str, Any]:
    """Of each tensor its dtype and sizes, by the node's name."""
    examples = {node.name: node.meta.get("example_value", node.meta.get("val")) for node in graph.nodes}
    return {
        name: (each.dtype, tuple(each.shape)) if isinstance(each, Tensor) else None for name, each in examples.items()
    }


def _take_each(graph: torch.fx.Graph, known: dict[str, Any], shapes: dict[str, Any]) -> bool:
    """``known``: the tensors that placeholders stand for, where they are."""
    found = False
    for node in list(graph.nodes):
        if _is(node, *_convolutions()):
            found |= _take(graph, node, known, shapes)
    if found:
        graph.eliminate_dead_code()
        graph.lint()
    return found


@cache
def _convolutions() -> tuple[Any, ...]:
    aten = torch.ops.aten
    return aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.convolution.default


def _is(node: Any, *targets: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target in targets


def _named(node: Any, name: str) -> bool:
    """An operator of ``quantized_decomposed``, which exists once a model was quantized."""
    packet = getattr(torch.ops.quantized_decomposed, name, None)
    return packet is not None and _is(node, packet.default)


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    schema: Any = node.target._schema  # type: ignore[union-attr]
    values = {each.name: each.default_value for each in schema.arguments if each.has_default_value()}
    values |= {each.name: value for each, value in zip(schema.arguments, node.args, strict=False)}
    return values | dict(node.kwargs)


def _take(graph: torch.fx.Graph, node: torch.fx.Node, known: dict[str, Any], shapes: dict[str, Any]) -> bool:
    of = _arguments(node)
    if not _named(of["input"], "dequantize_per_tensor") or not _named(of["weight"], "dequantize_per_channel"):
        return False
    image, weight = _arguments(of["input"]), _arguments(of["weight"])
    rank = len(shapes[node.name][1]) if shapes[node.name] else 0
    if (
        rank < 3
        or of.get("transposed")
        or image["dtype"] not in _RANGES
        or not isinstance(image["scale"], float)
        or not isinstance(image["zero_point"], int)
        or image.get("out_dtype") not in (None, torch.float32)
        or weight["dtype"] != torch.int8
        or weight["axis"] != 0
        or weight.get("out_dtype") not in (None, torch.float32)
        or not _zero(weight["zero_points"], known)
        or shapes[node.name][0] != torch.float32
    ):
        return False
    tail, residual, relu, quantized = _what_follows(node, shapes)
    lists = [_each(of[name], rank - 2) for name in ("stride", "padding", "dilation")]
    inverse, zero, dtype = 1.0, 0, torch.float32
    if quantized is not None:
        inverse, zero, dtype = 1.0 / quantized["scale"], quantized["zero_point"], quantized["dtype"]
    with graph.inserting_before(tail):
        made = graph.call_function(
            _operator(),
            (
                image["input"], weight["input"], weight["scales"], weight["zero_points"], of["bias"], residual, *lists,
                of["groups"], image["scale"], image["zero_point"], relu, inverse, zero, dtype,
            ),
        )  # fmt: skip
    shapes[made.name] = (dtype, shapes[node.name][1])
    tail.replace_all_uses_with(made)
    for gone in _between(node, tail):  # some write in place, which dead code is not
        graph.erase_node(gone)
    return True


def _between(first: torch.fx.Node, last: torch.fx.Node) -> list[torch.fx.Node]:
    """The chain of single readers, its end first."""
    chain = [first]
    while chain[-1] is not last:
        chain.append(next(iter(chain[-1].users)))
    return chain[::-1]


def _zero(zeros: Any, known: dict[str, Any]) -> bool:
    if zeros is None:
        return True
    value = known.get(zeros.name) if isinstance(zeros, torch.fx.Node) and zeros.op == "placeholder" else None
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor) and not bool(value.any())


def _each(value: Any, spatial: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * spatial if len(values) == 1 else values


def _what_follows(
    node: torch.fx.Node, shapes: dict[str, Any]
) -> tuple[torch.fx.Node, torch.fx.Node | None, bool, dict[str, Any] | None]:
    """(last node, residual, relu, codes) of ``codes(relu(convolution + residual))``, where it ends in codes; else nothing follows."""
    aten = torch.ops.aten
    tail, residual, relu = node, None, False
    while len(tail.users) == 1:
        reader = next(iter(tail.users))
        if _is(reader, aten.relu.default, aten.relu_.default):
            tail, relu = reader, True
        elif _is(reader, aten.add.Tensor, aten.add_.Tensor) and residual is None and not relu:
            a, b = reader.args[:2]
            other = b if a is tail else a
            in_place_of_other = reader.target is aten.add_.Tensor and a is not tail
            if len(reader.kwargs) or in_place_of_other or not isinstance(other, torch.fx.Node) or other is tail:
                break
            if shapes.get(other.name) is None or shapes[other.name] != shapes[node.name]:
                break
            tail, residual = reader, other
        elif _named(reader, "quantize_per_tensor"):
            of = _arguments(reader)
            if _RANGES.get(of["dtype"]) == (of["quant_min"], of["quant_max"]) and isinstance(of["scale"], float):
                return reader, residual, relu, of
            break
        else:
            break
    return node, None, False, None


# -- the operator --------------------------------------------------------------------------------

#: ``codes`` of what follows: round(x * inverse) + zero within the range of ``dtype``; of f32 neither.
_SCHEMA = (
    "quantized_convolution(Tensor input, Tensor weight, Tensor scales, Tensor? zeros, Tensor? bias, Tensor? residual, int[] stride,"
    " int[] padding, int[] dilation, int groups, float input_scale, int input_zero, bool relu, float inverse, int zero,"
    " ScalarType dtype) -> Tensor"
)


@cache
def _operator() -> Any:
    # Kept by the cache of the function below: with it the operator would go.
    return _library() and torch.ops.zefuse.quantized_convolution.default


@cache
def _library() -> torch.library.Library:
    library = torch.library.Library("zefuse", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(_SCHEMA)  # type: ignore[no-untyped-call]
    torch.library.register_fake("zefuse::quantized_convolution", _fake, lib=library)
    library.impl("quantized_convolution", _in_eager, "CPU")  # type: ignore[no-untyped-call]
    return library


def _fake(
    input: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, bias: Tensor | None, residual: Tensor | None,
    stride: list[int], padding: list[int], dilation: list[int], groups: int, input_scale: float, input_zero: int, relu: bool,
    inverse: float, zero: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    sizes = [
        (size + 2 * pad - step * (of_kernel - 1) - 1) // by + 1
        for size, of_kernel, by, pad, step in zip(
            input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    ]
    return input.new_empty((input.shape[0], weight.shape[0], *sizes), dtype=dtype)


def _in_eager(
    input: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, bias: Tensor | None, residual: Tensor | None,
    stride: list[int], padding: list[int], dilation: list[int], groups: int, input_scale: float, input_zero: int, relu: bool,
    inverse: float, zero: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """A part of a graph that runs in eager, as torch's own operators do it."""
    numbers = weight.float()
    if zeros is not None:
        numbers = numbers - zeros.reshape([-1] + [1] * (weight.dim() - 1))
    numbers = numbers * scales.reshape([-1] + [1] * (weight.dim() - 1))
    image = (input.float() - input_zero) * input_scale
    made = torch.ops.aten.convolution(
        image, numbers.float(), bias, stride, padding, dilation, False, [0] * len(stride), groups
    )
    made = made if residual is None else made + residual
    made = torch.relu(made) if relu else made
    if dtype.is_floating_point:
        return made
    low, high = _RANGES[dtype]
    return ((made * inverse).round() + zero).clamp(low, high).to(dtype).contiguous()
