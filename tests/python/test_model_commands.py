"""``zefuse bench``, ``run``, ``verify`` and ``explain`` of models and packages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import zefuse
from zefuse import cli, reports

MODEL = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval(), torch.randn(4, 8)


def other():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval(), torch.randn(4, 8)


class Raising(nn.Module):
    def forward(self, x):
        raise KeyError("no such layer")


def raising():
    return Raising(), torch.randn(4, 8)


def narrow():
    return nn.Linear(8, 8), torch.randn(4, 7)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("models")
    (place / "served.py").write_text(MODEL)
    names: dict[str, object] = {}
    exec(MODEL, names)
    model, x = names["make"]()  # type: ignore[operator]
    program = torch.export.export(model, (x,))
    zefuse.compile_package(program, place / "model.zefuse", targets=["avx2", "dg2-g11"])
    torch.save(x, place / "inputs.pt")
    torch.save(model(x).detach(), place / "expected.pt")
    path = list(sys.path)
    yield place
    sys.path[:] = path


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_run_a_package(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", folder / "model.zefuse", "--inputs", folder / "inputs.pt", "--output", tmp_path / "result.pt"]
    code, out, err = said(capsys, *words)
    assert code == 0, err
    assert "output: float32[4, 8], from " in out and "first call " in out
    assert torch.allclose(torch.load(tmp_path / "result.pt"), torch.load(folder / "expected.pt"), atol=1e-6)
    code, out, err = said(capsys, "run", folder / "model.zefuse", "--json")  # inputs drawn
    assert code == 0 and json.loads(out)["outputs"][0]["shape"] == [4, 8], err


def test_run_a_model_and_what_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "run", f"{folder}/served.py:make")
    assert code == 0 and "output: float32[4, 8]" in out, err
    assert "no file" in said(capsys, "run", folder / "model.zefuse", "--inputs", "none.pt")[2]
    assert (
        "no tensors of torch.save" in said(capsys, "run", folder / "model.zefuse", "--inputs", folder / "served.py")[2]
    )
    assert "text, not a package" in said(capsys, "run", folder / "served.py")[2]


def test_verify_a_package(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "verify", folder / "model.zefuse", "--against", f"{folder}/served.py:make")
    assert code == 0, out + err
    assert "ok: every hash is right" in out and "ok: it runs on cpu" in out and "computes what the model does" in out
    code, out, _ = said(capsys, "verify", folder / "model.zefuse", "--against", f"{folder}/served.py:other", "--json")
    data = json.loads(out)
    assert code == 1 and not data["ok"] and "differs from eager: output, element [" in data["steps"][-1][1]


def test_verify_a_damaged_package(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = bytearray((folder / "model.zefuse").read_bytes())
    contents[len(contents) // 2] ^= 1
    (tmp_path / "damaged.zefuse").write_bytes(contents)
    code, out, err = said(capsys, "verify", tmp_path / "damaged.zefuse")
    assert code == 1 and out == "" and "damaged.zefuse" in err


def test_bench(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "bench", f"{folder}/served.py:make", "--no-inductor", "--seconds", "0.05")
    assert code == 0 and "against eager" in out and "Compiling" in out, err
    code, out, _ = said(capsys, "bench", f"{folder}/served.py:make", "--no-inductor", "--seconds", "0.05", "--json")
    data = json.loads(out)
    assert set(data["medians"]) == {"eager", "zefuse"} and data["sentence"].startswith("Compiling")
    assert "name a model" in said(capsys, "bench")[2]


def test_explain_shows_every_target_of_a_package(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "explain", folder / "model.zefuse")
    assert code == 0, err
    out = " ".join(out.split())
    assert "plan for cpu" in out and "plan for dg2-g11" in out and "on dg2-g11" in out
    code, out, _ = said(capsys, "explain", folder / "model.zefuse", "--json")
    data = json.loads(out)
    assert [plan["plan_for"] for plan in data["plans"]] == ["cpu", "dg2-g11"] and data["device"] == "cpu"
    code, out, _ = said(capsys, "explain", folder / "model.zefuse", "--target", "dg2-g11", "--json")
    assert "plans" not in json.loads(out) and json.loads(out)["device"] == "dg2-g11"
    assert (
        "did you mean 'dg2-g11'? (it has: cpu, dg2-g11)"
        in said(capsys, "explain", folder / "model.zefuse", "--target", "dg2-g10")[2]
    )
    with pytest.raises(zefuse.ZefuseError):
        reports.plan(str(folder / "model.zefuse"), "none")


def test_explain_a_model_with_a_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "model.html"
    code, out, err = said(capsys, "explain", f"{folder}/served.py:make", "--no-grad", "--html", page)
    assert code == 0 and "1 library call" in out and page.read_text().startswith("<!DOCTYPE html>"), err
    assert "are for a model" in said(capsys, "explain", folder / "model.zefuse", "--html", page)[2]


def test_compile_and_cache_as_data(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = torch.export.export(torch.nn.GELU(), (torch.ones(3),))
    torch.export.save(program, tmp_path / "gelu.pt2")
    code, out, err = said(capsys, "compile", tmp_path / "gelu.pt2", "-o", tmp_path / "gelu.zefuse", "--json")
    data = json.loads(out)
    assert code == 0 and data["bytes"] == (tmp_path / "gelu.zefuse").stat().st_size and data["kernels"], err
    code, out, _ = said(capsys, "cache", "--dir", tmp_path, "stat", "--json")
    assert code == 0 and json.loads(out) == {"folder": str(tmp_path), "entries": 0, "bytes": 0, "kinds": {}}
    assert json.loads(said(capsys, "cache", "--dir", tmp_path, "why", "--json")[1]) == []


@pytest.mark.parametrize("command", ["check", "explain", "profile", "bench", "run"])
def test_a_model_that_raises_is_said_to_do_so(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In eager, so that it is no matter of compiling; before Dynamo prints its own stack."""
    for name, text in {
        "raising": "Raising fails without zefuse, in eager: KeyError",
        "narrow": "cannot be multiplied",
    }.items():
        code, out, err = said(capsys, command, f"{folder / 'served.py'}:{name}")
        assert code == 1 and out == "", out
        assert text in err and "It was called with a tensor float32[4, " in err and "Traceback" not in err


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_what_is_printed_fits(
    columns: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (["explain", f"{folder / 'served.py'}:make"], ["profile", f"{folder / 'served.py'}:make"]):
        code, out, err = said(capsys, *words)
        assert code == 0, err
        assert max(map(len, out.splitlines())) <= columns and "matmul" in out
