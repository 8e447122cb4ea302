"""Variances, products, sums and remainders in other ways that are as right as eager's own (other_ways.py)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _is_plain_float(value: Any) -> bool:
    return type(value) is Tensor and value.is_floating_point() and value.numel() > 0


def _deviation(of: Callable[..., Any], dtype: torch.dtype | None = None, seed: int | None = None) -> Callable[..., Any]:
    """Variance or deviation as it is defined. Of equal elements eager's running mean may be a last bit off, and ours, or neither: here
    it is exact, or off by a last bit in all rows or, by ``seed``, in some. In single precision (``dtype``), as on a GPU, squares may be
    infinite."""
    takes_root = of.__name__.startswith("std")
    with_mean = of.__name__.endswith("_mean")

    def way(input: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = of(input, dim, *args, **kwargs)
        if not _is_plain_float(input) or not input.dim():
            return result
        dims = tuple(range(input.dim())) if dim is None else dim
        wide, correction = input.to(dtype or torch.float64), kwargs.get("correction", 1)
        if input.numel() // max(wide.sum(dims).numel(), 1) <= correction:
            return result  # NaN or infinite by definition
        mean, variance = _moments(wide, dims, input.dtype, seed, correction)
        # The root's derivative at zero, as eager's, is none.
        root = torch.where(variance == 0, 1.0, variance).sqrt() * (variance != 0)
        spread = root if takes_root else variance
        first = result[0] if with_mean else result
        other = torch.empty_like(first).copy_(spread.reshape(first.shape))
        return (other, torch.empty_like(first).copy_(mean.reshape(first.shape))) if with_mean else other

    return way


def _moments(rows: Tensor, dims: Any, given: torch.dtype, seed: int | None, correction: float) -> tuple[Tensor, Tensor]:
    mean = rows.mean(dims, keepdim=True)
    least, most = rows.amin(dims, keepdim=True), rows.amax(dims, keepdim=True)
    mean = torch.where(least == most, least, mean)
    if seed is not None:
        bits = torch.randint(-1 if seed else 1, 2, mean.shape, generator=torch.Generator().manual_seed(seed))
        mean = mean * (1 + bits * torch.finfo(torch.promote_types(given, torch.float32)).eps)
    count = rows.numel() // max(mean.numel(), 1)
    # As in eager's formula the gradient is a multiple of the difference: that through the mean sums to nothing by definition, but of
    # equal elements, where the mean is off, it would take all of it away.
    return mean, (rows - mean.detach()).square().sum(dims, keepdim=True) / (count - correction)


def _in_groups(of: Callable[..., Any], groups: Callable[[list[Tensor]], list[list[Tensor]]]) -> Callable[..., Any]:
    """A product of which numbers may overflow and others vanish: each group's, multiplied one after another, and then the groups'."""

    def way(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = of(input, *args, **kwargs)
        if not _is_plain_float(input) or not input.dim():
            return result
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        dim = args[0] if args else kwargs.get("dim")
        parts = list((wide.flatten() if dim is None else wide).unbind(0 if dim is None else dim))
        made = [functools.reduce(torch.mul, group) for group in groups(parts) if group]
        return torch.empty_like(result).copy_(functools.reduce(torch.mul, made).reshape(result.shape))

    return way


def _sum_as(of: Callable[..., Any], rounded_first: bool, in_turn: bool) -> Callable[..., Any]:
    """A sum or an average that is asked for in another type: its numbers are rounded to that type before, or the sum after; in double
    precision, or one after another."""

    def way(input: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = of(input, dim, *args, **kwargs)
        if not _is_plain_float(input) or not result.is_floating_point() or result.dtype is input.dtype:
            return result
        given = (input.to(result.dtype) if rounded_first else input).double()
        dims = tuple(range(input.dim())) if dim is None else tuple([dim] if isinstance(dim, int) else dim)
        if in_turn:
            last = given.movedim(dims, tuple(range(-len(dims), 0))).flatten(input.dim() - len(dims))
            steps = itertools.accumulate(last.to(result.dtype).unbind(-1), torch.add)
            total = list(steps)[-1]
        else:
            total = given.sum(dims)
        count = input.numel() // max(total.numel(), 1) if of.__name__ == "mean" else 1
        return torch.empty_like(result).copy_((total / count).reshape(result.shape))

    return way


def _without_vectors(of: Callable[..., Any]) -> Callable[..., Any]:
    """``fmod`` and ``remainder`` of operands with gaps: eager's vectors give NaN where a quotient is beyond the type's range, which the
    elements after the last whole one do not."""

    def gapped(value: Any) -> Any:
        return torch.stack([value, value], -1)[..., 0] if type(value) is Tensor else value

    def way(input: Any, other: Any, **kwargs: Any) -> Any:
        result = of(input, other, **kwargs)
        if type(result) is not Tensor:
            return result
        return torch.empty_like(result).copy_(of(gapped(input), gapped(other), **kwargs))

    return way


def _by_parts(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``diff`` of complex numbers, of their real and imaginary parts: eager multiplies by 1+0j first, which makes infinity NaN."""
    if type(input) is not Tensor or not input.is_complex():
        return torch.diff(input, *args, **kwargs)
    return torch.complex(torch.diff(input.real, *args, **kwargs), torch.diff(input.imag, *args, **kwargs))


_GROUPS: list[Callable[[list[Tensor]], list[list[Tensor]]]] = [
    lambda parts: [parts],
    lambda parts: [parts[::-1]],
    lambda parts: [parts[::2], parts[1::2]],
    lambda parts: [parts[: len(parts) // 2], parts[len(parts) // 2 :]],
    *(lambda parts, lanes=lanes: [parts[lane::lanes] for lane in range(lanes)] for lanes in (4, 8, 16)),  # type: ignore[misc]
]
_SPREADS = (torch.std, torch.var, torch.std_mean, torch.var_mean, Tensor.std, Tensor.var)
_PRODS = (torch.prod, Tensor.prod)
_SUMS = (torch.sum, torch.mean, Tensor.sum, Tensor.mean)
_TEXT_OF_SPREADS = r"\b(std|var)(_mean)?\("
# By the text of the steps for which each is worth running: what is called instead.
REDUCTIONS: list[tuple[str, dict[Any, Callable[..., Any]]]] = [
    *((_TEXT_OF_SPREADS, {of: _deviation(of, seed=seed) for of in _SPREADS}) for seed in (None, 0, 1, 2)),
    *((r"\bprod\(", {of: _in_groups(of, groups) for of in _PRODS}) for groups in _GROUPS),
    *(
        (r"\b(sum|mean)\(.*dtype=", {of: _sum_as(of, first, in_turn) for of in _SUMS})
        for first, in_turn in ((True, False), (False, False), (True, True))
    ),
    (r"(fmod|remainder)\(", {of: _without_vectors(of) for of in (torch.fmod, torch.remainder)}),
    (r"\bdiff\(", {torch.diff: _by_parts}),
]
# On a GPU alone.
REDUCTIONS_OF_GPUS = [(_TEXT_OF_SPREADS, {of: _deviation(of, torch.float32) for of in _SPREADS})]
