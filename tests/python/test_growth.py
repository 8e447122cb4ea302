"""Calls and compilations leave nothing behind. `make test-full` counts further (ZEFUSE_TEST_FULL): 10,000 calls, 200 compilations."""

from __future__ import annotations

import os

import children

FULL = bool(os.environ.get("ZEFUSE_TEST_FULL"))

_CALLS = """
import gc, os, sys
import torch
torch.set_num_threads(1)

def kib():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Dropout(0.1))
compiled = torch.compile(model, backend="zefuse", dynamic=True)
optimizer = torch.optim.SGD(model.parameters(), 0.01)

def calls(count):
    for number in range(count):
        x = torch.ones(8 + number % 50, 64)
        if number % 4 == 0:
            compiled(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            with torch.no_grad():
                compiled(x)

count = int(sys.argv[1])
calls(400)
before = kib()
calls(count)
print(kib() - before)
"""

_COMPILATIONS = """
import gc, os, sys
import torch
from zefuse.backend import zefuse
torch.set_num_threads(1)

def kib():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

def compilations(begin, end):
    for number in range(begin, end):  # each has kernels of its own
        def function(x, w):
            y = x @ w
            return (torch.nn.functional.gelu(y * (1 + number)).softmax(-1),)
        inputs = [torch.randn(3 + number % 7, 16), torch.randn(16, 16)]
        zefuse(torch.fx.symbolic_trace(function), inputs)(*inputs)

count = int(sys.argv[1])
compilations(0, 15)
before = kib()
compilations(15, 15 + count)
print(kib() - before)
"""


def test_calls_leave_nothing() -> None:
    """Inference and training steps of fifty sizes."""
    count = 10000 if FULL else 2000
    done = children.run(_CALLS, str(count))
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 1500, "KiB: a leak of a byte per element would be ten times as much"


def test_compilations_leave_little() -> None:
    """What torch keeps of a graph stays below 40 KiB each; a kernel's code and a plan would be several times that."""
    count = 200 if FULL else 30
    done = children.run(_COMPILATIONS, str(count), env={**os.environ, "ZEFUSE_CACHE_DIR": ""})
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 40 * count, done.stdout
