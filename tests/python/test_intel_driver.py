"""Whole packages on Intel's real driver, which needs no GPU for it (tests/bench/intel_driver.py): every kernel has native code,
which the driver takes as it is, and every step of a call is queued and waited for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import intel_driver
import packages
import pytest
import torch
import zoo

import zefuse

LIBRARY = packages.ROOT / "build" / "release" / "lib" / "libzefuse_runtime.so.1"
WITHOUT_COMPILER = {"ZEFUSE_OCLOC": "/nonexistent/ocloc", "ZEFUSE_JIT": "never"}

pytestmark = [
    pytest.mark.skipif(not intel_driver.installed(), reason="Intel's driver is not installed"),
    pytest.mark.skipif(shutil.which("ocloc") is None, reason="no ocloc here"),
]


@pytest.fixture(scope="module", params=["MiniLM", "ResNet-18"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """For every product at once; and the inputs as packages.c_interface takes them."""
    example = zoo.make(request.param)
    path = tmp_path_factory.mktemp("package") / "m.zefuse"
    with torch.no_grad():
        program = torch.export.export(example.model.eval(), example.inputs)
        zefuse.compile_package(program, path, targets=list(intel_driver.PRODUCTS), standalone=True)
    return path, [[list(value.shape), value.dtype == torch.float32] for value in example.inputs]


@pytest.mark.parametrize("target", intel_driver.PRODUCTS)
def test_a_package_runs_and_compiles_nothing(package: tuple[Path, list[Any]], target: str, tmp_path: Path) -> None:
    path, inputs = package
    environment = {**intel_driver.environment(target), **WITHOUT_COMPILER}
    times = packages.in_a_process("c_interface", str(LIBRARY), str(path), inputs, "gpu:0", cwd=tmp_path, **environment)
    assert {"first call", "later call"} <= times.keys()
    (capture,) = tmp_path.glob("*.aub")
    assert capture.stat().st_size > path.stat().st_size / 2, "nothing was launched"


def test_code_of_another_product_is_refused_not_compiled_again(package: tuple[Path, list[Any]], tmp_path: Path) -> None:
    """A driver compiles what it cannot take from the SPIR-V inside, in the call that loads it: ours has none inside."""
    path, inputs = package
    environment = {**intel_driver.environment("dg2-g11"), **WITHOUT_COMPILER, "ZEFUSE_GPU_TARGET": "tgl"}
    with pytest.raises(SystemExit, match=r"no compiler here makes code for device 'gpu:0'.*PCI id 8086:56a5.*'tgllp'"):
        packages.in_a_process("c_interface", str(LIBRARY), str(path), inputs, "gpu:0", cwd=tmp_path, **environment)


@pytest.mark.parametrize(("target", "integrated"), [("dg2-g11", False), ("tgllp", True)])
def test_its_device_is_found_with_its_properties(target: str, integrated: bool, tmp_path: Path) -> None:
    script = "import json, zefuse; from zefuse import targets; print(json.dumps([zefuse.devices(), targets.here()]))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **intel_driver.environment(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    devices, listed = json.loads(done.stdout.splitlines()[-1])
    (gpu,) = [device for device in devices if device["kind"] == "gpu"]
    ident = int(intel_driver.PRODUCTS[target]["ForceDeviceId"], 16)
    assert (gpu["device"], gpu["target"], gpu["device_id"]) == ("gpu:0", target, ident)
    assert gpu["integrated"] == integrated and gpu["memory_bytes"] > 2**30 and gpu["units"] > 1 and gpu["queues"] >= 1
    assert gpu["matrix"] == ([8, 8, 16] if target == "dg2-g11" else None)
    assert [text for text in gpu["covered"] if text.startswith("ocloc ")] and not gpu["advice"]
    (row,) = [line for line in listed.splitlines() if "; present" in line]
    assert row.split()[0] == target
