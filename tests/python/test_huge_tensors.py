"""Tensors of more than 2**31 elements: positions are of 64 bits. Most of such a tensor is never touched, so that it takes no memory;
`make test-full` (ZEFUSE_TEST_FULL) computes all of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from zefuse.backend import observe

ELEMENTS = 2**31 + 4096
FULL = bool(os.environ.get("ZEFUSE_TEST_FULL"))


def _mostly_untouched() -> torch.Tensor:
    """Zeros of one byte, of which pages exist that are written; the last elements are 1, 2, ... 16."""
    x = torch.from_numpy(numpy.zeros(ELEMENTS, numpy.int8))  # torch's own zeros are written
    x[-16:] = torch.arange(1, 17, dtype=torch.int8)
    return x


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the end": lambda x: x[-16:] * 2 + 1,
    "far apart": lambda x: x[15 :: 2**28] + 3,
    "gathered": lambda x: x[torch.tensor([0, 2**31 - 1, 2**31 + 4095])] * 2,
    "rows": lambda x: x.view(4, -1)[:, -16:].sum(1) + 1,
    "columns": lambda x: x.view(-1, 4096).t()[-16:, -1] * 2,
    "scattered": lambda x: x.index_put_((torch.tensor([2**31 + 5]),), torch.tensor([7], dtype=torch.int8))[2**31 :] + 1,
}


if FULL:  # copies all of it
    FUNCTIONS["written"] = lambda x: x[2**31 :].add_(3)[-16:] * 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_of_one(name: str, dynamic: bool) -> None:
    function = FUNCTIONS[name]
    ours, theirs = _mostly_untouched(), _mostly_untouched()
    graphs: list[Any] = []
    with observe(lambda _, graph: graphs.append(graph)):
        actual = torch.compile(function, backend="zefuse", dynamic=dynamic, fullgraph=True)(ours)
    assert torch.equal(actual, function(theirs))
    assert torch.equal(ours[2**31 :], theirs[2**31 :])
    assert not any(graph.report()["fallbacks"] for graph in graphs)


def test_a_sum_over_one() -> None:
    """Of an expanded tensor, whose elements lie in a few pages."""
    x = torch.arange(256, dtype=torch.int32).expand(2**23 + 16, 256)
    assert x.numel() > 2**31
    compiled = torch.compile(lambda x: (x + 1).sum(dtype=torch.int64), backend="zefuse", fullgraph=True)
    assert compiled(x) == (2**23 + 16) * (256 * 257 // 2)


@pytest.mark.skipif(not FULL, reason="8 GB of memory: make test-full")
def test_all_of_one() -> None:
    x = torch.zeros(ELEMENTS, dtype=torch.int8)
    x[-16:] = 5
    compiled = torch.compile(lambda x: (x * 2 + 1, x.cumsum(0, dtype=torch.int8)[-1]), backend="zefuse", fullgraph=True)
    doubled, total = compiled(x)
    assert doubled.numel() == ELEMENTS
    assert doubled[:-16].eq(1).all() and doubled[-16:].eq(11).all()
    assert total == 80
