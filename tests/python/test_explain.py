"""zefuse.explain and the dump: what a user sees of a compilation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_differences
from torch import nn

import zefuse
from zefuse.testing import assert_compiled


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x * 2, -1)
    return torch.linalg.matrix_exp(y @ weight) + 1


@pytest.fixture
def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.eye(4) * 3, torch.eye(4)


def test_lists(inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    explanation = zefuse.explain(block, *inputs)
    kernel = next(kernel for kernel in explanation.kernels if any("mul" in op for op in kernel["ops"]))
    assert any(source.endswith(f"test_explain.py:{block.__code__.co_firstlineno + 1}") for source in kernel["sources"])
    assert kernel["bytes"] == 2 * 4 * 4 * 4  # read once, written once
    assert kernel["schedule"]
    assert [call["kind"] for call in explanation.calls] == ["matmul"]
    (fallback,) = explanation.fallbacks
    assert "matrix_exp" in fallback["op"]
    assert fallback["reason"]
    assert explanation.stages
    assert all(seconds >= 0 for seconds in explanation.stages.values())
    assert torch.allclose(explanation.result, block(*inputs))


def test_prints_and_is_plain_data(inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    explanation = zefuse.explain(block, *inputs)
    text = str(explanation)
    assert "fallbacks (run through ATen)" in text
    assert "matrix_exp" in text
    assert "\x1b" not in text  # no colours in plain text
    data = json.loads(json.dumps(explanation.to_dict()))
    assert data["fallbacks"] == explanation.fallbacks


def test_timed_calls(inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    explanation = zefuse.explain(block, *inputs, timed_calls=3)
    steps = [*explanation.kernels, *explanation.calls]
    assert steps and all(step["seconds"] > 0 and step["thread_seconds"] > 0 for step in steps)
    assert "time of steps" in str(explanation)
    assert explanation.graphs[0]["counters"]["calls"] == 4
    assert "time of steps" not in str(zefuse.explain(block, *inputs))


def test_graph_breaks_are_named() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    explanation = zefuse.explain(broken, torch.ones(3))
    assert sum(explanation.graph_breaks.values()) == 1
    assert len(explanation.graphs) == 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0] * 2


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.inner = nn.Linear(4, 4), Recurrent()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.linear(x)) + 1


@torch.compiler.disable
def disabled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Disabled(nn.Module):
    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


KEEPS_REASONS = torch_differences.here("reasons of skipped functions") == "kept"


def assert_nothing_compiled(model: Any, why: str) -> None:
    explanation = zefuse.explain(model, torch.ones(3, 2, 4))
    assert not explanation.graphs
    assert why in explanation.nothing_compiled
    text = " ".join(str(explanation).split())
    assert "nothing was compiled: " in text and why in text
    assert explanation.to_dict()["nothing_compiled"] == explanation.nothing_compiled
    with pytest.raises(AssertionError, match="nothing was compiled"):
        assert_compiled(model, [torch.ones(3, 2, 4)], graph_breaks=None, fallbacks=None)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Disabled(), "graph breaks"),
        (disabled, "graph breaks"),
        (lambda x: x, "runs no operator" if KEEPS_REASONS else "traced no function"),
    ],
    ids=["disabled module", "disabled function", "nothing to do"],
)
def test_nothing_compiled_is_said(model: Any, why: str) -> None:
    assert_nothing_compiled(model, why)


@pytest.fixture
def recurrent_layers_are_left() -> Iterator[None]:
    """To eager, as Dynamo does unless zefuse tells it otherwise: what it skips then has to be said."""
    from zefuse import backend  # noqa: F401  # which tells it when it is imported

    with torch._dynamo.config.patch(allow_rnn=False):
        yield


@pytest.mark.usefixtures("recurrent_layers_are_left")
def test_a_recurrent_layer_that_is_left_is_named() -> None:
    assert_nothing_compiled(nn.LSTM(4, 4), "graph breaks")


def test_an_lstm_is_compiled() -> None:
    explanation = zefuse.explain(Recurrent(), torch.ones(3, 2, 4), backward=False)
    assert explanation.graphs and not explanation.skipped and not explanation.graph_breaks
    assert any("lstm" in call["kind"] for call in explanation.calls), explanation


@pytest.mark.usefixtures("recurrent_layers_are_left")
def test_an_lstm_inside_a_module_is_named() -> None:
    if torch_differences.here("around an LSTM") == "skipped":
        assert_nothing_compiled(Recurrent(), "Dynamo skipped" if KEEPS_REASONS else "traced no function")
        return
    explanation = zefuse.explain(Recurrent(), torch.ones(3, 2, 4))
    assert explanation.graphs and not explanation.skipped
    assert any("LSTM" in reason or "RNN" in reason for reason in explanation.graph_breaks), explanation.graph_breaks


@pytest.mark.skipif(
    torch_differences.here("around an LSTM") != "skipped" or not KEEPS_REASONS,
    reason="this torch skips no function here, or does not say why",
)
@pytest.mark.usefixtures("recurrent_layers_are_left")
def test_skipped_functions_are_named() -> None:
    explanation = zefuse.explain(Recurrent(), torch.ones(3, 2, 4))
    ((function, reason),) = explanation.skipped.items()
    assert function.startswith("forward (") and "test_explain.py:" in function
    assert "LSTM" in reason and "allow_rnn=True" in reason and "Developer" not in reason
    assert "skipped by Dynamo" in str(explanation)

    explanation = zefuse.explain(Around(), torch.ones(3, 2, 4))
    assert explanation.graphs and not explanation.nothing_compiled
    assert [function.split(" ")[0] for function in explanation.skipped] == ["forward"]


def test_what_is_compiled_has_nothing_skipped() -> None:
    explanation = zefuse.explain(nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4))
    assert explanation.graphs and not explanation.skipped and not explanation.nothing_compiled
    assert_compiled(lambda x: x, [torch.ones(2)], kernels=0)


def test_leaves_the_callers_compilation_alone() -> None:
    compiled = torch.compile(torch.nn.Sigmoid(), backend="zefuse")
    x = torch.randn(3)
    compiled(x)
    zefuse.explain(compiled, x)
    seen: list[str] = []
    from zefuse import backend

    with backend.observe(lambda kind, graph: seen.append(kind)):
        compiled(x)
    assert seen == []


def test_training_has_forward_and_backward() -> None:
    from zefuse import backend

    explanation = zefuse.Explanation()
    with backend.observe(explanation.add):
        torch.compile(nn.Linear(3, 3), backend="zefuse")(torch.randn(2, 3)).sum().backward()
    assert [graph["kind"] for graph in explanation.graphs] == ["forward", "backward"]


def test_dump(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)

    torch.compile(function, backend="zefuse", options={"dump_dir": str(tmp_path)})(torch.randn(4, 8))
    names = " ".join(file.name for file in tmp_path.rglob("*") if file.is_file())
    for suffix in (".mlir", ".ll", ".spvasm", ".s", "plan.json"):
        assert suffix in names, f"no {suffix} among {names}"
    (plan,) = tmp_path.rglob("plan.json")
    assert json.loads(plan.read_text())["steps"]


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_each_kernel_has_the_path_of_its_module() -> None:
    explanation = zefuse.explain(Layered(), torch.randn(4, 8), backward=False)
    assert [kernel["modules"] for kernel in explanation.kernels] == [[f"layers.{n}.0"] for n in range(3)]
    assert [call["modules"] for call in explanation.calls] == [[f"layers.{n}.1"] for n in range(3)]
    assert "layers.*.0" in str(explanation)  # one row for all
    plain = zefuse.explain(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), torch.ones(2, 4))  # no line of the user's
    assert plain.kernels[0]["modules"] == ["1"] and plain.calls[0]["modules"] == ["0"]


def test_the_backward_is_shown_and_nothing_is_left_of_it() -> None:
    model = Layered()
    explanation = zefuse.explain(model, torch.randn(4, 8))
    assert [graph["kind"] for graph in explanation.graphs] == ["forward", "backward"]
    assert any(kernel["graph"] == 1 and "layers.0.0" in kernel["modules"] for kernel in explanation.kernels)
    assert all(parameter.grad is None for parameter in model.parameters())
    explanation.result.sum().backward()  # the caller's own
    assert model.layers[0][1].weight.grad is not None
    assert [graph["kind"] for graph in zefuse.explain(model, torch.randn(4, 8), backward=False).graphs] == ["forward"]


def test_a_graph_break_has_the_users_line() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("here")
        return y * 2

    explanation = zefuse.explain(broken, torch.ones(3))
    (entry,) = explanation.breaks
    assert entry["source"] == f"{__file__}:{broken.__code__.co_firstlineno + 2}" and entry["line"] == 'print("here")'
    assert "broken at" in str(explanation) and "print" in str(explanation)


def test_what_is_compiled_again_names_the_guard_and_its_values() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + inner(x[:2])[0]

    @torch._dynamo.disable(recursive=False)
    def inner(x: torch.Tensor) -> torch.Tensor:
        return deep(x)

    def deep(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 3

    explanation = zefuse.explain(twice, torch.ones(3, 4))
    text = json.dumps(explanation.recompiles)
    assert explanation.recompiles and "deep" in text and "3" in text and "2" in text
    assert "compiled again" in str(explanation)


def test_a_target_that_is_not_here() -> None:
    with torch.no_grad():
        explanation = zefuse.explain(Layered(), torch.randn(4, 8), target="bmg-g21")
    assert explanation.device == "bmg-g21" and explanation.kernels and explanation.result.shape == (4, 8)
    assert all(kernel["target"] == "bmg-g21" for kernel in explanation.kernels), explanation.kernels
    with pytest.raises(zefuse.errors.NotFoundError, match="did you mean 'bmg-g21'"):
        zefuse.explain(Layered(), torch.randn(4, 8), target="bmg-g22")
    with pytest.raises(zefuse.errors.InvalidArgumentError, match="is a processor"):
        zefuse.explain(Layered(), torch.randn(4, 8), target="avx2")


def test_shares_of_arithmetic_and_the_cache() -> None:
    with torch.no_grad():
        explanation = zefuse.explain(nn.Linear(64, 64), torch.randn(32, 64))
        assert explanation.arithmetic() == {"library calls": 1.0} and explanation.calls[0]["flops"] == 2 * 32 * 64 * 64
        mixed = zefuse.explain(lambda x: (x @ x).exp(), torch.randn(8, 8))
    assert mixed.kernels[0]["flops"] == 64 and mixed.arithmetic()["kernels"] == pytest.approx(64 / (64 + 1024))
    assert "arithmetic: " in str(mixed)
    assert mixed.cache["hits"] + mixed.cache["misses"] == 1
