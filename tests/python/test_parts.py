"""What no plan can hold: it runs in eager between compiled parts, with eager's results, and explain says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zefuse import backend
from zefuse.backend import observe
from zefuse.errors import FallbackError, UnsupportedError
from zefuse.explaining.explanation import Explanation, explain
from zefuse.graphs import parts
from zefuse.packages.aot import compile_package
from zefuse.testing import relative_error

WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def conditional(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x * 3,)).exp()


def loop(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops import while_loop

    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x + 1))[1].exp()


def flexible_attention(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    q = (x @ WEIGHT).reshape(1, 2, -1, 4)
    return flex_attention(q, q + 1, q * 2, score_mod=lambda score, b, h, i, j: score * 0.5 + i) * 2


def quantised(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y = torch.quantize_per_tensor(x * 2, 0.1, 0, dtype)
    if dtype != torch.qint32:
        y = y.relu()
    return y.reshape(8, 6).transpose(0, 1).dequantize() * 2


# name -> function of a [6, 8] tensor, an operator that stays outside
CASES: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "nonzero": (lambda x: ((x * 2 > 0).nonzero().float() * 2).exp(), "aten::nonzero"),
    "boolean index": (lambda x: (x[x * 2 > 0] * 2).exp(), "aten::index.Tensor"),
    "unique": (lambda x: torch.unique((x * 2).int()) + 1, "aten::_unique2"),
    "item": (lambda x: torch.ones(int((x.abs() * 2).sum().int().item())) * 2, "aten::_local_scalar_dense"),
    "repeats": (lambda x: torch.repeat_interleave(x + 1, torch.tensor([1, 2, 1, 0, 3, 1]), 0) * 2, "aten::repeat_interleave.Tensor"),
    "spectrum": (lambda x: torch.fft.irfft(torch.fft.rfft(x * 2) * 3).exp(), "aten::_fft_r2c"),
    "complex without NaN": (lambda x: torch.nan_to_num(torch.complex((x - 1).log(), x * 2)).real.exp(), "aten::nan_to_num"),
    "uint16": (lambda x: (x.abs() * 9).to(torch.uint16).to(torch.float32) * 2, "aten::_to_copy"),
    "float8": (lambda x: (x * 2).to(torch.float8_e4m3fn).to(torch.float32) + 1, "aten::_to_copy"),
    "cond": (conditional, "cond"),
    "while": (loop, "while_loop"),
    "flex_attention": (flexible_attention, "flex_attention"),
}  # fmt: skip


def explained(function: Callable[..., Any], *inputs: Any, **keywords: Any) -> tuple[Any, Explanation]:
    explanation = Explanation()
    with (
        observe(explanation.add),
        torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True),
    ):
        compiled = torch.compile(function, backend="zefuse", fullgraph=True, **keywords)
        return compiled(*inputs), explanation


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_runs_between_compiled_parts(name: str, dynamic: bool) -> None:
    function, outside = CASES[name]
    x = torch.randn(6, 8)
    actual, explanation = explained(function, x, dynamic=dynamic)
    assert relative_error(actual, function(x)) < 1e-5
    assert outside in {entry["op"] for entry in explanation.fallbacks if entry["reason"].startswith("in eager: ")}
    assert len(explanation.graphs) == 1
    assert explanation.kernels


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
def test_quantised_tensors(dtype: torch.dtype) -> None:
    """Fake tensors hide that they are quantised, and say other strides than they have. (Dynamo takes them with static sizes.)"""
    x = torch.randn(6, 8)
    for function in (
        lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, dtype).dequantize() + 1,
        lambda x: quantised(x, dtype),
        lambda x: (torch.quantize_per_tensor(x * 2, 0.1, 0, dtype), x.sin()),
    ):
        expected = function(x)
        actual, explanation = explained(function, x)
        if isinstance(actual, tuple):
            assert actual[0].dtype == dtype
            actual, expected = [(first.dequantize(), second) for first, second in (actual, expected)]
        assert relative_error(actual, expected) < 1e-5
        assert any("quantised" in entry["reason"] for entry in explanation.fallbacks)
        assert explanation.kernels


@torch.library.custom_op("parts::columns_first", mutates_args=())
def columns_first(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT.to(torch.complex64)


@columns_first.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape, dtype=torch.complex64)


def test_strides_that_fake_tensors_hide_with_symbolic_sizes() -> None:
    """As those of a Fourier transform in some torch versions."""
    x = torch.randn(6, 8)
    for function in (
        lambda x: columns_first(x).real.exp(),
        lambda x: columns_first(x[:, : x.shape[0] // 2].repeat(1, x.shape[1])).imag + 1,
        lambda x: (columns_first(x) * 2, x.sin()),
    ):
        compiled = torch.compile(function, backend="zefuse", dynamic=True)
        for size in (6, 9):
            x = torch.randn(size, 8)
            for actual, expected in zip(compiled(x), function(x), strict=True):
                torch.testing.assert_close(actual, expected)


columns_first.register_autograd(lambda _, gradient: gradient.real)


@pytest.mark.parametrize("dynamic", [False, True])
def test_strides_that_fake_tensors_hide_are_saved_as_traced(dynamic: bool) -> None:
    """The backward was traced with them; what the caller gets lies as in eager."""
    for function in (
        lambda x: (columns_first(x * 2).abs(),),
        lambda x: (torch.view_as_real(columns_first(x)).sin().sum(),),
        lambda x: (lambda spectrum: (spectrum, spectrum.abs()))(columns_first(x * 2)),
    ):
        compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
        for size in (6, 9) if dynamic else (6,):
            ours = torch.randn(size, 8, requires_grad=True)
            theirs = ours.detach().clone().requires_grad_()
            made, expected = compiled(ours), function(theirs)
            assert made[0].dtype != torch.complex64 or made[0].stride() == expected[0].stride()
            made[-1].sum().backward()
            expected[-1].sum().backward()
            torch.testing.assert_close((*made, ours.grad), (*expected, theirs.grad))


def test_sizes_that_depend_on_data_may_change() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x[x > 0] * 2).exp().sum() + x.shape[0]

    seen: list[str] = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), observe(lambda kind, _: seen.append(kind)):
        compiled = torch.compile(function, backend="zefuse", fullgraph=True, dynamic=True)
        for size in (5, 9, 40):
            x = torch.randn(size, 3)
            assert relative_error(compiled(x), function(x)) < 1e-5
    assert seen == ["inference"]


def test_checkpoint_with_dropout_trains() -> None:
    """Recomputing saves and restores the state of the random number generator, through higher-order operators."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: F.dropout(F.gelu(y @ WEIGHT), 0.5), x, use_reentrant=False) * 2

    results = []
    for run in (function, torch.compile(function, backend="zefuse")):
        x = torch.ones(6, 8, requires_grad=True)
        torch.manual_seed(3)
        y = run(x)
        y.sum().backward()
        results.append((y, x.grad))
    assert relative_error(results[1], results[0]) < 1e-5


def test_complex_trains() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x * 2).abs().square().mean()

    gradients = []
    for run in (function, torch.compile(function, backend="zefuse")):
        x = torch.linspace(-1, 1, 48).reshape(6, 8).requires_grad_()
        run(x).backward()
        gradients.append(x.grad)
    assert relative_error(gradients[1], gradients[0]) < 1e-5


def test_complex_inputs_that_nothing_reads_pass_through() -> None:
    """A graph without an operator too: no part of it is compiled."""
    z, x = torch.randn(3, dtype=torch.complex64), torch.ones(3)
    for function in (lambda z, x: (z.view(3),), lambda z, x: (x + 1,), lambda z, x: (x + 1, z.view(3))):
        graph = torch.fx.symbolic_trace(function)  # Dynamo would leave out what nothing reads
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = backend.zefuse(graph, [z, x])(z, x)
        assert all(torch.equal(ours, eagers) for ours, eagers in zip(results, function(z, x), strict=True))


def test_draws_keep_their_order_across_parts() -> None:
    def function(x: torch.Tensor) -> Any:
        first = F.dropout(x * 2, 0.5)
        noise = torch.rand(4, dtype=torch.complex64).real  # outside
        last = F.dropout(x * 3, 0.5)
        return first, noise + 1, last

    x = torch.ones(6, 8)
    torch.manual_seed(5)
    expected = function(x)
    torch.manual_seed(5)
    actual, explanation = explained(function, x)
    assert relative_error(actual, expected) == 0
    assert any(entry["reason"].startswith("in eager: ") for entry in explanation.fallbacks)


def test_a_compilation_that_fails_leaves_the_model_running(monkeypatch: pytest.MonkeyPatch) -> None:
    from zefuse import _native

    def compile(*_: Any) -> Any:
        raise UnsupportedError("cannot compile the graph: kernel foo: no idea")

    monkeypatch.setattr(_native.load(), "compile", compile)
    x = torch.randn(3)
    with pytest.warns(UserWarning, match="a graph runs in eager: cannot compile the graph: kernel foo"):
        actual, explanation = explained(lambda x: x * 2 + 1, x)
    assert torch.equal(actual, x * 2 + 1)
    assert {entry["op"] for entry in explanation.fallbacks} == {"aten::mul.Tensor", "aten::add.Tensor"}


def test_strict_and_packages_want_one_plan(tmp_path: Any) -> None:
    line = conditional.__code__.co_firstlineno + 1
    with pytest.raises(FallbackError, match=rf"not one plan: cond is no operator .* \(test_parts.py:{line}\)"):
        torch.compile(conditional, backend="zefuse", options={"strict": True})(torch.ones(3))

    class Spectrum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fft.fft(x).abs()

    program = torch.export.export(Spectrum(), (torch.ones(4),))
    with pytest.raises(
        UnsupportedError, match=r"not one plan: aten::_fft_r2c makes .* complex64 \(test_parts.py:\d+\)"
    ):
        compile_package(program, tmp_path / "spectrum.zefuse")


def test_failed_assertion_raises() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "positive, please")
        return x + 1

    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", fullgraph=True)
    with observe(lambda _, graph: graphs.append(graph)):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) + 1)
    with pytest.raises(RuntimeError, match="positive, please"):
        compiled(torch.zeros(3))
    (graph,) = graphs
    assert [step["op"] for step in graph.report()["fallbacks"]] == ["aten::_assert_async.msg"]
    assert not any(step["reason"].startswith("in eager") for step in graph.report()["fallbacks"])


def test_an_input_is_overwritten_when_all_parts_have_read_it() -> None:
    """Also a compiled part that comes after one in eager."""

    def function(x: torch.Tensor) -> torch.Tensor:
        result = x * x.nonzero().sum()
        x.add_(2)
        return result

    theirs, ours = torch.arange(5.0), torch.arange(5.0)
    expected = function(theirs)
    torch._dynamo.reset()
    actual = torch.compile(function, backend="zefuse", fullgraph=True)(ours)
    assert torch.equal(actual, expected)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("misinformed", [False, True])
def test_torchs_wrong_shape_rules_make_the_graph_eager(misinformed: bool) -> None:
    """torch 2.11 says that ``_unique`` gives one element, whatever there is, and that attention of f64 keeps its logarithms in f32."""
    aten, rows = torch.ops.aten, torch.ones(1, 2, 3, 8, dtype=torch.float64)
    some = torch.ones(3 if misinformed else 1, dtype=torch.int64)
    logarithms = torch.ones(1, 2, 3, dtype=torch.float32 if misinformed else torch.float64)
    calls: list[tuple[Any, list[torch.Tensor], Any]] = [
        (aten._unique.default, [some], (some[:1], some[:0])),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, [rows] * 3, (rows, logarithms)),
        (aten._scaled_dot_product_flash_attention_for_cpu_backward.default, [rows] * 5 + [logarithms], [rows] * 3),
    ]
    for target, given, result in calls:
        graph = torch.fx.Graph()
        operands = [graph.placeholder(f"x{number}") for number in range(len(given))]
        first, more = (
            graph.call_function(target, tuple(operands)),
            graph.call_function(aten.neg.default, (operands[0],)),
        )
        graph.output((first, more))
        for node, value in zip([*operands, first, more], [*given, result, given[0]], strict=True):
            node.meta["val"] = value
        outside = parts.outside(torch.fx.GraphModule(torch.nn.Module(), graph))
        assert (more in outside) == misinformed, target


class Experts(torch.nn.Module):
    """A mixture by indices: how many rows an expert has depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(8, 3)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            result = result.index_add(0, row, expert(x[row]) * weights[row, place, None])
        return result


def test_a_mixture_by_indices_is_one_graph_with_dynamos_switch() -> None:
    model, rows = Experts(), torch.randn(20, 8)
    without = explain(model, rows)
    assert "capture_dynamic_output_shape_ops" in without.nothing_compiled
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        explanation = explain(model, rows)
        assert len(explanation.graphs) == 2 and not explanation.graph_breaks  # and its backward
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="zefuse")
        for number in (20, 7, 2):
            given = torch.randn(number, 8)
            gradients = []
            for run in (model, compiled):
                result = run(given)
                gradients.append(torch.autograd.grad(result.square().sum(), list(model.parameters())))
            assert relative_error(result, model(given)) < 1e-5
            assert relative_error(gradients[1], gradients[0]) < 1e-5
