"""Views that count from the start of a storage (as_strided), and inputs that share one: eager is the oracle, for results, for what
is written, and when a later call's inputs begin elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from zefuse.backend import observe

Function = Callable[..., Any]


def inside(offset: int = 5, size: int = 3) -> list[torch.Tensor]:
    return [torch.arange(20.0)[offset : offset + size]]


def check(function: Function, *makers: Callable[[], list[torch.Tensor]], dynamic: bool | None = None) -> None:
    """Calls of one compiled function, each with fresh inputs; the whole storages are compared afterwards."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for make in makers:
        given, wanted = make(), make()
        result, expected = compiled(*given), function(*wanted)
        torch.testing.assert_close(result, expected)
        for mine, eagers in zip(given, wanted, strict=True):
            assert mine.shape == eagers.shape
            whole = (mine.untyped_storage().nbytes() // mine.element_size(),)
            torch.testing.assert_close(mine.as_strided(whole, (1,), 0), eagers.as_strided(whole, (1,), 0))


READS: dict[str, Function] = {
    "before": lambda x: x.as_strided((3,), (1,), 0) + 1,
    "behind": lambda x: x.as_strided((3,), (1,), 10) + 1,
    "all": lambda x: x.as_strided((20,), (1,), 0) + 1,
    "in_it": lambda x: x.as_strided((2,), (1,), 6) + 1,
    "from_its_offset": lambda x: x.as_strided((2,), (1,)) + 1,
    "from_a_slices_offset": lambda x: x[1:].as_strided((2,), (1,)) + 1,
    "of_a_slice": lambda x: x[1:].as_strided((2,), (1,), 7) + 1,
    "copied": lambda x: torch.as_strided_copy(x, (3,), (1,), 0) + 1,
    "of_its_offset": lambda x: x.as_strided((2,), (1,), x.storage_offset() + 1) + 1,
    "returned": lambda x: x.as_strided((3,), (1,), 0),
    "returned_all": lambda x: x.as_strided((20,), (1,), 0),
    "unfold": lambda x: x.unfold(0, 2, 1) + 1,
    "as_bits": lambda x: x.view(torch.int32).as_strided((3,), (1,), 0) + 1,
    "sizes_of_it": lambda x: x.as_strided((x.shape[0] * 2,), (1,), 0) + 1,
    "sizes_of_it_returned": lambda x: x.as_strided((x.shape[0] * 2,), (1,), 0),
    "sizes_of_it_from_2_returned": lambda x: x.as_strided((x.shape[0] * 2,), (1,), 2),
    "from_its_offset_returned": lambda x: x.as_strided((x.shape[0] - 1,), (1,)),
    "of_its_offset_returned": lambda x: x.as_strided((x.shape[0] - 1,), (1,), x.storage_offset() + 1),
    "a_slices_offset_returned": lambda x: x[1:].as_strided((x.shape[0] - 1,), (1,)),
    "sliced_and_returned": lambda x: x.as_strided((6,), (1,), 7)[: x.shape[0]],
}


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", READS)
def test_reads(name: str, dynamic: bool | None) -> None:
    offsets = (0, 5, 6) if name != "of_a_slice" else (5, 6, 0)
    check(READS[name], *[lambda at=at: inside(at) for at in offsets], dynamic=dynamic)
    check(READS[name], *[lambda at=at: inside(at) for at in (5, 6, 0)], lambda: inside(4, 5), dynamic=dynamic)


MADE: dict[str, Function] = {
    "slice": lambda x: (x * 2)[1:].as_strided((2,), (1,), 0) + 1,
    "slice_no_offset": lambda x: (x * 2)[1:].as_strided((2,), (1,)) + 1,
    "transposed": lambda x: (x * 2).view(2, 3).t()[1:].as_strided((3,), (1,), 1) + 1,
    "not_contiguous": lambda x: (x.view(2, 3).t() * 2)[1:].as_strided((4,), (1,), 0) + 1,
    "one_of_several": lambda x: x.view(2, 3).max(0).values[1:].as_strided((2,), (1,), 0) + 1,
    "split": lambda x: (x * 2).split(2)[1].as_strided((3,), (1,), 0) + 1,
    "returned": lambda x: (x * 2)[1:].as_strided((3,), (1,), 0),
    "bits": lambda x: (x * 2)[1:].view(torch.int32).as_strided((2,), (1,), 0) + 1,
    "half_the_bits": lambda x: (x * 2)[1:].view(torch.int16).as_strided((2,), (1,), 0) + 1,
}


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
@pytest.mark.parametrize("name", MADE)
def test_of_what_the_graph_made(name: str) -> None:
    check(MADE[name], lambda: [torch.arange(6.0)])


WRITES: dict[str, Function] = {
    "before": lambda x: x.as_strided((3,), (1,), 0).mul_(2).sum(),
    "across_its_end": lambda x: x.as_strided((3,), (1,), 6).mul_(2),
    "in_it": lambda x: x.as_strided((2,), (1,), 6).mul_(2),
    "from_its_offset": lambda x: x.as_strided((2,), (1,)).mul_(2),
    "longer_than_it": lambda x: x.as_strided((6,), (1,)).mul_(2),
    "of_a_slice": lambda x: x[1:].as_strided((2,), (1,)).mul_(2),
    "of_what_was_made": lambda x: (x * 2)[1:].as_strided((2,), (1,), 0).add_(1),
    "read_in_it": lambda x: (x.mul_(2), x.as_strided((2,), (1,), 6) + 1)[1],
    "read_before": lambda x: (x.mul_(2), x.as_strided((3,), (1,), 0) + 1)[1],
    "read_behind": lambda x: (x.mul_(2), x.as_strided((3,), (1,), 10) + 1)[1],
    "read_between": lambda x: (x[1:].mul_(2), x.as_strided((3,), (1,), 4).cos(), x.add_(1))[1],
}


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str, dynamic: bool | None) -> None:
    check(WRITES[name], *[lambda at=at: inside(at) for at in (5, 6, 0)], dynamic=dynamic)
    check(WRITES[name], *[lambda at=at: inside(at) for at in (0, 5)], dynamic=dynamic)


PARTS_OF_WHAT_REPEATS: dict[str, Function] = {
    "a diagonal of an input": lambda x: (x.as_strided((2, 2, 2), (4, 0, 1)).diagonal().neg_() * 1, x + 1),
    "a diagonal of what was made": lambda x: (lambda y: (y.as_strided((2, 2, 2), (4, 0, 1)).diagonal().neg_() * 1, y))(x + 1),
    "a row of windows": lambda x: (lambda y: (y.unfold(0, 3, 1)[0, :1].neg_() * 1, y))(x + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS_OF_WHAT_REPEATS)
def test_a_part_written_of_elements_that_lie_in_one_place(name: str) -> None:
    """Each is there once in the part, and elsewhere in what it is a part of. aot_eager refuses all three."""
    with pytest.warns(UserWarning, match="a graph runs in eager"):
        check(PARTS_OF_WHAT_REPEATS[name], lambda: [torch.arange(20.0)])


def test_a_write_between_the_elements() -> None:
    with pytest.warns(UserWarning, match="a graph runs in eager"):
        check(lambda x: x.as_strided((3,), (1,), 0).mul_(2), lambda: [torch.arange(20.0)[:12:3]])


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
def test_a_read_between_the_elements_that_are_written() -> None:
    check(lambda x: (x.mul_(2), x.as_strided((3,), (1,), 0) + 1)[1], lambda: [torch.arange(20.0)[:12:3]])


def views(*ranges: tuple[int, int]) -> list[torch.Tensor]:
    base = torch.arange(20.0)
    return [base[first:last] for first, last in ranges]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("write_both", [False, True])
def test_inputs_of_one_base_move(write_both: bool, dynamic: bool | None) -> None:
    """AOTAutograd makes one input of them and their offsets constants, which nothing guards."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.mul_(2), y.add_(1) if write_both else y + 1

    places = [((2, 8), (4, 10)), ((3, 9), (5, 11)), ((2, 8), (4, 10)), ((0, 6), (13, 19))]
    check(function, *[lambda at=at: views(*at) for at in places], dynamic=dynamic)


def test_a_returned_view_of_inputs_that_overlap_without_dynamo() -> None:
    """AOTAutograd merges the inputs to one base, and asks the output where in it it begins."""
    from zefuse.backend import zefuse

    def written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (y.exp_(),)

    def inputs() -> list[torch.Tensor]:
        x = torch.linspace(-1, 1, 16).reshape(2, 2, 4).clone()[..., 1:-2]
        return [x, x[1:]]

    compiled = zefuse(torch.fx.symbolic_trace(written), inputs())
    mine, theirs = inputs(), inputs()
    (result,), (expected,) = compiled(*mine), written(*theirs)
    torch.testing.assert_close(result, expected)
    assert result.data_ptr() == mine[1].data_ptr()
    torch.testing.assert_close(mine, theirs)


def test_gradients() -> None:
    for function in (READS["in_it"], READS["from_its_offset"], READS["unfold"]):
        grads = []
        for compiled in (False, True):
            torch._dynamo.reset()
            base = torch.arange(20.0).requires_grad_()
            (torch.compile(function, backend="zefuse") if compiled else function)(base[5:8]).pow(2).sum().backward()
            grads.append(base.grad)
        torch.testing.assert_close(*grads)


def overwritten_whole(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    return y[1:].fill_(0.5), y.copy_(x)


REPEATED = {
    "repeat": lambda x: (x + 1).repeat(2).split(3),
    "cat": lambda x: torch.cat([x + 1, x + 1]).split(3),
    "contiguous expand": lambda x: (x + 1).expand(4, 3).contiguous().unbind()[::2],
    "repeat_interleave": lambda x: ((y := (x + 1).repeat_interleave(2))[::2], y[1::2]),
    "some of each": lambda x: ((y := (x + 1).repeat(3))[:4], y[4:7], y[3:]),
    "of an input": lambda x: x.repeat(2).split(3),
    "overwritten whole": overwritten_whole,
    "a constant": lambda x: ((y := torch.zeros(6)), y[2:4], y[3:]),
    "filled through a view": lambda x: ((y := x[:1, None].sin()).t(), y[:, -1:].fill_(0.5)),
    "filled through a view, and whole": lambda x: ((y := x[0].to(torch.float16)).unsqueeze(0).zero_(), y),
    "the last rows": lambda x: ((y := x[:, None, None] * 2 + x[:, None] * x), y[-2:].mul_(2)),
    "differences": lambda x: ((y := torch.diff((x[:, None] * x).t()).trunc()), y[1:]),
    "every second row": lambda x: ((y := torch.rot90(x[:, None] * 2 + x))[:, 1:], y[1::2]),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", REPEATED)
def test_outputs_overlap_where_eagers_do(name: str, dynamic: bool) -> None:
    """Elements that are computed once for several places of one tensor: what is written to one is not seen in another."""
    torch._dynamo.reset()
    compiled = torch.compile(REPEATED[name], backend="zefuse", dynamic=dynamic)
    count = len(REPEATED[name](torch.arange(3.0)))
    for written in range(count):
        mine, theirs = compiled(torch.arange(3.0)), REPEATED[name](torch.arange(3.0))
        mine[written].mul_(100)
        theirs[written].mul_(100)
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "made",
    [lambda: torch.arange(1.0, 8.0).as_strided((3, 4), (1, 1)), lambda: torch.arange(4.0).expand(3, 4)],
    ids=["windows", "expanded"],
)
def test_a_row_is_written_that_shares_memory_with_others(made: Callable[[], torch.Tensor], dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x[0].mul_(0.5)
        return x.sum(1)

    theirs, ours = made(), made()
    expected = function(theirs)
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="runs in eager: .*(whose elements share memory|more than one element)"):
        actual = torch.compile(function, backend="zefuse", dynamic=dynamic)(ours)
    assert torch.equal(actual, expected)
    assert torch.equal(ours, theirs)


def test_one_of_two_integers_in_one_memory_is_written_beside_what_is_trained() -> None:
    """Neither is a view of the other to autograd, as what one graph returns and the next one takes; torch refuses to trace it."""

    def function(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        second.copy_(second + 1)
        return x * 2, first * 3

    def arguments() -> list[torch.Tensor]:
        first = torch.arange(6)
        return [
            torch.ones(3, requires_grad=True),
            first,
            torch.empty(0, dtype=torch.int64).set_(first.untyped_storage(), 0, (2, 3)),
        ]

    with pytest.warns(UserWarning, match="runs in eager: .*non-differentiable view"):
        actual = torch.compile(function, backend="zefuse")(*(taken := arguments()))
    torch.testing.assert_close(actual, function(*(expected := arguments())))
    torch.testing.assert_close(taken, expected)


def test_one_of_two_outputs_in_one_memory_is_written_after_a_graph_break() -> None:
    """Their memory's size is a symbol. Where neither is a view of the other to autograd torch makes no one tensor of them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        whole = x.sin()
        repeated = whole.expand(3, -1, -1)
        torch._dynamo.graph_break()
        whole.copy_(x)
        return repeated + 1

    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    x = torch.randn(4, 5)
    with torch.no_grad():
        with pytest.warns(UserWarning, match="runs in eager: an input is written"):
            actual = compiled(x)
        torch.testing.assert_close(actual, function(x))


def test_what_lies_between_the_elements_of_a_written_copy() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, x.narrow(1, 0, 1) + 1, 1, 0, 1).as_strided((4,), (2,)) * 2

    x = torch.arange(24).reshape(2, 3, 4)[..., 1:2]
    with pytest.warns(UserWarning, match="runs in eager: as_strided reads between"):
        actual = torch.compile(function, backend="zefuse")(x)
    torch.testing.assert_close(actual, function(x))


ONE_OF_SEVERAL: dict[str, Function] = {
    "unbind": lambda x: (x.unbind(1)[-1].square_(), x.unbind(1)[-1].as_strided((2, 3), (1, 2)) * 2)[1],
    "split": lambda x: (x.split(2, 1)[1].square_(), x.split(2, 1)[1].as_strided((2, 2), (1, 2)) * 2)[1],
    "a view before": lambda x: (v := x.unbind(1)[-1], v.as_strided((2, 3), (1, 2)), v.square_())[1] * 2,
    "bits": lambda x: x.view(torch.int32).unbind(1)[-1].as_strided((2, 3), (1, 2)) + 1,
    "all written": lambda x: (x.neg_(), x.split(2, 1)[1].as_strided((2, 2), (1, 2)) * 2)[1],
    "returned": lambda x: x.split(2, 1)[1].as_strided((x.shape[0], 2), (1, 2)),
}


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ONE_OF_SEVERAL)
def test_around_one_of_several_views(name: str, dynamic: bool) -> None:
    """Between the elements of an input, which a functional graph's copy of it does not have."""
    check(ONE_OF_SEVERAL[name], lambda: [torch.arange(36.0).reshape(3, 12)[:, 1:5]], dynamic=dynamic)


def test_a_row_of_windows_of_a_computed_value_is_written() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        windows = (x * 2).as_strided((2, 3), (1, 1))
        windows[0].add_(1)
        return windows

    with pytest.warns(UserWarning, match="runs in eager: .* share memory"):
        check(function, lambda: inside(0, 8), dynamic=False)


CHANNELS_LAST: dict[str, Function] = {
    "beside_a_part": lambda v: (v.as_strided((3, 2), (2, 1), 1), v.chunk(2, -3)[0]),
    "beside_a_slice": lambda v: (v[:, 2:], v.as_strided((3, 2), (2, 1), 1)),
    "beside_parts_and_all": lambda v: (*v.chunk(2, -3), v.as_strided((3, 2), (2, 1), 1), v),
    "alone": lambda v: (v.as_strided((3, 2), (2, 1), 1) + 1,),
    "after_a_permutation": lambda v: (v.permute(1, 3, 0, 2).as_strided((2, 3), (1, 4), 1), v[:, :, 1:]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_of_a_tensor_in_another_order(name: str, dynamic: bool) -> None:
    """as_strided counts in the order of memory: in the plan, and beside other views that lie in the same memory."""

    def function(x: torch.Tensor) -> Any:
        return CHANNELS_LAST[name](x.mul(2))

    def places(results: Any) -> list[Any]:
        first = results[0].untyped_storage().data_ptr()
        return [(t.untyped_storage().data_ptr() == first, t.storage_offset(), t.stride()) for t in results]

    torch._dynamo.reset()
    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for batch in (2, 3):
        x = torch.randn(batch, 4, 3, 5).contiguous(memory_format=torch.channels_last)
        with observe(lambda _, graph: graphs.append(graph)):
            results = compiled(x)
        torch.testing.assert_close(results, function(x))
        if not dynamic:  # of symbolic sizes a copy may lie apart
            assert places(results) == places(function(x))
    assert graphs
    assert not any(graph.report()["fallbacks"] for graph in graphs)


def test_a_copy_seen_as_its_own_dtype_is_a_copy() -> None:
    def function(x: torch.Tensor) -> Any:
        copy = x.clone()
        return copy.view(x.dtype), copy

    torch._dynamo.reset()
    graphs: list[Any] = []
    x = torch.randn(3)
    with observe(lambda _, graph: graphs.append(graph)):
        seen, copy = torch.compile(function, backend="zefuse")(x)
    assert seen.data_ptr() == copy.data_ptr() != x.data_ptr()
    assert graphs
    assert not any(graph.report()["fallbacks"] for graph in graphs)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.float64])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_copy_seen_as_another_dtype_is_a_copy(dtype: torch.dtype, dynamic: bool) -> None:
    def function(x: torch.Tensor) -> Any:
        copy = x.clone()
        return copy.view(dtype), copy.view(dtype)[1:], x.t().contiguous().view(dtype)

    torch._dynamo.reset()
    x = torch.randn(4, 4)
    kept = x.clone()
    results = torch.compile(function, backend="zefuse", dynamic=dynamic)(x)
    expected = function(x)
    for got, want in zip(results, expected, strict=True):
        assert torch.equal(got, want) and got.stride() == want.stride()
        got.fill_(7)
        want.fill_(7)
    assert torch.equal(x, kept)
    seen = torch.compile(lambda x: x.view(dtype), backend="zefuse", dynamic=dynamic)(x)
    assert seen.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_what_is_written_are_the_inputs(dynamic: bool) -> None:
    """AOTAutograd lays some of them as what the graph computes, where sizes are symbols: other elements."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        y[1:].zero_()
        return x.chunk(2, 1)[-1], x.t()[1:].chunk(3)[1], y.chunk(2, 1)[1], y

    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for rows in (3, 5):
        inputs = [[torch.arange(rows * 9.0).view(rows, 9)[:, 1:7], torch.ones(rows, 8)[:, 1:]] for _ in range(2)]
        expected, actual = function(*inputs[0]), compiled(*inputs[1])
        for theirs, ours in zip(expected, actual, strict=True):
            assert ours.stride() == theirs.stride() and ours.storage_offset() == theirs.storage_offset()
        for results in (expected, actual):
            for result in results:
                result.add_(1)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(inputs[1], inputs[0])
