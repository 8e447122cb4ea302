"""SYCL's runtime, through its own Level Zero adapter, on the CPU driver posing as a GPU. scripts/sycl_check sets it up."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from placed_programs import BEGIN, TRAINING

BUILD = Path(__file__).resolve().parents[2] / "build"
PYTHON = BUILD / "sycl" / "python"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no dpctl: scripts/sycl_check --set-up makes build/sycl")


def in_sycl(program: str, **environment: str) -> str:
    settings = [f"{name}={value}" for name, value in environment.items()]
    run = subprocess.run(
        ["env", *settings, str(PYTHON), "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.mark.parametrize("posing", ["gpu", "integrated-gpu", "integrated-gpu-usm"])
def test_the_driver_is_one_platform_with_its_devices(posing: str) -> None:
    program = "import dpctl\nfor d in dpctl.get_devices(): print(d.filter_string, d.name, d.max_compute_units > 0)"
    (gpu,) = in_sycl(program, ZEFUSE_CPU_DRIVER_AS=posing).splitlines()
    assert gpu.startswith("level_zero:gpu:0 zefuse CPU as a GPU") and gpu.endswith("True")
    both = in_sycl(program, ZEFUSE_CPU_DRIVER_AS=posing, ZE_AFFINITY_MASK="0,1").splitlines()
    assert [line.split()[0] for line in both] == ["level_zero:gpu:0", "level_zero:cpu:0"]


@pytest.mark.parametrize("posing", ["gpu", "integrated-gpu", "integrated-gpu-usm"])
def test_kernels_of_sycl_compute_what_numpy_does(posing: str) -> None:
    in_sycl(
        """if True:
        import dpnp, numpy
        x = numpy.linspace(-3, 3, 1000, dtype=numpy.float32).reshape(10, 100)
        a = dpnp.asarray(x)
        numpy.testing.assert_allclose(dpnp.asnumpy(dpnp.exp(a) + a[:, ::-1]), numpy.exp(x) + x[:, ::-1], rtol=1e-5)
        numpy.testing.assert_allclose(dpnp.asnumpy(a.sum(axis=1)), x.sum(axis=1), rtol=1e-4, atol=1e-4)
        numpy.testing.assert_array_equal(dpnp.asnumpy(dpnp.sort(-a, axis=1)), numpy.sort(-x, axis=1))
        numpy.testing.assert_array_equal(dpnp.asnumpy(dpnp.cumsum(dpnp.arange(1000))), numpy.cumsum(numpy.arange(1000)))
        """,
        ZEFUSE_CPU_DRIVER_AS=posing,
    )


def with_torch(program: str, **environment: str) -> None:
    """In this Python, with dpctl besides and torch's posing XPU in memory, and on queues, of SYCL's: ``queues[0]`` is its stream."""
    packages = BUILD / "sycl" / "env" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    if not (packages.exists() and list((BUILD / "release" / "lib").glob("libzefuse_sycl-*.so"))):
        pytest.skip("build/sycl is of another Python, or there was no build after it was made")
    before = f"""
import sys
sys.path += [{str(packages)!r}]
import dpnp
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from posing_xpu import library, queues
"""
    given = {"ZEFUSE_CPU_DRIVER_AS": "gpu", "ZEFUSE_SYCL": ""} | environment
    settings = [f"{name}={value}" for name, value in given.items()]
    text = before + re.sub(r"\bcuda\b", "xpu", BEGIN + program)
    command = ["env", *settings, str(BUILD / "sycl" / "run"), sys.executable, "-c", text]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


def test_compiled_functions_are_in_order_with_kernels_of_sycl() -> None:
    """On the same memory and queue, where nobody waits: dpnp has tasks on the host behind its kernels, too."""
    with_torch("""
array = dpnp.ones((256, 256), dtype="float32", sycl_queue=queues[0])
x, y, want = torch.from_dlpack(array), torch.rand(256, 256), torch.ones(256, 256)
def function(x, y):
    x.mul_(0.5)
    return x + y
call, placed, results = compiled(function), y.to("xpu"), []
for step in range(12):
    array += 1
    results.append((call(x, placed), (want + 1) * 0.5 + y))
    array *= 1.5
    want = (want + 1) * 0.75
close(torch.from_numpy(dpnp.asnumpy(array)), want)
for got, expected in results:
    close(got, expected)
nothing_copied()
assert count("launches") == 12
""")


def test_compiled_functions_are_in_order_with_copies_of_sycl() -> None:
    """Long ones, with native events alone."""
    with_torch("""
rows = 4096
array, first, second = (dpnp.full((rows, 1024), value, dtype="float32", sycl_queue=queues[0]) for value in (0, 1, 5))
kept = [dpnp.zeros_like(array) for _ in range(6)]
memory = lambda array: array.get_array().usm_data
x = torch.from_dlpack(array)
call = compiled(lambda x: x.mul_(2))
call(x)
queues[0].wait()
for step in range(6):
    queues[0].memcpy_async(memory(array), memory((first, second)[step % 2]), array.nbytes)
    call(x)
    queues[0].memcpy_async(memory(kept[step]), memory(array), array.nbytes)
    queues[0].wait()  # it begins
for step, copy in enumerate(kept):
    close(torch.from_numpy(dpnp.asnumpy(copy)), torch.full((rows, 1024), (2.0, 10.0)[step % 2]))
nothing_copied()
""")


def test_replays_and_several_queues_of_sycl() -> None:
    with_torch("""
x = torch.randn(8, 64)
with torch.no_grad():
    want = mlp(x)
    call = compiled(mlp.to("xpu"))
    for stream in (0, 1, 2, 0):
        library.posing_use_stream(stream)
        placed = x.to("xpu")
        for _ in range(8):
            got = call(placed)
        close(got, want)
nothing_copied()
assert count("replays") > 0
zefuse.synchronize()
""")


def test_training_in_sycls_context() -> None:
    with_torch(
        TRAINING
        + """
run_it = compiled(ours)
mine, other = (torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (ours, theirs))
update = compiled(mine.step)
for step in range(4):
    a, b = run_it(i.to("xpu"), labels.to("xpu")), theirs(i, labels)
    a.backward()
    b.backward()
    assert abs(a.item() - b.item()) <= 1e-4 * abs(b.item()), (step, a.item(), b.item())
    update()
    other.step()
    mine.zero_grad()
    other.zero_grad()
zefuse.synchronize()
nothing_copied()
"""
    )
