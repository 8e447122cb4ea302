"""Recurrent layers of packed sequences: their steps are one call as well (python/zefuse/decompositions/packed_sequences.py)."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import zefuse
import zefuse.backend  # which tells Dynamo about the layers
from tests.python.test_recurrent import KINDS, flat, states_of

SIZES = [7, 7, 5, 5, 4, 1, 1]


def packed(
    lengths: list[int], features: int, *, ordered: bool = True, dtype: torch.dtype = torch.float32
) -> PackedSequence:
    x = torch.randn(max(lengths), len(lengths), features, dtype=dtype)
    return pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=ordered)


def raw(kind: str, layer: Any) -> Any:
    """torch's function behind a layer, of data, batch_sizes and states."""
    function = getattr(torch, kind if kind in ("lstm", "gru") else f"rnn_{kind}")

    def call(data: torch.Tensor, batch_sizes: torch.Tensor, states: Any) -> Any:
        return function(
            data, batch_sizes, states, layer._flat_weights, layer.bias, layer.num_layers, layer.dropout, layer.training,
            layer.bidirectional,
        )  # fmt: skip

    return call


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layers", "bidirectional", "bias"), [(1, False, True), (2, True, True), (1, True, False)])
def test_is_eagers(kind: str, layers: int, bidirectional: bool, bias: bool) -> None:
    """Values, strides and all gradients; nothing falls back."""
    torch.manual_seed(0)
    layer = KINDS[kind](11, 20, layers, bidirectional=bidirectional, bias=bias)
    call, states = raw(kind, layer), states_of(kind, layer, SIZES[0])
    data, sizes = torch.randn(sum(SIZES), 11), torch.tensor(SIZES)
    compiled = torch.compile(call, backend="zefuse", fullgraph=True)
    with torch.no_grad():
        explanation = zefuse.explain(call, data, sizes, states)
        assert not explanation.fallbacks
        calls = [call["kind"] for call in explanation.calls]
        assert sum(kind.endswith("steps") for kind in calls) == layers * (2 if bidirectional else 1)
        for ours, eager in zip(flat(compiled(data, sizes, states)), flat(call(data, sizes, states)), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
            assert ours.stride() == eager.stride()
    leaves = [each.requires_grad_() for each in (data, *flat(states))] + list(layer.parameters())
    gradients = []
    for run in (call, compiled):
        results = flat(run(data, sizes, states))
        torch.manual_seed(1)
        total = torch.stack([(each * torch.randn_like(each)).sum() for each in results]).sum()
        gradients.append(torch.autograd.grad(total, leaves))
    for eager, ours in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_modules_are_traced(kind: str, ordered: bool, given: bool) -> None:
    """With states of zeros, whose rows are known where the sequences were sorted, or given ones."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = KINDS[kind](5, 8, bidirectional=True)
    counter = torch._dynamo.testing.CompileCounterWithBackend("zefuse")

    def run(sequence: PackedSequence, states: Any = None) -> Any:
        output, last = layer(sequence, states)
        return output.data * 2, last

    compiled = torch.compile(run, backend=counter, fullgraph=True)
    for lengths in ([6, 4, 1], [5, 5, 2], [9, 3, 3]):
        sequence = packed(lengths if ordered else lengths[::-1], 5, ordered=ordered)
        arguments = (sequence, states_of(kind, layer, 3)) if given else (sequence,)
        grads = []
        for each in (run, compiled):
            results = flat(each(*arguments))
            grads.append(
                torch.autograd.grad(torch.stack([r.square().sum() for r in results]).sum(), layer.parameters())
            )
            if each is run:
                wanted = results
        for ours, eager in zip(results, wanted, strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
            assert ours.stride() == eager.stride()
        for eager, ours in zip(*grads, strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert counter.frame_count <= 2  # static, then rows and steps are symbols
    with torch.no_grad():
        explanation = zefuse.explain(run, *arguments)
    assert not explanation.graph_breaks
    assert all(
        "depends on data" in each["reason"] or "at run time only" in each["reason"] for each in explanation.fallbacks
    )
    assert bool(explanation.fallbacks) == (ordered and not given)


def test_padded_lengths_that_vary() -> None:
    """Packing and padding break the graph, as torch has it; what lies between does not become another graph at each length."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = nn.LSTM(5, 8, batch_first=True)
    counter = torch._dynamo.testing.CompileCounterWithBackend("zefuse")

    def run(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        output, _ = layer(pack_padded_sequence(x.relu(), lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(output, batch_first=True)[0] * 2

    compiled = torch.compile(run, backend=counter)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for lengths in ([4, 6, 2], [7, 2, 5, 3], [3, 9], [5, 5, 6], [8, 2, 2, 2, 9]):
            x = torch.randn(len(lengths), max(lengths), 5)
            torch.testing.assert_close(compiled(x, torch.tensor(lengths)), run(x, torch.tensor(lengths)))
        assert (
            sum(len(graph.graph.find_nodes(op="call_function", target=torch._VF.lstm)) for graph in counter.graphs) <= 2
        )


@pytest.mark.parametrize("sizes", [[3, 4, 2], [2, 2, 2], [3, 3, 3], [4, 3, 2], [3, 3, 0]])
def test_sizes_that_do_not_fit_are_errors(sizes: list[int]) -> None:
    """That grow, are not the states', add up to more than the data has; or to less, which eager lets pass."""
    torch.manual_seed(0)
    call = raw("gru", nn.GRU(5, 8))
    compiled = torch.compile(call, backend="zefuse")
    data, states = torch.randn(8, 5), torch.randn(1, 3, 8)
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(data, torch.tensor([3, 3, 2]), states), call(data, torch.tensor([3, 3, 2]), states)
        )
        with pytest.raises(RuntimeError, match="batch_sizes"):
            compiled(data, torch.tensor(sizes), states)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_no_farther_from_f64_than_eager(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = KINDS[kind](16, 24, bidirectional=True).to(dtype)
    sequence = packed([12, 9, 9, 4], 16, dtype=dtype)
    exact = KINDS[kind](16, 24, bidirectional=True).double()
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        wanted = exact(sequence.double())[0].data
        ours, eager = torch.compile(layer, backend="zefuse", fullgraph=True)(sequence)[0].data, layer(sequence)[0].data
    assert ours.dtype == dtype
    assert (ours.double() - wanted).abs().max() <= 1.1 * (eager.double() - wanted).abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast_a_layer_is_of_bf16(kind: str) -> None:
    torch.manual_seed(0)
    layer = KINDS[kind](16, 24, 2)
    sequence = packed([12, 9, 9, 4], 16)
    made = []
    for run, narrow in ((layer, False), (layer, True), (torch.compile(layer, backend="zefuse", fullgraph=True), True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            output, states = run(sequence)
        results = [output.data, *flat(states)]
        total = torch.stack([each.float().square().sum() for each in results]).sum()
        made.append([*results, *torch.autograd.grad(total, list(layer.parameters()))])
    for exact, eager, ours in zip(*made, strict=True):
        assert ours.dtype == eager.dtype
        assert (ours - exact).norm() <= 1.2 * (eager - exact).norm() + 4e-3 * exact.norm()


def test_dropout_between_layers_draws_eagers_numbers() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(6, 10, 3, dropout=0.4)
    sequence = packed([5, 3, 2], 6)
    results = []
    for run in (layer, torch.compile(layer, backend="zefuse", fullgraph=True)):
        torch.manual_seed(3)
        results.append(run(sequence)[0].data)
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_what_is_not_taken_is_eagers() -> None:
    torch.manual_seed(0)
    for layer, sequence in (
        (nn.LSTM(4, 8, proj_size=3).double(), packed([5, 2], 4, dtype=torch.float64)),
        (nn.GRU(4, 8).double(), packed([5, 2], 4, dtype=torch.float64)),
        (nn.GRU(4, 8).double(), packed([200, 2], 4, dtype=torch.float64)),
    ):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, eager = torch.compile(layer, backend="zefuse")(sequence), layer(sequence)
        torch.testing.assert_close(ours[0].data, eager[0].data)


def test_other_back_ends_find_a_graph_break() -> None:
    """They would take apart what only a run knows the steps of."""
    torch.manual_seed(0)
    layer, sequence = nn.GRU(4, 8), packed([5, 2], 4)
    states, graphs = torch.randn(1, 2, 8), []

    def other(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    torch._dynamo.reset()
    call = raw("gru", layer)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.compile(layer, backend=other)(sequence)[0].data, layer(sequence)[0].data)
        arguments = (sequence.data, sequence.batch_sizes, states)
        torch.testing.assert_close(torch.compile(call, backend=other)(*arguments)[0], call(*arguments)[0])
    assert not any(node.target in (torch.gru, torch._VF.gru) for gm in graphs for node in gm.graph.nodes)


def test_steps_in_eager_between_parts_are_the_same() -> None:
    """The operators' own kernels, which run where a part of a graph does."""
    from zefuse.decompositions import recurrent

    torch.manual_seed(0)
    data, sizes = torch.randn(sum(SIZES), 5, requires_grad=True), torch.tensor(SIZES)
    for kind in KINDS:
        layer = KINDS[kind](5, 6, 2, bidirectional=True)
        states = states_of(kind, layer, SIZES[0])
        name = kind if kind in ("lstm", "gru") else f"rnn_{kind}"
        eager = flat(raw(kind, layer)(data, sizes, states))
        whole = recurrent.Layer(name)(data, sizes, states, layer._flat_weights, True, 2, 0.0, True, True)
        leaves = [data, *layer.parameters()]
        for ours, theirs in zip(flat(whole), eager, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        weights = [torch.randn_like(each) for each in eager]
        for ours, theirs in zip(
            torch.autograd.grad(flat(whole), leaves, weights), torch.autograd.grad(eager, leaves, weights), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_in_a_package(tmp_path: Any) -> None:
    torch.manual_seed(0)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(5, 8, bidirectional=True)

        def forward(self, data: torch.Tensor, batch_sizes: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
            return raw("gru", self.layer)(data, batch_sizes, states)[0]

    model = Encoder().eval()
    states = torch.randn(2, 4, 8)
    shapes = {
        "data": {0: torch.export.Dim("rows", min=2, max=500)},
        "batch_sizes": {0: torch.export.Dim("steps", min=2, max=90)},
    }
    with torch.no_grad():
        example = (torch.randn(9, 5), torch.tensor([4, 3, 2]), states)
        program = torch.export.export(model, example, dynamic_shapes=shapes | {"states": None})
        compiled = zefuse.compile_package(program, tmp_path / "gru.zfpkg")
        loaded = zefuse.load(tmp_path / "gru.zfpkg")
        assert [call["kind"] for call in compiled.calls].count("gru steps") == 2
        for arguments in (example, (torch.randn(11, 5), torch.tensor([4, 3, 3, 1]), states)):
            torch.testing.assert_close(loaded(*arguments), model(*arguments), rtol=1e-5, atol=1e-5)
