"""What torch's own tools show of zefuse: TORCH_LOGS, TORCH_TRACE, counters."""

from __future__ import annotations

import os
from pathlib import Path

import children
import pytest
import torch
from torch._dynamo.utils import counters

PROGRAM = """
import torch

def f(x):
    return torch.softmax(x * 2, -1) + torch.linalg.matrix_exp(x[:4, :4]).sum()

torch.compile(f, backend="zefuse")(torch.randn(8, 8))
"""


@pytest.mark.parametrize(("setting", "tables"), [("zefuse", False), ("+zefuse", True)])
def test_torch_logs(setting: str, tables: bool, tmp_path: Path) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TORCH_LOGS": setting},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "inference graph:" in done.stderr and "matrix_exp" in done.stderr
    assert ("fallbacks (run through ATen)" in done.stderr) == tables


def test_nothing_is_logged_unasked() -> None:
    done = children.run(PROGRAM)
    assert done.returncode == 0 and "graph" not in done.stderr


def test_artefacts_of_torch_trace(tmp_path: Path) -> None:
    import subprocess
    import sys

    environment = {**os.environ, "TORCH_TRACE": str(tmp_path / "trace"), "ZEFUSE_DUMP": str(tmp_path / "dump")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    text = "".join(file.read_text() for file in (tmp_path / "trace").rglob("*") if file.is_file())
    for name in ("zefuse_inference_graph", "zefuse_inference_explanation", "zefuse_inference_plan", "scheduled.mlir"):
        assert name in text, name
    assert "fallbacks (run through ATen)" in text and "func.func" in text


def test_counters_and_reset() -> None:
    counters.clear()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).exp().sum()

    compiled = torch.compile(f, backend="zefuse")
    compiled(torch.randn(4, 4))
    found = dict(counters["zefuse"])
    assert found["graphs"] == 1 and found["calls"] == 1 and found["kernels"] >= 1 and found["fallbacks"] == 0
    compiled(torch.randn(4, 4))
    assert counters["zefuse"]["graphs"] == 1
    torch.compiler.reset()
    assert torch.isfinite(compiled(torch.randn(4, 4)))
    assert counters["zefuse"]["graphs"] == 2
