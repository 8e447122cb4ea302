"""Normalisations as they are defined: the difference from the mean, divided by the deviation, times the weight, plus the bias.

Eager multiplies value and mean by the weight and then subtracts: of an element that equals its mean a last bit is left, which is nothing
here, and a weight that is infinite gives NaN where it is an infinity of the difference's sign here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Rows = Callable[[Tensor, tuple[int, ...], float], Tensor]


def as_defined(of: Callable[..., Any], dtype: torch.dtype = torch.float64, off: float = 0.0) -> Callable[..., Any]:
    """``of`` computed so, in double precision, or in single, in which squares may be infinite and the row divided by them zero. ``off``:
    by so many last bits the mean is, so that an element that equals it is one away from it. Running statistics are written by eager's
    own call."""

    def way(*args: Any, **kwargs: Any) -> Any:
        result = of(*args, **kwargs)
        bound = inspect.signature(of).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        input = given["input"]
        if not input.is_floating_point() or input.is_nested:
            return result
        wide = {
            name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
            for name, value in given.items()
        }
        bit = off * torch.finfo(torch.promote_types(input.dtype, torch.float32)).eps
        return torch.empty_like(result).copy_(_OF[of](**wide, rows=functools.partial(_of_rows, bit=bit)))

    return way


def _of_rows(rows: Tensor, dims: tuple[int, ...], eps: float, bit: float) -> Tensor:
    apart = rows - rows.mean(dims, keepdim=True) * (1 + bit)
    return apart * ((apart * apart).mean(dims, keepdim=True) + eps).rsqrt()


def _scaled(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


def _by_channel(value: Tensor, *numbers: Tensor | None) -> list[Any]:
    return [each if each is None else each.reshape(-1, *[1] * (value.dim() - 2)) for each in numbers]


def _layer(input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float, rows: Rows) -> Tensor:
    return _scaled(rows(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


def _rms(input: Tensor, normalized_shape: Any, weight: Any, eps: float | None, rows: Rows) -> Tensor:
    squares = (input * input).mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return _scaled(input * (squares + (torch.finfo(torch.float32).eps if eps is None else eps)).rsqrt(), weight, None)


def _group(input: Tensor, num_groups: int, weight: Any, bias: Any, eps: float, rows: Rows) -> Tensor:
    groups = rows(input.reshape(input.shape[0], num_groups, -1), (-1,), eps).reshape(input.shape)
    return _scaled(groups, *_by_channel(input, weight, bias))


def _instance(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, use_input_stats: bool, momentum: float, eps: float,
    rows: Rows,
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        return _batch(input, running_mean, running_var, weight, bias, False, momentum, eps, rows)
    return _scaled(rows(input, tuple(range(2, input.dim())), eps), *_by_channel(input, weight, bias))


def _batch(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float,
    rows: Rows,
) -> Tensor:  # fmt: skip
    if training:
        value = rows(input, (0, *range(2, input.dim())), eps)
    else:
        mean, variance = _by_channel(input, running_mean, running_var)
        value = (input - mean) * (variance + eps).rsqrt()
    return _scaled(value, *_by_channel(input, weight, bias))


_OF: dict[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer,
    F.rms_norm: _rms,
    F.group_norm: _group,
    F.instance_norm: _instance,
    F.batch_norm: _batch,
}
