"""Calls that eager's kernels refuse and torch's shape rules let pass: compiled they raise what eager raises, and where eager computes
they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

Function = Callable[..., Any]


def _as_in_eager(function: Function, *tensors: Tensor) -> bool:
    """Whether eager computes; the compiled function does the same, with the same error where there is one."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse")
    refused: Exception | None = None
    try:
        expected = function(*(t.clone() for t in tensors))
    except (RuntimeError, IndexError) as error:
        refused = error
    if refused is None:
        torch.testing.assert_close(compiled(*tensors), expected, equal_nan=True)
        return True
    with pytest.raises(type(refused)) as ours:
        compiled(*tensors)
    assert str(refused).splitlines()[0] in str(ours.value)
    return False


# Compiled these wrote outside of the result: (20, 20) in eager, and a source of (20, 20) or (20,).
PARTS: dict[str, Function] = {
    "a shorter slice": lambda x, s: torch.slice_scatter(x, s, 0, 5, 20),
    "a shorter slice with steps": lambda x, s: torch.slice_scatter(x, s, 0, 0, 20, 3),
    "a longer slice": lambda x, s: torch.slice_scatter(x, s[:3], 0),
    "a step back": lambda x, s: torch.slice_scatter(x, s, 0, 0, 20, -1),
    "a dimension more": lambda x, s: torch.select_scatter(x, s, 0, 0),
    "an index too large": lambda x, s: torch.select_scatter(x, s[0], 0, 30),
    "an index too small": lambda x, s: torch.select_scatter(x, s[0], 0, -30),
    "a shorter row": lambda x, s: torch.select_scatter(x, s[0, :3], 0, 1),
    "an empty diagonal": lambda x, s: torch.diagonal_scatter(x, s[0], 25),
    "a shorter diagonal": lambda x, s: torch.diagonal_scatter(x, s[0], -5),
    "one dimension twice": lambda x, s: torch.diagonal_scatter(x, s[0], 0, 0, 0),
    "no such dimension": lambda x, s: torch.diagonal_scatter(x, s[0], 0, 300),
}
# The same operators where sizes agree.
PARTS_THAT_FIT: dict[str, Function] = {
    "a slice": lambda x, s: torch.slice_scatter(x, s[:15], 0, -15),
    "with steps": lambda x, s: torch.slice_scatter(x, s[:, :6], 1, 1, 18, 3),
    "an empty slice": lambda x, s: torch.slice_scatter(x, s[:0], 0, 5, 2),
    "a row": lambda x, s: torch.select_scatter(x, s[0], 0, -20),
    "a diagonal": lambda x, s: torch.diagonal_scatter(x, s[0, :15], -5),
    "another diagonal": lambda x, s: torch.diagonal_scatter(x[None, :7], s[None, 0, :5], 15, -2, 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_other_sizes(name: str) -> None:
    assert not _as_in_eager(PARTS[name], torch.zeros(20, 20), torch.ones(20, 20))


@pytest.mark.parametrize("name", PARTS_THAT_FIT)
def test_a_part_of_its_sizes(name: str) -> None:
    assert _as_in_eager(PARTS_THAT_FIT[name], torch.zeros(20, 20), torch.ones(20, 20))
