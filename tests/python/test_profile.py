"""``zefuse.profiling`` and ``zefuse profile``: the bottleneck in a sentence, and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from zefuse import cli, peaks, profiling
from zefuse.errors import InvalidArgumentError
from zefuse.profiling import Profile, StepProfile


def step(kind: str, seconds: float, moved: int, flops: int) -> StepProfile:
    return StepProfile("a step", kind, 1, seconds, moved, flops, "")


MACHINE = Profile("m", 1, 0.0, 0.01, bandwidth=1e10, arithmetic=1e11)


@pytest.mark.parametrize(
    ("of", "bound"),
    [
        (step("kernel", 1e-3, 9_000_000, 1_000_000), "memory"),
        (step("call", 1e-3, 1_000_000, 60_000_000), "arithmetic"),
        (step("kernel", 1e-3, 1_000, 1_000), "small steps"),
        (step("fallback", 1e-3, 9_000_000, 0), "fallbacks"),
    ],
)
def test_what_holds_a_step_back(of: StepProfile, bound: str) -> None:
    assert profiling._bound(of, MACHINE) == bound


def profiled(*steps: tuple[str, float], call: float = 0.01, compiling: float = 1.0) -> Profile:
    made = Profile("m", 2, compiling, call, 1e10, 1e11)
    made.steps = [
        StepProfile(f"step {n}", "kernel", 1, seconds, 10**6, 10**6, bound) for n, (bound, seconds) in enumerate(steps)
    ]
    return made


def test_the_sentence_names_the_largest_share() -> None:
    text = profiled(("memory", 0.006), ("arithmetic", 0.003)).sentence()
    assert text.startswith("60% of a call (10.00 ms, 2 threads) goes to memory: the machine's bandwidth is the limit")
    assert text.endswith("Compiling took as long as 100 calls.")
    assert "spent between steps" not in profiled(("small steps", 0.009)).sentence()
    assert profiled(("memory", 0.001)).sentence().startswith("90% of a call")
    assert "guards, Python" in profiled(("memory", 0.001)).sentence()
    assert "nothing to profile" in profiled().sentence()
    assert sum(profiled(("memory", 0.02)).shares().values()) == pytest.approx(1)  # timing steps takes time too


MODEL = """
import torch
from torch import nn


def make():
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)).eval(), torch.randn(32, 64)
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "bandwidth", lambda threads: 1e10)
    monkeypatch.setattr(peaks, "arithmetic", lambda: 1e11)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "profiled_model.py").write_text(MODEL)
    name, picture = f"{tmp_path}/profiled_model.py:make", tmp_path / "roofline.svg"
    assert cli.main(["profile", name, "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "zefuse profile: Sequential" in out and "of a call" in out and max(map(len, out.splitlines())) <= 80
    root = ElementTree.parse(picture).getroot()
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 2  # the product, the layer norm
    assert all(0 < float(c.get("cx", 0)) < 820 and 0 < float(c.get("cy", 0)) < 520 for c in circles)
    assert cli.main(["profile", name, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["sentence"] and {each["kind"] for each in data["steps"]} == {"kernel", "call"}


def test_what_cannot_be_profiled() -> None:
    assert "nothing to profile" in profiling.profile(lambda x: x, torch.ones(2)).sentence()
    with pytest.raises(InvalidArgumentError, match="do not fit"):
        profiling.profile(torch.nn.Linear(3, 3), (1, 2, 3))
