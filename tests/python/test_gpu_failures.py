"""GPUs that fail (launches and copies that do not end, lost devices, no memory), and integrated ones: the CPU driver posing as such, in
processes of their own. docs/gpu.md."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import children
import pytest

CHILD = """
import copy, sys, torch, zefuse
rows, width, timeout = map(int, sys.argv[1:])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width)).eval()
x = torch.randn(rows, width)
# In double precision: one process in forty gets errors of 5e-5 from eager's first f32 tanh on several threads.
expected = copy.deepcopy(model).double()(x.double()).detach()
graphs = []
from zefuse import backend
options = {"device": "gpu:0", "device_timeout_s": timeout}
with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
    compiled = torch.compile(model, backend="zefuse", options=options)
    for _ in range(3):
        try:
            print("error", float((compiled(x) - expected).abs().max()) < 1e-5)
        except Exception as failure:
            print(type(failure).__name__, str(failure).splitlines()[0])
if graphs:
    print(graphs[0].counters())
"""


def begun(rows: int = 256, width: int = 512, timeout_s: int = 60, **environment: str) -> children.Child:
    """Three calls of two layers, ``width`` wide."""
    return children.start(CHILD, str(rows), str(width), str(timeout_s), env={**os.environ, **environment})


def said_by(child: children.Child) -> list[str]:
    """What the calls say; then the counters."""
    code, (out, error) = child.wait(300), child.output()
    assert code == 0, error
    return out.splitlines()


def in_child(rows: int = 256, width: int = 512, timeout_s: int = 60, **environment: str) -> list[str]:
    return said_by(begun(rows, width, timeout_s, **environment))


def test_integrated_gpu_copies_nothing() -> None:
    lines = in_child(ZEFUSE_CPU_DRIVER_AS="integrated-gpu")
    assert lines[:3] == ["error True"] * 3
    assert "'launches': 6" in lines[3]
    assert "'bytes_to_device': 0, 'bytes_to_host': 0" in lines[3]


UNALIGNED = """
import torch, zefuse
from zefuse import backend
compiled = lambda f: torch.compile(f, backend="zefuse", options={"device": "gpu:0"})
graphs = []
def copies():
    counted = graphs[-1].counters()
    return [counted[name] for name in ("copies_to_device", "copies_to_host", "parameters_uploaded")]
watching = backend.observe(lambda _, graph: graphs.append(graph))
watching.__enter__()
def f(x):
    return x * 2, x.sum()
for dtype in (torch.float32, torch.float16, torch.uint8):
    x = torch.arange(1000).to(dtype)[1:65]
    torch.testing.assert_close(compiled(f)(x), f(x))
    torch._dynamo.reset()
print(copies())  # x
def written(x, y):
    x.add_(y)
    return x.relu()
x, y = torch.randn(1001)[1:], torch.randn(1000)
expected = x.clone()
torch.testing.assert_close(compiled(written)(x, y), written(expected, y))
torch.testing.assert_close(x, expected)
print(copies())  # x, and its new value, which the kernel writes over the copy
def by_aten(x):
    return torch.linalg.inv(x).flatten()[1:] + 1  # a view of what ATen made
x = torch.randn(8, 8) + 8 * torch.eye(8)
torch.testing.assert_close(compiled(by_aten)(x), by_aten(x))
layer = torch.nn.Linear(64, 64)
layer.weight.data = torch.randn(64 * 64 + 1)[1:].view(64, 64)
called = compiled(layer)
with torch.no_grad():
    for _ in range(3):
        x = torch.randn(4, 64)
        torch.testing.assert_close(called(x), layer(x), rtol=1e-4, atol=1e-4)
print(copies())  # the weight, once
"""


def test_an_integrated_gpu_reads_tensors_that_begin_anywhere() -> None:
    """It is given the caller's memory, where that begins as kernels want it (an aligned vector access of other memory ended
    the process); a copy, where it does not."""
    child = children.run(UNALIGNED, env={**os.environ, "ZEFUSE_CPU_DRIVER_AS": "integrated-gpu"})
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines() == ["[1, 0, 0]", "[1, 1, 0]", "[1, 0, 1]"]


MIXED = """
import torch, zefuse
from zefuse import backend
def f(x, w, i):
    first = x.double().exp().float()  # on the host: this GPU has no double precision
    from_aten = i @ i.t()
    second = (first @ w).double().sin().float() @ w
    return first, second, second @ w, torch.maximum(from_aten, from_aten + 1).cumsum(0)
graphs = []
with backend.observe(lambda _, graph: graphs.append(graph)):
    compiled = torch.compile(f, backend="zefuse", options={"device": "gpu:0"}, dynamic=True)
    kept = []
    for rows in (3, 40, 7, 600, 3):
        x, w = torch.randn(rows, 24) / 8, torch.randn(24, 24) / 8
        i = torch.randint(-5, 5, (rows, 2), dtype=torch.int16)
        actual = compiled(x, w, i)
        kept.append((actual, [value.clone() for value in actual]))
        torch.testing.assert_close(actual, f(x, w, i))
for actual, were in kept:  # nothing was written where an earlier call's results lie
    torch.testing.assert_close(list(actual), were, rtol=0, atol=0)
counters = graphs[0].counters()
print(len(graphs), counters["host_steps"] > 0 and counters["launches"] > counters["host_steps"])
"""


@pytest.mark.parametrize("kind", ["integrated-gpu", "integrated-gpu-usm", "gpu"])
def test_host_steps_before_and_between_those_of_a_gpu(kind: str) -> None:
    child = children.run(MIXED, env={**os.environ, "ZEFUSE_CPU_DRIVER_AS": kind, "ZEFUSE_GPU_TARGET": "tgllp"})
    assert child.returncode == 0, child.stderr
    assert child.stdout == "1 True\n"


def test_integrated_gpu_that_reaches_usm_only() -> None:
    """As Intel's are today: the host fills memory that both share, once for parameters, and no command moves data."""
    lines = in_child(ZEFUSE_CPU_DRIVER_AS="integrated-gpu-usm", ZEFUSE_CPU_DRIVER_GPU_FAULT="hang-copy:1")
    assert lines[:3] == ["error True"] * 3
    weights, data = 2 * (512 * 512 + 512) * 4, 256 * 512 * 4
    assert f"'bytes_to_device': {weights + 3 * data}, 'bytes_to_host': {3 * data}" in lines[3], lines[3]
    assert "'parameters_uploaded': 4" in lines[3]


# For what hangs: what does not takes microseconds, so that a busy machine does it before the deadline too.
SMALL = {"rows": 8, "width": 32, "timeout_s": 2}


@pytest.fixture(scope="module")
def hanging() -> Iterator[dict[str, children.Child]]:
    """By what hangs; all at once, since they wait for their deadlines, three calls each."""
    faults = ("hang:4", "hang-copy:1", "hang-copy:3", "hang-copy:6")
    begun_now = {fault: begun(**SMALL, ZEFUSE_CPU_DRIVER_GPU_FAULT=fault) for fault in faults}
    yield begun_now
    for child in begun_now.values():
        child.kill()


def test_launch_that_never_ends(hanging: dict[str, children.Child]) -> None:
    first, *later, _ = said_by(hanging["hang:4"])
    assert first == "error True"
    assert later[0].startswith("DeadlineError") and "(Launch 'matmul_8x32')" in later[0]
    assert "did not end on device 'gpu:0' within 2000 ms" in later[0]
    assert "an earlier call lost device 'gpu:0'" in later[1]


# The input's copy and the parameters' go side by side, so either may be the first.
BEFORE_LAUNCH = (
    r"(step 0 \(Launch 'matmul_8x32_tanh'\)|parameter '[\w.]+' of \d+ bytes, besides \d+ bytes of others: its copy)"
)


@pytest.mark.parametrize(("copy", "what"), [(1, BEFORE_LAUNCH), (3, BEFORE_LAUNCH), (6, "a copy")])
def test_copy_that_never_ends(hanging: dict[str, children.Child], copy: int, what: str) -> None:
    first, *later, _ = said_by(hanging[f"hang-copy:{copy}"])
    assert re.match(
        rf"DeadlineError {what} did not end on device 'gpu:0' within 2000 ms \(option device_timeout_s\)", first
    ), first
    assert len(later) == 2
    for line in later:
        assert line.startswith("DeadlineError an earlier call lost device 'gpu:0'")


def test_lost_device() -> None:
    first, *later, _ = in_child(ZEFUSE_CPU_DRIVER_GPU_FAULT="lost:4")
    assert first == "error True"
    assert later[0].startswith("DeviceError") and "ZE_RESULT_ERROR_DEVICE_LOST" in later[0]
    assert "the device was at step 1 (Launch 'matmul_256x512')" in later[0]
    assert "an earlier call lost device 'gpu:0'" in later[1]


def test_launch_without_memory() -> None:
    """Nothing reads what it did not write, the call says which kernel, and the next call is as good as any."""
    first, second, third, _ = in_child(**SMALL, ZEFUSE_CPU_DRIVER_GPU_FAULT="no-memory:4")
    assert first == "error True"
    assert second.startswith("OutOfMemoryError") and "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY" in second, second
    assert "no memory left" in second and "the device was at step 1 (Launch 'matmul_8x32')" in second, second
    assert third == "error True", third


def test_out_of_memory() -> None:
    """2 MiB hold a call's data, and not both weights besides."""
    lines = in_child(ZEFUSE_CPU_DRIVER_GPU_MEMORY_MB="3")
    assert "OutOfMemoryError" in lines[0] and "1048576 bytes" in lines[0] and "parameter '" in lines[0], lines
    assert lines[1].split()[0] == "OutOfMemoryError"  # an error, and no wreck
