"""Recurrent layers: nn.LSTM, GRU and RNN, whose steps are one call, forward and backward (python/zefuse/decompositions/recurrent.py)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import zefuse
from zefuse.testing import assert_compiled

KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *args, **kwargs: nn.RNN(*args, nonlinearity="relu", **kwargs),
}


def states_of(kind: str, layer: Any, batch: int, dtype: torch.dtype = torch.float32) -> Any:
    directions = 2 if layer.bidirectional else 1
    shape = (layer.num_layers * directions, batch, layer.hidden_size)
    state = torch.randn(shape, dtype=dtype)
    return (state, torch.randn(shape, dtype=dtype)) if kind == "lstm" else state


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for each in value for t in flat(each)]


def compare(layer: nn.Module, inputs: tuple[Any, ...], **tolerance: float) -> None:
    """Values and strides of one call, without gradients and with them, and all gradients."""
    with torch.no_grad():
        assert_compiled(layer, inputs, fallbacks=0, rtol=tolerance["rtol"])
    results = []
    for run in (layer, torch.compile(layer, backend="zefuse", fullgraph=True)):
        for parameter in layer.parameters():
            parameter.grad = None
        leaves = [t.clone().requires_grad_() for t in flat(inputs)]
        arguments = (
            (leaves[0],) if len(leaves) == 1 else (leaves[0], leaves[1] if len(leaves) == 2 else tuple(leaves[1:]))
        )
        out = flat(run(*arguments))
        torch.manual_seed(1)
        torch.autograd.backward(out, [torch.randn_like(o) for o in out])
        results.append((out, [leaf.grad for leaf in leaves] + [p.grad for p in layer.parameters()]))
    (out, grads), (our_out, our_grads) = results
    for eager, ours in zip(out, our_out, strict=True):
        torch.testing.assert_close(ours, eager, **tolerance)
        assert ours.stride() == eager.stride()
    for eager, ours in zip(grads, our_grads, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layers", "bidirectional", "batch_first", "bias"), [
    (1, False, False, True), (2, True, True, True), (1, True, False, False), (2, False, True, False),
])  # fmt: skip
def test_is_eagers(kind: str, layers: int, bidirectional: bool, batch_first: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layer = KINDS[kind](11, 20, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias)
    inputs = (torch.randn(3, 7, 11), states_of(kind, layer, 3 if batch_first else 7))
    compare(layer, inputs, rtol=1e-5, atol=1e-5)
    if layers == 1:  # states of zeros are made the same way for more of them
        compare(layer, inputs[:1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_batch(kind: str) -> None:
    torch.manual_seed(0)
    compare(KINDS[kind](5, 8), (torch.randn(6, 5),), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_read_by_a_convolution(kind: str) -> None:
    """It would have steps' results with their channels innermost, which steps do not write."""

    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps, self.convolution = KINDS[kind](9, 4), nn.Conv1d(16, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.convolution(self.steps(x)[0])

    torch.manual_seed(0)
    compare(Read(), (torch.randn(7, 16, 9),), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["gru", "tanh", "relu"])  # eager refuses it after an LSTM
@pytest.mark.parametrize("inside", [False, True])
def test_a_write_into_the_output_before_backward(kind: str, inside: bool) -> None:
    """The steps' derivative reads their results, which are not to be the caller's tensor."""
    torch.manual_seed(0)
    layer, x = KINDS[kind](4, 5), torch.randn(3, 6, 4)

    def run(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(x)[0]
        return out.mul_(2) if inside else out

    found = []
    for function in (run, torch.compile(run, backend="zefuse")):
        out = function(x)
        if not inside:
            out.mul_(2)
        found.append(torch.autograd.grad(out.square().sum(), list(layer.parameters())))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_gate_that_is_shut_is_zero(kind: str, dtype: torch.dtype) -> None:
    """Behind a bias of -infinity: times an infinity that is NaN, and not the infinity."""
    torch.manual_seed(0)
    layer, x = KINDS[kind](4, 20).to(dtype), torch.randn(3, 6, 4).to(dtype)
    for each in (layer.bias_hh_l0, layer.bias_ih_l0):
        each.data[::4] = -torch.inf  # of all gates of a unit
    with torch.no_grad():
        expected, actual = layer(x), torch.compile(layer, backend="zefuse")(x)
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2, equal_nan=True)


def test_what_a_shut_gate_lets_through_has_no_sign() -> None:
    """A shut input gate times a candidate of -1 is -0; beside the zero state that is 0. So is what a shut output gate gives."""
    layer, x = nn.LSTM(4, 20), torch.randn(3, 6, 4)
    layer.bias_ih_l0.data = torch.tensor([-torch.inf, torch.inf, -torch.inf, -torch.inf]).repeat_interleave(20)
    with torch.no_grad():
        for training in (False, True):
            layer.train(training)
            (output, (_, cell)), (expected, _) = torch.compile(layer, backend="zefuse")(x), layer(x)
            assert not expected.any()
            assert not output.any()
            assert not cell.any()
            assert not output.signbit().any()
            assert not cell.signbit().any()


def test_one_row_of_input_for_all_states_is_torchs_own() -> None:
    """The operator takes as many rows of both."""
    layer, x, state = nn.RNN(4, 5), torch.randn(3, 1, 4), torch.randn(1, 6, 5)

    def run(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        weights = [weight.detach() for weight in layer.parameters()]
        return torch.rnn_tanh(x, state, weights, True, 1, 0.0, False, False, False)[0]

    torch.testing.assert_close(torch.compile(run, backend="zefuse")(x, state), run(x, state))


def test_steps_are_one_call_however_many() -> None:
    """Unrolled, each step would be a product and a kernel."""
    torch.manual_seed(0)
    counts = []
    for steps in (3, 300):
        layer = nn.LSTM(8, 16)
        with torch.no_grad():
            explanation = zefuse.explain(layer, torch.randn(steps, 2, 8))
        assert not explanation.fallbacks
        counts.append((len(explanation.kernels), len(explanation.calls)))
        assert sum(call["kind"] == "lstm steps" for call in explanation.calls) == 1
    assert counts[0] == counts[1]
    assert sum(counts[0]) <= 4  # the product of the input, the steps, what makes the states


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("layers", "bidirectional", "batch_first", "bias"), [
    (1, False, False, True), (2, True, True, True), (1, True, True, False),
])  # fmt: skip
def test_an_lstm_of_many_rows_is_one_call(
    layers: int, bidirectional: bool, batch_first: bool, bias: bool, dtype: torch.dtype
) -> None:
    """With the products of its input; no farther from f64 than eager."""
    torch.manual_seed(0)
    layer = nn.LSTM(19, 40, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias)
    rows, directions = 21, 2 if bidirectional else 1
    x = torch.randn((rows, 9, 19) if batch_first else (9, rows, 19), dtype=dtype)
    exact = copy.deepcopy(layer.to(dtype)).double()
    states = states_of("lstm", layer, rows, dtype)
    with torch.no_grad():
        explanation = zefuse.explain(layer, x, states)
        assert [call["kind"] for call in explanation.calls] == ["lstm layer"] * layers * directions
        ours, eager = flat(torch.compile(layer, backend="zefuse", fullgraph=True)(x, states)), flat(layer(x, states))
        wanted = flat(exact(x.double(), tuple(each.double() for each in states)))
    for mine, theirs, each in zip(ours, eager, wanted, strict=True):
        assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride())
        assert (mine - each).abs().max() <= 1.5 * (theirs - each).abs().max() + 1e-7
    differentiated = [call["kind"] for call in zefuse.explain(layer, x, states).calls]
    assert differentiated.count("lstm layer") == layers * directions


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "both directions"])
def test_gradients_of_an_lstm_of_many_rows_are_as_near_to_f64(reverse: bool) -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(19, 40, bidirectional=reverse), torch.randn(7, 27, 19)
    assert {call["kind"] for call in zefuse.explain(layer, x).calls} >= {"lstm layer"}
    exact = copy.deepcopy(layer).double()

    def gradients(run: Callable[..., Any], of: nn.Module, dtype: torch.dtype) -> list[torch.Tensor]:
        of.zero_grad()
        each = x.to(dtype).requires_grad_()
        output, (hidden, cell) = run(each)
        (output.square().sum() + hidden.sum() + 2 * cell.sum()).backward()
        assert each.grad is not None
        return [each.grad, *(p.grad.clone() for p in of.parameters() if p.grad is not None)]

    wanted = gradients(exact, exact, torch.float64)
    eager = gradients(layer, layer, torch.float32)
    ours = gradients(torch.compile(layer, backend="zefuse"), layer, torch.float32)
    for mine, theirs, right in zip(ours, eager, wanted, strict=True):
        assert (mine - right).abs().max() <= 2 * (theirs - right).abs().max() + 1e-6 * right.abs().max()


def test_an_lstm_of_many_rows_sees_weights_that_changed() -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(8, 16), torch.randn(5, 32, 8)
    compiled = torch.compile(layer, backend="zefuse")
    with torch.no_grad():
        for number in range(3):
            torch.testing.assert_close(compiled(x)[0], layer(x)[0], rtol=1e-5, atol=1e-5)
            parameter = layer.weight_ih_l0 if number else layer.weight_hh_l0
            parameter.mul_(1.5)


def test_one_recompile_when_lengths_change() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    gru = nn.GRU(6, 12, batch_first=True)

    def layer(x: torch.Tensor) -> torch.Tensor:
        return gru(x)[0] * 2

    counter = torch._dynamo.testing.CompileCounterWithBackend("zefuse")
    compiled = torch.compile(layer, backend=counter)
    for batch, steps in itertools.product((2, 5), (4, 9, 33)):
        x = torch.randn(batch, steps, 6)
        eager = layer(x)
        ours = compiled(x)
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
        ours.sum().backward()
    assert counter.frame_count <= 3  # static, steps symbolic, batch symbolic too


def test_dropout_between_layers_draws_eagers_numbers() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(6, 10, 3, dropout=0.4)
    x = torch.randn(5, 2, 6)
    compiled = torch.compile(layer, backend="zefuse")
    torch.manual_seed(3)
    eager = layer(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x), eager, rtol=1e-5, atol=1e-5)
    layer.eval()
    torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_no_farther_from_f64_than_eager(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = nn.GRU(16, 24).to(dtype)
    x = torch.randn(12, 3, 16, dtype=dtype)
    with torch.no_grad():
        exact = nn.GRU(16, 24).double()
        exact.load_state_dict(layer.state_dict())
        wanted = exact(x.double())[0]
        ours, eager = torch.compile(layer, backend="zefuse")(x)[0], layer(x)[0]
    assert ours.dtype == dtype
    assert (ours.double() - wanted).abs().max() <= 1.1 * (eager.double() - wanted).abs().max()


def test_products_of_bf16_are_of_bf16() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(16, 24).to(torch.bfloat16)
    with torch.no_grad():
        explanation = zefuse.explain(layer, torch.randn(12, 3, 16, dtype=torch.bfloat16))
    (product,) = [call for call in explanation.calls if call["kind"] == "matmul"]
    rows, gates = 12 * 3, 4 * 24
    assert product["bytes"] == 2 * 16 * (rows + gates) + 4 * gates + 4 * rows * gates  # operands of bf16, the rest f32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [3, 37])
def test_trained_in_bf16_products_are_of_bf16(kind: str, rows: int) -> None:
    """Those of the derivative as well, of the steps and over all steps; gradients are no farther from f64's than eager's by much."""
    torch.manual_seed(0)
    steps, features, units, gates = 12, 16, 24, {"lstm": 4, "gru": 3}.get(kind, 1) * 24
    layer = KINDS[kind](features, units).to(torch.bfloat16)
    x = torch.randn(steps, rows, features).bfloat16().requires_grad_()
    explanation = zefuse.explain(layer, x)
    products = sorted(call["bytes"] for call in explanation.calls if call["graph"] == 1 and call["kind"] == "matmul")
    n = steps * rows
    of_weights = [features, units]
    if kind == "lstm" and rows > 8:  # both in one
        of_weights = [features + units]
    assert products == sorted([
        2 * (n * gates + gates * features + n * features),  # of the input
        *(2 * (n * gates + n * each + gates * each) for each in of_weights),
    ])  # fmt: skip
    if (
        kind == "lstm" and rows > 8
    ):  # the steps write the gates' gradients as the products read them, with the sums for the biases
        assert all(kernel["bytes"] < 2 * n * gates for kernel in explanation.kernels if kernel["graph"] == 1)
    found = []
    for run, dtype in (
        (copy.deepcopy(layer).double(), torch.float64),
        (layer, torch.bfloat16),
        (torch.compile(layer, backend="zefuse"), torch.bfloat16),
    ):
        leaf = x.detach().to(dtype).requires_grad_()
        found.append(torch.autograd.grad(run(leaf)[0].float().square().sum(), [leaf, *run.parameters()]))
    most = 2 if kind == "relu" else 1.1  # whose derivative jumps where rounding makes another side of zero
    for exact, theirs, ours in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - exact).norm() <= most * (theirs - exact).norm() + 2e-3 * exact.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast_products_are_of_bf16(kind: str) -> None:
    """Types are eager's; results and gradients are no farther from f32's than eager's by much, which rounds more often."""
    torch.manual_seed(0)
    layer = KINDS[kind](16, 24, 2)
    inputs = (torch.randn(12, 3, 16, requires_grad=True), states_of(kind, layer, 3))
    made = []
    for run, narrow in ((layer, False), (layer, True), (torch.compile(layer, backend="zefuse"), True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            results = flat(run(*inputs))
        total = torch.stack([each.float().square().sum() for each in results]).sum()
        made.append((results, torch.autograd.grad(total, [inputs[0], *layer.parameters()])))
    (exact, exact_gradients), (eager, eager_gradients), (ours, our_gradients) = made
    assert [each.dtype for each in ours] == [each.dtype for each in eager]
    for wanted, theirs, mine in zip(
        (*exact, *exact_gradients), (*eager, *eager_gradients), (*ours, *our_gradients), strict=True
    ):
        assert (mine - wanted).norm() <= 1.2 * (theirs - wanted).norm() + 4e-3 * wanted.norm()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        explanation = zefuse.explain(layer, *inputs)
    assert sum(call["kind"].endswith("steps") for call in explanation.calls) == 2


def test_states_of_torch_2_11_lose_their_dimension_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._decomp import decompositions

    from zefuse.installing import torch_versions

    given = (torch.ones(7, 3), torch.ones(7, 3))
    layer = decompositions.one_layer_lstm

    def torch_2_11s(*args: Any, **named: Any) -> Any:
        output, states = layer(*args, **named)
        return output, tuple(state[None] for state in states)

    weights = [torch.ones(12, 4), torch.ones(12, 3)]
    expected = layer(torch.ones(5, 7, 4), given, weights, False)
    monkeypatch.setattr(decompositions, "one_layer_lstm", torch_2_11s)
    torch_versions.lstm_states_have_two_dimensions()
    assert (decompositions.one_layer_lstm is torch_2_11s) == (torch_versions.minor(torch.__version__) != "2.11")
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    torch_versions.lstm_states_have_two_dimensions()
    torch.testing.assert_close(decompositions.one_layer_lstm(torch.ones(5, 7, 4), given, weights, False), expected)


def test_what_is_not_taken_is_torchs_own() -> None:
    torch.manual_seed(0)
    for layer, x in (
        (nn.LSTM(4, 8, proj_size=3).double(), torch.randn(5, 2, 4).double()),
        (nn.GRU(4, 8).double(), torch.randn(5, 2, 4).double()),
    ):
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(layer, backend="zefuse")(x), layer(x))
    long = torch.randn(200, 2, 4).double()
    gru = nn.GRU(4, 8).double()
    with pytest.warns(UserWarning, match="a graph runs in eager: torch.gru with dtype torch.float64"):
        torch.testing.assert_close(torch.compile(gru, backend="zefuse")(long), gru(long))


def test_weights_that_changed_are_packed_again() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(4, 8)
    x = torch.randn(5, 2, 4)
    compiled = torch.compile(layer, backend="zefuse")
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)
        optimizer.zero_grad()
        compiled(x)[0].square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("rows", [3, 9])  # 9: an LSTM is one call with the products of its input
def test_steps_in_eager_between_parts_are_the_same(rows: int) -> None:
    """The operators' own kernels, which run where a part of a graph does."""
    from zefuse.decompositions import recurrent, recurrent_steps

    torch.manual_seed(0)
    recurrent_steps.operators()
    for kind in KINDS:
        layer = KINDS[kind](5, 6, 2, bidirectional=True)
        x = torch.randn(4, rows, 5, requires_grad=True)
        states = torch.zeros(4, rows, 6)
        name = kind if kind in ("lstm", "gru") else f"rnn_{kind}"
        whole = recurrent.Layer(name)(
            x, (states, states) if kind == "lstm" else states, layer._flat_weights, True, 2, 0.0, True, True, False
        )
        eager = layer(x)
        torch.testing.assert_close(whole[0], eager[0], rtol=1e-5, atol=1e-6)
        parameters = [x, *layer.parameters()]
        for ours, theirs in zip(
            torch.autograd.grad(whole[0].square().sum(), parameters),
            torch.autograd.grad(eager[0].square().sum(), parameters), strict=True,
        ):  # fmt: skip
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("dynamic", [False, True])
def test_in_a_package(tmp_path: Any, dynamic: bool, rows: int) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(5, 8, 2, bidirectional=True, batch_first=True).eval()
    x = torch.randn(rows, 6, 5)
    dims = {"input": {1: torch.export.Dim("steps", min=2, max=500)}} if dynamic else None
    with torch.no_grad():
        program = torch.export.export(layer, (x,), dynamic_shapes=dims)
        compiled = zefuse.compile_package(program, tmp_path / "lstm.zfpkg")
        loaded = zefuse.load(tmp_path / "lstm.zfpkg")
        assert [call["kind"] for call in compiled.calls].count("lstm layer" if rows > 2 else "lstm steps") == 4
        for each in (x, torch.randn(rows, 40, 5))[: 2 if dynamic else 1]:
            torch.testing.assert_close(loaded(each), layer(each), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_trained_with_lengths_that_vary(kind: str) -> None:
    """The batch's size stays a constant, the length becomes a symbol at the second call."""
    layer = KINDS[kind](4, 5, batch_first=True)
    compiled = torch.compile(lambda x: layer(x)[0], backend="zefuse")
    for length in (2, 3, 4, 7):
        grads = []
        for run in (lambda x: layer(x)[0], compiled):
            layer.zero_grad()
            x = torch.linspace(-1, 1, 8 * length).reshape(2, length, 4).requires_grad_()
            run(x).square().sum().backward()
            grads.append([x.grad, *(p.grad for p in layer.parameters())])
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_a_graph_without_dynamos_notes() -> None:
    """Of a caller's own, traced by torch.fx: which tensors a layer takes is not written in it."""
    from zefuse.backend import zefuse as backend

    def function(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.rnn_tanh(x, h, [w, u], False, 1, 0.0, False, False, True)[0],)

    inputs = [torch.linspace(-1, 1, 24).reshape(2, 4, 3), torch.zeros(1, 2, 5), torch.ones(5, 3) / 4, torch.eye(5) / 2]
    compiled = backend(torch.fx.symbolic_trace(function), inputs)
    torch.testing.assert_close(compiled(*inputs), function(*inputs))
