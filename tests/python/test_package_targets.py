"""Packages for several processors and GPUs: equal bytes wherever they are made, code for each target; which targets there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import children
import pytest
import stub_compiler
import torch
from test_package import Model
from torch import nn

import zefuse
from zefuse import cache, reports
from zefuse.errors import (
    DeviceError,
    NotFoundError,
)


def test_equal_bytes_and_native_code_per_level(tmp_path: Path) -> None:
    """From the cache or not, the bytes are the same; each level has code of its own, and all give the same bits."""
    torch.manual_seed(0)
    model = Model().eval()
    inputs = (torch.tensor([[1, 2, 3]]), {"bias": torch.randn(16)})
    program = torch.export.export(model, inputs)
    for name, folder in {"a": None, "b": str(tmp_path / "cache"), "c": ""}.items():
        zefuse.compile_package(program, tmp_path / name, options={"cache_dir": folder})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    names = [section[0] for section in reports.ask("package", str(tmp_path / "a"))["sections"]]
    modules = {name.split(".")[0] for name in names if name.startswith("native/")}
    assert modules and {f"{module}.{level}" for module in modules for level in ("avx2", "avx512")} <= set(names)
    code = f"""
import sys, torch, zefuse
io = torch.load({str(tmp_path / "io.pt")!r})
package = zefuse.load({str(tmp_path / "a")!r}, options={{"cache_dir": ""}})
actual = package(*io["inputs"])
assert all(torch.equal(actual[name], value) for name, value in io["expected"].items())
assert package.explain().graphs[0]["counters"]["native_cache_misses"] == 0
"""
    torch.save({"inputs": inputs, "expected": zefuse.load(tmp_path / "a")(*inputs)}, tmp_path / "io.pt")
    done = children.run(code, env={**os.environ, "ZEFUSE_CPU_ISA": "avx2"})
    assert done.returncode == 0, done.stderr


FACTORY = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return torch.softmax(self.norm(self.layer(x)) + torch.tensor([1.0, 2.0] * 4), -1)


def both():
    torch.manual_seed(0)
    model = Block().eval()
    any_size = {0: torch.export.Dim("rows", min=2, max=64)}
    return [
        torch.export.export(model, (torch.randn(1, 8),)),
        torch.export.export(model, (torch.randn(4, 8),), dynamic_shapes=(any_size,)),
        *zefuse.capture(torch.compile(model, backend="zefuse"), torch.randn(3, 8)),
    ]


import zefuse
"""


def test_equal_bytes_in_other_processes(tmp_path: Path, stub: Path) -> None:
    """Not the folder, the hashes' seed, the order of targets, the number of threads or what the cache had decides a byte."""
    packages = []
    for folder, targets, threads, seed in [
        ("a", "cpu,dg2-g11,dg2-g10", 1, "1"),
        ("somewhere/else", "dg2-g10,avx512,dg2-g11,avx2", 4, "2"),
    ]:
        there = tmp_path / folder
        there.mkdir(parents=True)
        (there / "models.py").write_text(FACTORY)
        words = ["compile", "models:both", "--targets", targets, "-o", "m.zefuse", "-q"]
        words += ["--option", f"build_threads={threads}"]
        done = subprocess.run(
            [sys.executable, "-m", "zefuse", *words],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=there,
            env={**os.environ, "PYTHONHASHSEED": seed, "ZEFUSE_CACHE_DIR": "", "HOME": str(there)},
        )
        assert done.returncode == 0, done.stderr
        packages.append((there / "m.zefuse").read_bytes())
    assert packages[0] == packages[1]
    assert str(tmp_path).encode() not in packages[0]
    loaded = zefuse.load(tmp_path / "a" / "m.zefuse")
    assert loaded(torch.ones(1, 8)).shape == (1, 8) and loaded(torch.ones(9, 8)).shape == (9, 8)


def test_without_code_for_this_level_the_spirv_is_compiled(tmp_path: Path) -> None:
    model = nn.Sequential(nn.GELU()).eval()
    program = torch.export.export(model, (torch.randn(4, 6),))
    zefuse.compile_package(program, tmp_path / "m", targets=["amx"])
    code = f"""
import torch, zefuse
package = zefuse.load({str(tmp_path / "m")!r}, options={{"cache_dir": ""}})
x = torch.randn(4, 6)
assert torch.allclose(package(x), torch.nn.functional.gelu(x), atol=1e-6)
assert package.explain().graphs[0]["counters"]["native_cache_misses"] == 1
"""
    done = children.run(code, env={**os.environ, "ZEFUSE_CPU_ISA": "avx2"})
    assert done.returncode == 0, done.stderr


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ocloc that makes nothing of use; returns the file with one line per compilation."""
    log = tmp_path / "ocloc.log"
    monkeypatch.setenv("ZEFUSE_OCLOC", str(stub_compiler.install(tmp_path / "ocloc", log)))
    return log


def test_a_package_for_cpu_and_gpu(tmp_path: Path, stub: Path) -> None:
    """A plan per target. What the stub made is refused by the driver (which poses as a GPU), so the SPIR-V is compiled."""
    model = Model().eval()
    inputs = (torch.tensor([[1, 2, 3], [4, 5, 19]]), {"bias": torch.randn(16)})
    program = torch.export.export(model, inputs)
    path = tmp_path / "both.zefuse"
    options = {"cache_dir": str(tmp_path / "cache")}
    zefuse.compile_package(program, path, targets=["cpu", "dg2-g11"], options=options)
    found = reports.ask("package", str(path))
    assert [plan["target"] for plan in found["plans"]] == ["cpu", "dg2-g11"]
    natives = [name for name, _, _ in found["sections"] if name.endswith(".dg2-g11")]
    assert natives and len(stub.read_text().splitlines()) == len(natives)
    for device in ("cpu", "gpu:0"):
        loaded = zefuse.load(path, options={"device": device})
        actual = loaded(*inputs)
        with torch.no_grad():
            expected = model(*inputs)
        assert all(torch.allclose(actual[name], expected[name], rtol=1e-4, atol=1e-5) for name in expected), device
        kernels = {kernel["target"] for kernel in loaded.explain().kernels}
        assert kernels == ({"cpu"} if device == "cpu" else {"dg2-g11"})
    # A second time nothing is compiled, and the bytes are the same.
    zefuse.compile_package(program, tmp_path / "again.zefuse", targets=["cpu", "dg2-g11"], options=options)
    assert len(stub.read_text().splitlines()) == len(natives)
    assert path.read_bytes() == (tmp_path / "again.zefuse").read_bytes()
    # A device that nobody compiles for.
    with pytest.raises(NotFoundError, match=r"(?s)no compiler here makes code for 'bmg-g21'.*toolchain install.*99\.1"):
        zefuse.compile_package(program, tmp_path / "n", targets=["bmg-g21"])


def test_progress_names_each_kernel_and_target_once(tmp_path: Path, stub: Path) -> None:
    inputs = (torch.tensor([[1, 2, 3], [4, 5, 19]]), {"bias": torch.randn(16)})
    program = torch.export.export(Model().eval(), inputs)
    for first in (True, False):
        seen: list[tuple[str, str, float, int, int]] = []

        def note(*each: Any, seen: list[Any] = seen) -> None:
            seen.append(each)

        options = {"cache_dir": str(tmp_path / "cache")}
        zefuse.compile_package(program, tmp_path / "m", targets=["cpu", "dg2-g11"], options=options, progress=note)
        natives = [name for name, _, _ in reports.ask("package", str(tmp_path / "m"))["sections"] if "native/" in name]
        assert len({(kernel, target) for kernel, target, *_ in seen}) == len(seen) == len(natives)
        assert {target for _, target, *_ in seen} == {"avx2", "avx512", "dg2-g11"}
        assert any(seconds > 0 for _, _, seconds, _, _ in seen) == first
        for family in ({"avx2", "avx512"}, {"dg2-g11"}):  # a plan each
            numbers = [(done, every) for _, target, _, done, every in seen if target in family]
            assert numbers == [(number + 1, len(numbers)) for number in range(len(numbers))]


def test_nvidias_code_needs_nothing_that_is_installed(tmp_path: Path) -> None:
    """zefuse-ptx comes with zefuse; without NVIDIA's assembler the code is PTX, which the GPU's driver finishes."""
    code = f"""
import torch, zefuse
program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), (torch.randn(4, 8),))
zefuse.compile_package(program, {str(tmp_path / "model.zefuse")!r}, targets=["sm_90"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "ZEFUSE_PTX_COMPILER"}
    nothing = {"PATH": "/nowhere", "ZEFUSE_PTXAS": "/nowhere/ptxas", "ZEFUSE_CACHE_DIR": str(tmp_path / "cache")}
    done = children.run(code, env=environment | nothing)
    assert done.returncode == 0, done.stderr
    sections = {name for name, *_ in reports.ask("package", str(tmp_path / "model.zefuse"))["sections"]}
    assert [name for name in sections if name.startswith("native/") and name.endswith(".sm_90")]
    assert b".target sm_90" in (tmp_path / "model.zefuse").read_bytes()


@pytest.mark.parametrize(
    ("afterwards", "words"),
    [
        ("kill -SEGV $$", r"crashed with signal 11"),
        ("echo 'error: out of registers'; exit 3", r"(?s)failed with exit code 3.*out of registers"),
        ('rm "$2/kernel.bin"', r"reported success for dg2-g11 and wrote no binary"),
    ],
)
def test_a_compiler_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, afterwards: str, words: str
) -> None:
    """It names the kernel and the target, and nothing is written. One that hangs or eats memory: test_lowering_native."""
    stub = stub_compiler.install(tmp_path / "ocloc", tmp_path / "log", afterwards)
    monkeypatch.setenv("ZEFUSE_OCLOC", str(stub))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the kernel is left for a repetition
    program = torch.export.export(nn.Sequential(nn.GELU()), (torch.randn(4, 6),))
    with pytest.raises(DeviceError, match=words) as caught:
        zefuse.compile_package(program, tmp_path / "m", targets=["dg2-g11"], options={"cache_dir": ""})
    assert re.match(r"kernel '\w*gelu\w*' for 'dg2-g11': ", str(caught.value)), str(caught.value)
    assert not (tmp_path / "m").exists()


def test_a_package_without_this_device(tmp_path: Path) -> None:
    program = torch.export.export(nn.Sequential(nn.GELU()), (torch.randn(4, 6),))
    zefuse.compile_package(program, tmp_path / "m")
    with pytest.raises(NotFoundError, match=r"has no plan for device 'gpu:0'.*has some for 'cpu'.*--targets dg2-g11"):
        zefuse.load(tmp_path / "m", options={"device": "gpu:0"})


@pytest.mark.parametrize("by_environment", [False, True])
def test_compiling_fills_the_cache_for_other_targets(
    tmp_path: Path, stub: Path, by_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, object] = {"cache_dir": str(tmp_path / "cache")}
    if by_environment:
        monkeypatch.setenv("ZEFUSE_TARGETS", "avx2, dg2-g11")
    else:
        options["targets"] = ["avx2", "dg2-g11"]
    f = torch.compile(lambda x: torch.relu(x) + 1, backend="zefuse", options=options)
    assert torch.equal(f(torch.ones(5)), torch.full((5,), 2.0))
    keys = [entry["key"] for entry in cache.entries(str(tmp_path / "cache"))]
    assert any(key.get("instruction set") == "avx2" for key in keys)
    assert any(key.get("compiler") == "ocloc 99.1" and key["target"] == "dg2-g11" for key in keys)
    assert {key["target"] for key in keys if key["kind"] == "plan"} == {"cpu", "dg2-g11"}
    torch._dynamo.reset()
    g = torch.compile(lambda x: torch.relu(x) - 1, backend="zefuse", options={**options, "targets": "bmg-g21"})
    with pytest.warns(UserWarning, match="the cache is not filled for bmg-g21: no compiler here"):
        assert torch.equal(g(torch.ones(5)), torch.zeros(5))
    torch._dynamo.reset()
    h = torch.compile(lambda x: torch.relu(x) - 2, backend="zefuse", options={**options, "targets": "tgllp,dg2-g11"})
    with pytest.warns(UserWarning, match="the cache is not filled for tgllp: no compiler here") as warned:
        assert torch.equal(h(torch.ones(5)), -torch.ones(5))
    assert not [one for one in warned if "for dg2-g11" in str(one.message)]
    made = [entry["key"] for entry in cache.entries(str(tmp_path / "cache")) if entry["key"].get("compiler")]
    assert len([key for key in made if key["kind"] == "native"]) == 2, "dg2-g11's is made though nothing covers tgllp"


def test_devices_and_targets() -> None:
    from zefuse import targets

    found = {device["device"]: device for device in zefuse.devices()}
    cpu = found["cpu"]
    assert (
        cpu["target"] in [row["name"] for row in targets.table()["cpu"]] and cpu["memory_bytes"] > 0 and cpu["queues"]
    )
    assert cpu["covered"]
    gpu = found["gpu:0"]  # the CPU driver posing as one, which runs any product's kernels
    assert gpu["target"] == "dg2-g11" and gpu["covered"] == ["the built-in compiler"] and not gpu["advice"]
    ids = {one: row["name"] for row in targets.table()["gpu"] for one in row["device_ids"]}
    assert ids[0x56A5] == "dg2-g11" and ids[0x7D55] == "mtl-h" and ids[0xE20B] == "bmg-g21" and ids[0x9A49] == "tgllp"
    assert len(ids) == sum(len(row["device_ids"]) for row in targets.table()["gpu"])  # none twice
    assert targets.resolve(["x86-64-v3", "acm-g11", "cpu"]) == (["avx2", "avx512"], ["dg2-g11"])
    assert targets.resolve(["0x7d55", "0x9A49"]) == ([], ["tgllp", "mtl-h"])
    with pytest.raises(NotFoundError, match="'0xfff1': no such target; `zefuse targets` lists them"):
        targets.resolve(["0xfff1"])


@pytest.mark.parametrize("device_id", ["0x56a5", "0xfff1"])
def test_devices_by_their_ids(device_id: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zefuse", "devices"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "ZEFUSE_CPU_DRIVER_AS": "gpu", "ZEFUSE_CPU_DRIVER_GPU_ID": device_id},
    )
    assert device_id in done.stdout and ("target dg2-g11" in done.stdout) == (device_id == "0x56a5"), done.stdout
    assert ("is no GPU that this zefuse knows" in done.stdout) == (device_id == "0xfff1")


def test_the_list_of_targets_has_every_id(stub: Path) -> None:
    """With what an installed compiler covers: the stand-in knows two products, our own all of NVIDIA's."""
    from zefuse import targets

    lines = targets.here().splitlines()
    rows = {line.split()[0]: number for number, line in enumerate(lines)}
    assert {row["name"] for kind in targets.table().values() for row in kind} <= rows.keys()
    for row in targets.table()["gpu"]:
        place = rows[row["name"]]
        compiler = (
            "nvptx-" if row["name"].startswith("sm_") else "99.1" if row["name"] in ("dg2-g10", "dg2-g11") else ""
        )
        covered = f"compiled for by {compiler}" if compiler else "no compiler here"
        for text in (row["family"], row["marketing"], covered):
            assert text in lines[place], lines[place]
        listed = []
        for line in lines[place + 1 :]:
            if not line.startswith("    "):
                break
            listed += [int(word, 16) for word in line.split() if word.startswith("0x")]
        assert listed == row["device_ids"]
