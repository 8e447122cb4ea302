"""Chains of views of one computed value under symbolic sizes: outputs lie in each other's memory where eager's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_semantics import zefuse
from torch.nn import functional as F

# torch writes strides of what they go through as Max(1, n) of a size n, and places with them.
CHAINS: dict[str, Callable[[torch.Tensor], Any]] = {
    "behind a negative pad": lambda x: (lambda v: (v[2:], v.chunk(2, 1)[-1]))(F.pad(x * 2, (-1, 0))),
    "of a column": lambda x: (lambda v: (v, v.unbind(-1)[-1], v.unbind(-1)[-1].tensor_split(3)[1]))(
        x[1:, 1::3].clone()
    ),
    "repeated halves": lambda x: (lambda v: (v, v.expand(3, -1, -1).unbind(1)[-1]))(x.chunk(2, 1)[-1] * 2),
    "the last of windows": lambda x: (lambda v: (v.unsqueeze(1), v.unbind(-3)[-1].t()))((x * 2).unfold(-2, 2, 2)),
    "a row of a diagonal": lambda x: (lambda v: (v[1:], v.t()))(x.unfold(0, 2, 1)[:, 1:].clone().diagonal(0, 0, 1)),
    "the last of a diagonal that is taken apart": lambda x: (lambda v: (v.diagonal(1, 1, 0).unbind(-1)[-1], v))(x * 2),
}


@pytest.mark.parametrize("name", CHAINS)
def test_views_whose_place_is_told_by_a_size_on_the_way(name: str) -> None:
    compiled = zefuse(CHAINS[name], dynamic=True)
    for sizes in ((5, 8), (7, 9), (4, 7)):
        x = torch.randn(sizes)
        expected, actual = CHAINS[name](x), compiled(x)
        torch.testing.assert_close(actual, expected)
        places = [[t.data_ptr() - tensors[0].data_ptr() for t in tensors] for tensors in (expected, actual)]
        assert places[0] == places[1]
        assert [t.stride() for t in actual] == [t.stride() for t in expected]
        for tensors in (expected, actual):
            assert len({t.untyped_storage().data_ptr() for t in tensors}) == 1
