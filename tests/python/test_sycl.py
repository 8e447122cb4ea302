"""SYCL's runtime, through its own Level Zero adapter, on the CPU driver posing as a GPU. scripts/sycl_check sets it up."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "build" / "sycl" / "python"

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
