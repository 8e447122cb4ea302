"""Strides of ``x[indices]``: eager's follow those of the indices as well, which torch's shape rule leaves out."""

from __future__ import annotations

import random

import pytest
import torch
from random_layouts import drawn_layout
from torch._subclasses.fake_tensor import FakeTensorMode

import zefuse.backend  # noqa: F401  torch's shape rules are then eager's


def _drawn(draw: random.Random) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """A source, and indices of sizes that are repeated to each other's, in some of its dimensions."""
    sizes = draw.choices([1, 1, 2, 3], k=draw.choice([1, 2, 3, 4, 5]))
    replaced = draw.choices([1, 2, 3], k=draw.choice([1, 2, 3, 3]))
    indices: list[torch.Tensor | None] = [None] * len(sizes)
    for dim in draw.sample(range(len(sizes)), draw.randint(1, len(sizes))):
        smaller = [draw.choice([1, size, size]) for size in replaced][draw.choice([0, 0, 1]) :]
        index = drawn_layout(smaller or [1], draw)
        indices[dim] = _all_zero(index, draw.choice([torch.int64, torch.int64, torch.int32]))
    return drawn_layout(sizes, draw), indices


def _all_zero(like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Laid in memory as ``like`` is, its gaps and repeated elements too."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
    return torch.zeros(extent, dtype=dtype).as_strided(like.shape, like.stride())


def test_fake_results_lie_as_eagers() -> None:
    draw = random.Random(0)
    for _ in range(400):
        x, indices = _drawn(draw)
        expected = torch.ops.aten.index.Tensor(x, indices)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            fakes = [None if index is None else mode.from_tensor(index) for index in indices]
            fake = torch.ops.aten.index.Tensor(mode.from_tensor(x), fakes)
        assert fake.stride() == expected.stride(), [
            index if index is None else (index.shape, index.stride()) for index in (x, *indices)
        ]


@pytest.mark.parametrize("dynamic", [False, None])
def test_compiled_results_lie_as_eagers(dynamic: bool | None) -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[index], x[:, index] * 2, x[:1, :1][index // 6]

    x = torch.randn(6, 6)
    for index in (
        torch.randint(0, 6, (3, 5)).t(),
        torch.randint(0, 6, (4, 3, 5)).permute(2, 0, 1)[:, ::2],
        torch.randint(0, 6, (1, 3)).expand(4, 3),
    ):
        actual, expected = torch.compile(function, backend="zefuse", dynamic=dynamic)(x, index), function(x, index)
        assert [each.stride() for each in actual] == [each.stride() for each in expected]
        torch.testing.assert_close(actual, expected)
