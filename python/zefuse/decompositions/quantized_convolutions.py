"""Convolutions of models quantized by export (PT2E), as convolutions of their codes.

Such a graph makes numbers of codes, convolves them in f32, and often makes codes of the result. In its place comes one operator that
multiplies the codes, exactly in i32, and does what follows (scales, bias, a residual, relu, codes again) where a sum is complete.
Taken are convolutions of u8 or i8 with one scale, by weights of i8 with a scale for each channel of the result and zero points that
are 0. That these are 0 is seen when the graph is compiled, and checked in each call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from zefuse.quantized_patterns import RANGES, all_zero, arguments_of, between, is_quantizer, what_follows


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
    for gone in between(node, tail):  # some write in place, which dead code is not
        graph.erase_node(gone)
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
    low, high = RANGES[dtype]
    return ((made * inverse).round() + zero).clamp(low, high).to(dtype).contiguous()
