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


@pytest.mark.parametrize("training", [False, True])
def test_a_draw_that_nothing_reads_is_drawn(training: bool) -> None:
    """What is drawn after it, in the graph and by the caller, is as in eager. AOTAutograd leaves it out, for aot_eager too."""

    def function(x: torch.Tensor) -> Any:
        torch.rand_like(x)
        F.dropout(x, 0.5).zero_()
        return F.dropout(x, 0.5)

    results = []
    for run in (function, zefuse(function)):
        x = torch.ones(64, requires_grad=training)
        torch.manual_seed(3)
        results.append((run(x), torch.rand(1)))
    assert torch.equal(results[1][0], results[0][0])
    assert torch.equal(results[1][1], results[0][1])


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
    lines = rf"of test_semantics.py:{first + 1}, test_semantics.py:{first + 2}, which reads rows, chosen: "
    lines += "index is out of bounds for dimension 0 with size 5"
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


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_a_constant_that_no_integer_holds_is_a_number(device: str) -> None:
    """C leaves open which, LLVM left out the store, and the result was what had been in memory."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        nothing = torch.full((32,), float("nan"))
        return nothing.to(torch.uint8), (x * 0 + float("nan")).to(torch.int16)

    for _ in range(3):
        actual = zefuse(function, options={"device": device})(torch.ones(32))
        assert [each.tolist() for each in actual] == [[0] * 32] * 2


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


# Of f16 and bf16 and a number that they do not hold: eager rounds it first, but not to multiply or divide.
BESIDE_A_NUMBER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + 0.3,
    "rsub": lambda x: 0.3 - x,
    "remainder": lambda x: torch.remainder(x, 0.003),
    "fmod": lambda x: torch.fmod(x, 0.003),
    "eq": lambda x: x == 0.3,
    "gt": lambda x: x > 0.3,
    "lt": lambda x: x < 0.7,
    "hardshrink": lambda x: torch.nn.functional.hardshrink(x, 0.3),
    "mul": lambda x: x * 0.3,
    "div": lambda x: x / 0.3,
    "floor of a number": lambda x: 0.3 // x,
    "times 0-d": lambda x: x * torch.tensor(0.123),
    "0-d times": lambda x: torch.tensor(0.123) * x,
    "floor by 0-d": lambda x: x // torch.tensor(0.3),
    "plus 0-d": lambda x: x + torch.tensor(0.3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", BESIDE_A_NUMBER)
def test_numbers_beside_narrow_floats_are_rounded_where_eager_rounds_them(name: str, dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-3, 3, 601), torch.tensor([0.3, -0.3, 0.7])]).to(dtype)
    function = BESIDE_A_NUMBER[name]
    expected = function(x)
    torch.testing.assert_close(zefuse(function)(x), expected, rtol=0, atol=0)


# Eager has no kernel of these for bool.
NOT_OF_BOOL: dict[str, Callable[[torch.Tensor], Any]] = {
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
    "trunc": torch.trunc,
    "abs": torch.abs,
    "clamp": lambda x: torch.clamp(x, x, x),
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "topk": lambda x: x.topk(2),
    "argmax": torch.argmax,
    "max_pool2d": lambda x: torch.nn.functional.max_pool2d(x.expand(1, 1, 2, 3), 2),
    "arange": lambda x: torch.arange(x.shape[0], dtype=x.dtype),
    "dot": lambda x: torch.dot(x, x),
    "median": torch.median,
    "linspace": lambda x: torch.linspace(0, 1, x.shape[0], dtype=x.dtype),
    "logspace": lambda x: torch.logspace(0, 1, x.shape[0], dtype=x.dtype),
}


NOT_OF_INTEGERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "gelu": torch.nn.functional.gelu,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "hardswish": torch.nn.functional.hardswish,
    "lerp": lambda x: torch.lerp(x, x, 0.3),
    "logsigmoid": torch.nn.functional.logsigmoid,
    "mish": torch.nn.functional.mish,
    "silu": torch.nn.functional.silu,
    "softplus": torch.nn.functional.softplus,
    "unfold": lambda x: torch.nn.functional.unfold(x.expand(1, 1, 2, 3), 2),
    "adaptive_max_pool2d": lambda x: torch.nn.functional.adaptive_max_pool2d(x.expand(1, 1, 2, 3), 2),
    "celu": torch.nn.functional.celu,
    "frac": torch.frac,
    "glu": lambda x: torch.nn.functional.glu(x.expand(2, 3), 0),
    "huber_loss": lambda x: torch.nn.functional.huber_loss(x, x),
    "logaddexp": lambda x: torch.logaddexp(x, x),
    "logaddexp2": lambda x: torch.logaddexp2(x, x),
    "nll_loss": lambda x: torch.nn.functional.nll_loss(x[None], x[:1].long()),
}
REFUSED_TYPES = [(NOT_OF_BOOL[name], name, torch.bool) for name in NOT_OF_BOOL]
REFUSED_TYPES += [
    (NOT_OF_INTEGERS[name], name, dtype) for name in NOT_OF_INTEGERS for dtype in (torch.int16, torch.int64)
]
REFUSED_TYPES += [
    (function, name, dtype)
    for function, name in ((torch.special.log_ndtr, "log_ndtr"), (lambda x: torch.polar(x, x), "polar"))
    for dtype in (torch.float16, torch.bfloat16)
]


@pytest.mark.parametrize(
    ("function", "name", "dtype"), REFUSED_TYPES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_eager_refuses_raises_as_there(function: Any, name: str, dtype: torch.dtype) -> None:
    tensor = torch.ones(3, dtype=dtype)
    with pytest.raises((NotImplementedError, RuntimeError)) as eager:
        function(tensor)
    with pytest.raises(type(eager.value)) as ours:
        torch.compile(function, backend="zefuse")(tensor)
    assert str(eager.value).splitlines()[0] in str(ours.value)


OVERFLOWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "pad": lambda x: torch.nn.functional.pad(x, (-1, 1), value=-2.5),
    "full_like": lambda x: torch.full_like(x, 300),
    "fill": lambda x: x.clone().fill_(-300),
    "masked_fill": lambda x: x.masked_fill(x > 3, -300),
    "scatter": lambda x: x.scatter(0, x.long() % 3, 300),
    "not a number": lambda x: x.new_full((2,), float("nan"), dtype=torch.int64),
    "int64": lambda x: x.new_full((2,), 2.0**63 * 1.1, dtype=torch.int64),
    "float16": lambda x: torch.full_like(x, 65505.0, dtype=torch.float16),
}
# Negative whole numbers wrap around in unsigned tensors, and infinity is a floating-point number.
FITS: dict[str, Callable[[torch.Tensor], Any]] = {
    "negative": lambda x: x.clone().fill_(-255),
    "cut": lambda x: torch.full_like(x, 255.0),
    "infinity": lambda x: torch.full_like(x, float("inf"), dtype=torch.bfloat16),
    "bool": lambda x: torch.full_like(x, 300, dtype=torch.bool),
    "int64": lambda x: x.new_full((2,), 2**63 - 1, dtype=torch.int64),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_numbers_that_a_dtype_cannot_hold_raise_as_in_eager(name: str) -> None:
    tensor = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    with pytest.raises(RuntimeError, match="without overflow") as eager:
        OVERFLOWS[name](tensor)
    with pytest.raises(RuntimeError) as ours:
        torch.compile(OVERFLOWS[name], backend="zefuse")(tensor)
    assert str(eager.value).splitlines()[0] in str(ours.value)


@pytest.mark.parametrize("name", FITS)
def test_numbers_that_a_dtype_holds_are_elements_in_kernels(name: str) -> None:
    tensor = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    torch.testing.assert_close(zefuse(FITS[name])(tensor), FITS[name](tensor), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_begins_with_zero(dtype: torch.dtype) -> None:
    function = lambda x: (x.sum(), x.nansum(), x.mean(), x.reshape(1).sum())  # noqa: E731
    number = torch.tensor(-0.0, dtype=dtype)
    for actual, expected in zip(zefuse(function)(number), function(number), strict=True):
        assert (actual.dtype, bool(actual.signbit())) == (expected.dtype, bool(expected.signbit()))
