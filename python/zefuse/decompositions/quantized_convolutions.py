"""Convolutions of models quantized by export (PT2E), as convolutions of their codes.

Such a graph makes numbers of codes, convolves them in f32, and often makes codes of the result. In its place comes one operator that
multiplies the codes, exactly in i32, and does what follows (scales, bias, a residual, relu, codes again) where a sum is complete.
Taken are convolutions of u8 or i8 with one scale, by weights of i8 with a scale for each channel of the result and zero points that
are 0. That these are 0 is seen when the graph is compiled, and checked in each call.
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
    is_quantizer,
    operator,
    put,
    what_follows,
)


def operators() -> tuple[Any, ...]:
    aten = torch.ops.aten
    return aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.convolution.default


def take(graph: torch.fx.Graph, node: torch.fx.Node, known: dict[str, Any], shapes: dict[str, Any]) -> bool:
    of = arguments_of(node)
    if not is_quantizer(of["input"], "dequantize_per_tensor") or not is_quantizer(
        of["weight"], "dequantize_per_channel"
    ):
        return False
    image, weight = arguments_of(of["input"]), arguments_of(of["weight"])
    rank = len(shapes[node.name][1]) if shapes[node.name] else 0
    if (
        rank < 3
        or of.get("transposed")
        or image["dtype"] not in RANGES
        or not isinstance(image["scale"], float)
        or not isinstance(image["zero_point"], int)
        or image.get("out_dtype") not in (None, torch.float32)
        or weight["dtype"] != torch.int8
        or weight["axis"] != 0
        or weight.get("out_dtype") not in (None, torch.float32)
        or not all_zero(weight["zero_points"], known)
        or shapes[node.name][0] != torch.float32
    ):
        return False
    tail, residual, relu, quantized = what_follows(node, shapes)
    lists = [_each(of[name], rank - 2) for name in ("stride", "padding", "dilation")]
    result = Codes.of(quantized)
    with graph.inserting_before(tail):
        made = graph.call_function(
            operator(_SCHEMA, _fake, _in_eager),
            (
                image["input"], weight["input"], weight["scales"], weight["zero_points"], of["bias"], residual, *lists,
                of["groups"], image["scale"], image["zero_point"], relu, *result,
            ),
        )  # fmt: skip
    shapes[made.name] = (result.dtype, shapes[node.name][1])
    put(graph, made, node, tail)
    return True


def _each(value: Any, spatial: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * spatial if len(values) == 1 else values


# -- the operator --------------------------------------------------------------------------------

#: ``codes`` of what follows: round(x * inverse) + zero within the range of ``dtype``; of f32 neither.
_SCHEMA = (
    "quantized_convolution(Tensor input, Tensor weight, Tensor scales, Tensor? zeros, Tensor? bias, Tensor? residual, int[] stride,"
    " int[] padding, int[] dilation, int groups, float input_scale, int input_zero, bool relu, float inverse, int zero,"
    " ScalarType dtype) -> Tensor"
)


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
    made = finished(made, residual, relu, inverse, zero, dtype)
    return made if dtype.is_floating_point else made.contiguous()
