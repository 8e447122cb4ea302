"""What XPU tensors have beside CUDA's (test_places.py): SYCL's library and queues. test_sycl.py has the same with SYCL itself."""

from __future__ import annotations

import posing_programs
import pytest
from placed_programs import BEGIN
from posing_programs import needs_posing_xpu

pytestmark = needs_posing_xpu


def run(program: str, **environment: str) -> str:
    return posing_programs.run(BEGIN + program, device="xpu", **environment)


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("", "this process has no libsycl.so"),
        ("/nowhere/libzefuse_sycl-8.so", "need /nowhere/libzefuse_sycl-8.so"),
        ("libm.so.6", "libm.so.6 is another zefuse's"),
    ],
)
def test_what_is_missing_is_said(library: str, says: str) -> None:
    run(f"""
import os
from zefuse.errors import ZefuseError
x = torch.ones(8, 8).to("xpu")
os.environ["ZEFUSE_SYCL"] = {library!r}
message = raised(Exception, compiled(lambda x: x * 2 + 1), x)
assert {says!r} in message, message
""")


def test_a_queue_of_another_context_is_refused() -> None:
    run("""
call = compiled(lambda x: x * 2 + 1)
x = torch.ones(64, device="xpu")
close(call(x), torch.full((64,), 3.0))
library.posing_use_stream(7)
message = raised(RuntimeError, call, x)
assert "another SYCL context" in message and "xpu:0" in message, message
library.posing_use_stream(0)
close(call(x), torch.full((64,), 3.0))
""")


def test_many_calls_before_anybody_waits() -> None:
    """More than a queue has events for, each with what eager computed before and after it."""
    run("""
call = compiled(lambda x, y: x * 0.5 + y)
a, b = torch.ones(64, 64), torch.rand(64, 64)
x, y = a.to("xpu"), b.to("xpu")
for step in range(700):
    a, x = a * 0.5 + b, call(x, y)
    if step % 100 == 0:
        a, x = a.clone(), x.clone()
close(x, a)
nothing_copied()
zefuse.synchronize()
""")


def test_streams_of_several_threads() -> None:
    run("""
import threading
call = compiled(lambda x: (x @ x).relu() + 1)
x = torch.randn(64, 64)
want = (x @ x).relu() + 1
close(call(x.to("xpu")), want)
failures = []
def work(stream):
    try:
        library.posing_use_stream(stream)
        for _ in range(20):
            close(call(x.to("xpu")), want)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(stream,)) for stream in (0, 1, 2, 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
""")


def test_a_lost_device_is_told_by_name() -> None:
    run(
        """
call = compiled(lambda x: x * 2 + 1)
x = torch.ones(64, device="xpu")
def work():
    for _ in range(4):
        call(x)
    zefuse.synchronize()
# Whoever comes first after the loss is told of it: a later call, or the wait.
message = raised(RuntimeError, work)
assert "xpu:0" in message and "LOST" in message, message
""",
        ZEFUSE_CPU_DRIVER_GPU_FAULT="lost:3",
    )
