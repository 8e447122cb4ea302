"""Operators that are taken apart in a way of our own: values, shapes and strides are eager's on tensors in any order, with nothing in
eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from zefuse.backend import observe

PLACES = torch.tensor([0, 2])
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "index_fill": lambda x: (x.index_fill(1, PLACES, 3.0), x.index_fill(-1, PLACES, torch.tensor(2.0))),
    "floor division": lambda x: (
        torch.div(x, x + 1, rounding_mode="floor"),
        x[:1] // x[:1].contiguous(),
    ),
    "log sigmoid": lambda x: (F.logsigmoid(x), F.logsigmoid(x.detach() * 2)),
    "power of a number": lambda x: (2.0**x, torch.pow(1, x), (1 / (2**x)) ** 2),
    "roll": lambda x: (x.roll(2, -4), x.roll(1, -4), x.roll((1, -1), (0, 3)), x.roll(1)),
    "sums of exponentials": lambda x: (torch.logaddexp(x, x[0]), torch.logaddexp2(x[:1], x), torch.logaddexp(x, x + 1)),
    "x log y": lambda x: (torch.xlogy(x, x[0] + 1), torch.special.xlog1py(x[:1], x), torch.xlogy(x[0], x)),
    "channel shuffle": lambda x: (F.channel_shuffle(x, 3),),
    "losses of places": lambda x: (F.nll_loss(x, (x[:, 0] * 3).long(), reduction="none"),),
    "resized with a filter": lambda x: (F.interpolate(x, size=(3, 7), mode="bilinear", antialias=True),),
    "norm along one element": lambda x: (
        torch.linalg.vector_norm(x[:, :1, :, :1], 1, (-1, 1)),
        x[..., :1].norm(dim=-1),
    ),
}
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.rand(2, 3, 4, 5),
    "channels last": lambda: torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: torch.rand(5, 4, 3, 2).permute(3, 2, 1, 0),
    "with gaps": lambda: torch.rand(4, 3, 4, 10)[::2, :, :, ::2],
    "expanded": lambda: torch.rand(3, 1, 5).expand(2, 3, 4, 5),
}

KNOWN_SIZES = ("resized with a filter",)  # through ATen where sizes are symbols
TRAINED = ("log sigmoid", "norm along one element")


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_composites(name: str, dynamic: bool) -> None:
    graphs: list[Any] = []
    function, tensors = FUNCTIONS[name], {name: make() for name, make in TENSORS.items()}
    of_each = lambda tensors: {name: function(x) for name, x in tensors.items()}  # noqa: E731
    with observe(lambda _, graph: graphs.append(graph)):
        actual = torch.compile(of_each, backend="zefuse", dynamic=dynamic)(tensors)
    expected = of_each(tensors)
    torch.testing.assert_close(actual, expected)
    for tensor in TENSORS:
        assert [each.stride() for each in actual[tensor]] == [each.stride() for each in expected[tensor]], tensor
    assert graphs
    if dynamic and name in KNOWN_SIZES:
        return
    assert not any(graph.report()["fallbacks"] for graph in graphs)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float32])
def test_whole_numbers_between_two(dtype: torch.dtype) -> None:
    """Eager cuts the ends to whole numbers before it steps."""

    def ranges(start: torch.Tensor, end: torch.Tensor) -> list[torch.Tensor]:
        plain = [torch.linspace(4.3, last, steps, dtype=dtype) for last in (-3, 0) for steps in (0, 1, 2, 50)]
        return [*plain, torch.linspace(start, end, 50, dtype=dtype), torch.linspace(start, 9.9, 50, dtype=dtype)]

    ends = (torch.tensor(4.3), torch.tensor(-3.7))
    torch.testing.assert_close(torch.compile(ranges, backend="zefuse")(*ends), ranges(*ends))


@pytest.mark.parametrize("name", TRAINED)
def test_composites_train(name: str) -> None:
    tensor, results = TENSORS["transposed"]().half(), []
    for run in (FUNCTIONS[name], torch.compile(FUNCTIONS[name], backend="zefuse")):
        x = tensor.clone().requires_grad_()
        values = run(x)
        sum(value.sum() for value in values if value.requires_grad).backward()
        results.append([*values, x.grad])
    torch.testing.assert_close(results[1], results[0])
    assert [each.stride() for each in results[1]] == [each.stride() for each in results[0]]


@pytest.mark.parametrize("exponent", [True, False])
def test_a_bool_to_the_power_of_a_bool_is_one(exponent: bool) -> None:
    """torch's shape rule says an integer."""
    x, integers = torch.tensor([True, False]), torch.tensor([3, 0])

    def function(x: torch.Tensor, integers: torch.Tensor) -> Any:
        return torch.pow(x, exponent), torch.pow(x, int(exponent)), torch.pow(x, exponent).copy_(integers)

    torch.testing.assert_close(torch.compile(function, backend="zefuse")(x, integers), function(x, integers))


def test_what_has_no_dimensions_does_not_widen_a_quotient() -> None:
    function = lambda x, number: (x // number, torch.copysign(x, number))  # noqa: E731
    x, number = torch.tensor([[1.0, 2.5], [3.0, -4.0]], dtype=torch.float16).t(), torch.tensor(2.0)
    torch.testing.assert_close(torch.compile(function, backend="zefuse")(x, number), function(x, number))


def test_distances_of_few_rows_are_of_differences_where_sizes_are_symbols() -> None:
    """As in eager, so that of a row and itself it is exactly zero; of many rows they are of a product."""
    compiled = torch.compile(torch.cdist, backend="zefuse", dynamic=True, fullgraph=True)
    for rows in (9, 25, 12, 40):
        x = torch.randn(rows, 5)
        expected = torch.cdist(x, x.clone())
        actual = compiled(x, x.clone())
        torch.testing.assert_close(actual, expected, atol=1e-5 if rows <= 25 else 5e-3, rtol=1e-5)
        assert bool(actual.diagonal().any()) <= (rows > 25)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_channel_shuffle_has_memory_of_its_own(groups: int) -> None:
    """With one channel in each group, or one group, nothing moves; eager copies all the same."""
    x = torch.rand(4, 2, 3, 5)
    with torch.no_grad():
        shuffled = torch.compile(lambda x: F.channel_shuffle(x, groups), backend="zefuse")(x)
    assert shuffled.data_ptr() != x.data_ptr()
    torch.testing.assert_close(shuffled, F.channel_shuffle(x, groups))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_gradient_of_a_loss_by_classes_is_zero_elsewhere(reduction: str) -> None:
    """Beside infinite weights too, and 0.0 where the target is ignored."""
    weight = torch.tensor([1.0, torch.inf, 0.5])
    for shape in ((8, 3), (3,), (2, 3, 2, 2)):
        target = (torch.arange(8) % 3).reshape(shape[0], *shape[2:]) if len(shape) > 1 else torch.tensor(1)

        def function(x: torch.Tensor, target: torch.Tensor = target) -> torch.Tensor:
            return torch.nn.functional.nll_loss(x * 2, target, weight, reduction=reduction, ignore_index=2)

        torch._dynamo.reset()
        ours = torch.randn(shape, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        torch.compile(function, backend="zefuse")(ours).sum().backward()
        function(theirs).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, equal_nan=True)
        assert ours.grad is not None and theirs.grad is not None
        zeros = theirs.grad == 0
        assert torch.equal(ours.grad.signbit()[zeros], theirs.grad.signbit()[zeros])
