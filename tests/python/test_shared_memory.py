"""Which results share memory with arguments and each other, how they lie in it, and what a function writes: as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_semantics import zefuse
from torch.nn import functional as F

from zefuse.testing import relative_error

OUTPUTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "transposed": lambda x: (x + 1).t(),
    "permuted": lambda x: x.view(4, 2, 6).permute(2, 0, 1) * 2,
    "slice": lambda x: (x * 2)[:, 1:5:2],
    "expanded": lambda x: x.sum(0).expand(3, 6),
    "channels last": lambda x: (x.view(1, 2, 4, 6) + 1).contiguous(memory_format=torch.channels_last),
    "view of input": lambda x: x[2:4],
    "input itself": lambda x: (x, x * 2),
    "same output twice": lambda x: (lambda y: (y, y))(x + 1),
    "view and base": lambda x: (lambda y: (y, y.t()))(x + 1),
    "scalar": lambda x: x.sum(),
    "empty": lambda x: x[:0] * 2,
    "numbers": lambda x: (x * 2, x.shape[0], None),
    "bool": lambda x: x > 0,
    "constant": lambda x: (torch.arange(3), torch.full((2, 2), 1.5), x + 1),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_look_as_eager(name: str) -> None:
    function = OUTPUTS[name]
    x = torch.randn(8, 6)
    expected, actual = function(x), zefuse(function)(x)
    assert relative_error(actual, expected) < 1e-6
    for mine, theirs in zip(
        torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(expected), strict=True
    ):
        if isinstance(theirs, torch.Tensor) and theirs.numel():
            assert mine.stride() == theirs.stride()
            shares = theirs.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            assert (mine.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == shares


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 3:], lambda x: x[0].expand(4, 6), lambda x: x.flip(0)],
    ids=["transposed", "strided", "offset", "expanded", "flipped"],
)
def test_inputs_of_any_layout(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1) + x

    x = view(torch.randn(8, 6))
    expected = function(x)
    actual = zefuse(function)(x)
    assert relative_error(actual, expected) < 1e-5
    assert actual.stride() == expected.stride()


def test_input_mutation() -> None:
    def function(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache[:, 1:3].add_(x)
        cache.mul_(2)
        return cache.sum() + x.sin_().sum()

    ours = torch.randn(4, 2), torch.randn(4, 5)
    theirs = ours[0].clone(), ours[1].clone()
    assert relative_error(zefuse(function)(*ours), function(*theirs)) < 1e-5
    assert relative_error(ours, theirs) < 1e-6


def test_clone_of_an_input_is_another_tensor() -> None:
    def first_step(grad: torch.Tensor) -> torch.Tensor:
        buffer = torch.clone(grad).detach()
        grad.add_(buffer, alpha=0.9)
        return buffer

    ours, before = (torch.ones(4, 5) for _ in range(2))
    buffer = zefuse(first_step)(ours)
    assert torch.equal(buffer, before)
    assert relative_error(ours, before * 1.9) < 1e-6


@pytest.mark.parametrize("grad", [False, True])
def test_outputs_that_view_one_value_share_it(grad: bool) -> None:
    """Though none of them can lie as the value does: a convolution writes channels last."""

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.conv2d(x, w, groups=4)
        return y, y.movedim(-2, -3), y[0], y.flatten(1), y.flip(0)

    x, w = torch.randn(5, 4, 5, 12), torch.randn(4, 1, 1, 1)
    with torch.set_grad_enabled(grad):
        expected, actual = function(x, w), zefuse(function)(x, w)
    for results in (expected, actual):
        results[0][0].mul_(2)
    torch.testing.assert_close(actual, expected)
    assert [t.stride() for t in actual] == [t.stride() for t in expected]


# Each reads computed values from their beginning, but not to their end: the view's map is the identity, its strides are
# not those of the whole.
BEGINNINGS: dict[str, Callable[[torch.Tensor], Any]] = {
    "of the last dim": lambda y: y[..., :-2].clone(),
    "of the middle": lambda y: y[:, :, :-1].clone(),
    "of all dims": lambda y: y[:1, :-1, :-1, :17].clone(),
    "and what reads all": lambda y: (y[..., :-2].clone(), y.sum(-1)),
    "and their sum": lambda y: (y[..., :-2].clone(), y[..., :-2].sum(-1)),
    "by a pad": lambda y: F.pad(y, (0, -2)),
    "transposed": lambda y: y[..., :-2].transpose(1, -1).contiguous(),
    "channels of an image": lambda y: F.conv2d(y[:, :3], torch.ones(2, 3, 1, 1)),
    "of a convolution": lambda y: F.conv2d(y, torch.ones(2, y.shape[1], 1, 1))[..., :-2].clone(),
    "of a product": lambda y: (y @ torch.ones(19, 5))[..., :-2].clone(),
}


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_beginnings_of_computed_values(dynamic: bool, device: str) -> None:
    readers = list(BEGINNINGS.values())

    def function(inputs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[Any]:
        return [read(x + permuted.permute(0, 2, 3, 1) * 2) for read, (x, permuted) in zip(readers, inputs, strict=True)]

    inputs = [(torch.randn(2, 5, 7, 19), torch.randn(2, 19, 5, 7)) for _ in readers]
    actual = zefuse(function, dynamic=dynamic, options={"device": device})(inputs)
    expected = function(inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    leaves = [torch.utils._pytree.tree_leaves(results) for results in (actual, expected)]
    assert [t.stride() for t in leaves[0]] == [t.stride() for t in leaves[1]]


# Operators that are free here, though eager returned memory of its own, and views of it.
VIEWS_OF_FREE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "flip": lambda x, y: (lambda v: (v, v.t(), v[1:]))(x.flip(-1)),
    "parts of a flip": lambda x, y: (lambda v: (v[0], v[1:]))(x.flip(-1)),
    "flips of the same": lambda x, y: (lambda v, w: (v, v.t(), w, w.t()))(x.flip(-1), x.flip(-1)),
    "clone": lambda x, y: (lambda v: (v.t(), v))(x.t().clone()),
    "clone of what is returned": lambda x, y: (lambda v: (lambda w: (v, v[0], w, w[0]))(v.clone()))(x * 2),
    "repeated once": lambda x, y: (lambda v: (v[:, :1].repeat_interleave(1, 1), v, v[:, :1]))(x % 2.5),
    "expanded": lambda x, y: (lambda v: (v[0], v))(x[:1].clone().expand(3, 6)),
    "what is also written": lambda x, y: (lambda v: (y.copy_(v), v, v.t()))(x.flip(0)),
    "flattened": lambda x, y: (lambda v: (v, v.flatten(), v[:, None].flatten(1)))(x + 1),
    "three dimensions flattened": lambda x, y: (lambda v: (v, v.flatten(), v.flatten(1)))(x + y[:, None]),
    "rows repeated, and written": lambda x, y: (lambda v: (v.unsqueeze(2).neg_(), v))(x.repeat_interleave(2, -2)),
    "written by two": lambda x, y: (lambda v: (y.copy_(v), x.copy_(v.flip(0)), v[0]))(x.flip(0)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", VIEWS_OF_FREE)
def test_views_of_what_is_free_share_its_memory(name: str, dynamic: bool) -> None:
    function = VIEWS_OF_FREE[name]
    theirs = torch.randn(4, 6), torch.randn(4, 6)
    ours = theirs[0].clone(), theirs[1].clone()
    expected, actual = function(*theirs), zefuse(function, dynamic=dynamic)(*ours)
    torch.testing.assert_close((ours, actual), (theirs, expected))
    assert [t.stride() for t in actual] == [t.stride() for t in expected]
    places = [[t.untyped_storage().data_ptr() for t in (*i, *o)] for i, o in ((ours, actual), (theirs, expected))]
    assert [list(map(p.index, p)) for p in places[:1]] == [list(map(p.index, p)) for p in places[1:]]


# A part of a copy that keeps the gaps of what it is a copy of.
WITH_GAPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rows": lambda x: (lambda v: (v[0, :-1].fill_(2), v))(torch.slice_scatter(x, x[:1], 0, 0, 1)),
    "one row": lambda x: (lambda v: (v[0], v))(torch.slice_scatter(x[:1], x[1:2], 0, 0, 1)),
    "columns": lambda x: (lambda v: (v, v[:, 1], v[1]))(torch.select_scatter(x, x[0] + 1, 0, 0)),
    "diagonal": lambda x: (lambda v: (v[1:, ::2], v))(torch.diagonal_scatter(x, x.diagonal() + 1)),
    "repeated": lambda x: (lambda v: (v.expand(3, -1, -1), v.expand_as(v)))(
        torch.select_scatter(x[0].unsqueeze(1), x[0, :1], 0, -1)
    ),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WITH_GAPS)
def test_parts_of_what_has_gaps_share_its_memory(name: str, dynamic: bool) -> None:
    x = torch.randn(4, 12)[:, ::2]
    expected, actual = WITH_GAPS[name](x), zefuse(WITH_GAPS[name], dynamic=dynamic)(x)
    torch.testing.assert_close(actual, expected)
    assert [t.stride() for t in actual] == [t.stride() for t in expected]
    for tensors in (expected, actual):
        assert len({t.untyped_storage().data_ptr() for t in tensors}) == 1
    assert [t.data_ptr() - actual[0].data_ptr() for t in actual] == [
        t.data_ptr() - expected[0].data_ptr() for t in expected
    ]


# The computed value has a column less than the input: torch writes its stride as Max(1, s - 1).
ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "last rows": lambda v: (v[v.shape[0] - 2 :], v),
    "rows of parts": lambda v: (v.split(2)[-1], v, v.tensor_split(3)[1]),
    "of another shape": lambda v: (v[1:, None], v[2:], v),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_fewer_columns_share_memory(name: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return ROWS[name](x[:, 1:] + 1)

    compiled = zefuse(function, dynamic=True)
    for x in (torch.randn(5, 5), torch.randn(7, 7), torch.randn(7, 1)):
        expected, actual = function(x), compiled(x)
        torch.testing.assert_close(actual, expected)
        if x.shape[1] > 1:
            for tensors in (expected, actual):
                assert len({t.untyped_storage().data_ptr() for t in tensors}) == 1
            places = [[t.data_ptr() - tensors[0].data_ptr() for t in tensors] for tensors in (expected, actual)]
            assert places[0] == places[1]


# Outputs of which one views the other, and less than all of what was computed.
PARTS_THAT_SHARE: dict[str, Callable[[torch.Tensor], Any]] = {
    "windows of a dense part": lambda x: (lambda v: (v.unfold(1, 2, 2), v))(F.pad(x.sign(), (-1, -1))),
    "a part of what is written in another order": lambda x: (lambda v: (v.chunk(2, -2)[-1], v))(
        x.repeat(2, 3, 1, 3, 2, 2).transpose(0, -1)[1:].neg_()
    ),
    "behind the first element of a batch of products": lambda x: (lambda v: (v.as_strided((3, 2), (2, 1), 1), v))(
        x.view(3, 1, 3, 2).mT @ x.view(3, 1, 3, 2)
    ),
    "rows from the second on, flattened": lambda x: (lambda v: (v[1:].flatten(), v, v[1:]))(x + 1),
    "a third, of which there is one": lambda x: (lambda v: (v.mT, v.squeeze(-1), v))(
        x.unflatten(1, (-1, 2)).tensor_split(3, 1)[1].clone()
    ),
    "windows that follow each other, flattened": lambda x: (lambda v: (v.unfold(1, 2, 2)[1:].flatten(1), v))(x + 1),
    "half of the rows, taken apart again": lambda x: (lambda v: (v[1:].flatten().unflatten(0, (2, -1)), v))(x * 3),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PARTS_THAT_SHARE)
def test_parts_of_which_one_views_another_share_memory(name: str, dynamic: bool) -> None:
    x = torch.arange(-9.0, 9).reshape(3, 6)
    expected, actual = PARTS_THAT_SHARE[name](x), zefuse(PARTS_THAT_SHARE[name], dynamic=dynamic)(x)
    for tensors in (expected, actual):
        tensors[0].mul_(3)
        assert len({t.untyped_storage().data_ptr() for t in tensors}) == 1
    torch.testing.assert_close(actual, expected)
    assert [t.stride() for t in actual] == [t.stride() for t in expected]


# What some operator makes free, though eager returned memory of its own.
FRESH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cat of one": lambda x: torch.cat([x]),
    "stack of one": lambda x: torch.stack([x[0]]),
    "pad by nothing": lambda x: F.pad(x, (0, 0)),
    "repeat once": lambda x: x.repeat(1, 1),
    "flip of one row": lambda x: x.flip(0),
    "windows of one": lambda x: F.unfold(x[None, None], (1, 1)),
    "explicit copy": lambda x: x.to(torch.float32, copy=True),
    "clone of a slice": lambda x: x[:, 1:].clone(),
    "clone as another dtype": lambda x: x.view(torch.int32).clone(),
    "flip of one row as another dtype": lambda x: x.view(torch.int32).flip(0),
    "part of that": lambda x: x.view(torch.int32).clone()[:, 1:],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FRESH)
def test_fresh_outputs_share_nothing(name: str, dynamic: bool) -> None:
    x = torch.arange(6.0).reshape(1, 6)
    compiled = zefuse(lambda x: (FRESH[name](x), FRESH[name](x * 2), x * 2), dynamic=dynamic)
    mine, of_double, double = compiled(x)
    torch.testing.assert_close(mine, FRESH[name](x))
    storages = {tensor.untyped_storage().data_ptr() for tensor in (x, mine, of_double, double)}
    assert len(storages) == 4


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_copy_as_another_dtype_is_made_before_the_input_is_written(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        copy = x.view(torch.int32).clone()
        x.add_(1)
        return copy

    theirs = torch.randn(3, 4)
    ours = theirs.clone()
    actual, expected = zefuse(function, dynamic=dynamic)(ours), function(theirs)
    assert torch.equal(actual, expected)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_copy_of_what_as_strided_reads_is_not_the_input(dynamic: bool) -> None:
    function = lambda x: (lambda v: (v.clone(), v[1:].clone(), v + 1))(x.as_strided((5,), (1,), 0))  # noqa: E731
    x = torch.arange(24.0)[::2]
    actual = zefuse(function, dynamic=dynamic)(x)
    torch.testing.assert_close(actual, function(x))
    assert len({tensor.untyped_storage().data_ptr() for tensor in (x, *actual)}) == 4


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[x.shape[0] // 2 :],
        lambda x: x[5 : (x.shape[0] - 5) // 2 + 6],
        lambda x: x[:, x.shape[0] // 3].unsqueeze(0),
        lambda x: x.t()[1:, x.shape[0] // 2 :],
        lambda x: x.unfold(0, x.shape[0] // 2, 1)[1:],
        lambda x: x[x.shape[0] // 2 :].view(torch.int32),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_views_of_inputs_from_a_symbolic_position(view: Callable[[torch.Tensor], torch.Tensor], grad: bool) -> None:
    """AOTAutograd rebuilds them from the offset and strides that the compiled graph returns."""
    x = torch.randn(10, 5, requires_grad=grad)
    mine, theirs = zefuse(lambda x: (view(x), x + 1), dynamic=True)(x)[0], view(x)
    assert (mine.data_ptr(), mine.stride()) == (theirs.data_ptr(), theirs.stride())
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_write_beside_a_view_of_an_overlapping_input_is_done_once(dynamic: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y[1:].mul_(3)
        return x.movedim(2, -2), F.silu(x)

    def inputs() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linspace(-1, 1, 12).view(1, 4, 3).expand(3, 4, 3).detach().requires_grad_(), torch.arange(1.0, 6)

    (x, ours), (_, theirs) = inputs(), inputs()
    actual, expected = zefuse(function, dynamic=dynamic)(x, ours), function(x, theirs)
    torch.testing.assert_close((actual, ours), (expected, theirs))
    assert actual[0].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_views_share_their_memory_beside_an_empty_one() -> None:
    """Where nothing lies is not told by its views, and is no reason for the others to lie apart."""
    function = lambda x: (lambda y: (y[::2][1::3], y[::2], y))(x * 3)  # noqa: E731
    for size in (2, 1, 7):
        empty, half, whole = zefuse(function, dynamic=False)(torch.arange(size))
        assert half.data_ptr() == whole.data_ptr()
        torch.testing.assert_close((empty, half, whole), function(torch.arange(size)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_turned_value_lies_as_in_eager_beside_an_empty_part(dynamic: bool) -> None:
    """Its memory was to step backwards, as nothing of the empty part says otherwise: refused at the call."""
    function = lambda x: (lambda y: (y[::2, 2:1], y, y[:0]))((x * 3).flip(0))  # noqa: E731
    torch._dynamo.reset()
    x = torch.randn(7, 2)
    actual, expected = torch.compile(function, backend="zefuse", dynamic=dynamic)(x), function(x)
    torch.testing.assert_close(actual, expected)
    assert [each.stride() for each in actual] == [each.stride() for each in expected]


WRITTEN_PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda x: torch.slice_scatter(x, x[:, :1] * 2, 1, 1, 2),
    "row": lambda x: torch.select_scatter(x, x[0] * 2, 0, -1),
    "diagonal": lambda x: torch.diagonal_scatter(x, x.diagonal() * 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRITTEN_PARTS)
def test_a_part_written_of_what_repeats_elements(name: str, dynamic: bool) -> None:
    """By torch 2.11's shape rule the result repeats elements too, and has no place for those that were written."""
    ours, theirs = (torch.linspace(0, 1, 6)[:, None].expand(6, 4).detach().requires_grad_() for _ in range(2))
    actual, expected = zefuse(WRITTEN_PARTS[name], dynamic=dynamic)(ours), WRITTEN_PARTS[name](theirs)
    torch.testing.assert_close(actual, expected)
    assert actual.stride() == expected.stride()
    for result in (actual, expected):
        result.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "made",
    [lambda: torch.ones(3, 1, 5).expand(3, 4, 5), lambda: torch.arange(90.0).view(3, 30).unfold(1, 5, 1)[:, :4]],
    ids=["expanded", "windows"],
)
def test_gradients_of_views_of_an_overlapping_input(made: Callable[[], torch.Tensor], dynamic: bool) -> None:
    """as_strided's own would share out what belongs to elements that lie in one place."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        halves = x.unflatten(1, (2, -1))
        return halves * 2, halves.mT, halves.unbind(1)[0]

    gradients = []
    for run in (function, zefuse(function, dynamic=dynamic)):
        x = made().detach().requires_grad_()
        product, view, half = run(x)
        assert view.data_ptr() == half.data_ptr() == x.data_ptr()
        weight = torch.arange(60.0).reshape(3, 2, 5, 2)
        (product.sum() + (view * weight).sum() + (half * weight[:, 0].mT).sum()).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("training", [False, True])
def test_an_error_is_looked_for_beside_inputs_that_share_memory(training: bool) -> None:
    """AOTAutograd makes one input of them, and forgot that the operator without a result has a token: torch.linalg's check."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return torch.linalg.inv(y @ y.mT + z), x + 1

    compiled, gradients = zefuse(function), []
    for run in (function, compiled):
        memory, z = torch.linspace(-1, 1, 16).reshape(4, 4).sin(), torch.eye(3, requires_grad=training)
        inverse, more = run(memory, memory[:3, :3], z)
        if training:
            (inverse.square().sum() + more.sum()).backward()
        gradients.append((inverse.detach(), more, memory, z.grad))
    torch.testing.assert_close(gradients[1], gradients[0])
    zeros = torch.zeros(4, 4)
    with pytest.raises(RuntimeError, match="singular"):
        compiled(zeros, zeros[:3, :3], torch.zeros(3, 3, requires_grad=training))


def test_an_error_is_looked_for_beside_an_input_that_is_passed_twice() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return torch.linalg.inv(y), x + 1

    from zefuse.backend import zefuse as backend

    x, expected = torch.eye(3), torch.eye(3)
    compiled = backend(torch.fx.symbolic_trace(function), [x, x])  # Dynamo passes it once
    torch.testing.assert_close(compiled(x, x), function(expected, expected))
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("grad", [False, True])
def test_an_output_keeps_its_sizes_where_an_inputs_change(grad: bool) -> None:
    """Turned twice it is the input as it was, whose own sizes AOTAutograd changes after the call."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t_().t(), y * 2

    def made() -> list[torch.Tensor]:
        return [torch.arange(6.0).view(2, 3), torch.ones(3, requires_grad=grad)]

    from zefuse.backend import zefuse as backend

    compiled = backend(torch.fx.symbolic_trace(function), made())  # Dynamo leaves such a graph to eager
    theirs, ours = made(), made()
    expected, actual = function(*theirs), compiled(*ours)
    torch.testing.assert_close([*actual, *ours], [*expected, *theirs])
    assert actual[0].data_ptr() == ours[0].data_ptr()


def test_what_is_found_out_about_the_size_of_a_base_is_guarded() -> None:
    """The second call is compiled for one element in the median, the third has several."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        median = x[1::3].clone().median(-1)[0]
        x.mul_(0.5)
        return median * 1, y * 2

    compiled = zefuse(function, dynamic=True)
    for size in (6, 4, 17):
        x, expected = torch.linspace(0, 9, size).sin(), torch.linspace(0, 9, size).sin()
        torch.testing.assert_close(compiled(x, x[:-1]), function(expected, expected[:-1]))
        torch.testing.assert_close(x, expected)


def test_an_input_whose_view_is_a_local_too_is_known_by_one_name() -> None:
    """Dynamo keeps ``view._base`` as the name of ``whole``, and AOTAutograd makes sizes of that name; the slice is a guard of them."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole = x.exp()
        view = whole.permute(0, 1)
        torch._dynamo.graph_break()
        return whole.reshape(-1)[:8].sum(), view

    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    for size in (4, 6, 3):
        x = torch.linspace(0, 1, 5 * size).reshape(size, 5).requires_grad_()
        torch.testing.assert_close(compiled(x), function(x))


def test_overlapping_input_mutation() -> None:
    """Two arguments that share memory: the write to one is seen through the other."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    ours = torch.randn(6)
    theirs = ours.clone()
    assert relative_error(zefuse(function)(ours[:4], ours[2:]), function(theirs[:4], theirs[2:])) < 1e-6
    assert relative_error(ours, theirs) < 1e-6
