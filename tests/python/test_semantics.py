"""A compiled function behaves as the eager one does, whatever is fused: aliases, strides, mutation, modes, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zefuse import backend, explain
from zefuse.testing import relative_error


def zefuse(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="zefuse", fullgraph=True, **kwargs)


def count_compilations() -> tuple[list[Any], Any]:
    seen: list[Any] = []
    return seen, backend.observe(lambda kind, compiled: seen.append(compiled))


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
@pytest.mark.parametrize("name", BEGINNINGS)
def test_beginnings_of_computed_values(name: str, dynamic: bool, device: str) -> None:
    def function(x: torch.Tensor, permuted: torch.Tensor) -> Any:
        return BEGINNINGS[name](x + permuted.permute(0, 2, 3, 1) * 2)

    x, permuted = torch.randn(2, 5, 7, 19), torch.randn(2, 19, 5, 7)
    actual = zefuse(function, dynamic=dynamic, options={"device": device})(x, permuted)
    expected = function(x, permuted)
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


def test_overlapping_input_mutation() -> None:
    """Two arguments that share memory: the write to one is seen through the other."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    ours = torch.randn(6)
    theirs = ours.clone()
    assert relative_error(zefuse(function)(ours[:4], ours[2:]), function(theirs[:4], theirs[2:])) < 1e-6
    assert relative_error(ours, theirs) < 1e-6


def test_buffers_are_updated() -> None:
    ours = nn.BatchNorm1d(4)
    theirs = nn.BatchNorm1d(4)
    x = torch.randn(8, 4)
    with torch.no_grad():
        zefuse(ours)(x)
        theirs(x)
    assert relative_error(dict(ours.named_buffers()), dict(theirs.named_buffers())) < 1e-5


def test_weights_changed_in_place_are_seen() -> None:
    layer = nn.Linear(16, 16).eval()
    x = torch.randn(4, 16)
    with torch.no_grad():
        compiled = zefuse(layer)
        compiled(x)
        compiled(x)
        layer.weight.mul_(2)
        assert relative_error(compiled(x), layer(x)) < 1e-5
        layer.weight.data.add_(1)  # no new version number
        assert relative_error(compiled(x), layer(x)) < 1e-5
        layer.weight = nn.Parameter(torch.randn(16, 16))
        assert relative_error(compiled(x), layer(x)) < 1e-5


@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference_mode"])
def test_grad_modes_agree(mode: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).eval()
    x = torch.randn(5, 8)
    expected = model(x).detach()
    context = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[mode]
    with context():
        actual = zefuse(model)(x)
    assert actual.requires_grad == (mode == "grad")
    assert relative_error(actual, expected) < 1e-5


def test_dynamic_sizes_do_not_recompile() -> None:
    weight = torch.randn(24)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.layer_norm(x, (24,), weight) + x.shape[0], -1).reshape(-1, 12).sum(0)

    seen, observing = count_compilations()
    compiled = zefuse(function, dynamic=True)
    with observing:
        for rows in (2, 3, 8, 31, 100):
            x = torch.randn(rows, 24)
            assert relative_error(compiled(x), function(x)) < 1e-5, rows
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("train", "sizes", "compiling"),
    [(True, [*range(51)], [0, 1, 2]), (False, [*range(50, 1, -1), 1, 0], [50, 49, 1, 0])],
    ids=["growing, trained", "shrinking"],
)
def test_fifty_sizes(train: bool, sizes: list[int], compiling: list[int]) -> None:
    """0 and 1 have graphs of their own, torch says. Of the others the first compiles for itself where it came first; the next for
    all."""
    layer = nn.Linear(6, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(layer(x), -1) - x.mean(0).sum()

    compiled, found = zefuse(function), []
    for size in sizes:
        seen: list[str] = []
        ours, theirs = (torch.linspace(-1, 1, size * 6).reshape(size, 6).requires_grad_(train) for _ in range(2))
        with backend.observe(lambda kind, _: seen.append(kind)), torch.set_grad_enabled(train):  # noqa: B023
            actual, expected = compiled(ours), function(theirs)
            if train:
                actual.square().sum().backward()
                expected.square().sum().backward()
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6, equal_nan=True)
        if train:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6, equal_nan=True)
        found += [size] * len([kind for kind in seen if kind != "backward"])
    assert found == compiling


def test_second_size_makes_sizes_symbolic() -> None:
    layer = nn.Linear(12, 12).eval()

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(layer(x)) + x

    seen, observing = count_compilations()
    compiled = zefuse(function)
    with observing, torch.no_grad():
        for rows in (4, 5, 6, 7):
            x = torch.randn(rows, 12)
            assert relative_error(compiled(x), function(x)) < 1e-5, rows
    assert len(seen) == 2
    assert seen[1].report()["symbols"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.diagonal() * 2,
        lambda x, y: x[: min(x.shape[0], y.shape[0])] + y[: min(x.shape[0], y.shape[0])].sum(),
        lambda x, y: F.interpolate(x[None, None], scale_factor=1.5) + 1,
        lambda x, y: x.unfold(0, 2, 1).sum(0),
        lambda x, y: F.pad(x, (0, -x.shape[0] % 4)).reshape(-1) * 2,
        lambda x, y: x[max(1, x.shape[0] - 5) :] + 1,
    ],
    ids=["diagonal", "min", "scale", "unfold", "modulo", "max"],
)
def test_computed_sizes(function: Any) -> None:
    """Sizes that no affine expression holds are computed by the plan: one compilation, any size."""
    seen, observing = count_compilations()
    compiled = zefuse(function, dynamic=True)
    with observing:
        for rows, columns, others in ((5, 7, 3), (8, 7, 9), (31, 40, 4), (6, 6, 6)):
            inputs = torch.randn(rows, columns), torch.randn(others, columns)
            assert relative_error(compiled(*inputs), function(*inputs)) < 1e-5, (rows, columns)
    assert len(seen) <= 2  # unequal sizes first: a guard may ask which is larger


@pytest.mark.parametrize("dump", [False, True])
def test_graph_that_returns_no_tensor(dump: bool, tmp_path: Path) -> None:
    """Broadcasting constant shapes leaves a graph of nothing: no inputs, no outputs, no memory."""
    options = {"dump_dir": str(tmp_path)} if dump else {}
    compiled = torch.compile(lambda: torch.broadcast_shapes((3, 1), (1, 4)), backend="zefuse", options=options)
    assert compiled() == (3, 4)


def test_integer_inputs() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:n] * n

    compiled = zefuse(function, dynamic=True)
    x = torch.randn(9)
    for n in (3, 5, 8):
        assert relative_error(compiled(x, n), function(x, n)) < 1e-6


def test_threads_share_one_compiled_function() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32), nn.Softmax(-1)).eval()
    # Not with fullgraph: torch counts the frames of such calls in one number for all threads.
    compiled = torch.compile(model, backend="zefuse")
    inputs = [torch.randn(rows, 32) for rows in [16] * 8]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        compiled(inputs[0])
    errors: list[str] = []

    def work(number: int) -> None:
        try:
            with torch.no_grad():
                for turn in range(40):
                    which = (number + turn) % len(inputs)
                    error = relative_error(compiled(inputs[which]), expected[which])
                    if error > 1e-5:
                        errors.append(f"thread {number}, call {turn}: relative error {error}")
        except Exception as error:
            errors.append(f"thread {number}: {error!r}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert not errors


def test_random_numbers_follow_the_seed() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.dropout(x, 0.5, training=True), torch.rand_like(x) + x

    compiled = zefuse(function)
    x = torch.ones(64)
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(compiled(x))
    other = compiled(x)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[1][1], other[1])


def test_random_numbers_are_drawn_in_order() -> None:
    """x * 2 joins the kernel of x * 2 + 1, which comes late: the second draw is ready before the first."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        twice = x * 2
        first, second = F.dropout(twice, 0.5), F.dropout(y, 0.5)
        return first, second, twice + 1

    inputs = torch.ones(64), torch.ones(64)
    torch.manual_seed(3)
    expected = function(*inputs)
    torch.manual_seed(3)
    assert relative_error(zefuse(function)(*inputs), expected) == 0


def test_what_an_operator_raises_reaches_the_caller() -> None:
    """Torch runs a first call's operators through Python, and an exception there is eager's own."""
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        torch.compile(lambda x: torch.linalg.cholesky(x) + 1, backend="zefuse")(-torch.eye(3))


# What eager's kernels refuse and torch's shape rules let pass.
REFUSED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "a truth value taken away": (lambda x: x - (x > 0), (4,)),
    "taken away from a truth value": (lambda x: torch.rsub(x, x > 0), (4,)),
    "two truth values": (lambda x: (x > 0) - (x < 0), (4,)),
    "less than nothing kept": (lambda x: F.pad(x, (3, -3), value=1), (4, 2)),
    "less than nothing of no size": (lambda x: F.pad(x, (3, -1), value=1), (4, 0)),
    "selected of nothing": (lambda x: x.index_select(1, torch.tensor([0, 0])), (0, 0)),
    "a view beyond a sort's positions": (lambda x: x.sort(0)[1].as_strided((2, 2, 2), (4, 0, 1)), (2, 1, 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_an_error(name: str) -> None:
    from zefuse.backend import zefuse as zefuse_backend

    function, shape = REFUSED[name]
    x = torch.randn(shape)
    with pytest.raises(RuntimeError) as eager:
        function(x)
    # The graph as it is: Dynamo raises some of these itself.
    with pytest.raises(RuntimeError) as ours:
        zefuse_backend(torch.fx.symbolic_trace(lambda x: (function(x),)), [x])(x)
    assert str(eager.value) in str(ours.value)


def test_padding_that_may_take_away_more_than_there_is() -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (3, -3), value=1)

    compiled = torch.compile(padded, backend="zefuse", dynamic=True)
    for size in (6, 4, 3):
        x = torch.randn(3, size)
        assert torch.equal(compiled(x), padded(x))
    with pytest.raises(RuntimeError, match=r"narrow.*non-negative"):
        compiled(torch.randn(3, 2))


def test_index_out_of_range_is_an_index_error() -> None:
    table = nn.Embedding(10, 4)
    with torch.no_grad():
        compiled = zefuse(table)
        compiled(torch.tensor([1, 2]))
        with pytest.raises(IndexError, match="index"):
            compiled(torch.tensor([1, 99]))
        assert relative_error(compiled(torch.tensor([3, 9])), table(torch.tensor([3, 9]))) == 0


def test_an_index_out_of_range_names_the_users_line() -> None:
    def function(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        rows = rows * 2
        return rows[chosen] + 1

    first = function.__code__.co_firstlineno
    lines = rf"of test_semantics.py:{first + 1}, test_semantics.py:{first + 2}: index is out of bounds for dimension 0 with size 5"
    with pytest.raises(IndexError, match=lines):
        zefuse(function)(torch.randn(5, 3), torch.tensor([1, 7]))


def test_nan_and_infinity_travel() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.amax(-1), torch.clamp(x, -1, 1), torch.relu(x), torch.maximum(x, x.flip(-1)), x.softmax(-1)

    x = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), 0.0, -1.0], [float("-inf"), 1.0, 5.0]])
    assert relative_error(zefuse(function)(x), function(x)) < 1e-6


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * x[: x.shape[0] // 17] + y,
        lambda x, y: torch.where(x > 0, x, torch.diagonal((y - x)[None, :1], 1, 1, 2)),
    ],
    ids=["floor division", "diagonal"],
)
def test_sizes_that_guards_make_one_are_broadcast(function: Callable[..., torch.Tensor]) -> None:
    """torch leaves s // 17 as it is though broadcasting it has made it 1, and Min(1, s - 1) though s is at least 2."""
    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    for rows, columns in ((20, 6), (33, 6), (17, 9)):
        x, y = torch.randn(rows, columns), torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x, y), function(x, y))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_dtype_left_to_its_schema_default(dynamic: bool) -> None:
    """A schema holds such a default as a number."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.tril_indices(5, 7), torch.randperm(6), torch.randint(0, 9, (4,), dtype=torch.int32), x + 1

    def seeded(call: Any) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        return call(x)

    x = torch.randn(3)
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for actual, expected in zip(seeded(compiled), seeded(function), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_strict_refuses_a_fallback() -> None:
    from zefuse.errors import FallbackError

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.matrix_exp(x * 2) + 1

    x = torch.randn(4, 4)
    assert relative_error(zefuse(function)(x), function(x)) < 1e-6
    with pytest.raises(FallbackError, match="matrix_exp"):
        zefuse(function, options={"strict": True})(x)


@pytest.mark.parametrize("fuse", [True, False])
def test_fusing_does_not_change_results(fuse: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.exp(x) + 1).sum(-1).log() * x.mean()

    x = torch.randn(7, 33)
    assert relative_error(zefuse(function, options={"fuse": fuse})(x), function(x)) < 1e-5


def test_autocast() -> None:
    layer = nn.Linear(16, 16).eval()
    x = torch.randn(4, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected, actual = layer(x), zefuse(layer)(x)
    assert actual.dtype == torch.bfloat16
    assert relative_error(actual, expected) < 2e-2


def test_operator_that_checks_its_result() -> None:
    """linalg.inv raises for a singular matrix through an operator without results."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x) + 1

    x = torch.eye(4) * 2
    compiled = zefuse(function)
    assert relative_error(compiled(x), function(x)) < 1e-6
    with pytest.raises(RuntimeError, match="singular"):
        compiled(torch.zeros(4, 4))


@pytest.mark.parametrize("divide", [lambda x, y: x // y, lambda x, y: x % y])
def test_integer_division_by_zero(divide: Any) -> None:
    compiled = torch.compile(divide, backend="zefuse")
    ones = torch.ones(40, dtype=torch.int64)
    divisors = ones.clone()
    assert torch.equal(compiled(ones, divisors), divide(ones, divisors))
    divisors[37] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(ones, divisors)


def test_dropout_draws_eagers_numbers_and_is_no_fallback() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.softmax(F.dropout(x, 0.25).relu(), -1), 0.5) + torch.rand(3, 1) * 2

    x = torch.randn(3, 50)
    torch.manual_seed(5)
    expected, after = f(x), torch.rand(4)
    explanation = explain(f, x)  # runs it, with whatever numbers come
    torch.manual_seed(5)
    actual = torch.compile(f, backend="zefuse", options={"strict": True})(x)
    torch.testing.assert_close(actual, expected)
    assert torch.equal(torch.rand(4), after)  # the generator stands where eager left it
    assert explanation.fallbacks == []
    assert [call["kind"] for call in explanation.calls] == ["draw"] * 3


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_dropout_of_what_lies_otherwise_draws_eagers_numbers(dynamic: bool) -> None:
    """In the order of memory, or of the indices: eager's differs with the processor's maker."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        channels_last = x.view(4, 5, 6, 8).contiguous(memory_format=torch.channels_last)
        return tuple(F.dropout(view, 0.5) for view in (x.t(), channels_last * 2, x.view(4, 5, 48)[:, ::2].mT))

    x = torch.ones(20, 48)
    torch.manual_seed(5)
    expected = f(x)
    torch.manual_seed(5)
    for actual, wanted in zip(zefuse(f, dynamic=dynamic)(x), expected, strict=True):
        assert torch.equal(actual, wanted) and actual.stride() == wanted.stride()


def test_attention_weights_that_are_no_normal_numbers_are_zero() -> None:
    query, key, value = torch.zeros(1, 1, 4, 32), torch.zeros(1, 1, 64, 32), torch.ones(1, 1, 64, 32)
    mask = torch.zeros(1, 1, 4, 64)
    for row, score in enumerate((-100.0, -90.0, -88.0, -80.0)):  # exp is a normal number of f32 above -87.3
        mask[..., row, 1] = score
    value[..., 1, :] = 3e38
    attention = torch.nn.functional.scaled_dot_product_attention
    ours = torch.compile(attention, backend="zefuse")(query, key, value, mask)
    torch.testing.assert_close(ours, attention(query, key, value, mask), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [(torch.addcmul, torch.bool), (torch.addcdiv, torch.bool)],
    ids=["addcmul bool", "addcdiv bool"],
)
def test_what_eager_refuses_raises_as_there(function: Any, dtype: torch.dtype) -> None:
    tensor = torch.ones(3, dtype=dtype)
    with pytest.raises((NotImplementedError, RuntimeError)) as eager:
        function(tensor, tensor, tensor)
    with pytest.raises(type(eager.value)) as ours:
        torch.compile(function, backend="zefuse")(tensor, tensor, tensor)
    assert str(eager.value).splitlines()[0] in str(ours.value)


_OTHERWISE = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0)).permute(2, 0, 1)
_PERMUTED_IMAGES = torch.randn(4, 5, 6, 3, generator=torch.Generator().manual_seed(0)).permute(3, 0, 2, 1)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.masked_scatter(x, x > 0, y), [_OTHERWISE, torch.ones(120)]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [_OTHERWISE, torch.full((5, 4, 6), 3.0)]),
        (lambda x, y: torch.div(x, y, rounding_mode="floor"), [torch.full((5, 4, 6), 3.0), _OTHERWISE]),
        (lambda x, y: torch.div(x, y, rounding_mode="trunc"), [_OTHERWISE, torch.full((5, 4, 6), 3.0)]),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), [_OTHERWISE]),
        (lambda x: F.batch_norm(x, None, None, training=True), [_OTHERWISE]),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True), [_PERMUTED_IMAGES]),
        (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), [_PERMUTED_IMAGES.to(memory_format=torch.channels_last)]),
    ],
    ids=["masked_scatter", "floor", "floor, first contiguous", "trunc", "norm", "norm without statistics", "norm in training",
         "norm of channels last"],
)  # fmt: skip
def test_strides_that_torchs_rules_have_otherwise_are_eagers(function: Any, inputs: list[torch.Tensor]) -> None:
    ours, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    actual, expected = torch.compile(function, backend="zefuse")(*ours), function(*theirs)
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    for result in (actual, expected):
        result.square().sum().backward()
    for mine, eagers in zip(ours, theirs, strict=True):
        assert mine.grad.stride() == eagers.grad.stride()
        torch.testing.assert_close(mine.grad, eagers.grad, rtol=1e-4, atol=1e-5)
