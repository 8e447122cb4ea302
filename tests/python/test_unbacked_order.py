"""Medians and modes of as many elements as data say (``x[x > 0]``), where such sizes are captured into the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0].median(), lambda x: x[x > 0].nanmedian(), lambda x: x[x > 0].mode(),
        lambda x: x.nonzero().mode(0), lambda x: x[x > 0].median(0), lambda x: torch.unique(x.round()).median(),
        lambda x: x[x > 9].median(),
    ],
    ids=["median", "nanmedian", "mode", "places", "along", "unique", "none"],
)  # fmt: skip
def test_of_captured_sizes(function: Callable[..., Any]) -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(0))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        actual = torch.compile(function, backend="zefuse")(x)
    torch.testing.assert_close(tree_leaves(actual), tree_leaves(function(x)), rtol=0, atol=0, equal_nan=True)


def test_a_mode_of_nothing_is_refused() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.raises(IndexError, match="mode"):
        torch.compile(lambda x: x[x > 9].mode(), backend="zefuse")(torch.randn(50))
