"""Tensors without elements beside others in one graph: what has no units must not divide by their number."""

from __future__ import annotations

import children
import pytest

PROLOGUE = """
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves
def check(function, *shapes, dtype=torch.float32):
    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    for shape in shapes:
        x = torch.randint(0, 99, shape).to(dtype)
        torch.testing.assert_close(compiled(x), function(x))
"""
PROGRAMS = {
    # Side by side in one launch with a scan, which has groups: it divided by its blocks, of which there are none.
    "empty part of a launch": """
def function(x):
    return torch.cumsum(x, 0), x[:2, :, 1::3, None, 2:1].amax(2, keepdim=True)
check(function, (8, 9, 4, 1), (16, 5, 6, 1))
""",
    # Beside symbols a size of zero reached MLIR's simplifications, which divide by it.
    "zero beside symbols": """
def function(x):
    return torch.hstack([x, x]), torch.fmax(x[1:], x[1:]), torch.clamp(x.expand(3, -1, -1, -1), 2, 1)
check(function, (4, 7, 8), (7, 0, 8), dtype=torch.uint8)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_elements(name: str) -> None:
    """In a process of its own: the faults ended it, or never ended."""
    done = children.run(PROLOGUE + PROGRAMS[name], timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
