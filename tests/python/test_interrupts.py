"""Ctrl-C while zefuse compiles a graph: the call ends at once, and the next one works.

The signal is sent while zefuse works, not while torch traces: Python functions that torch calls from C++ code which must not
throw (``find_torch_dispatch_rule``, for one) end the process then, with every back end.
"""

from __future__ import annotations

import os

import children

_CHILD = """
import os, signal, threading, time, torch
from torch import nn
from zefuse import backend

def model(blocks):
    return nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(blocks)])

delay = sent = None
compile_graph = backend.compile_graph

def send():
    global sent
    sent = time.process_time()  # waiting for a processor is not late
    os.kill(os.getpid(), signal.SIGINT)

def interrupted_after_delay(*args, **kwargs):
    if delay is None:
        return compile_graph(*args, **kwargs)
    timer = threading.Timer(delay, send)
    timer.start()
    try:
        return compile_graph(*args, **kwargs)
    finally:
        timer.cancel()
        timer.join()

backend.compile_graph = interrupted_after_delay
x = torch.randn(4, 32)
interrupted = 0
for delay in (0.0, 0.02, 0.1):
    torch._dynamo.reset()
    net = model(12)
    compiled = torch.compile(net, backend="zefuse")
    sent = None
    try:
        compiled(x).sum().backward()
    except KeyboardInterrupt:
        interrupted += 1
        late = time.process_time() - sent
        assert late < 5, late
    delay = None
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
print("interrupted", interrupted)
"""


def test_a_compilation_can_be_interrupted(tmp_path: object) -> None:
    done = children.run(_CHILD, env={**os.environ, "ZEFUSE_CACHE_DIR": str(tmp_path)}, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) >= 1, "no compilation took as long as the shortest delay"
