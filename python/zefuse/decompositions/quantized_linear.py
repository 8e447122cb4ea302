"""Linear layers of models quantized by export (PT2E), as products of their codes: as ``quantized_convolutions`` does it.

Inputs of u8 or i8 whose scale and zero point are numbers (static) or tensors that the graph computes of the input (dynamic), by
weights of i8 with a scale for each row and zero points that are 0. What follows (bias, a residual, relu, codes again) is done where a
sum is complete. Dynamic: scales and bias of the product are computed in each call, of the input's scale and zero point.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zefuse.decompositions.quantized_patterns import (
    RANGES,
    Codes,
    all_zero,
    arguments_of,
    finished,
    is_call,
    is_quantizer,
    operator,
    put,
    what_follows,
)


def operators() -> tuple[Any, ...]:
    return (torch.ops.aten.linear.default,)


def take(graph: torch.fx.Graph, node: torch.fx.Node, known: dict[str, Any], shapes: dict[str, Any]) -> bool:
    of = arguments_of(node)
    static = is_quantizer(of["input"], "dequantize_per_tensor")
    if not (static or _is_dynamic(of["input"])) or not is_quantizer(of["weight"], "dequantize_per_channel"):
        return False
    rows, weight = arguments_of(of["input"]), arguments_of(of["weight"])
    if (
        not shapes[node.name]
        or shapes[node.name][0] != torch.float32
        or rows["dtype"] not in RANGES
        or (static and not (isinstance(rows["scale"], float) and isinstance(rows["zero_point"], int)))
        or rows.get("out_dtype") not in (None, torch.float32)
        or weight["dtype"] != torch.int8
        or weight["axis"] != 0
        or weight.get("out_dtype") not in (None, torch.float32)
        or not all_zero(weight["zero_points"], known)
    ):
        return False
    aten = torch.ops.aten
    tail, residual, relu, quantized = what_follows(node, shapes)
    result = Codes.of(quantized)
    scales, bias, scale, input_zero = weight["scales"], of["bias"], rows["scale"], rows["zero_point"]
    with graph.inserting_before(tail):
        if not static:
            scales, bias = _of_this_call(graph, weight["input"], scales, bias, scale, input_zero)
            scale, input_zero = 1.0, 0
        codes, lead, features = rows["input"], len(shapes[node.name][1]) - 1, shapes[node.name][1][-1]
        flat = residual
        if lead != 1:
            sizes = [graph.call_function(aten.sym_size.int, (codes, dim)) for dim in range(lead)]
            codes = graph.call_function(aten.reshape.default, (codes, [-1, _columns(graph, weight["input"], shapes)]))
            flat = residual and graph.call_function(aten.reshape.default, (residual, [-1, features]))
        made = graph.call_function(
            operator(_SCHEMA, _fake, _in_eager),
            (
                codes, weight["input"], scales, weight["zero_points"], bias, flat, scale, input_zero, relu, *result,
            ),
        )  # fmt: skip
        if lead != 1:
            made = graph.call_function(aten.reshape.default, (made, [*sizes, features]))
    shapes[made.name] = (result.dtype, shapes[node.name][1])
    put(graph, made, node, tail)
    return True


def _is_dynamic(node: Any) -> bool:
    packet = getattr(torch.ops.quantized_decomposed, "dequantize_per_tensor", None)
    return packet is not None and is_call(node, packet.tensor)


def _columns(graph: torch.fx.Graph, weight: Any, shapes: dict[str, Any]) -> Any:
    found = shapes.get(weight.name)
    return found[1][1] if found else graph.call_function(torch.ops.aten.sym_size.int, (weight, 1))


def _of_this_call(
    graph: torch.fx.Graph, weight: Any, scales: Any, bias: Any, scale: Any, zero: Any
) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Scales and bias of a product of codes as they are: ``(codes - zero) * scale`` times a row of weights is what they make of it."""
    aten = torch.ops.aten
    number = graph.call_function(aten.to.dtype, (scale, torch.float32))
    scales = graph.call_function(aten.mul.Tensor, (scales, number))
    sums = graph.call_function(aten.sum.dim_IntList, (weight, [1]), {"dtype": torch.int32})
    shift = graph.call_function(aten.mul.Tensor, (graph.call_function(aten.mul.Tensor, (sums, zero)), scales))
    if bias is None:
        return scales, graph.call_function(aten.neg.default, (shift,))
    return scales, graph.call_function(aten.sub.Tensor, (bias, shift))


# -- the operator --------------------------------------------------------------------------------

#: [m, k] by [n, k]; ``codes`` of what follows: round(x * inverse) + zero within the range of ``dtype``; of f32 neither.
_SCHEMA = (
    "quantized_linear(Tensor input, Tensor weight, Tensor scales, Tensor? zeros, Tensor? bias, Tensor? residual,"
    " float input_scale, int input_zero, bool relu, float inverse, int zero, ScalarType dtype) -> Tensor"
)


def _fake(
    input: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, bias: Tensor | None, residual: Tensor | None,
    input_scale: float, input_zero: int, relu: bool, inverse: float, zero: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    return input.new_empty((input.shape[0], weight.shape[0]), dtype=dtype)


def _in_eager(
    input: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, bias: Tensor | None, residual: Tensor | None,
    input_scale: float, input_zero: int, relu: bool, inverse: float, zero: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """A part of a graph that runs in eager, as torch's own operators do it."""
    numbers = weight.float()
    if zeros is not None:
        numbers = numbers - zeros.reshape(-1, 1)
    rows = (input.float() - input_zero) * input_scale
    made = torch.nn.functional.linear(rows, (numbers * scales.reshape(-1, 1)).float(), bias)
    return finished(made, residual, relu, inverse, zero, dtype)
