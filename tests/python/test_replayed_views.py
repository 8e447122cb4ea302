"""Results that are views of one value lie in its memory as in eager, also where a plan cannot tell how: a write to one is seen in the
others exactly where eager's is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from zefuse.backend import observe
from zefuse.graphs import replayed_views

Function = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def conjugates(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = torch.complex(x + 1, x * 2)
    return z.conj()[1:].imag, z.diagonal(), z.unfold(1, 2, 1).real, z[0].as_strided((2, 2), (1, 1), 1)


VIEWS: dict[str, Function] = {
    "every other of every other": lambda x: (lambda y: (y[1::2], y[0]))((x + 1).flip(0)[x.shape[0] // 3 :: 2]),
    "a diagonal of a part": lambda x: (lambda y: (y.unbind(-2)[-1], y.diagonal(1, 1, 0), y))((x + 1).t()[1:]),
    "what a negative padding leaves": lambda x: (lambda y: (y.split(2)[-1], y[:2].diagonal(-1, 1, 0), y))(
        F.pad(x + 1, (0, -1))
    ),
    "counted from the storage's start": lambda x: (lambda y: (y.as_strided((3, 2), (2, 1), 1), y))(
        F.pad(x * 2, (-5, 0))
    ),
    "as other sizes": lambda x: (lambda y: (y.reshape(-1)[3:], y.unflatten(1, (2, -1))[:, 1], y.flatten()[1::3]))(
        x * 2
    ),
    "as another dtype": lambda x: (lambda y: (y.view(torch.int32)[1:], y[:, 1:]))(x * 2),
    "of a range": lambda x: (lambda y: (y[1:], y[::2], y.view(-1, 2)[:, 1]))(torch.arange(x.shape[0] * 2) + 0),
    "of complex numbers": conjugates,
    "of two values": lambda x: (lambda y, z: (y[1:], z[0], y.t(), z))(x + 1, x.sin()),
    "the same twice": lambda x: (lambda y: (y[1:], y[1:], y))(x + 1),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_one_result_is_seen_in_the_others(name: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    function = VIEWS[name]
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for x in (torch.randn(6, 8), torch.randn(9, 12)):
        for written in range(len(function(x))):
            expected, actual = function(x), compiled(x)
            assert [each.stride() for each in actual] == [each.stride() for each in expected]
            begin = [each.storage_offset() - expected[0].storage_offset() for each in expected]
            if name != "of two values":
                assert [each.storage_offset() - actual[0].storage_offset() for each in actual] == begin
            for results in (expected, actual):
                results[written].mul_(3)
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_without_gradients_beside_those_with(dynamic: bool) -> None:
    """AOTAutograd makes those views itself through which gradients flow."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, places = (x * 2).minimum(x), x.argmax(0)
        bits = y.view(torch.int32)
        return y.unsqueeze(0), bits, y.t() * 3, places, places.view(torch.float64)[1:], bits[1:], y + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for sizes in ((5, 7), (6, 3)):
        theirs = torch.randn(sizes, requires_grad=True)
        ours = theirs.detach().clone().requires_grad_()
        expected, actual = function(theirs), compiled(ours)
        torch.testing.assert_close(actual, expected, equal_nan=True)
        for results in (expected, actual):
            (results[0].sum() + results[2].sum() + results[6].sum()).backward()
            with torch.no_grad():
                results[1].mul_(0)
                results[3].fill_(4607182418800017408)  # 1.0 in its bits
        torch.testing.assert_close(ours.grad, theirs.grad)
        torch.testing.assert_close(actual, expected, equal_nan=True)


def test_what_a_plan_lays_right_is_left_to_it() -> None:
    """It costs a call nothing there."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * 2).chunk(3, -1)

    graphs: list[Any] = []
    with torch.no_grad(), observe(lambda kind, compiled: graphs.append(compiled)):
        torch.compile(function, backend="zefuse", dynamic=False)(torch.randn(4, 9))
    assert not isinstance(graphs[0], replayed_views.Replayed)
