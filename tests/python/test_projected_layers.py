"""LSTMs whose hidden state is a projection (``proj_size``): their steps are one call as well, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import zefuse
from tests.python.test_packed_sequences import SIZES, packed, raw
from tests.python.test_recurrent import compare, flat


def states_of(layer: nn.LSTM, batch: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    return (
        torch.randn(count, batch, layer.proj_size, dtype=dtype),
        torch.randn(count, batch, layer.hidden_size, dtype=dtype),
    )


def results_and_gradients(run: Any, arguments: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    results = flat(run(*arguments))
    torch.manual_seed(1)
    total = torch.stack([(each.float() * torch.randn_like(each).float()).sum() for each in results]).sum()
    return [*results, *torch.autograd.grad(total, leaves)]


@pytest.mark.parametrize(("layers", "bidirectional", "batch_first", "bias", "hidden", "outputs"), [
    (1, False, False, True, 20, 7), (2, True, True, True, 70, 66), (1, True, False, False, 33, 1),
])  # fmt: skip
def test_is_eagers(layers: int, bidirectional: bool, batch_first: bool, bias: bool, hidden: int, outputs: int) -> None:
    """Values, strides and all gradients; nothing falls back."""
    torch.manual_seed(0)
    layer = nn.LSTM(
        11, hidden, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias, proj_size=outputs
    )
    x = torch.randn((3, 6, 11) if batch_first else (6, 3, 11))
    compare(layer, (x, states_of(layer, 3)), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        calls = [call["kind"] for call in zefuse.explain(layer, x).calls]
    assert calls.count("lstm steps") == layers * (2 if bidirectional else 1)


@pytest.mark.parametrize(("layers", "bidirectional", "bias"), [(1, False, True), (2, True, True), (1, True, False)])
def test_packed_is_eagers(layers: int, bidirectional: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(11, 40, layers, bidirectional=bidirectional, bias=bias, proj_size=18)
    call, states = raw("lstm", layer), states_of(layer, SIZES[0])
    data, sizes = torch.randn(sum(SIZES), 11), torch.tensor(SIZES)
    compiled = torch.compile(call, backend="zefuse", fullgraph=True)
    with torch.no_grad():
        assert not zefuse.explain(call, data, sizes, states).fallbacks
        for ours, eager in zip(flat(compiled(data, sizes, states)), flat(call(data, sizes, states)), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
            assert ours.stride() == eager.stride()
    leaves = [each.requires_grad_() for each in (data, *states)] + list(layer.parameters())
    arguments = (data, sizes, states)
    for ours, eager in zip(
        results_and_gradients(compiled, arguments, leaves), results_and_gradients(call, arguments, leaves), strict=True
    ):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


def test_modules_of_packed_sequences_whose_lengths_vary() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = nn.LSTM(5, 9, bidirectional=True, proj_size=4)
    counter = torch._dynamo.testing.CompileCounterWithBackend("zefuse")
    compiled = torch.compile(lambda each: layer(each)[0].data, backend=counter, fullgraph=True)
    with torch.no_grad():
        for lengths in ([4, 6, 1], [5, 2, 5, 3], [9, 3, 3, 7, 2]):
            sequence = packed(lengths, 5, ordered=False)
            torch.testing.assert_close(compiled(sequence), layer(sequence)[0].data, rtol=1e-5, atol=1e-5)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_no_farther_from_f64_than_eager(dtype: torch.dtype) -> None:
    """Values and gradients."""
    torch.manual_seed(0)
    layer = nn.LSTM(16, 80, bidirectional=True, proj_size=24).to(dtype)
    exact = nn.LSTM(16, 80, bidirectional=True, proj_size=24).double()
    exact.load_state_dict(layer.state_dict())
    x, states = torch.randn(9, 19, 16, dtype=dtype), states_of(layer, 19, dtype)
    wide = tuple(each.double() for each in states)
    wanted = results_and_gradients(exact, (x.double(), wide), list(exact.parameters()))
    eager = results_and_gradients(layer, (x, states), list(layer.parameters()))
    compiled = torch.compile(layer, backend="zefuse", fullgraph=True)
    ours = results_and_gradients(compiled, (x, states), list(layer.parameters()))
    for mine, theirs, right in zip(ours, eager, wanted, strict=True):
        assert mine.dtype == dtype
        assert (mine - right).norm() <= 1.2 * (theirs - right).norm() + 4e-3 * right.norm()


@pytest.mark.parametrize("is_packed", [False, True])
def test_under_autocast_a_layer_is_of_bf16_but_for_the_cell(is_packed: bool) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(16, 40, 2, proj_size=24)
    x: Any = packed([9, 7, 7, 2], 16) if is_packed else torch.randn(9, 5, 16)
    made = []
    for run, narrow in ((layer, False), (layer, True), (torch.compile(layer, backend="zefuse", fullgraph=True), True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            sequence, states = run(x)
        output = [sequence.data if is_packed else sequence, *states]
        total = torch.stack([each.float().square().sum() for each in output]).sum()
        made.append([*output, *torch.autograd.grad(total, list(layer.parameters()))])
    for exact, eager, ours in zip(*made, strict=True):
        assert ours.dtype == eager.dtype
        assert (ours - exact).norm() <= 1.2 * (eager - exact).norm() + 4e-3 * exact.norm()


def test_is_the_same_to_the_bit_for_any_number_of_threads() -> None:
    """Shared out by rows, by units and by both; gradients as well."""
    torch.manual_seed(0)
    before = torch.get_num_threads()
    try:
        for batch, hidden, outputs in ((1, 200, 130), (19, 96, 40), (9, 300, 200)):
            torch._dynamo.reset()  # each number of threads is a compilation
            layer, x = nn.LSTM(8, hidden, proj_size=outputs), torch.randn(5, batch, 8)
            states = tuple(each.requires_grad_() for each in states_of(layer, batch))
            run, wanted = torch.compile(layer, backend="zefuse", fullgraph=True), None
            for threads in (1, 3, 5):
                torch.set_num_threads(threads)
                found = results_and_gradients(run, (x, states), list(states))
                wanted = wanted or found
                assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True)), threads
    finally:
        torch.set_num_threads(before)


def test_dropout_between_layers_draws_eagers_numbers() -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(6, 10, 3, dropout=0.4, proj_size=4), torch.randn(5, 3, 6)
    results = []
    for run in (layer, torch.compile(layer, backend="zefuse", fullgraph=True)):
        torch.manual_seed(3)
        results.append(run(x)[0])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_a_state_of_other_units_is_an_error_as_in_eager() -> None:
    """The state says whether there is a projection: with as many units as the cell there is none."""
    torch.manual_seed(0)
    layer = nn.LSTM(4, 8, proj_size=3)
    x, cell = torch.randn(5, 2, 4), torch.randn(1, 2, 8)

    def call(x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        arguments = (x, (hidden, cell), layer._flat_weights, True, 1, 0.0, False, False, False)
        return torch.lstm(*arguments)[0]

    compiled = torch.compile(call, backend="zefuse")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, torch.ones(1, 2, 3)), call(x, torch.ones(1, 2, 3)))
        for units in (8, 4):
            for run in (call, compiled):
                with pytest.raises(RuntimeError, match=r"\w"):
                    run(x, torch.ones(1, 2, units))


def test_steps_in_eager_between_parts_are_the_same() -> None:
    """The operators' own kernels, which run where a part of a graph does."""
    from zefuse.decompositions import recurrent

    torch.manual_seed(0)
    layer = nn.LSTM(5, 9, 2, bidirectional=True, proj_size=4)
    whole = recurrent.Layer("lstm")
    data, sizes = torch.randn(sum(SIZES), 5, requires_grad=True), torch.tensor(SIZES)
    x, leaves = torch.randn(4, 3, 5, requires_grad=True), list(layer.parameters())
    rest = (layer._flat_weights, True, 2, 0.0, True, True)
    for arguments, more, leaf in (
        ((x, states_of(layer, 3)), (False,), x),
        ((data, sizes, states_of(layer, SIZES[0])), (), data),
    ):
        eager = results_and_gradients(torch.lstm, (*arguments, *rest, *more), [leaf, *leaves])
        ours = results_and_gradients(whole, (*arguments, *rest, *more), [leaf, *leaves])
        for mine, theirs in zip(ours, eager, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_in_a_package(tmp_path: Any) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(5, 8, 2, bidirectional=True, batch_first=True, proj_size=3).eval()
    x = torch.randn(2, 6, 5)
    with torch.no_grad():
        dims = {"input": {1: torch.export.Dim("steps", min=2, max=500)}}
        program = torch.export.export(layer, (x,), dynamic_shapes=dims)
        compiled = zefuse.compile_package(program, tmp_path / "lstm.zfpkg")
        loaded = zefuse.load(tmp_path / "lstm.zfpkg")
        assert [call["kind"] for call in compiled.calls].count("lstm steps") == 4
        for each in (x, torch.randn(2, 40, 5)):
            torch.testing.assert_close(loaded(each), layer(each), rtol=1e-5, atol=1e-5)
