"""Normalisations as they are defined: the difference from the mean, divided by the deviation, times the weight, plus the bias.

Eager multiplies value and mean by the weight and then subtracts: of an element that equals its mean a last bit is left, which is nothing
here, and a weight that is infinite gives NaN where it is an infinity of the difference's sign here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def as_defined(of: Callable[..., Any]) -> Callable[..., Any]:
    """``of`` computed so, in double precision. Running statistics are written by eager's own call."""

    def way(*args: Any, **kwargs: Any) -> Any:
        result = of(*args, **kwargs)
        bound = inspect.signature(of).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        input = given["input"]
        if not input.is_floating_point() or input.is_nested:
            return result
        wide = {
            name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
            for name, value in given.items()
        }
        return torch.empty_like(result).copy_(_OF[of](**wide))

    return way


def _of_rows(rows: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    apart = rows - rows.mean(dims, keepdim=True)
    return apart * ((apart * apart).mean(dims, keepdim=True) + eps).rsqrt()


def _scaled(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


def _by_channel(value: Tensor, *numbers: Tensor | None) -> list[Any]:
    return [each if each is None else each.reshape(-1, *[1] * (value.dim() - 2)) for each in numbers]


def _layer(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Tensor:
    return _scaled(_of_rows(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


def _rms(input: Tensor, normalized_shape: Any, weight: Any, eps: float | None) -> Tensor:
    squares = (input * input).mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return _scaled(input * (squares + (torch.finfo(torch.float32).eps if eps is None else eps)).rsqrt(), weight, None)


def _group(input: Tensor, num_groups: int, weight: Any, bias: Any, eps: float) -> Tensor:
    rows = _of_rows(input.reshape(input.shape[0], num_groups, -1), (-1,), eps).reshape(input.shape)
    return _scaled(rows, *_by_channel(input, weight, bias))


def _instance(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, use_input_stats: bool, momentum: float, eps: float
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        return _batch(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _scaled(_of_rows(input, tuple(range(2, input.dim())), eps), *_by_channel(input, weight, bias))


def _batch(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Tensor:  # fmt: skip
    if training:
        rows = _of_rows(input, (0, *range(2, input.dim())), eps)
    else:
        mean, variance = _by_channel(input, running_mean, running_var)
        rows = (input - mean) * (variance + eps).rsqrt()
    return _scaled(rows, *_by_channel(input, weight, bias))


_OF: dict[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer,
    F.rms_norm: _rms,
    F.group_norm: _group,
    F.instance_norm: _instance,
    F.batch_norm: _batch,
}
