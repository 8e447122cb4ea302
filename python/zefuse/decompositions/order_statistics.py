"""What follows from an order: medians, the k-th value, the mode, and places in sorted sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _alone(self: Tensor) -> tuple[Tensor, Tensor]:
    """Of a 0-d tensor."""
    return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)


def _picked(pair: tuple[Tensor, Tensor], dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    values, places = pair if keepdim else tuple(t.squeeze(dim) for t in pair)
    return values, places


def _one(pair: tuple[Tensor, Tensor], dim: int, at: int) -> tuple[Tensor, Tensor]:
    """The elements at one place along ``dim``, in memory of their own."""
    values, places = (t.narrow(dim, at, 1).clone(memory_format=torch.contiguous_format) for t in pair)
    return values, places


def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return _alone(self)
    return _picked(_one(torch.ops.aten.topk(self, k, dim, False, True), dim, k - 1), dim, keepdim)


def _median(self: Tensor, dim: int, keepdim: bool, ignores_nan: bool) -> tuple[Tensor, Tensor]:
    """The lower of two middle values. A NaN is the result, at its first place, unless ignored."""
    if self.dim() == 0:
        return _alone(self)
    size = self.shape[dim]
    middle = (size - 1) // 2
    values, places = torch.ops.aten.sort.stable(self, stable=True, dim=dim)  # NaN comes last
    if not self.is_floating_point():
        return _picked(_one((values, places), dim, middle), dim, keepdim)
    numbers = (~torch.isnan(self)).sum(dim, keepdim=True)
    if ignores_nan:
        at = (numbers - 1).clamp_min(0) >> 1
    else:
        at = torch.where(numbers < size, numbers, torch.zeros_like(numbers) + middle)
    return _picked((values.gather(dim, at), places.gather(dim, at)), dim, keepdim)


def _nothing_along(self: Tensor, dim: int) -> bool:
    """Whether there are no elements to choose from, for which ATen raises. (A symbolic size: found when it is indexed.)"""
    return self.dim() > 0 and isinstance(self.shape[dim], int) and self.shape[dim] == 0


def _may_be_empty(self: Tensor) -> bool:
    """As far as its sizes say; of those that depend on data they do not."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return not guard_or_false(self.numel() != 0)


def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    return NotImplemented if _nothing_along(self, dim) else _median(self, dim, keepdim, ignores_nan=False)


def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    return NotImplemented if _nothing_along(self, dim) else _median(self, dim, keepdim, ignores_nan=True)


def median(self: Tensor) -> Any:
    return NotImplemented if _may_be_empty(self) else _median(self.reshape(-1), 0, False, ignores_nan=False)[0]


def nanmedian(self: Tensor) -> Any:
    return NotImplemented if _may_be_empty(self) else _median(self.reshape(-1), 0, False, ignores_nan=True)[0]


def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The value of the longest run of the sorted elements, the least of several; its last place in that order."""
    if self.dim() == 0:
        return _alone(self)
    if _may_be_empty(self):  # ATen raises
        return NotImplemented
    values, places = torch.ops.aten.sort.stable(self, stable=True, dim=dim)
    size = self.shape[dim]
    shape = [1] * self.dim()
    shape[dim] = -1
    position = torch.arange(size, device=self.device).view(shape)
    before = values.roll(1, dim)
    start = torch.where((position == 0) | (values != before), position, 0)
    length = position - start.cummax(dim).values
    best = length.argmax(dim, keepdim=True)
    return _picked((values.gather(dim, best), places.gather(dim, best)), dim, keepdim)


_MOST_STEPS = 31  # of a search in a sequence whose length is symbolic: a row has fewer than 2^31 elements


def searchsorted(
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """How many elements of each row of ``sorted_sequence`` come before each value: a binary search, step by step."""
    right = right if side is None else side == "right"
    size = sorted_sequence.shape[-1]
    flat = sorted_sequence.dim() == 1
    dtype = torch.int32 if out_int32 else torch.int64
    if isinstance(size, int) and size == 0:
        return torch.zeros(self.shape, dtype=dtype, device=self.device)
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    steps = size.bit_length() if isinstance(size, int) else _MOST_STEPS
    found = torch.zeros(self.shape, dtype=torch.int64, device=self.device)
    for step in reversed(range(steps)):
        next = found + (1 << step)
        at = (next - 1).clamp(max=size - 1)
        element = sorted_sequence[at] if flat else sorted_sequence.gather(-1, at)
        # As eager compares, so that NaN comes last.
        before = ~(element > self) if right else ~(element >= self)
        found = torch.where((next <= size) & before, next, found)
    return found.to(dtype)


def searchsorted_scalar(sorted_sequence: Tensor, self: Any, **options: Any) -> Any:
    value = torch.scalar_tensor(self, dtype=sorted_sequence.dtype, device=sorted_sequence.device)
    return searchsorted(sorted_sequence, value, **options)


def bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.kthvalue.default: kthvalue,
        aten.median.default: median,
        aten.median.dim: median_dim,
        aten.nanmedian.default: nanmedian,
        aten.nanmedian.dim: nanmedian_dim,
        aten.mode.default: mode,
        aten.searchsorted.Tensor: searchsorted,
        aten.searchsorted.Scalar: searchsorted_scalar,
        aten.bucketize.Tensor: bucketize,
    }
