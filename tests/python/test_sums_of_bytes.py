"""Sums of products and of distances of bytes, for which processors have instructions of their own (vpdpbusd, vpsadbw)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

_LENGTHS = (2, 4, 7, 8, 12, 16, 24, 31, 32, 48, 64, 128)


def _products(u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (u.int() * b.int()).sum(-1, dtype=torch.int32)


def _products_of_small_numbers(u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (u.clamp(0, 100).int() * b.int()).sum(-1, dtype=torch.int32)


def _distances(u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (u.int() - b.clamp(min=0).to(torch.uint8).int()).abs().sum(-1, dtype=torch.int32)


def _product_with_itself(u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    small = u.clamp(0, 100).to(torch.int8)
    return torch._int_mm(small, small.t()) if u.dim() == 2 else _products(u, b)  # type: ignore[no-any-return]


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("length", _LENGTHS)
@pytest.mark.parametrize("function", [_products, _products_of_small_numbers, _distances, _product_with_itself])
def test_all_bytes_are_added_up(function: Callable[..., torch.Tensor], length: int, device: str) -> None:
    draw = torch.Generator().manual_seed(length)
    for rows in ((), (1,), (3,)):
        u = torch.randint(0, 256, (*rows, length), dtype=torch.uint8, generator=draw)
        b = torch.randint(-128, 128, (*rows, length), dtype=torch.int8, generator=draw)
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="zefuse", dynamic=False, options={"strict": True, "device": device})
        assert torch.equal(compiled(u, b), function(u, b)), (length, rows)
