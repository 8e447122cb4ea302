"""Loops by vectors: what is left after the last whole one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

_LENGTHS = (1, 2, 3, 8, 9, 10, 11, 17, 18, 19, 26, 34, 42, 66)


def _larger(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.maximum(n.copy_(n), x)


def _whole(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    copy = x.clone()
    return copy, copy.long() + n


def _added(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    copy = n + 0
    return copy, copy.to(x.dtype) + x


@pytest.mark.parametrize("length", _LENGTHS)
@pytest.mark.parametrize("function", [_larger, _whole, _added])
def test_numbers_of_64_bits_are_converted(function: Callable[..., torch.Tensor], length: int) -> None:
    draw = torch.Generator().manual_seed(length)
    x = torch.randn(length, dtype=torch.float64, generator=draw) * 9
    n = torch.randint(-9, 10, (length,), generator=draw)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse", dynamic=False, options={"strict": True})
    torch.testing.assert_close(compiled(x.clone(), n.clone()), function(x.clone(), n.clone()), rtol=0, atol=0)
