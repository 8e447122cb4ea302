"""Inputs that a compiled function overwrites: written by the kernels themselves where that is safe, copied at the end where not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zefuse import backend

Function = Callable[..., Any]


def run(function: Function, inputs: list[torch.Tensor], dynamic: bool | None = None) -> dict[str, int]:
    """Compares results and inputs with eager's, call by call; the last call's launches and copies."""
    torch._dynamo.reset()
    graphs: list[Any] = []
    mine, others = ([t.clone(memory_format=torch.preserve_format) for t in inputs] for _ in range(2))
    places = [t.data_ptr() for t in mine]
    with backend.observe(lambda _, graph: graphs.append(graph)), torch.no_grad():
        compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
        for _ in range(3):
            before = graphs[-1].counters() if graphs else {}
            made, expected = compiled(*mine), function(*others)
            torch.testing.assert_close(made, expected)
            torch.testing.assert_close(mine, others)
            assert [t.data_ptr() for t in mine] == places
    assert len(graphs) == 1
    return {name: graphs[0].counters()[name] - before[name] for name in ("launches", "copies", "aten_calls")}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", [(37,), (5, 7), (3, 128), (1,), ()], ids=str)
def test_elementwise_updates_need_no_copy(shape: tuple[int, ...], dynamic: bool) -> None:
    def update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        old = x * 2
        x.mul_(1.5).add_(y)
        y.sub_(x)
        return old + y

    assert run(update, [torch.randn(shape), torch.randn(shape)], dynamic) == {
        "launches": 1,
        "copies": 0,
        "aten_calls": 0,
    }


def test_results_of_other_kinds_go_straight_to_the_input() -> None:
    def update(mean: torch.Tensor, x: torch.Tensor) -> None:
        mean.copy_(x.mean(0))

    assert run(update, [torch.randn(40), torch.randn(64, 40)]) == {"launches": 1, "copies": 0, "aten_calls": 0}


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.copy_(x + x.t()) is None,
        lambda x, y: x.copy_(x.flip(0)) is None,
        lambda x, y: x.copy_(x.cumsum(0)) is None,
        lambda x, y: x.copy_(torch.cat([x[1:], x[:1]])) is None,
        lambda x, y: x.sub_(x.mean(0)) is None,
        lambda x, y: x.copy_(x - x[0]) is None,
    ],
    ids=["transposed", "reversed", "scan", "rotated", "reduction", "row"],
)
def test_an_element_that_is_read_elsewhere_is_not_overwritten_early(function: Function) -> None:
    run(function, [torch.randn(35, 35), torch.randn(35, 35)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.clone(), x.add_(1))[0],
        lambda x, y: (x @ y, x.add_(1), (x @ y).sum())[::2],
        lambda x, y: x.add_(1)[1:].t(),
        lambda x, y: (x.add_(y), x.t().mul_(3), y + x)[2],
        lambda x, y: x.copy_(y) * 2,
        lambda x, y: x[3:].add_(1) + 1,
        lambda x, y: x.zero_().sum() + y,
    ],
    ids=["old value returned", "old value read", "view returned", "through a view", "copied", "part", "zero"],
)
def test_old_and_new_values(function: Function) -> None:
    run(function, [torch.randn(36, 36), torch.randn(36, 36)])


def test_strides_of_a_dimension_of_one_element_do_not_matter() -> None:
    def update(x: torch.Tensor, y: torch.Tensor) -> None:
        x.index_copy_(2, torch.arange(3), y)

    whole = torch.randn(40, 1, 1, 16).permute(1, 2, 0, 3)
    assert run(update, [whole, torch.randn(1, 1, 3, 16)])["copies"] == 0
    assert run(update, [whole[:, :, :25], torch.randn(1, 1, 3, 16)], dynamic=True)["copies"] == 0


_ROWS = torch.tensor([4, 0, 4])  # one of them twice: the last update stays


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.index_copy_(0, _ROWS, y[:3]) is None,
        lambda x, y: x.index_copy_(1, _ROWS, y[:, 5:8].sin()) is None,
        lambda x, y: x.index_put_((_ROWS,), y[0]) is None,
        lambda x, y: x.index_put_((_ROWS, _ROWS + 1), y[:3, 0], accumulate=True) is None,
        lambda x, y: x.index_copy_(0, _ROWS, y[:3]).sum(0) * 2,
        lambda x, y: (x.sum(0), x.index_copy_(0, _ROWS, y[:3])[1])[0],
        lambda x, y: x.index_copy_(0, _ROWS[:1] - 4, torch.cat([y[:1, 18:], -y[:1, :18]], 1)) @ y,
    ],
    ids=["rows", "columns", "one row to several", "sums", "new value read", "old value read before", "a key rotated"],
)
def test_only_the_updates_are_written(function: Function, dynamic: bool) -> None:
    inputs = [torch.randn(36, 36), torch.randn(36, 36)]
    assert run(function, inputs, dynamic)["copies"] == 0
    assert run(function, [inputs[0].t(), inputs[1]], dynamic)["copies"] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.index_copy_(0, _ROWS, x[5:8].clone()) is None,
        lambda x, y: x.index_copy_(0, _ROWS, x.flip(0)[:3] + y[:3]) is None,
        lambda x, y: x.index_copy_(0, (x[0, :3] > 0).long(), y[:3]) is None,
        lambda x, y: (x.index_copy(0, _ROWS, y[:3]), x.add_(1))[0],
        lambda x, y: (x.clone(), x.index_copy_(0, _ROWS, y[:3]))[0],
        lambda x, y: (old := x.index_copy(0, _ROWS, y[:3]), x.copy_(old), old @ x)[2],
        lambda x, y: y.copy_(x.index_copy(0, _ROWS, y[:3])) is None,
        lambda x, y: (x.index_copy_(0, _ROWS, y[:3]), y.index_copy_(0, _ROWS, x[:3]))[0] is None,
        lambda x, y: x[2:].index_copy_(0, _ROWS, y[:3]) is None,
        lambda x, y: (x.index_copy_(0, _ROWS, y[:3]), x.index_copy_(0, _ROWS + 1, y[3:6]))[1] is None,
    ],
    ids=["own rows", "own rows reversed", "own values as indices", "old value kept", "old value returned",
         "copied back", "to another", "both", "part", "twice"],
)  # fmt: skip
def test_updates_of_what_is_read_otherwise(function: Function) -> None:
    run(function, [torch.randn(36, 36), torch.randn(36, 36)])


def test_memory_that_two_inputs_share() -> None:
    whole = torch.randn(40, 36)

    def update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_copy_(0, _ROWS, y[1:4] * 3)
        return y * 2

    torch._dynamo.reset()
    mine, others = whole.clone(), whole.clone()
    made = torch.compile(update, backend="zefuse")(mine[:36], mine[4:])
    torch.testing.assert_close(made, update(others[:36], others[4:]))
    assert torch.equal(mine, others)


def test_an_index_out_of_bounds_writes_nothing() -> None:
    def update(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> None:
        x.index_put_((index,), y)

    torch._dynamo.reset()
    x, y = torch.zeros(5, 20), torch.ones(1, 20)
    compiled = torch.compile(update, backend="zefuse")
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([5]), y)
    assert not x.any()
    compiled(x, torch.tensor([-1]), y)
    assert x[4].all() and not x[:4].any()


def test_inputs_change_places() -> None:
    def swap(x: torch.Tensor, y: torch.Tensor) -> None:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    run(swap, [torch.randn(33), torch.randn(33)])


def test_strides_of_the_input_stay() -> None:
    def update(x: torch.Tensor) -> None:
        x.mul_(2).add_(1)

    assert run(update, [torch.randn(7, 9).t()])["copies"] == 0
    x, y = torch.zeros(8, 10), torch.zeros(8, 10)
    torch.compile(update, backend="zefuse")(x[:, ::2])
    update(y[:, ::2])
    assert torch.equal(x, y)


def test_what_runs_in_parts_writes_its_inputs_too() -> None:
    def update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(torch.view_as_real(torch.fft.fft(y)).sum(-1).abs())
        return x * 2

    torch._dynamo.reset()
    mine, others = ([torch.randn(8), torch.ones(8)] for _ in range(2))
    others[0].copy_(mine[0])
    made = torch.compile(update, backend="zefuse")(*mine)
    torch.testing.assert_close(made, update(*others))
    torch.testing.assert_close(mine, others)


def test_versions_say_what_was_written() -> None:
    """Autograd's check of saved tensors, and weights that are kept in another form, see the write."""
    torch._dynamo.reset()
    layer = nn.Linear(64, 64)

    def shrink() -> None:
        with torch.no_grad():
            layer.weight.mul_(0.5)

    compiled, shrinking = torch.compile(layer, backend="zefuse"), torch.compile(shrink, backend="zefuse")
    x = torch.randn(8, 64)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), layer(x))
            version = layer.weight._version
            shrinking()
            assert layer.weight._version > version


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_a_write_to_what_a_graph_saved_is_refused(device: str) -> None:
    """A result that the graph has saved for its backward pass too, overwritten before that: the gradient would be wrong. (Where the result
    is a view, AOTAutograd does not see it, under any back end.)"""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        torch._dynamo.graph_break()
        return y.add_(2)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse", options={"device": device})
    made = compiled(torch.randn(4, 5, requires_grad=True))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_batch_norm_updates_its_statistics(dtype: torch.dtype) -> None:
    """Of a model in bf16 torch's shape rule says f32 for the new statistics, and its kernel gives bf16."""
    torch._dynamo.reset()
    mine, other = nn.BatchNorm2d(20).to(dtype), nn.BatchNorm2d(20).to(dtype)
    compiled = torch.compile(mine, backend="zefuse")
    close = {"rtol": 1.6e-2, "atol": 1e-3} if dtype == torch.bfloat16 else {}  # terms cancel, and eager rounds each
    torch.manual_seed(0)
    for _ in range(3):
        x = torch.randn(4, 20, 6, 5, dtype=dtype)
        torch.testing.assert_close(compiled(x), other(x), **close)
        for name, buffer in mine.named_buffers():
            torch.testing.assert_close(buffer, dict(other.named_buffers())[name], **close)


def filled(x: torch.Tensor) -> torch.Tensor:
    return x[:].fill_(0.5).chunk(2, -1)[0]


def added(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x.add_(1)
    return x.chunk(2, -1)[1], x * 2


def before_and_after(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    view = x.split(x.shape[0] // 2)[1]
    x.add_(1)
    return view


def flattened(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)[1:].neg_()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [filled, added, before_and_after, flattened])
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).reshape(3, 8)[1],
        lambda: torch.arange(48.0).reshape(3, 2, 8)[1],
        lambda: torch.arange(48.0).reshape(3, 8, 2)[1].t(),
    ],
    ids=["row", "matrix", "transposed"],
)
def test_a_returned_view_of_what_was_written_is_a_view_of_the_input(
    function: Function, make: Callable[[], torch.Tensor], dynamic: bool
) -> None:
    """AOTAutograd rebuilds a view with symbolic sizes from where the graph's own output begins."""
    torch._dynamo.reset()
    mine, other = make(), make()
    graphs: list[Any] = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        made = torch.compile(function, backend="zefuse", dynamic=dynamic)(mine)
    expected = function(other)
    torch.testing.assert_close(made, expected, rtol=0, atol=0)
    torch.testing.assert_close(mine, other, rtol=0, atol=0)
    view, wanted = (made[0], expected[0]) if isinstance(made, tuple) else (made, expected)
    of_input = wanted.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert (view.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()) == of_input
    assert view.stride() == wanted.stride()
    if of_input:
        assert view.storage_offset() == wanted.storage_offset()
    if function is not flattened:  # which reads elements where it does not write them
        assert graphs[0].counters()["launches"] == 1 and graphs[0].counters()["copies"] == 0


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_returned_view_over_a_dimension_of_one_element(rows: int, dynamic: bool) -> None:
    """Which has any stride: the input's differs from that of what it is overwritten with."""

    def onto_itself(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1, 2).copy_(x.flatten(1, 2))

    torch._dynamo.reset()
    x = torch.arange(5.0 * rows).view(rows, 1, 5)[..., 1:-2]
    made = torch.compile(onto_itself, backend="zefuse", dynamic=dynamic)(x)
    assert torch.equal(made, x[:, 0]) and made.data_ptr() == x.data_ptr()


def diagonal_of_groups(x: torch.Tensor) -> torch.Tensor:
    return (
        x.unflatten(2, (-1, 4)).diagonal(1, 2, 1).zero_()
    )  # torch writes the sizes back as (s // 4) * (s // (s // 4))


def as_another_dtype(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor_split(x, 3)[1].sub_(0.5).unsqueeze(0).view(torch.int32)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", [diagonal_of_groups, as_another_dtype])
def test_a_returned_view_begins_where_eagers_does(function: Function, dynamic: bool) -> None:
    """Where torch puts a size otherwise behind the write, or the bits are seen as another dtype."""
    torch._dynamo.reset()
    mine = torch.arange(7 * 8 * 8.0).reshape(7, 8, 8, 1)
    other = mine.clone()
    made, expected = torch.compile(function, backend="zefuse", dynamic=dynamic)(mine), function(other)
    assert torch.equal(made, expected) and torch.equal(mine, other)
    assert made.storage_offset() == expected.storage_offset() and made.stride() == expected.stride()


@pytest.mark.parametrize("shape", [(3, 3, 1), (2, 3, 3), (3, 2, 3)])
def test_a_returned_view_of_a_flattened_tensor_of_equal_sizes(shape: tuple[int, ...]) -> None:
    """Of which torch gives one as (s * s) // s."""
    torch._dynamo.reset()
    mine = torch.arange(float(math.prod(shape))).view(shape)
    other = mine.clone()
    made = torch.compile(lambda x: x.flatten()[1:].neg_(), backend="zefuse", dynamic=True)(mine)
    assert torch.equal(made, other.flatten()[1:].neg_()) and torch.equal(mine, other)
    assert made.storage_offset() == 1 and made.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()


def test_a_returned_view_of_memory_that_two_inputs_share() -> None:
    """AOTAutograd makes one input of the two, and of the output an as_strided of what that is overwritten with.

    With static sizes it replays the views on the wrong base, and raises, whichever backend compiles.
    """

    def update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.reshape(-1).add_(2)
        return torch.tensor_split(x, 3, 0)[1]

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(144).reshape(9, 1, 8, 2, 1)
        return x, x[..., ::2]

    torch._dynamo.reset()
    mine, other = make(), make()
    made = torch.compile(update, backend="zefuse", dynamic=True)(*mine)
    assert torch.equal(made, update(*other)) and torch.equal(mine[0], other[0])
    assert made.storage_offset() == 48 and made.untyped_storage().data_ptr() == mine[0].untyped_storage().data_ptr()


def test_a_result_that_is_also_written_has_memory_of_its_own() -> None:
    def update(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        x.copy_(y)
        return y

    x = torch.arange(24.0).reshape(3, 8)[1]
    y = torch.compile(update, backend="zefuse", dynamic=True)(x)
    assert torch.equal(x, y) and x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_writes_into_windows_keep_the_sign_of_zero(size: int, dynamic: bool) -> None:
    """Of windows that do not overlap: torch's decomposition adds what goes back to zeros."""

    def write(x: torch.Tensor) -> torch.Tensor:
        windows = x.unfold(1, size, size)
        return windows.mT.mT.index_add_(2, torch.arange(4), windows)

    def whole() -> torch.Tensor:
        return torch.tensor([-0.0, 0.0, 1.0, -2.0]).repeat(3, 8, 2)[..., ::2]

    theirs, ours = whole(), whole()
    expected, actual = write(theirs), torch.compile(write, backend="zefuse", dynamic=dynamic)(ours)
    for mine, eagers in ((actual, expected), (ours, theirs)):
        torch.testing.assert_close(mine, eagers)
        assert torch.equal(mine.signbit(), eagers.signbit())


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("dim", "size", "step"), [(0, 2, 2), (1, 3, 4), (1, 1, 3), (-1, 2, 5), (1, 3, 1), (0, 7, 7), (1, 2, 1)]
)
def test_gradients_of_windows(dim: int, size: int, step: int, dynamic: bool) -> None:
    theirs = torch.randn(7, 9, 11, requires_grad=True)
    ours = theirs.detach().clone().requires_grad_()
    weight = torch.randn(theirs.unfold(dim, size, step).shape)
    function = lambda x: (x.unfold(dim, size, step) * weight).sum()  # noqa: E731
    function(theirs).backward()
    torch.compile(function, backend="zefuse", dynamic=dynamic)(ours).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad.stride() == theirs.grad.stride()


def _assigned(x: torch.Tensor) -> torch.Tensor:
    x.unfold(-1, 2, 4)[..., 0] = 7.0
    return x + 1


def _part_of_a_value(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    windows = y.unfold(0, 1, 2).mT
    windows += 3
    return y


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "function",
    [lambda x: x.unfold(1, 2, 3).mul_(2), lambda x: x.unfold(1, 1, 5)[1:].neg_(), _assigned, _part_of_a_value],
)
def test_writes_into_windows_keep_what_lies_between_them(function: Function, dynamic: bool) -> None:
    """AOTAutograd would set it to zero, for every back end."""
    theirs, ours = (torch.arange(1.0, 25).reshape(3, 8) for _ in range(2))
    expected = function(theirs)
    with pytest.warns(UserWarning, match="windows are written that leave elements between them"):
        actual = torch.compile(function, backend="zefuse", dynamic=dynamic)(ours)
    torch.testing.assert_close((actual, ours), (expected, theirs))


def test_windows_with_gaps_that_are_read_compile() -> None:
    """Also beside a write to what was made of them, and windows without gaps that are written."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.unfold(1, 2, 3).exp().add_(1) + x.unfold(1, 2, 2)[:, :3].mul_(2)

    theirs, ours = (torch.arange(24.0).reshape(3, 8) / 24 for _ in range(2))
    compiled = torch.compile(function, backend="zefuse", options={"strict": True})
    torch.testing.assert_close((compiled(ours), ours), (function(theirs), theirs))


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("shape", [(), (1,), (37,), (64, 128)], ids=str)
def test_what_is_read_is_read_before_it_is_overwritten(shape: tuple[int, ...], device: str) -> None:
    """The overwritten input's new value reads nothing; a later result of the same kernel reads the old one."""

    def zeroed(x: torch.Tensor) -> torch.Tensor:
        old = torch.relu(x) / -1.5
        return old + ~torch.signbit(x.zero_())

    mine = torch.rand(shape) + 0.5
    others = mine.clone()
    torch._dynamo.reset()
    compiled = torch.compile(zeroed, backend="zefuse", options={"device": device})
    torch.testing.assert_close(compiled(mine), zeroed(others))
    torch.testing.assert_close(mine, others)


def _running_statistics(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    mean = x.mean(1, True)
    old = p + 1
    p.mul_(0.9).add_(0.1 * mean)
    return old, (x - mean) * p, old * 2


def _columns_read_the_old_rows(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    old = p + x
    p.copy_(x.sum(1, True))
    return old


def _reductions_read_the_old_rows(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    weighted = (x * p).sum(1, True)
    return p.copy_(weighted), x.softmax(1)


def _zeroed_at_each_level(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    old = x.softmax(1), p.relu() / -1.5 + x.sum(1, True), q * x.mean(0)
    for each in (x, p, q):
        each.zero_()
    return old


def _several_results_in_place(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    variance, mean = torch.var_mean(x, 1, keepdim=True, correction=0)
    q.copy_(x.var(0, correction=0))
    p.copy_(mean)
    x.sub_(mean).div_((variance + 1e-3).sqrt())


def _scans(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    old = x.relu() / 2
    x.copy_(x.cumsum(0))
    p.copy_(y.cumsum(1)[:, -1:])
    return old


def _products(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    old = x * p
    x.copy_(torch.addmm(x, x, y).tanh())
    y.copy_((x @ y + q).relu())
    q.copy_(x.mean(0))
    return old


def _others_places(x: Tensor, y: Tensor, p: Tensor, q: Tensor) -> Any:
    """Transposed, swapped, shifted."""
    p.copy_(q[:, None])
    q.mul_(2)
    before = x.clone()
    x.copy_(y.t())
    y.copy_(before.t())
    x[1:].copy_((x[:-1] * 2).clone())
    return x.sum(0) + q


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize(
    "function",
    [
        _running_statistics,
        _columns_read_the_old_rows,
        _reductions_read_the_old_rows,
        _zeroed_at_each_level,
        _several_results_in_place,
        _scans,
        _products,
        _others_places,
    ],
    ids=lambda function: function.__name__.strip("_"),
)
def test_what_is_written_at_several_levels(function: Function, device: str) -> None:
    """Results of rows, of columns and of elements, some where inputs are that are read at another level."""
    for size, dynamic in ((33, False), (64, True)):
        theirs = [torch.randn(shape) * 0.3 for shape in ((size, size), (size, size), (size, 1), (size,))]
        ours = [t.clone() for t in theirs]
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="zefuse", dynamic=dynamic, options={"device": device})
        for _ in range(2):
            torch.testing.assert_close(compiled(*ours), function(*theirs), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
