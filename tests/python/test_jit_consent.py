"""A GPU that no installed compiler covers: its driver compiles by consent only, in a child process that may fail.

The CPU driver poses as an Intel GPU by PCI id, so that its own compiler is the "driver's".
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import children
import pytest
import stub_compiler
import torch

import zefuse
import zefuse.cache
from zefuse.errors import OptionError

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("always")
import torch, zefuse
from zefuse import backend

def f(x, y):
    return torch.softmax(x * y, -1) + x.sum(0)

x, y = torch.arange(48.0).reshape(6, 8) / 48, torch.ones(6, 8) / 2
graphs = []
options = {"device": "gpu:0", **json.loads(sys.argv[1])}
try:
    with backend.observe(lambda _, graph: graphs.append(graph)):
        torch.testing.assert_close(torch.compile(f, backend="zefuse", options=options)(x, y), f(x, y))
    counters = graphs[0].counters()
    print("right", counters["native_cache_misses"], graphs[0].report()["device"])
except zefuse.ZefuseError as error:
    print(type(error).__name__, error)
"""


def environment_of(tmp_path: Path) -> dict[str, str]:
    """Of a process whose GPU is an Arc A380, and that finds no compiler."""
    return {
        **os.environ,
        "ZEFUSE_CPU_DRIVER_AS": "gpu",
        "ZEFUSE_CPU_DRIVER_GPU_ID": "0x56a5",
        "ZEFUSE_OCLOC": str(tmp_path / "no-ocloc"),
        "ZEFUSE_PTX_COMPILER": str(tmp_path / "no-zefuse-ptx"),
        "ZEFUSE_CACHE_DIR": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path),  # where a kernel that could not be compiled is left
    }


def run(tmp_path: Path, options: str = "{}", script: str = SCRIPT, **environment: str) -> tuple[str, str]:
    done = children.run(script, options, cwd=tmp_path, env={**environment_of(tmp_path), **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("device_id", "what"), [("0x56a5", "it is a 'dg2-g11', which ocloc covers"), ("0xfff1", "its id is none of those")]
)
def test_without_consent_the_error_says_everything(tmp_path: Path, device_id: str, what: str) -> None:
    # A compiler that hangs would hang here too: nothing of the driver's may run.
    out, _ = run(tmp_path, ZEFUSE_CPU_DRIVER_GPU_ID=device_id, ZEFUSE_CPU_DRIVER_GPU_FAULT="jit-hang")
    assert out.startswith("NotFoundError"), out
    assert "no compiler here makes code for device 'gpu:0' (zefuse CPU as a GPU" in out
    assert f"PCI id 8086:{device_id[2:]}" in out and what in out and "installed: none" in out
    assert '{"device": "cpu"}' in out
    # Kernels are scheduled for a product: without one consent would help nobody, and a name does.
    for advice in ('"jit": "allow"', "ZEFUSE_JIT=allow", "zefuse toolchain install"):
        assert (advice in out) == (device_id == "0x56a5")
    assert ("name in ZEFUSE_GPU_TARGET a product" in out) == (device_id == "0xfff1")


def test_a_target_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    out, log = run(tmp_path, ZEFUSE_GPU_TARGET="nosuch")
    assert out.startswith("NotFoundError ZEFUSE_GPU_TARGET='nosuch': no such target; `zefuse targets` lists them"), out
    assert "runs in eager" not in log


def test_a_compiler_that_hangs_holds_up_the_answer_once(tmp_path: Path) -> None:
    """Every question to it is asked once, at the same time and with a deadline of 0.8 s, however many kernels wait."""
    stub = tmp_path / "ocloc"
    stub.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/log\nexec sleep 600\n")
    stub.chmod(0o755)
    (tmp_path / "log").touch()  # what is killed before its first line notes nothing
    out, _ = run(tmp_path, ZEFUSE_OCLOC=str(stub))
    assert out.startswith("NotFoundError") and "no compiler here makes code for device 'gpu:0'" in out, out
    assert f"installed: {stub} ({stub} did not end in 800 ms and was killed" in out, out
    assert len((tmp_path / "log").read_text().split()) <= 2
    out, log = run(tmp_path, '{"device": "gpu:0,cpu"}', ZEFUSE_OCLOC=str(stub))
    assert out.startswith("right ") and out.split()[2] == "cpu" and "did not end in 800 ms" in log


def test_with_consent_the_code_is_made_in_a_child_and_kept(tmp_path: Path) -> None:
    out, log = run(tmp_path, '{"jit": "allow"}')
    assert out.startswith("right ") and out.split()[2].startswith("gpu"), out
    made = int(out.split()[1])
    assert made > 0 and f"compiles kernel {made} of {made}: " in log and "no installed compiler" not in log
    # Found again, though nothing may be compiled any more.
    out, log = run(tmp_path, ZEFUSE_CPU_DRIVER_GPU_FAULT="jit-crash")
    assert out.startswith("right 0 ") and "compiles kernel" not in log
    (tmp_path / "other").mkdir()
    out, log = run(tmp_path / "other", ZEFUSE_JIT="warn")
    assert out.startswith("right ") and "UserWarning: zefuse: no installed compiler covers device 'gpu:0'" in log


LOAD = """
import json, sys, threading
import torch, zefuse, zefuse.targets

asked, answered = threading.Event(), threading.Event()
threading.Thread(target=lambda: asked.wait() and answered.set(), daemon=True).start()
told = zefuse.targets.jit_progress

def progress(*arguments):
    asked.set()
    assert answered.wait(60), "no other Python thread runs during the load"
    told(*arguments)

zefuse.targets.jit_progress = progress
options = {"device": "gpu:0", "cache_dir": "", "build_threads": 2, **json.loads(sys.argv[1])}
loaded = zefuse.load("two.zefuse", options=options)
x, y = torch.arange(48.0).reshape(6, 8) / 48, torch.ones(6, 8) / 2
torch.testing.assert_close(loaded(x, y), torch.softmax(x * y, -1) + x.sum(0))
print("right", asked.is_set())
"""


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * y, -1) + x.sum(0)


def test_a_package_is_loaded_with_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are compiled by threads that report progress in Python, whose other threads go on."""
    with monkeypatch.context() as patched:
        patched.setenv("ZEFUSE_OCLOC", str(stub_compiler.install(tmp_path / "ocloc", tmp_path / "log")))
        program = torch.export.export(Two(), (torch.ones(6, 8), torch.ones(6, 8)))
        zefuse.compile_package(program, tmp_path / "two.zefuse", targets=["dg2-g11"], options={"cache_dir": ""})
    out, log = run(tmp_path, '{"jit": "allow"}', script=LOAD)
    made = log.count("compiles kernel")
    assert made > 1 and f"compiles kernel {made} of {made}: " in log
    assert out == "right True\n", out


def test_a_hanging_compiler_is_ended(tmp_path: Path) -> None:
    out, _ = run(tmp_path, '{"jit": "allow", "jit_timeout_s": 1}', ZEFUSE_CPU_DRIVER_GPU_FAULT="jit-hang")
    assert out.startswith("DeadlineError") and "by the driver of device 'gpu:0'" in out and "zefuse-jit" in out, out
    spirv = next(word for word in out.split() if word.endswith("kernel.spv"))
    assert Path(spirv).is_file()  # so that the command in the message can be repeated


def test_a_crashing_compiler_is_an_error(tmp_path: Path) -> None:
    out, log = run(tmp_path, '{"jit": "allow", "build_threads": 1}', ZEFUSE_CPU_DRIVER_GPU_FAULT="jit-crash")
    assert log.count("compiles kernel") == 1, log  # the others would crash as well
    assert out.startswith("DeviceError") and "Segmentation fault" in out and "kernel '" in out, out


def test_a_compiler_that_eats_memory_is_an_error(tmp_path: Path) -> None:
    out, _ = run(tmp_path, '{"jit": "allow"}', ZEFUSE_CPU_DRIVER_GPU_FAULT="jit-memory")
    assert out.startswith("DeviceError") and "its memory is limited to 8192 MiB" in out and "kernel '" in out, out
    out, log = run(tmp_path, '{"jit": "allow", "device": "gpu:0,cpu"}', ZEFUSE_CPU_DRIVER_GPU_FAULT="jit-memory")
    assert out.startswith("right ") and out.split()[2] == "cpu" and "its memory is limited" in log, out


@pytest.mark.parametrize("device_id", ["0x56a5", "0xfff1"])
def test_the_cpu_where_the_user_chose_it(tmp_path: Path, device_id: str) -> None:
    out, log = run(tmp_path, '{"device": "gpu:0,cpu"}', ZEFUSE_CPU_DRIVER_GPU_ID=device_id)
    assert out.startswith("right ") and out.split()[2] == "cpu", out
    assert "a graph runs on the CPU: no compiler here makes code for device 'gpu:0'" in log


def test_an_installed_compiler_comes_first(tmp_path: Path) -> None:
    """What the stub makes is no code that this driver takes, and the message says that, not that there is no compiler."""
    stub = stub_compiler.install(tmp_path / "ocloc", tmp_path / "log")
    out, _ = run(tmp_path, ZEFUSE_OCLOC=str(stub))
    assert out.startswith("NotFoundError") and "does not take the code that the installed compiler made" in out, out
    assert (tmp_path / "log").read_text()


SPILLING = """
import torch
from zefuse import backend
from zefuse.explaining.explanation import Explanation

graphs = []
x, w = torch.arange(4096.0).reshape(64, 64) / 4096, torch.eye(64)
with backend.observe(lambda _, graph: graphs.append(graph)):
    f = torch.compile(lambda x, w: (x @ w) @ w, backend="zefuse", options={"device": "gpu:0", "jit": "allow"})
    torch.testing.assert_close(f(x, w), x, rtol=0, atol=0)
for kernel in Explanation.of(graphs[0]).kernels:
    print(kernel["schedule"])
"""


@pytest.mark.parametrize("cache", ["cache", ""])
def test_a_spilling_kernel_is_rescheduled(tmp_path: Path, cache: str) -> None:
    """Plain torch.compile for a GPU: what the installed compiler spills gets smaller tiles, and explain says so."""
    log = tmp_path / "log"
    spilled = "kernel compiled SIMD16 allocated 128 regs and spilled around 54"
    stub = stub_compiler.install(tmp_path / "ocloc", log, f'[ "$(wc -l < {log})" -gt 1 ] || echo "{spilled}"')
    folder = str(tmp_path / cache) if cache else ""
    out, _ = run(tmp_path, script=SPILLING, ZEFUSE_OCLOC=str(stub), ZEFUSE_CACHE_DIR=folder)
    schedules = out.splitlines()
    assert len(schedules) == 2, out  # one kernel twice, asked about once
    assert schedules[0] == schedules[1] and "; rescheduled, since this spilled 54 on dg2-g11: " in schedules[0], out
    assert schedules[0].split(";")[0] not in schedules[0].split(";", 1)[1]
    compiled = log.read_text().splitlines()
    if cache:  # the code that the question was about is the code that is loaded
        assert len(compiled) == len(set(compiled))
        again, _ = run(tmp_path, script=SPILLING, ZEFUSE_OCLOC=str(stub), ZEFUSE_CACHE_DIR=folder)
        assert again == out and log.read_text().splitlines() == compiled


PRODUCTS = """
import torch
from zefuse import backend

sizes = [64, 80, 96, 112, 128]
x, weights = torch.eye(64), [torch.eye(n, m) for n, m in zip(sizes, sizes[1:])]

def f(x, *weights):
    for weight in weights:
        x = x @ weight
    return x

options = {"device": "gpu:0", "jit": "allow", "build_threads": 2}
torch.testing.assert_close(torch.compile(f, backend="zefuse", options=options)(x, *weights), f(x, *weights), rtol=0, atol=0)
"""


def test_spills_are_asked_about_in_parallel(tmp_path: Path) -> None:
    """Four products that differ, two at a time: each compilation waits for a second one, and none is made twice."""
    log = tmp_path / "log"
    # A line per start (a hash), a line per end. Alone, the first would wait forty seconds; its deadline is sixty.
    wait = f'n=0; while [ "$(grep -vc end {log})" -lt 2 ] && [ $n -lt 400 ]; do sleep 0.1; n=$((n + 1)); done'
    stub = stub_compiler.install(
        tmp_path / "ocloc", log, f"{wait}; [ $n -lt 400 ] || echo end-alone >> {log}; echo end >> {log}"
    )
    run(tmp_path, script=PRODUCTS, ZEFUSE_OCLOC=str(stub))
    lines = log.read_text().splitlines()
    started = [line for line in lines if not line.startswith("end")]
    assert len(started) == len(set(started)) == 4, lines
    running = [sum(1 if line in started else -1 for line in lines[: n + 1]) for n in range(len(lines))]
    assert "end-alone" not in lines and max(running) == 2, lines


def test_code_of_another_version_of_the_compiler_is_not_taken(tmp_path: Path) -> None:
    """As after `zefuse toolchain install`: first no compiler is there, then one, then another version of it. The driver takes
    what none of them makes, and what it made itself is found again, though it may compile nothing any more."""
    log = tmp_path / "log"
    out, _ = run(tmp_path, '{"jit": "allow"}')
    assert out.startswith("right ")
    compiled = []
    for version in ("99.1", "99.1", "99.2", "99.2", "99.1"):
        before = len(log.read_text().splitlines()) if log.exists() else 0
        stub = stub_compiler.install(tmp_path / "ocloc", log, version=version)
        out, _ = run(tmp_path, ZEFUSE_OCLOC=str(stub))
        assert out.startswith("right "), out
        compiled.append(len(log.read_text().splitlines()) - before)
    assert compiled[0] == compiled[2] > 0 and compiled[1] == compiled[3] == compiled[4] == 0, compiled
    reasons = zefuse.cache.why(str(tmp_path / "cache"))
    assert any("differs in compiler was ocloc 99.1, is ocloc 99.2" in reason for reason in reasons), reasons


PRODUCT = SCRIPT.replace("torch.softmax(x * y, -1) + x.sum(0)", "(x @ y.T) @ x")
AHEAD = """
import sys, torch, zefuse
program = torch.export.export(torch.nn.Softmax(-1), (torch.ones(6, 8),))
zefuse.compile_package(program, "ahead.zefuse", targets=["dg2-g11"])
"""

PLAN = """
import sys, torch, zefuse
from zefuse import backend
graphs = []
with backend.observe(lambda _, graph: graphs.append(graph)):
    torch.compile(torch.nn.Softmax(-1), backend="zefuse", options={"device": "gpu:0", "jit": "allow"})(torch.ones(6, 8))
open("plan", "wb").write(graphs[0].plan_bytes())
"""
LOADING = """
import os, sys, time, zefuse
from zefuse import _native
options = zefuse.Options.make({"device": "gpu:0"}).to_dict()
loading = _native.load().PlanLoading(open("plan", "rb").read(), options)
"""


def starts(tmp_path: Path, road: str) -> tuple[str, str, dict[str, str]]:
    """A program in which a compiler runs without an end, its argument and environment. ``running`` gets the compiler's id."""
    if road == "load":  # what the package holds, the driver does not take
        ready = stub_compiler.install(tmp_path / "ready", tmp_path / "log")
        run(tmp_path, script=AHEAD, ZEFUSE_OCLOC=str(ready), ZEFUSE_CACHE_DIR="")
    if road in ("plan", "discarded"):
        run(tmp_path, script=PLAN, ZEFUSE_CACHE_DIR="")
    stub = stub_compiler.install(tmp_path / "ocloc", tmp_path / "log", f"echo $$ >> {tmp_path}/running; exec sleep 600")
    load = 'import zefuse\nzefuse.load("ahead.zefuse", options={"device": "gpu:0"})'
    return {
        "torch.compile": (SCRIPT, "{}", {"ZEFUSE_OCLOC": str(stub)}),
        "spills": (PRODUCT, "{}", {"ZEFUSE_OCLOC": str(stub)}),
        "package": (AHEAD, "", {"ZEFUSE_OCLOC": str(stub)}),
        "load": (load, "", {"ZEFUSE_OCLOC": str(stub)}),
        "plan": (LOADING + "loading.take()", "", {"ZEFUSE_OCLOC": str(stub)}),
        "discarded": (LOADING, "", {"ZEFUSE_OCLOC": str(stub)}),
        "driver": (SCRIPT, '{"jit": "allow"}', {"ZEFUSE_CPU_DRIVER_GPU_FAULT": "jit-hang"}),
    }[road]


@pytest.mark.parametrize("road", ["torch.compile", "spills", "package", "load", "plan", "driver"])
def test_an_interrupt_ends_the_compiler(tmp_path: Path, road: str) -> None:
    """Python hears of a signal on its main thread alone, which must not sit in a wait meanwhile."""
    script, argument, environment = starts(tmp_path, road)
    running, temporary = tmp_path / "running", tmp_path / "temporary"
    temporary.mkdir()
    child = children.start(
        script,
        argument,
        cwd=tmp_path,
        env={**environment_of(tmp_path), **environment, "TMPDIR": str(temporary)},
    )
    try:
        # The deadline of a compiler, 60 s and of a driver's 120 s, counts from here on.
        for _ in range(2400):
            if running.exists() if road != "driver" else "compiles kernel" in child.output()[1]:
                break
            assert child.poll() is None, child.output()
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        child.wait(timeout=50)
    finally:
        for each in Path(f"/proc/{child.pid}/task").glob("*/children"):  # where it did not end them
            for number in each.read_text().split():
                os.kill(int(number), signal.SIGKILL)
        child.kill()
    said = "".join(child.output())
    assert "KeyboardInterrupt" in said and "did not end in" not in said, said
    assert not list(temporary.glob("zefuse-*")), "the kernel is left for a repetition that nobody asked for"
    for number in running.read_text().split() if running.exists() else ():
        assert not Path(f"/proc/{number}").exists(), "the compiler still runs"
    plans = [entry for entry in zefuse.cache.entries(str(tmp_path / "cache")) if entry["key"].get("kind") == "plan"]
    assert road != "spills" or not plans, "a plan is kept that was made without answers"


def test_a_plan_that_is_not_wanted_any_more_is_not_compiled(tmp_path: Path) -> None:
    script, argument, environment = starts(tmp_path, "discarded")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script += "while not os.path.exists('running'):\n    time.sleep(0.01)\ndel loading"
    run(tmp_path, argument, script, **environment, TMPDIR=str(temporary))
    assert not list(temporary.glob("zefuse-*")), "the compiler ran until its deadline, and a repetition is offered"


@pytest.mark.parametrize("options", [{"jit": "maybe"}, {"jit_timeout_s": 0}, {"device": "cpu,gpu:0"}])
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        zefuse.Options.make(options)
