"""``torch.compile`` with an attached package: what the package holds is not compiled, and what it does not hold is explained."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest
import stub_compiler
import torch
from op_case import Calls
from torch import nn

import zefuse
from zefuse import backend
from zefuse.errors import NotFoundError, OptionError, ZefuseError


class Model(nn.Module):
    """Inputs, parameters, a buffer and a constant, read in another order than they are declared."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.embedding = nn.Embedding(20, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("scale", torch.randn(16))

    def forward(self, bias: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.norm(self.layer(self.embedding(ids)) * self.scale)
        return {"probabilities": torch.softmax(x + bias, -1), "sum": x.sum() + torch.tensor([1.0, 2.0]).sum()}


INPUTS = (torch.linspace(-1, 1, 16), torch.tensor([[1, 2, 3], [4, 5, 19]]))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "model.zefuse"
    with torch.no_grad():
        zefuse.compile_package(torch.export.export(Model().eval(), INPUTS), path)
    return path


def run(model: Callable[..., Any], inputs: Any, dynamic: bool | None = None, **options: Any) -> tuple[Any, list[Any]]:
    """Result and graphs of one call, with an empty cache."""
    graphs: list[Any] = []
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        compiled = torch.compile(model, backend="zefuse", dynamic=dynamic, options={"cache_dir": "", **options})
        return compiled(*inputs), graphs


def agree(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name])


def test_nothing_is_compiled_and_the_weights_are_the_models(package: Path) -> None:
    model = Model().eval()  # not the weights that were packed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual, graphs = run(model, INPUTS, package=str(package), package_only=True)
    with torch.no_grad():
        agree(actual, model(*INPUTS))
    (graph,) = graphs
    counters, report = graph.counters(), graph.report()
    assert (counters["kernels_lowered"], counters["native_cache_misses"], counters["native_cache_hits"]) == (0, 0, 0)
    assert list(report["stages"]) == ["import", "package"] and report["package"] == "taken from it"
    torch._dynamo.reset()
    _, (graph,) = run(model, INPUTS)
    assert graph.counters()["kernels_lowered"] > 0 and graph.counters()["native_cache_misses"] > 0


def test_another_process_with_the_environment(package: Path, tmp_path: Path) -> None:
    code = f"""
import sys, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_attached_package import INPUTS, Model, agree, run
model = Model().eval()
actual, (graph,) = run(model, INPUTS)
with torch.no_grad():
    agree(actual, model(*INPUTS))
assert graph.counters()["kernels_lowered"] == graph.counters()["native_cache_misses"] == 0
"""
    done = children.run(code, cwd=tmp_path, env={**os.environ, "ZEFUSE_PACKAGE": str(package)})
    assert done.returncode == 0, done.stderr


def test_a_graph_that_it_does_not_hold_says_why(package: Path) -> None:
    longer = (INPUTS[0], torch.tensor([[1, 2, 3, 4]]))
    model = Model().eval()
    with pytest.warns(
        UserWarning, match=r"no plan for this graph \(it has 1\).*the package's: i64\[2, 3\], the graph's: i64\[1, 4\]"
    ):
        actual, (graph,) = run(model, longer, package=str(package))
    assert graph.counters()["kernels_lowered"] > 0 and "no plan" in graph.report()["package"]
    with torch.no_grad():
        agree(actual, model(*longer))
    torch._dynamo.reset()
    with pytest.raises(NotFoundError, match="package_only is set"):
        run(model, longer, package=str(package), package_only=True)
    torch._dynamo.reset()
    with pytest.raises(NotFoundError, match=r"differs in fuse \(the package's: yes, the graph's: no\) "):
        run(model, INPUTS, package=str(package), package_only=True, fuse=False)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda x: x.tanh() * 3.0, "what its operations do"),
        (lambda x: x.tanh() * 2.0 + x.sum(), "operations"),
        (lambda x: (x.tanh() * 2.0).double(), "output 0"),
    ],
)
def test_another_function_is_never_taken(
    other: Callable[[torch.Tensor], torch.Tensor], why: str, tmp_path: Path
) -> None:
    x = torch.linspace(-2, 2, 30).reshape(5, 6)
    program = torch.export.export(Calls(lambda x: x.tanh() * 2.0), (x,))
    zefuse.compile_package(program, tmp_path / "m")
    actual, _ = run(lambda x: x.tanh() * 2.0, (x,), package=str(tmp_path / "m"), package_only=True)
    torch.testing.assert_close(actual, x.tanh() * 2.0)
    with pytest.raises(NotFoundError, match=f"the nearest differs in {why}"):
        run(other, (x,), package=str(tmp_path / "m"), package_only=True)
    with pytest.raises(NotFoundError, match="with strides"):
        run(lambda x: x.tanh() * 2.0, (x.t().contiguous().t(),), package=str(tmp_path / "m"), package_only=True)


def test_operands_are_not_exchanged(tmp_path: Path) -> None:
    class Divide(nn.Module):
        def forward(self, b: torch.Tensor, a: torch.Tensor) -> torch.Tensor:  # Dynamo's order is that of use
            return a.exp() / b

    a, b = torch.rand(4, 4) + 1, torch.rand(4, 4) + 2
    zefuse.compile_package(torch.export.export(Divide(), (b, a)), tmp_path / "m")
    for function in (lambda a, b: a.exp() / b, lambda b, a: a.exp() / b, lambda a, b: b.exp() / a):
        torch._dynamo.reset()
        actual, _ = run(function, (a, b), package=str(tmp_path / "m"), package_only=True)
        torch.testing.assert_close(actual, function(a, b))


def test_any_size(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x @ y, -1) * x.shape[0] + y.shape[1]

    rows, columns = torch.export.Dim("rows", min=2, max=500), torch.export.Dim("columns", min=2, max=500)
    x, y = torch.randn(5, 8), torch.randn(8, 7)
    program = torch.export.export(Two(), (x, y), dynamic_shapes=({0: rows}, {1: columns}))
    zefuse.compile_package(program, tmp_path / "m")
    model = Two()
    compiled = torch.compile(
        model, backend="zefuse", options={"cache_dir": "", "package": tmp_path / "m", "package_only": True}
    )
    graphs: list[Any] = []
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        for shape in ((5, 7), (2, 3), (33, 9)):
            x, y = torch.randn(shape[0], 8), torch.randn(8, shape[1])
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 1)
            torch.testing.assert_close(compiled(x, y), model(x, y))
    assert len(graphs) == 1 and graphs[0].counters()["kernels_lowered"] == 0
    torch._dynamo.reset()
    with pytest.raises(NotFoundError, match="mark_dynamic"):
        run(
            model, (torch.randn(5, 8), torch.randn(8, 7)), package=str(tmp_path / "m"), package_only=True, dynamic=False
        )


def test_views_of_inputs(tmp_path: Path) -> None:
    """An output that is a view of an input is one of the right input when those are exchanged."""

    class Both(nn.Module):
        def forward(self, b: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return b.t(), (a + b.exp()) * 2

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    zefuse.compile_package(torch.export.export(Both(), (b, a)), tmp_path / "m")
    (view, twice), _ = run(Both(), (b, a), package=str(tmp_path / "m"), package_only=True)
    torch.testing.assert_close((view, twice), Both()(b, a))
    assert view.data_ptr() == b.data_ptr()


def test_a_graph_that_changes_an_input_is_not_one_that_returns_the_value(tmp_path: Path) -> None:
    """torch.export makes a changed input one more result; torch.compile has it changed by the graph itself."""

    class Changing(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return y * 2

    class Returning(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return y * 2, x + 1

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for made_of in (Changing(), Returning()):
        zefuse.compile_package(torch.export.export(made_of, (x.clone(), y)), tmp_path / "m")
        with pytest.raises(NotFoundError, match="output"):
            run(Changing(), (x.clone(), y), package=str(tmp_path / "m"), package_only=True)
        torch._dynamo.reset()
        ours = x.clone()
        with pytest.warns(UserWarning, match="a graph is compiled"):
            result, _ = run(Changing(), (ours, y), package=str(tmp_path / "m"))
        torch.testing.assert_close((ours, result), (x + 1, y * 2))
        torch._dynamo.reset()


def test_code_for_another_level_is_refused_when_nothing_may_be_compiled(tmp_path: Path) -> None:
    x = torch.randn(4, 6)
    zefuse.compile_package(torch.export.export(nn.GELU(), (x,)), tmp_path / "m", targets=["amx"])
    code = f"""
import torch, zefuse
x = torch.randn(4, 6)
options = {{"package": {str(tmp_path / "m")!r}, "cache_dir": ""}}
try:
    torch.compile(torch.nn.GELU(), backend="zefuse", options={{**options, "package_only": True}})(x)
except zefuse.ZefuseError as error:
    assert "no native code for kernel" in str(error) and "--targets" in str(error), error
else:
    raise AssertionError("compiled")
torch._dynamo.reset()
torch.testing.assert_close(torch.compile(torch.nn.GELU(), backend="zefuse", options=options)(x), torch.nn.GELU()(x))
"""
    done = children.run(code, env={**os.environ, "ZEFUSE_CPU_ISA": "avx2"})
    assert done.returncode == 0, done.stderr


def test_a_wrong_package_is_an_error(package: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="it needs package"):
        run(Model().eval(), INPUTS, package_only=True)
    with pytest.raises(NotFoundError, match="no file"):
        run(Model().eval(), INPUTS, package=str(tmp_path / "nowhere"))
    old = Path(__file__).resolve().parents[1] / "packages" / "format_1.zefuse"
    with pytest.warns(UserWarning, match="says of no plan which graph"):
        run(Model().eval(), INPUTS, package=str(old))
    torch._dynamo.reset()
    package.write_bytes(package.read_bytes()[:-100])
    with pytest.raises(ZefuseError, match=r"model\.zefuse"):
        run(Model().eval(), INPUTS, package=str(package))


def test_the_gpu_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for a product runs on gpu:0 (the posing driver compiles its SPIR-V); the CPU's is left for the CPU."""
    monkeypatch.setenv("ZEFUSE_OCLOC", str(stub_compiler.install(tmp_path / "ocloc", tmp_path / "log")))
    model = Model().eval()
    options = {"cache_dir": ""}
    with torch.no_grad():
        program = torch.export.export(model, INPUTS)
    zefuse.compile_package(program, tmp_path / "m", targets=["cpu", "dg2-g11"], options=options)
    for device in ("cpu", "gpu:0"):
        torch._dynamo.reset()
        actual, (graph,) = run(model, INPUTS, package=str(tmp_path / "m"), device=device)
        with torch.no_grad():
            agree(actual, model(*INPUTS))
        assert graph.counters()["kernels_lowered"] == 0, graph.report()["package"]
        assert {kernel["target"] for kernel in graph.report()["kernels"]} == {"cpu" if device == "cpu" else "dg2-g11"}
