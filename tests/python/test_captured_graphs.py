"""``zefuse.capture``: packages that hold the graphs of ``torch.compile`` itself, and so whatever it makes of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import children
import pytest
import torch
from torch import nn

import zefuse
from zefuse import backend
from zefuse.cli import main
from zefuse.errors import InvalidArgumentError, UnsupportedError


def counted(graphs: list[Any]) -> list[tuple[int, int]]:
    return [(graph.counters()["kernels_lowered"], graph.counters()["native_cache_misses"]) for graph in graphs]


def test_training_and_a_changed_input_and_graph_breaks(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            x = self.norm(self.layer(x))
            torch._dynamo.graph_break()
            seen.add_(x.detach().sum(0))
            return x.tanh() * torch.tensor([1.0, 2.0, 3.0, 4.0])

    def step(**options: Any) -> tuple[list[torch.Tensor], list[str]]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, seen, kinds = Counting(), torch.zeros(4), []
        compiled = torch.compile(model, backend="zefuse", options=options) if options else model
        with backend.observe(lambda kind, graph: (kinds.append(kind), graphs.append(graph))):
            for _ in range(2):
                compiled(torch.linspace(-1, 1, 12).reshape(3, 4), seen).square().sum().backward()
        return [seen, *model.buffers(), *(p.grad for p in model.parameters())], kinds

    graphs: list[Any] = []
    zefuse.compile_package(zefuse.capture(step, cache_dir=""), tmp_path / "m")
    graphs.clear()
    actual, kinds = step(package=str(tmp_path / "m"), package_only=True, cache_dir="")
    expected, _ = step()
    torch.testing.assert_close(actual, expected)
    assert kinds.count("forward") == kinds.count("backward") == 2, kinds
    assert counted(graphs) == [(0, 0)] * len(graphs)


def test_captured_graphs_of_any_size_beside_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One package for zefuse.load and for torch.compile; graphs that are the same are in it once."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.exp(), -1)

    def calls(**options: Any) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="zefuse", options={"cache_dir": "", **options})
        for rows in (3, 7, 11):  # automatic dynamic: fixed, then any size
            x = torch.randn(rows, 5)
            torch.testing.assert_close(compiled(x), f(x))

    captured = [*zefuse.capture(calls), *zefuse.capture(calls)]
    assert len(captured) == 4
    program = torch.export.export(nn.Tanh(), (torch.ones(5),))
    zefuse.compile_package([program, *captured], tmp_path / "m")
    with backend.observe(lambda _, graph: graphs.append(graph)):
        graphs: list[Any] = []
        calls(package=str(tmp_path / "m"), package_only=True)
    assert counted(graphs) == [(0, 0)] * 2
    torch.testing.assert_close(zefuse.load(tmp_path / "m")(torch.ones(5)), torch.ones(5).tanh())
    zefuse.compile_package([program, *captured], tmp_path / "again")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "again").read_bytes()
    assert main(["inspect", str(tmp_path / "m")]) == 0
    out = capsys.readouterr().out
    assert out.count("torch.compile's graph for cpu") == 2 and "inputs: f32[s0, 5]" in out


def test_captured_graphs_alone_are_no_program(tmp_path: Path) -> None:
    captured = zefuse.capture(torch.compile(torch.tanh, backend="zefuse"), torch.ones(3))
    zefuse.compile_package(captured, tmp_path / "m")
    with pytest.raises(UnsupportedError, match=r"holds graphs of torch\.compile only: attach it"):
        zefuse.load(tmp_path / "m")
    with pytest.raises(InvalidArgumentError, match=r"standalone is for programs of torch\.export"):
        zefuse.compile_package(captured, tmp_path / "m", standalone=True)
    with pytest.raises(InvalidArgumentError, match="nothing was compiled in this call"):
        zefuse.capture(torch.tanh, torch.ones(3))


def test_a_factory_of_captured_graphs_and_another_process(tmp_path: Path) -> None:
    (tmp_path / "factory.py").write_text("""
import torch, zefuse

def model():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()

def captured():
    with torch.no_grad():
        return zefuse.capture(torch.compile(model(), backend="zefuse"), torch.randn(4, 8))

def use():
    m = model()
    compiled = torch.compile(m, backend="zefuse", options={"package": "m.zefuse", "package_only": True, "cache_dir": ""})
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), m(x))
""")
    done = children.zefuse("compile", "factory:captured", "-o", "m.zefuse", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = children.run("import factory; factory.use()", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
