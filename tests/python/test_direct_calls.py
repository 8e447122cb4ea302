"""Inference graphs are called without AOTAutograd's wrappers where those have nothing to do, and only there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from zefuse.testing import relative_error

Function = Callable[..., Any]


def wrapped_calls(function: Function, *inputs: torch.Tensor) -> list[str]:
    """AOTAutograd's functions that a call runs."""
    frames: list[str] = []

    def see(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "_functorch" in frame.f_code.co_filename:
            frames.append(frame.f_code.co_name)

    sys.setprofile(see)
    try:
        function(*inputs)
    finally:
        sys.setprofile(None)
    return [name for name in frames if "wrapper" in name or name == "forward"]  # others are of guards


def weighted() -> Function:
    return torch.nn.Linear(4, 4).requires_grad_(requires_grad=False)


PLAIN: dict[str, Callable[[], Function]] = {
    "pointwise": lambda: lambda x: x.sin() * 2 + 1,
    "two results": lambda: lambda x: (x.sin(), x.sum(0)),
    "a module": weighted,
    "a size as a number": lambda: lambda x: (x * 2, x.shape[0] + 1),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_graphs(name: str, grad: bool) -> None:
    function = PLAIN[name]()
    compiled = torch.compile(function, backend="zefuse")
    x = torch.randn(4, 4)
    with torch.set_grad_enabled(grad):
        result = compiled(x)
        assert relative_error(result, function(x)) < 1e-5
        assert not any(
            each.requires_grad for each in (result if isinstance(result, tuple) else [result]) if torch.is_tensor(each)
        )
        assert wrapped_calls(compiled, x) == []


def changed(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def changed_metadata(x: torch.Tensor) -> torch.Tensor:
    x.t_()
    return x * 2


def of_one_memory(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y, y.t()


OTHERS: dict[str, Function] = {
    "a view of an input": lambda x: (x.t(), x + 1),
    "an input": lambda x: (x, x + 1),
    "an input that changes": changed,
    "an input's metadata that change": changed_metadata,
    "two results of one memory": of_one_memory,
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_wrapper_does_stays(name: str) -> None:
    function = OTHERS[name]
    compiled = torch.compile(function, backend="zefuse")
    for _ in range(2):
        mine, other = (torch.arange(6.0).reshape(2, 3) for _ in range(2))
        version = mine._version
        ours, theirs = compiled(mine), function(other)
        assert relative_error(ours, theirs) < 1e-6 and relative_error(mine, other) < 1e-6
        assert mine.shape == other.shape and mine._version > version if "chang" in name else mine._version == version
        first = [each.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr() for each in ours]
        assert first == [each.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for each in theirs]
        if "memory" in name:
            ours[0].zero_()
            assert not ours[1].any()
    # Of the others Dynamo or the plan takes care.
    wanted = name in ("a view of an input", "an input that changes")
    assert bool(wrapped_calls(compiled, torch.arange(6.0).reshape(2, 3))) == wanted


def test_sizes_that_change_stay_marked() -> None:
    """So that what a graph break leaves for a second graph does not become a constant there."""
    compiled = torch.compile(lambda x: x * 2, backend="zefuse", dynamic=True)
    assert relative_error(compiled(torch.ones(3, 4)), torch.full((3, 4), 2.0)) == 0
    assert wrapped_calls(compiled, torch.ones(5, 4))


def test_gradients_come_back_when_they_are_asked_for() -> None:
    compiled = torch.compile(lambda x: x.sin() * 2, backend="zefuse")
    x = torch.randn(5)
    assert not compiled(x).requires_grad
    x.requires_grad_()
    compiled(x).sum().backward()
    assert relative_error(x.grad, 2 * x.detach().cos()) < 1e-6
    with torch.no_grad():
        assert not compiled(x).requires_grad


def test_autocast() -> None:
    weight = torch.randn(8, 8)
    compiled = torch.compile(lambda x: x @ weight + 1, backend="zefuse")
    x = torch.randn(8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert relative_error(compiled(x), x @ weight + 1) < 1e-2
    with torch.no_grad():
        assert relative_error(compiled(x), x @ weight + 1) < 1e-5
