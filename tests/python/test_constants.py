"""What graphs make of constants alone: literals, and what is written in pieces."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from zefuse import backend
from zefuse.graphs import constants


def windows(x: torch.Tensor, size: int, window: int = 4, shift: int = 2) -> torch.Tensor:
    """Swin's mask of shifted windows."""
    image = x.new_zeros((size, size))
    places = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for number, (rows, columns) in enumerate((a, b) for a in places for b in places):
        image[rows, columns] = number
    count = size // window
    image = image.view(count, window, count, window).permute(0, 2, 1, 3).reshape(-1, window * window)
    apart = image.unsqueeze(1) - image.unsqueeze(2)
    return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


def scores(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x + windows(x, 16).unsqueeze(1).unsqueeze(0), -1)


def graphs_of(function: Any, *inputs: torch.Tensor, **options: Any) -> tuple[Any, list[Any]]:
    torch._dynamo.reset()
    graphs: list[Any] = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        result = torch.compile(function, backend="zefuse", **options)(*inputs)
    return result, graphs


def operators(graph: Any) -> set[str]:
    return {name for kernel in graph.report()["kernels"] for name in kernel["ops"]}


def test_what_is_written_in_pieces_is_made_once() -> None:
    x = torch.randn(2, 16, 3, 16, 16, requires_grad=True)
    result, graphs = graphs_of(scores, x)
    torch.testing.assert_close(result, scores(x))
    assert len(graphs[0].report()["kernels"]) == 1
    assert not any("scatter" in name for name in operators(graphs[0])), operators(graphs[0])
    (given,) = torch.autograd.grad(result.sin().sum(), x)
    torch.testing.assert_close(given, torch.autograd.grad(scores(x).sin().sum(), x)[0])


def test_results_are_each_calls_own() -> None:
    def masks(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = windows(x, 16)
        return made[None], x + made[0, 0, 0]

    x = torch.randn(3)
    compiled = torch.compile(masks, backend="zefuse")
    first, second = compiled(x)[0], compiled(x)[0]
    first.fill_(7.0)
    assert torch.equal(second, masks(x)[0])
    assert torch.equal(compiled(x)[0], masks(x)[0])


def test_a_size_that_is_not_known_stays() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        made = x.new_zeros(x.shape[0])
        made[2:] = 3
        return x + made

    compiled = torch.compile(written, backend="zefuse", dynamic=True)
    for size in (5, 9, 3):
        x = torch.randn(size)
        assert torch.equal(compiled(x), written(x))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3, torch.int64),
        (2**53 + 1, torch.int64),
        (True, torch.bool),
        (0.1, torch.float64),
        (0.1, torch.bfloat16),
        (float("nan"), torch.float32),
    ],
)
def test_numbers_become_literals(value: Any, dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, torch.tensor(value, dtype=dtype), x.to(dtype))

    x = torch.randn(40)
    result, graphs = graphs_of(function, x)
    torch.testing.assert_close(result, function(x), equal_nan=True, rtol=0, atol=0)
    assert result.dtype == function(x).dtype
    assert graphs[0].constants() == []


def test_triangles_and_ranges_stay() -> None:
    """A kernel makes them sooner than it reads them."""

    def causal(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(torch.ones(16, 16).tril() == 0, -1.0)

    traced = make_fx(causal, tracing_mode="fake")(torch.randn(16, 16))
    before = [node.name for node in traced.graph.nodes]
    constants.fold(traced)
    assert [node.name for node in traced.graph.nodes] == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_angles_of_zeros(dtype: torch.dtype) -> None:
    """MLIR's folding of atan2 takes that of two zeros for NaN."""

    def angles(x: torch.Tensor) -> list[torch.Tensor]:
        zeros = [torch.full_like(x, sign * 0.0) for sign in (1, -1)]
        return [torch.atan2(y, z) for y in zeros for z in zeros]

    x = torch.ones(37, dtype=dtype)
    torch.testing.assert_close(graphs_of(angles, x)[0], angles(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 3e20])
def test_a_constant_that_no_integer_holds_is_the_least_one(number: float, dtype: torch.dtype) -> None:
    """C leaves it open, and LLVM then takes a choice's other value everywhere. x86's instructions, and so eager, give the least integer."""

    def function(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, x, number).to(dtype)

    mask, x = torch.arange(40) % 3 == 0, torch.linspace(-9, 9, 40)
    result, _ = graphs_of(function, mask, x)
    assert result.tolist() == function(mask, x).tolist()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_a_constant_that_no_integer_holds_is_on_a_gpu_what_a_variable_is(dtype: torch.dtype) -> None:
    """The nearest integer of the conversion, as GPUs' instructions have it."""
    numbers = [math.inf, -math.inf, math.nan, 3e20]

    def function(mask: torch.Tensor, x: torch.Tensor, numbers: list[float] | torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(mask, x, number).to(dtype) for number in numbers]

    mask, x = torch.arange(40) % 3 == 0, torch.linspace(-9, 9, 40).clamp_min(0 if dtype == torch.uint8 else -9)
    compiled = torch.compile(function, backend="zefuse", options={"device": "gpu:0"}, dynamic=False)
    constants = compiled(mask, x, numbers)
    variables = compiled(mask, x, torch.tensor(numbers))
    for constant, variable in zip(constants, variables, strict=True):
        assert torch.equal(constant, variable) and torch.equal(constant[mask], x.to(dtype)[mask])
    if dtype in (torch.int32, torch.int64):
        limits = torch.iinfo(dtype)
        assert [int(each[1]) for each in constants] == [limits.max, limits.min, 0, limits.max]
