"""Ctrl-C while a model compiles: the call ends at once, and the next one works."""

from __future__ import annotations

import os
import subprocess
import sys

_CHILD = """
import os, signal, threading, time, torch
from torch import nn

def model(blocks):
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(blocks)])

x = torch.randn(4, 32)
warm = torch.compile(model(1), backend="zefuse")
warm(x)
interrupted = 0
for delay in (0.02, 0.1, 0.3, 0.6, 1.0):
    torch._dynamo.reset()
    net = model(12)
    compiled = torch.compile(net, backend="zefuse")
    timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        sent = time.monotonic() + delay
        compiled(x).sum().backward()
        timer.cancel()
    except KeyboardInterrupt:
        interrupted += 1
        late = time.monotonic() - sent
        assert late < 5, late
    try:
        timer.join()
    except KeyboardInterrupt:
        pass
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
print("interrupted", interrupted)
"""


def test_a_compilation_can_be_interrupted(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHILD],
        capture_output=True, text=True, timeout=240, env={**os.environ, "ZEFUSE_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) >= 1, "no compilation took as long as the shortest delay"
