"""Convolutions by their definition (other_ways.py): of padding times what is not finite the products are NaN, or there are none.

Which of both eager does depends on oneDNN's kernel, and so on types, layouts and sizes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _by_definition(of: Callable[..., Any], multiplies_padding: bool) -> Callable[..., Any]:
    """The sum over the window's places of products over channels, in double precision: of all places, or of those inside the input."""

    def way(
        input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:  # fmt: skip
        result = of(input, weight, bias, stride, padding, dilation, groups)
        rank = weight.dim() - 2
        steps, around, apart = (_each(value, rank) for value in (stride, padding, dilation))
        if type(input) is not Tensor or isinstance(padding, str) or not any(around) or not result.numel():
            return result
        batch = input if input.dim() == rank + 2 else input[None]
        sizes = result.shape[-rank:]
        pads = [pad for each in reversed(around) for pad in (each, each)]
        # Channels by group and innermost, as a product of matrices takes them.
        padded = F.pad(batch.double(), pads).unflatten(1, (groups, -1)).movedim(2, -1)
        inside = F.pad(torch.ones(batch.shape[2:], dtype=torch.bool), pads)
        factors = weight.double().unflatten(0, (groups, -1)).transpose(1, 2)

        def at(place: tuple[int, ...]) -> Tensor:
            window = tuple(
                slice(one * wide, one * wide + (size - 1) * step + 1, step)
                for one, wide, size, step in zip(place, apart, sizes, steps, strict=True)
            )
            # [batch, group, *sizes, channels] times [group, channels, results].
            shaped = factors[(..., *place)].reshape(groups, *[1] * (rank - 1), *factors.shape[1:3])
            product = padded[(slice(None), slice(None), *window)] @ shaped
            return product if multiplies_padding else torch.where(inside[window][..., None], product, -0.0)

        places = itertools.product(*map(range, weight.shape[2:]))
        total = functools.reduce(torch.add, map(at, places)).movedim(-1, 2).flatten(1, 2)
        total = total if bias is None else total + bias.double().reshape(-1, *[1] * rank)
        return torch.empty_like(result).copy_(total.reshape(result.shape))

    return way


def _each(value: Any, rank: int) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * rank if len(values) == 1 else values


_OF = (F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d)
CONVOLUTIONS: list[tuple[str, dict[Any, Callable[..., Any]]]] = [
    (r"\bconv[123]d\(", {of: _by_definition(of, multiplies) for of in _OF}) for multiplies in (False, True)
]
