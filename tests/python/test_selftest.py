"""``zefuse selftest``: what it says of parts that pass, are wrong, fail, hang and crash. Its own parts run on the CPU and on the
CPU posing as a GPU; for the rest a stand-in of the child has parts that behave as they are asked to."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from zefuse import doctor, selftest
from zefuse.cli import main
from zefuse.errors import InvalidArgumentError
from zefuse.selftest import parts, worker

# The real child, but for torch, which takes longer to import than all of this, and for what its parts do.
STAND_IN = """
import os, sys, time, types
from zefuse.selftest import worker

def crash():
    os.kill(os.getpid(), 11)

def hang():
    time.sleep(1000)

def fail():
    raise RuntimeError("lost the device\\nand more")

def exit():
    sys.stderr.write("a library has had enough\\n")
    sys.stderr.flush()
    os._exit(3)

def good():
    return {"result": "pass"}

here = {"device": "cpu", "name": "a processor"}
sys.modules["torch"] = types.SimpleNamespace(__version__="2", get_num_threads=lambda: 1)
sys.modules["zefuse.targets"] = types.SimpleNamespace(devices=lambda: [here])
sys.modules["zefuse.selftest.parts"] = types.SimpleNamespace(PARTS=globals())
worker.check = lambda part, options: part()
worker.main(sys.argv[1], sys.argv[3:], int(sys.argv[2]))
"""


def test_the_names_are_those_of_the_parts() -> None:
    assert tuple(parts.PARTS) == selftest.NAMES and len(parts.KERNELS) == 10 and len(parts.MODELS) == 2


@pytest.mark.parametrize("name", ["matmul", "sort", "transformer"])
def test_parts_on_a_gpu(name: str) -> None:
    found = worker.check(parts.PARTS[name], {"device": "gpu:0", "cache_dir": ""})
    assert found["result"] == "pass", found


def test_a_part_that_hangs_or_crashes_loses_no_other() -> None:
    names = ["crash", "fail", "exit", "hang", "good"]
    seen: list[str] = []
    result = selftest.run(
        "cpu", 5.0, lambda part: seen.append(part["name"]), names, child=(sys.executable, "-c", STAND_IN)
    )
    assert seen == names and not result.good() and result.passed() == 1 and not result.message
    assert result.torch == "2" and result.device == {"device": "cpu", "name": "a processor"}
    found = {part["name"]: (part["result"], part.get("message", "")) for part in result.parts}
    assert found["good"] == ("pass", "")
    assert found["crash"] == ("crashes", "SIGSEGV")
    assert found["fail"] == ("error", "RuntimeError: lost the device")
    assert found["exit"] == ("crashes", "exit code 3: a library has had enough")
    assert found["hang"][0] == "hangs" and found["hang"][1].startswith("no answer within ")


@pytest.mark.parametrize(
    ("deadline", "program", "message"),
    [
        (60.0, "import os; os.kill(os.getpid(), 11)", "the child that imports torch and zefuse ended with SIGSEGV"),
        (60.0, "raise SystemExit('no torch here')", "ended with exit code 1: no torch here"),
        (2.0, "import time; time.sleep(1000)", "the child that imports torch and zefuse gave no answer within"),
    ],
)
def test_a_child_that_does_not_start(deadline: float, program: str, message: str) -> None:
    result = selftest.run("cpu", child=(sys.executable, "-c", program), start_s=deadline)
    assert message in result.message and not result.parts and not result.good()


def wrong(ours: list[Any], eager: list[Any]) -> bool:
    error, allowed = worker.compare(ours, eager, [one.double() if one.is_floating_point() else one for one in eager])
    return error > allowed


def test_what_is_wrong() -> None:
    x = torch.linspace(-3, 3, 100)
    assert not wrong([x], [x]) and not wrong([x * (1 + 1e-6)], [x])
    assert wrong([x + 1e-3], [x]) and wrong([x.clone().fill_(float("nan"))], [x])
    assert wrong([x[:50]], [x]) and wrong([x.double()], [x]) and wrong([x, x], [x])
    index = torch.arange(5)
    assert not wrong([index], [index]) and wrong([index + 1], [index])
    assert wrong([x, x + 1e-3], [x, x]), "each result counts"


def test_a_wrong_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def off(function: Any, inputs: Any) -> list[Any]:
        calls.append(function)
        return [torch.ones(3) * (1.001 if len(calls) == 3 else 1.0)]  # f64, eager, then the compiled one

    monkeypatch.setattr(worker, "run", off)
    found = worker.check(lambda: (lambda x: x, (torch.ones(3),)), {})
    assert found["result"] == "wrong" and "differs from eager by 1.0e-03 of the largest value" in found["message"]


def test_the_table() -> None:
    part = {"name": "softmax", "result": "pass", "compile_ms": 412.3, "run_ms": 0.3512, "error": 2.4e-7, "message": ""}
    assert selftest.row(part, 80) == "softmax          pass           412    0.351    2e-07"
    lines = selftest.row({"name": "sort", "result": "error", "message": "word " * 30}, 60).splitlines()
    assert lines[0] == "sort             error" and len(lines) > 2 and max(map(len, lines)) <= 60


def test_the_command_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it, each part one plan."""
    monkeypatch.chdir(tmp_path)
    assert main(["selftest"]) == 0
    printed = capsys.readouterr().out
    assert "12 of 12 parts passed" in printed and printed.count(" pass ") == 12, printed
    assert "zefuse-selftest-cpu.json" in printed
    report = json.loads((tmp_path / "zefuse-selftest-cpu.json").read_text())
    assert report["verdict"] == "pass" and [part["name"] for part in report["parts"]] == list(selftest.NAMES)
    for part in report["parts"]:
        assert part["compile_ms"] > 0 and part["run_ms"] > 0 and part["error"] < 1e-4, part
        assert part["kernels"] + part["calls"] > 0 and part["fallbacks"] == 0, part
    assert report["device"]["device"] == "cpu" and report["torch"] == torch.__version__
    assert {section["key"] for section in report["doctor"]["sections"]} >= {"system", "build", "devices"}
    assert str(Path.home()) not in json.dumps(report) or len(str(Path.home())) < 2


def test_the_command_as_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Once for all three, which differ in what they write.
    monkeypatch.setattr(selftest, "run", cache(selftest.run))
    monkeypatch.setattr(doctor, "examine", cache(doctor.examine))
    assert main(["selftest", "--device", "gpu:7", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "fail" and found["message"] == "this machine has no device gpu:7" and found["doctor"]
    assert list(tmp_path.iterdir()) == []
    assert main(["selftest", "--device", "gpu:7", "--json", "--report", "no/report.json"]) == 1
    assert "'no/report.json': no such file or folder" in capsys.readouterr().err
    assert main(["selftest", "--device", "gpu:7", "--json", "--report", "report.json"]) == 1
    assert json.loads(capsys.readouterr().out)["asked"] == json.loads((tmp_path / "report.json").read_text())["asked"]


def test_a_kernel_that_hangs_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The posing GPU's fault: zefuse's own deadline of a step ends it before the part's."""
    monkeypatch.setenv("ZEFUSE_CPU_DRIVER_GPU_FAULT", "hang:1")
    result = selftest.run("gpu:0", 15.0, names=["softmax"])
    (part,) = result.parts
    assert part["result"] == "error" and "DeadlineError" in part["message"], part


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "no" / "report.json"
    assert main(["selftest", "--device", "gpu:7", "--report", str(report)]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "No part was tested: this machine has no device gpu:7" in printed and "0 of 12 parts passed" in printed
    assert "cannot be written (No such file or directory)" in printed
    with pytest.raises(InvalidArgumentError, match='use "cpu", or "gpu:N"'):
        selftest.run("gpu0")
