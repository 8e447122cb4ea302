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
    # What does not change along a dimension is read before a loop over it, here of no turns and from no address.
    "reductions of nothing": """
def function(x):
    return x.exp().sum(-1), x.logsumexp(-1), x.mean(-1), x.prod(-1), x.any(-1), x.count_nonzero(-1), x.norm(dim=-1)
for dynamic in (False, True):
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for rows in (6, 17):
        x = torch.randn(rows, 1, dtype=torch.float64).expand(rows, 0)
        torch.testing.assert_close(compiled(x), function(x), equal_nan=True)
""",
    # Eager looks at the dimensions that it pools, of three at the channels as well.
    "pools of no channels": """
def function(x):
    return F.adaptive_avg_pool2d(x, 3), F.adaptive_avg_pool1d(x[0], 2), F.adaptive_avg_pool2d(x, (2, 1)) + 1
check(function, (4, 7, 8, 9), (7, 0, 8, 5))
torch._dynamo.reset()
for dtype in (torch.float32, torch.bfloat16):
    check(function, (9, 0, 9, 9), dtype=dtype)
""",
    # A running sum reads it too: from memory that is there, though ATen names no address of it.
    "running sums of nothing": """
def function(x):
    return torch.cumsum(torch.atanh(x), 1)
for dtype in (torch.float32, torch.bfloat16):
    x = torch.full((3, 1), 0.5, dtype=dtype).expand(3, 0)
    torch.testing.assert_close(torch.compile(function, backend="zefuse")(x), function(x))
""",
    # A sum over it had no schedule: its blocks were divided by their number.
    "a sum over zero beside symbols": """
def function(x):
    return x.sum((0, 1)), torch.clamp(x.mean((0, 1)), max=x)
compiled = torch.compile(function, backend="zefuse", dynamic=True)
for shape in ((2, 0, 16, 9), (3, 0, 4, 9)):
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), function(x), equal_nan=True)
""",
    # What has no elements has no address, wherever its storage is.
    "a view of nothing for ATen": """
def function(x):
    return torch.linalg.inv(x[:0].mT)
x = torch.randn(3, 4, 4)
compiled = torch.compile(function, backend="zefuse")
for given in (x[:0], x.as_strided((0, 4, 4), (16, 4, 1), 16)):
    torch.testing.assert_close(compiled(given), function(given))
""",
    # What is the same for all elements is computed before the loop: a check of it failed where there are none.
    "checks of what is the same everywhere": """
def quotients(x, y):
    return torch.cumsum(y // torch.zeros(x.shape[0], dtype=torch.int64), 0)
def elements(x, y):
    return torch.cumsum(y[torch.full((x.shape[0],), 9)], 0), y[torch.full((3, x.shape[0]), 9)] + x
for device in ("cpu", "gpu:0"):
    for dynamic in (False, True):
        for function, of in ((quotients, (0,)), (quotients, (0, 2)), (elements, (4, 0)), (elements, (0,))):
            torch._dynamo.reset()
            compiled = torch.compile(function, backend="zefuse", dynamic=dynamic, options={"device": device})
            for rows in of:
                x, y = torch.zeros(rows), torch.arange(rows if function is quotients else 1)
                try:
                    expected = function(x, y)
                except (RuntimeError, IndexError) as error:
                    try:
                        compiled(x, y)
                    except Exception as ours:
                        assert type(error).__name__[:5] == "Index" or "ZeroDivision" in str(ours), ours
                    else:
                        raise AssertionError("it computed")
                else:
                    torch.testing.assert_close(compiled(x, y), expected)
""",
    # An expanded dimension holds one element for all, or none: what is written there was read from nowhere.
    "written repeats of nothing": """
def function(x):
    return x[::2].mul_(2)
compiled = torch.compile(function, backend="zefuse")
for rows in (0, 1):
    x = torch.randn(1, 8, 3).expand(rows, 8, 3)
    expected = x.clone()
    torch.testing.assert_close(compiled(x), function(expected))
    torch.testing.assert_close(x, expected)
""",
    # No elements, and by channels_last rows that are 0 apart; expanded, and a dimension of none behind it.
    "written parts of nothing": """
def function(x):
    return x[..., ::2].fill_(2)
made = lambda: (torch.zeros(1, 1, 2, 0).contiguous(memory_format=torch.channels_last), torch.zeros(1, 0).expand(3, 2, 0))
compiled = torch.compile(function, backend="zefuse")
for mine, theirs in zip(made(), made()):
    torch.testing.assert_close(compiled(mine), function(theirs))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_elements(name: str) -> None:
    """In a process of its own: the faults ended it, or never ended."""
    done = children.run(PROLOGUE + PROGRAMS[name], timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
