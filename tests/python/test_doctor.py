"""``zefuse doctor`` on machines that are not here: recorded facts in place of files, environment and children; drivers that
hang and crash are real ones (tests/unit/ze/broken_driver.c), tried in real children."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from recorded_machine import (
    A380,
    ARC,
    CPU,
    CRASHES,
    FLAGS,
    HANGS,
    NVIDIA,
    TORCH,
    UNKNOWN,
    Recorded,
    good_build,
    said,
    tried,
    with_gpu,
)

from zefuse import doctor
from zefuse.doctor import build, compilers, level_zero, minimum, probe, processor, render, variables
from zefuse.doctor.finding import Finding, Report, Section
from zefuse.doctor.machine import Ended, Machine

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "build" / "release" / "lib"
DRIVERS = ROOT / "build" / "release" / "tests" / "unit" / "ze"


def findings(report: Report) -> dict[str, Finding]:
    found = {finding.key: finding for finding in report.findings()}
    assert len(found) == len(report.findings()), "a key twice"
    return found


def diagnose(folder: Path, **facts: Any) -> dict[str, Finding]:
    return findings(doctor.examine(Recorded(folder, **facts)))


def problems(found: Mapping[str, Finding]) -> list[str]:
    return [finding.text for finding in found.values() if finding.level == "problem"]


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_good_machine_has_no_problem(tmp_path: Path) -> None:
    report = doctor.examine(Recorded(tmp_path))
    found = findings(report)
    assert report.good() and report.counts()["warning"] == 0, [finding.text for finding in report.findings()]
    assert found["devices.no_gpu"].level == "note"
    assert "this machine has no Intel GPU" in found["devices.no_gpu"].text
    assert found["torch.version"].text == "torch 2.13.0+cpu, tested with this zefuse"
    assert "(wheel), for torch 2.13" in found["build.parts"].text and "3 libraries load" in found["build.parts"].text


def test_data_has_stable_keys(tmp_path: Path) -> None:
    data = json.loads(json.dumps(doctor.examine(Recorded(tmp_path)).to_dict()))
    assert set(data) == {"format", "zefuse", "verdict", "counts", "seconds", "sections"} and data["format"] == 1
    assert [section["key"] for section in data["sections"]] == [
        "system",
        "torch",
        "build",
        "processor",
        "level_zero",
        "devices",
        "compilers",
        "cache",
        "environment",
    ]
    for section in data["sections"]:
        assert set(section) == {"key", "title", "findings", "facts"} and section["facts"] and section["findings"]
        for finding in section["findings"]:
            assert set(finding) == {"key", "level", "text", "fix"}
            assert finding["key"].split(".")[0] == section["key"] and finding["text"]


def test_a_gpu_that_works(tmp_path: Path) -> None:
    found = diagnose(tmp_path, **with_gpu())
    assert not problems(found)
    assert found["devices.gpu0"].text == (
        "gpu:0: Intel(R) Arc(TM) A380 Graphics (PCI 8086:56a5, 6.0 GiB) is dg2-g11, native code by ocloc 22.43.24595"
    )
    assert "version 1.3.24595, API 1.3" in found["level_zero.driver.libze_intel_gpu.so.1"].text
    assert "devices.no_gpu" not in found


def test_an_nvidia_gpu(tmp_path: Path) -> None:
    h100 = {
        "device": "gpu:0",
        "kind": "gpu",
        "name": "NVIDIA H100 80GB HBM3",
        "target": "sm_90",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "built_in": True,
        "integrated": False,
        "memory_bytes": 80 << 30,
    }
    found = diagnose(tmp_path, pci=[NVIDIA], build=good_build(devices=[CPU, h100]))
    assert found["devices.gpu0"].level == "ok"
    assert (
        "gpu:0: NVIDIA H100 80GB HBM3 (PCI 10de:2330, 80.0 GiB), through zefuse's driver over CUDA"
        in found["devices.gpu0"].text
    )
    assert "devices.nvidia" not in found and "devices.no_gpu" not in found


def test_an_nvidia_gpu_that_its_driver_does_not_give(tmp_path: Path) -> None:
    found = diagnose(tmp_path, pci=[NVIDIA])
    assert found["devices.nvidia"].level == "note" and "does not take" in found["devices.nvidia"].text


def test_a_gpu_without_native_code(tmp_path: Path) -> None:
    unknown = Ended(A380.output.replace("56a5", "ffff"))
    new = Ended(A380.output.replace("56a5", "e20b"))
    trials = {"": unknown, "libze_intel_gpu.so.1": unknown}
    found = diagnose(tmp_path / "1", **with_gpu(trials=trials, pci=[UNKNOWN]))
    assert "no GPU that this zefuse knows" in found["devices.gpu0"].text and found["devices.gpu0"].level == "warning"
    found = diagnose(tmp_path / "2", **with_gpu(trials={"": new}, pci=["8086:e20b"]))
    assert "no compiler here makes native code for it (ocloc 26.27 or newer does)" in found["devices.gpu0"].text
    assert found["devices.gpu0"].fix.startswith("zefuse toolchain install")


# --- drivers ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (LIB / build.HELPER).exists(), reason="the build has no zefuse-try-loader")
def test_real_drivers_that_hang_and_crash_are_findings() -> None:
    ours = LIB / "libze_zefuse_cpu.so.1"
    hanging, crashing = (str(DRIVERS / f"libbroken_driver_{how}.so") for how in ("hanging", "crashing"))
    assert Path(hanging).exists() and Path(crashing).exists(), "scripts/build makes them"
    names = [hanging, crashing, str(ours), "/nonexistent/libze_none.so"]
    machine = Machine(
        environment={**os.environ, "ZE_ENABLE_ALT_DRIVERS": ",".join(names), "ZEFUSE_CPU_DRIVER_AS": "gpu"}
    )
    facts = level_zero.collect(machine, str(LIB / build.HELPER), seconds=4.0)
    if facts["loader"]["outcome"] == "no-library":
        pytest.skip("no Level Zero loader here")
    assert facts["loader"]["outcome"] in ("hangs", "crashes"), "the loader starts all of them"
    assert [trial["outcome"] for trial in facts["drivers"]] == ["hangs", "crashes", "works", "no-driver-library"]
    assert [trial["step"] for trial in facts["drivers"][:2]] == ["zeInit", "zeInit"]
    (driver,) = facts["drivers"][2]["drivers"]
    assert [device["kind"] for device in driver["devices"]] == ["gpu", "cpu"]
    others = {"system": {"id": "debian", "version": "12", "like": []}, "devices": {"intel_gpus": [], "dxg": False}}
    found = {finding.key: finding for finding in level_zero.judge({**others, "level_zero": facts})}
    hangs, crashes = (found[f"level_zero.driver.{Path(name).name}"] for name in (hanging, crashing))
    assert hangs.level == "problem" and re.search(r"hangs in zeInit \(no answer within \d+ s\)", hangs.text), hangs
    assert crashes.level == "problem" and "crashes in zeInit (SIGSEGV)" in crashes.text, crashes
    assert "unset ZE_ENABLE_ALT_DRIVERS" in hangs.fix
    assert found["level_zero.driver.libze_zefuse_cpu.so.1"].level == "ok"
    assert "which is not there" in found["level_zero.driver./nonexistent/libze_none.so"].text


def test_a_loader_that_is_broken_or_old(tmp_path: Path) -> None:
    broken = tried("no-library /lib/libze_loader.so.1: version `GLIBCXX_3.4.32' not found")
    found = diagnose(tmp_path / "1", **with_gpu(trials={"": broken}))
    assert (
        "cannot be loaded: /lib/libze_loader.so.1: version `GLIBCXX_3.4.32' not found"
        in found["level_zero.loader"].text
    )
    old = Ended(A380.output.replace("loader 1.8.12 1.4", "loader 1.6.2 1.3"))
    found = diagnose(tmp_path / "2", **with_gpu(trials={"": old, "libze_intel_gpu.so.1": old}))
    assert found["level_zero.loader"].level == "warning" and "older than 1.8" in found["level_zero.loader"].text


def test_drivers_that_only_work_alone(tmp_path: Path) -> None:
    found = diagnose(tmp_path, **with_gpu(trials={"": CRASHES, "libze_intel_gpu.so.1": A380}))
    assert "crashes in zeInit (SIGSEGV), though each driver works alone" in found["level_zero.together"].text


def test_an_answer_among_noise() -> None:
    trial = level_zero.parse(
        Ended("MESA: error\n\nzefuse-try-loader: step zeInit\nzefuse-try-loader:", "abort!\n", 134)
    )
    assert (trial["outcome"], trial["step"], trial["detail"]) == ("failed", "zeInit", "exit code 134: abort!")
    cut = level_zero.parse(Ended(A380.output[: A380.output.index("56a5") + 2], code=None, seconds=10))
    assert cut["outcome"] == "hangs" and len(cut["drivers"]) == 1 and not cut["drivers"][0]["devices"]


# --- Python, torch, the build -----------------------------------------------------------------------------------------


def torch_is(**torch: Any) -> Ended:
    good = good_build()
    return Ended(good.output.replace(json.dumps(TORCH), json.dumps({**TORCH, **torch})))


IMPORTING = {"step": "importing torch"}


def without_torch(error: str) -> Ended:
    return Ended(said(IMPORTING, {"torch_error": error}, {"step": "loading libzefuse_core.so.1"}))


LATE = Ended(said(IMPORTING), code=None, seconds=60)
CHILD = {
    "missing": (
        without_torch("ModuleNotFoundError: No module named 'torch'"),
        "^torch is not installed$",
        r"pip install 'torch==2.13.\*'",
    ),
    "broken": (
        without_torch("OSError: libcudart.so.13: cannot open"),
        "cannot be imported: OSError: libcudart.so.13",
        "--force-reinstall",
    ),
    "crashes": (Ended(said(IMPORTING), code=-11), "Importing torch ended a process: SIGSEGV", "faulthandler"),
    "hangs": (LATE, "no answer within 60 s", "faulthandler"),
    "another": (torch_is(version="2.15.0+cu130", cuda="13.0"), "with CUDA 13.0.*compiled for 2.13", "pip install"),
    "no child": (
        Ended(error="Permission denied", code=None, started=False),
        "could not be started .Permission denied",
        "",
    ),
}


@pytest.mark.parametrize("case", CHILD)
def test_torch(case: str, tmp_path: Path) -> None:
    ended, text, fix = CHILD[case]
    found = diagnose(tmp_path, build=ended)["torch.version"]
    assert found.level == "problem" and re.search(text, found.text) and re.search(fix, found.fix), found


def test_a_torch_that_no_test_has_seen(tmp_path: Path) -> None:
    machine = Recorded(tmp_path, build=torch_is(version="2.14.1"))
    place = machine.package / "lib" / "torch-2.14"
    place.mkdir()
    (place / "_C.cpython-312.so").write_text("")
    found = findings(doctor.examine(machine))["torch.version"]
    assert found.level == "warning" and "not tested with it (tested: 2.11, 2.13, 2.15)" in found.text, found


def test_a_half_installed_wheel(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    (machine.package / "lib" / "libze_zefuse_cpu.so.1").unlink()
    (machine.package / "lib" / "zefuse-jit").write_text("cut")
    report = doctor.examine(machine)
    found = findings(report)
    assert found["build.files"].text == "zefuse is half-installed: zefuse/lib/libze_zefuse_cpu.so.1 is missing"
    assert found["build.files"].fix == "pip install --force-reinstall zefuse"
    assert "zefuse/lib/zefuse-jit has another size" in found["build.sizes"].text
    assert not report.good()


def test_a_package_that_torch_does_not_find(tmp_path: Path) -> None:
    assert "build.backend" not in diagnose(tmp_path / "1", build=good_build())
    without = Ended(good_build().output.replace('["zefuse.backend:zefuse"]', "[]"))
    machine = Recorded(tmp_path / "2", build=without)
    found = findings(doctor.examine(machine))["build.backend"]
    assert found.level == "problem" and "not installed" in found.text and "--force-reinstall" in found.fix
    (tmp_path / "2" / "site-packages" / "zefuse-0.1.0.dist-info" / "RECORD").unlink()
    assert "make setup" in findings(doctor.examine(machine))["build.backend"].fix


def test_a_real_child_finds_the_entry_point() -> None:
    assert probe.registered() == ["zefuse.backend:zefuse"]
    # Without site-packages, where pip has put it.
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); from zefuse.doctor import probe; print(probe.registered())"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_without_the_helper_drivers_are_not_tried(tmp_path: Path) -> None:
    machine = Recorded(tmp_path, **with_gpu())
    (machine.package / "lib" / build.HELPER).unlink()
    found = findings(doctor.examine(machine))
    assert "zefuse-try-loader is missing" in found["build.files"].text
    assert "not tried" in found["level_zero.helper"].text and "could be tried" in found["devices.no_gpu"].text


def test_a_checkout_that_was_not_built(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    (tmp_path / "site-packages" / "zefuse-0.1.0.dist-info" / "RECORD").unlink()
    (machine.package / "lib" / "libzefuse_core.so.1").unlink()
    found = findings(doctor.examine(machine))["build.files"]
    assert "libzefuse_core.so.1" in found.text and found.fix == "make build"


def test_a_library_of_another_processor_or_one_that_does_not_load(tmp_path: Path) -> None:
    lines = [{"step": "importing torch", "torch": TORCH}, {"step": "loading libzefuse_core.so.1"}]
    found = diagnose(tmp_path / "1", build=Ended(said(*lines), code=-4))["build.crash"]
    assert "ended loading libzefuse_core.so.1: SIGILL; the code is for another processor" in found.text
    lines.append({"not_loaded": {"name": "libzefuse_core.so.1", "why": "OSError: libstdc++.so.6: version not found"}})
    lines += [{"step": "loading zefuse._C"}, {"native_error": "ImportError: no"}]
    found = diagnose(tmp_path / "2", build=Ended(said(*lines)))
    assert found["build.library.libzefuse_core.so.1"].text == (
        "libzefuse_core.so.1 cannot be loaded: libstdc++.so.6: version not found"
    )
    assert found["build.native"].text == "zefuse._C cannot be loaded: no"


def test_a_real_child_with_a_torch_that_breaks(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    file = tmp_path / "torch" / "__init__.py"
    machine = Machine(environment={**os.environ, "PYTHONPATH": str(tmp_path), "ZEFUSE_LIBRARY_DIR": str(tmp_path)})

    def child(text: str) -> dict[str, Any]:
        file.write_text(text)
        return build.examine(machine, seconds=20)

    assert child("raise ImportError('half of it is missing')")["torch_error"] == "ImportError: half of it is missing"
    crashed = child("import os\nos.kill(os.getpid(), 11)")
    assert (crashed["ended"], crashed["step"]) == ("SIGSEGV", "importing torch")
    file.write_text("import time\ntime.sleep(1000)")
    late = build.examine(machine, seconds=3)
    assert "no answer within" in late["ended"] and late["step"] == "importing torch"


def test_python_and_libc(tmp_path: Path) -> None:
    found = diagnose(tmp_path / "1", python=("CPython", "3.10.2", "/usr/bin/python3"), libc="glibc 2.31")
    assert found["torch.python"].level == "problem" and "needs CPython 3.11 or newer" in found["torch.python"].text
    assert found["system.libc"].level == "warning" and "need glibc 2.35" in found["system.libc"].text
    found = diagnose(tmp_path / "2", python=("PyPy", "3.11.1", "/usr/bin/pypy"), libc="")
    assert found["torch.python"].level == found["system.libc"].level == "problem"


# --- processor, memory, threads ---------------------------------------------------------------------------------------


def cpuinfo(level: str) -> dict[str, str]:
    flags = [FLAGS[name] for name in list(FLAGS)[: list(FLAGS).index(level) + 1]] if level else ["sse2 avx"]
    return {"/proc/cpuinfo": f"processor\t: 0\nmodel name\t: A processor\nflags\t\t: {' '.join(flags)}\n"}


@pytest.mark.parametrize("level", ["", *FLAGS])
def test_the_level_of_the_processor(level: str, tmp_path: Path) -> None:
    found = diagnose(tmp_path, files=cpuinfo(level))["processor.level"]
    assert found.level == ("ok" if level else "problem")
    assert (f"A processor: level {level}" if level else "A processor has no AVX2") in found.text
    assert ("without AMX" in found.text) == (level == "avx512_bf16")


def test_the_levels_are_those_of_the_table() -> None:
    table = (ROOT / "common" / "toolchain" / "targets.cpp").read_text().partition("CpuTarget levels[]")[2]
    rows = re.findall(r'^    \{"(\w+)", "([\w-]*)"', table.partition("};")[0], re.MULTILINE)
    assert [name for name, _ in rows] == list(processor.LEVELS)
    assert {alias: name for name, alias in rows if alias} == processor.ALIASES


def test_a_level_that_the_environment_forces(tmp_path: Path) -> None:
    lower = diagnose(tmp_path / "1", environment={"ZEFUSE_CPU_ISA": "x86-64-v3"})["processor.allowed_level"]
    assert lower.level == "warning" and "holds kernels back from amx: without AVX-512" in lower.text
    wrong = diagnose(tmp_path / "2", environment={"ZEFUSE_CPU_ISA": "avx3"})["processor.allowed_level"]
    assert "is ignored" in wrong.text and wrong.fix == "unset ZEFUSE_CPU_ISA"
    higher = diagnose(tmp_path / "3", files=cpuinfo("avx2"), environment={"ZEFUSE_CPU_ISA": "amx"})
    assert higher["processor.allowed_level"].level == "note"


V2 = {
    "/proc/self/cgroup": "0::/user/app\n",
    "/sys/fs/cgroup/user/cpu.max": "150000 100000\n",
    "/sys/fs/cgroup/user/app/cpu.max": "max 100000\n",
    "/sys/fs/cgroup/user/app/memory.max": "1000000000\n",
}
V1 = {  # inside a container: the path is the host's
    "/proc/self/cgroup": "4:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n",
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
    "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000000\n",
}


@pytest.mark.parametrize("groups", [V1, V2], ids=["v1", "v2"])
def test_control_groups(groups: dict[str, str], tmp_path: Path) -> None:
    found = diagnose(tmp_path, files=groups)
    threads, memory = found["processor.threads"], found["processor.memory"]
    assert threads.level == "warning" and "4 threads on 4 processors, time for 1.5 by the control group" in threads.text
    assert threads.fix == "export OMP_NUM_THREADS=2"
    assert memory.level == "warning" and "limited to 0.9 GiB" in memory.text


@pytest.mark.parametrize(
    ("given", "threads", "affinity", "level", "text"),
    [
        ("", 4, [0, 1, 2, 3], "ok", "4 threads on 4 processors (2 cores)"),
        ("8", 8, [0, 1, 2, 3], "warning", "more threads than processors"),
        ("1", 1, [0, 1, 2, 3], "note", "1 thread on 4 processors (2 cores): OMP_NUM_THREADS=1 leaves 3 unused"),
        ("many", 4, [0, 1, 2, 3], "warning", "is no number"),
        ("", 1, [2], "ok", "1 thread on 1 processor of 4, by affinity"),
    ],
)
def test_threads(given: str, threads: int, affinity: list[int], level: str, text: str, tmp_path: Path) -> None:
    topology = {
        f"/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list": f"{one // 2 * 2}-{one // 2 * 2 + 1}\n"
        for one in range(4)
    }
    environment = {"OMP_NUM_THREADS": given} if given else {}
    ended = torch_is(threads=threads)
    found = diagnose(tmp_path, build=ended, affinity=affinity, files=topology, environment=environment)[
        "processor.threads"
    ]
    assert found.level == level and text in found.text, found


# --- compilers, cache, environment ------------------------------------------------------------------------------------


def test_compilers(tmp_path: Path) -> None:
    good = diagnose(tmp_path / "1")["compilers.ocloc"]
    assert "ocloc 22.43.24595, /usr/bin/ocloc: code for 1 of 2 Intel GPUs, none for bmg-g21" in good.text
    hangs = diagnose(tmp_path / "2", ocloc=Ended(code=None, seconds=5))["compilers.ocloc"]
    assert hangs.level == "warning" and "does not say its version: no answer within 5 s" in hangs.text
    old = diagnose(tmp_path / "3", ocloc=Ended("21.10.1"))["compilers.ocloc"]
    assert old.level == "warning" and "older than 22.43" in old.text
    none = diagnose(tmp_path / "4", programs=(), pci=[ARC])["compilers.none"]
    assert none.level == "warning" and none.fix == "zefuse toolchain install, or sudo apt install intel-ocloc"
    given = diagnose(tmp_path / "5", environment={"ZEFUSE_OCLOC": "/opt/none"})["compilers.given"]
    assert "names no program" in given.text


def test_the_compilers_of_toolchain_install_are_asked_too(tmp_path: Path) -> None:
    place = "/home/me/.local/share/zefuse/toolchains/intel/ocloc"
    machine = Recorded(tmp_path, files={place: ""}, programs=("ocloc", place))
    assert [one["command"] for one in compilers.collect(machine)["installed"]] == ["ocloc", place]


def test_the_cache(tmp_path: Path) -> None:
    good = diagnose(tmp_path / "1")["cache.folder"]
    assert good.level == "ok" and "/home/me/.cache/zefuse: 0 of 2048 MB in 1 file, 50.0 GiB free" in good.text
    fixed = diagnose(tmp_path / "2", read_only=("/home/me/.cache/zefuse",))["cache.folder"]
    assert fixed.level == "warning" and "is not writable" in fixed.text and "ZEFUSE_CACHE_DIR" in fixed.fix
    assert "no home folder" in diagnose(tmp_path / "3", home="")["cache.folder"].text
    full = diagnose(tmp_path / "4", free=1000)["cache.space"]
    assert full.level == "warning" and "hardly anything can be kept" in full.text
    off = diagnose(tmp_path / "5", environment={"ZEFUSE_CACHE_DIR": ""})["cache.folder"]
    assert off.level == "note" and "ZEFUSE_CACHE_DIR is empty" in off.text
    new = diagnose(tmp_path / "6", environment={"ZEFUSE_CACHE_DIR": "/home/me/new/cache"})["cache.folder"]
    assert "not there yet, and can be made" in new.text


def test_the_variables_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "environment.md").read_text()
    assert set(variables.OURS) == set(re.findall(r"^\| `(ZEFUSE_[A-Z0-9_]+)`", page, re.MULTILINE))


def test_environment_variables(tmp_path: Path) -> None:
    environment = {
        "ZEFUSE_CHACHE_DIR": "/x",
        "ZEFUSE_SOMETHING_ELSE": "1",
        "ZEFUSE_TORCH_DIRS": "/site/torch",
        "ZEFUSE_JIT": "alow",
        "ZEFUSE_CACHE_LIMIT_MB": "2GB",
        "ZEFUSE_TARGETS": "cpu,dg2-g1",
        "ZEFUSE_GPU_TARGET": "bmg",
        "ZEFUSE_PACKAGE": "/nonexistent.zefuse",
        "ZEFUSE_ZE_TRACE": "1",
        "ZE_AFFINITY_MASK": "0",
        "TORCHDYNAMO_DISABLE": "1",
        "HOME": "/home/me",
    }
    found = diagnose(tmp_path, environment=environment)
    mine = {key.partition(".")[2]: value for key, value in found.items() if key.startswith("environment.")}
    assert set(mine) == set(environment) - {"ZEFUSE_TORCH_DIRS", "HOME"}
    assert mine["ZEFUSE_CHACHE_DIR"].text.endswith("did you mean ZEFUSE_CACHE_DIR?")
    assert "did you mean" not in mine["ZEFUSE_SOMETHING_ELSE"].text
    wrong = {name for name, finding in mine.items() if finding.level == "problem"}
    assert wrong == {"ZEFUSE_JIT", "ZEFUSE_CACHE_LIMIT_MB", "ZEFUSE_TARGETS", "ZEFUSE_PACKAGE"}
    assert mine["ZEFUSE_TARGETS"].text.endswith("no target dg2-g1; did you mean dg2-g11? (zefuse targets lists them)")
    assert mine["ZEFUSE_ZE_TRACE"].level == mine["TORCHDYNAMO_DISABLE"].level == "warning"


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_page_fits_its_terminal(width: int, tmp_path: Path) -> None:
    report = doctor.examine(
        Recorded(tmp_path, **with_gpu(trials={"": HANGS, "libze_intel_gpu.so.1": CRASHES}, programs=()))
    )
    page = render.page(report, width)
    assert max(map(len, page.splitlines())) <= width
    assert [line for line in page.splitlines() if line and not line.startswith(" ")] == [
        *(section.title for section in report.sections),
        page.splitlines()[-1],
    ]
    words = "".join(page.split())  # only a path that is longer than a line is cut
    for finding in report.findings():
        assert "".join(finding.text.split()) in words and "".join(finding.fix.split()) in words


@pytest.mark.parametrize(
    ("levels", "last"),
    [
        (["ok"], "No problem."),
        (["ok", "note"], "No problem (1 note)."),
        (["warning", "warning", "note"], "No problem (2 warnings and 1 note)."),
        (["problem"], "1 problem."),
        (["problem", "problem", "warning"], "2 problems (1 warning)."),
    ],
)
def test_the_last_line_sums_up(levels: list[Any], last: str) -> None:
    found = [Finding(f"system.{number}", level, "Something is so") for number, level in enumerate(levels)]
    report = Report("1", [Section("system", "System", {}, found)])
    assert render.page(report, 80).splitlines()[-1] == last
    assert report.good() == ("problem" not in levels)
    assert "\033[" in render.page(report, 80, colour=True) and "\033[" not in render.page(report, 80)


def test_versions_are_compared_by_their_numbers() -> None:
    assert minimum.at_least("6.18.44-fc-v657", "6.2") and minimum.at_least("1.8", "1.8.0")
    assert not minimum.at_least("5.15.0-100-generic", "6.2") and not minimum.at_least("1.7.12", "1.8")
    assert minimum.at_least("unknown", "1.8")


# --- the command ------------------------------------------------------------------------------------------------------


def command(*words: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ZEFUSE_CPU_DRIVER_AS": "cpu", "COLUMNS": "80", **environment}
    kept = {name: value for name, value in env.items() if value is not None}
    return subprocess.run(
        [sys.executable, "-m", "zefuse", *words], capture_output=True, text=True, timeout=300, env=kept
    )


def test_the_command_without_a_home() -> None:
    done = command("doctor", "--json", HOME=None, XDG_CACHE_HOME=None, ZEFUSE_CACHE_DIR=None)
    data = json.loads(done.stdout)
    assert done.returncode == (data["verdict"] != "ok") and not done.stderr, done.stderr
    ours = [
        one
        for section in data["sections"]
        if section["key"] in ("torch", "build", "cache")
        for one in section["findings"]
    ]
    assert not [one for one in ours if one["level"] in ("warning", "problem")], ours
    facts = {section["key"]: section["facts"] for section in data["sections"]}
    assert facts["build"]["cpu_device"]["device"] == "cpu" and facts["torch"]["version"]


def test_the_command_without_libraries(tmp_path: Path) -> None:
    """Also where the folder of temporary files is none."""
    done = command("doctor", ZEFUSE_LIBRARY_DIR=str(tmp_path), TMPDIR="/nonexistent")
    assert done.returncode == 1, done.stdout
    words = " ".join(done.stdout.split())
    assert "zefuse is half-installed" in words and "libzefuse_core.so.1" in words
    assert "Traceback" not in done.stdout + done.stderr


def test_devices_says_why_there_is_no_gpu() -> None:
    done = command("devices")
    assert done.returncode == 0 and done.stdout.startswith("cpu: "), done.stderr
    if "gpu:0" not in done.stdout:
        assert "No GPU: " in done.stdout


def test_doctor_loads_nothing_into_its_own_process() -> None:
    program = (
        "import sys, zefuse.doctor, zefuse.selftest; print([n for n in ('torch', 'rich', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
