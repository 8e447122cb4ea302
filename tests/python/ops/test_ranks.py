"""Tensors of many dimensions: torch allows 64. A kernel has at most 64 loops, and what needs more is divided or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest
import torch
from torch import Tensor

SPREAD = [2 if position % 8 == 0 else 1 for position in range(64)]


def reversed_dims(x: Tensor) -> Tensor:
    return x.permute(*reversed(range(x.dim())))


FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "pointwise": lambda x: x * 2 + 1,
    "transposed": lambda x: reversed_dims(x) + 1,
    "returned view": lambda x: reversed_dims(x + 1),
    "sum": lambda x: (x + 1).sum(tuple(range(0, x.dim(), 2))),
    "kept": lambda x: (x - x.amax(tuple(range(0, x.dim(), 3)), keepdim=True)).exp(),
    "sort": lambda x: torch.sort(x, 0),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "concatenated": lambda x: torch.cat([x, x + 1], 0),
    "flat": lambda x: x.view(-1) + 1,
    "in ATen": lambda x: torch.special.bessel_j0(x) + 1,
    "matmul": lambda x: x @ x.transpose(-1, -2),
}


def agrees(function: Callable[[Tensor], object], x: Tensor, dynamic: bool = False) -> None:
    actual = torch.compile(function, backend="zefuse", dynamic=dynamic)(x)
    torch.testing.assert_close(actual, function(x), check_stride=True)


@pytest.mark.parametrize("rank", [20, 33, 64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_high_ranks(name: str, rank: int) -> None:
    agrees(FUNCTIONS[name], torch.randn(SPREAD[:rank]))


def test_a_symbolic_size_among_many() -> None:
    agrees(lambda x: (x + 1).sum(0), torch.randn([3] + SPREAD[1:]), dynamic=True)


@pytest.mark.parametrize("rank", [33, 40])
def test_more_loops_than_a_kernel_has(rank: int) -> None:
    """Rows, columns and the reduction's own: the graph runs in eager, with the reason."""
    x = torch.randn([0] + [2] * (rank - 1))
    with pytest.warns(UserWarning, match="more than 64 loops"):
        agrees(lambda x: x - x.amax(tuple(range(1, rank)), keepdim=True), x)


def test_reductions_of_many_kinds() -> None:
    """Each alone is no problem; asked whether one kernel can hold them all, the analysis meets too many dims."""

    def sums(x: Tensor, kinds: Sequence[int] = (10, 11, 12, 13, 14)) -> list[Tensor]:
        return [(x + number).amax(tuple(range(kind))) for number, kind in zip(count(), kinds, strict=False)]

    agrees(sums, torch.randn([2] * 20))
    agrees(lambda x: sum(t.sum() for t in sums(x)), torch.randn([2] * 20))


def test_a_view_of_65_dimensions() -> None:
    """torch makes such views, and computes with none."""
    x = torch.randn(SPREAD)
    with pytest.raises(Exception, match=r"at most 64|up to 64"):
        torch.compile(lambda x: x.unsqueeze(0) + 1, backend="zefuse")(x)
