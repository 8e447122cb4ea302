"""Real numbers made of sizes: the plan computes them step by step as Python does, so that the graph stays whole."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from zefuse.backend import observe

SIZES = ((4, 10), (5, 12), (3, 7), (9, 30), (2, 21))

# name -> function of a matrix
CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "ceil": lambda x: (x * 2)[:, : math.ceil(x.shape[1] / 3)] + 1,
    "floor": lambda x: (x * 2)[:, : math.floor(x.shape[1] * 0.7)] + 1,
    "trunc": lambda x: (x * 2)[:, : int(x.shape[1] * 0.7)] + 1,
    "round": lambda x: (x * 2)[:, : round(x.shape[1] * 0.45)] + 1,
    # 10 * 0.7 * 3 is 21, 10 * (0.7 * 3) is less: what sympy writes is not what Python computes.
    "steps": lambda x: torch.ones(int(x.shape[1] * 0.7 * 3)) * x.sum(),
    "sqrt": lambda x: (x * 2)[:, : int(math.sqrt(x.shape[1]))] + 1,
    "power": lambda x: (x * 2)[:, : int(x.shape[1] ** 0.5)] + 1,
    "log2": lambda x: (x * 2)[:, : int(math.log2(x.shape[1]))] + 1,
    "min": lambda x: (x * 2)[:, : int(min(x.shape[1] / 2, 3.5))] + 1,
    "max": lambda x: (x * 2)[:, : int(max(x.shape[1] / 4, 1.5))] + 1,
    "integer power": lambda x: x * (2 ** x.shape[0]),
    "padding": lambda x: F.pad(x * 2, (0, math.ceil(x.shape[1] / 3))),
    "arange": lambda x: torch.arange(0, x.shape[1] / 3) + x.sum(),
    "full": lambda x: torch.full((3,), x.shape[1] / 3) + x.sum(),
    "factor": lambda x: x * (x.shape[1] / 3) + x.shape[0] ** -0.5,
    "remainder": lambda x: x * ((x.shape[1] / 3) % 1),
    "floor of a quotient": lambda x: x * (x.shape[1] / 3 // 1),
    "sine": lambda x: x * math.sin(x.shape[1] / 3) * math.atan(x.shape[0]),
    "negative": lambda x: x * (0.5 - x.shape[1] / 3),
    "double": lambda x: x.double() * (x.shape[1] / 3),
    "threshold": lambda x: F.threshold(x, x.shape[1] / 30, 0.0) + 1,
    "integer result": lambda x: (x * 2, math.ceil(x.shape[1] / 3)),
    "real result": lambda x: (x * 2, x.shape[1] / 3),
    "boolean result": lambda x: (x * 2, x.shape[0] > 3),
    "nearest": lambda x: F.interpolate((x * 2)[None, None], scale_factor=1.7),
    "bilinear": lambda x: F.interpolate((x * 2)[None, None], scale_factor=1.7, mode="bilinear"),
    "bicubic": lambda x: F.interpolate((x * 2)[None, None], scale_factor=0.63, mode="bicubic"),
    "recomputed scale": lambda x: F.interpolate(
        (x * 2)[None, None], scale_factor=1.7, mode="bilinear", recompute_scale_factor=True
    ),
}


def run(function: Callable[[torch.Tensor], Any]) -> list[dict[str, Any]]:
    """Compares with eager over several sizes; the graphs' reports."""
    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", dynamic=True, fullgraph=True)
    with torch.no_grad(), observe(lambda _, graph: graphs.append(graph)), warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in SIZES:
            x = torch.randn(size, generator=torch.Generator().manual_seed(size[1]))
            actual, expected = compiled(x), function(x)
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert len(graphs) <= 3  # guards on which size is larger may want another
    return [graph.report() for graph in graphs]


@pytest.mark.parametrize("name", CASES)
def test_graph_is_compiled(name: str) -> None:
    for report in run(CASES[name]):
        assert report["kernels"]
        assert not [entry for entry in report["fallbacks"] if entry["reason"].startswith("in eager: ")]


def test_what_no_plan_computes_goes_out_alone() -> None:
    """Rounding to decimals is done in Python, between two parts: its reader takes the number as an input."""
    for report in run(lambda x: (x * 2).sin() * round(x.shape[1] / 3, 1)):
        assert report["kernels"]
        eager = [entry["op"] for entry in report["fallbacks"] if entry["reason"].startswith("in eager: ")]
        assert eager == ["round"]


INTEGERS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "quotient": lambda x, n: x * (n // 2),
    "remainder": lambda x, n: x + n % 3,
    "nested": lambda x, n: x * (-(n // 3) // 2),
    "fill": lambda x, n: torch.full_like(x, n // 2),
    "ceil": lambda x, n: x * math.ceil(n / 2),
    "floor": lambda x, n: x * math.floor(n * 0.7),
    "slice": lambda x, n: x[n:] * 2,
    "select": lambda x, n: x[n] * 2,
    "slice before": lambda x, n: x[:n] * 2,
    "roll": lambda x, n: x.roll((n, 7 * n // 2), (0, 1)) * 2,
    "written slice": lambda x, n: x.slice_scatter(x[n:] * 3, 0, n) + 1,
    "results": lambda x, n: (x * 2, n // 2, n % 3, -n // 2, n / 3),
    "largest": lambda x, n: x * max(n, -2) * min(n, 1) * abs(n),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_below_zero(name: str) -> None:
    function = INTEGERS[name]
    x = torch.arange(48.0).reshape(6, 8)
    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    with torch.no_grad():
        for n in (-3, -5, -1, 3, 5, 1, -10 if "slice" in name else -4):
            torch.testing.assert_close(compiled(x, n), function(x, n))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[-10:] * 2,
        lambda x: x[:, -10:-2].clone(),
        lambda x: x.slice_scatter(x[-10:] * 2, 0, -10) + 1,
        lambda x: x[5:] * 2,
        lambda x: x.slice_scatter(x[5:] * 2, 0, 5) + 1,
        lambda x: x[-1] + x[x.shape[0] // 2 :].sum(0),
    ],
    ids=["end", "range", "written", "past the end", "written past the end", "last"],
)
def test_slices_longer_than_the_dimension(function: Any) -> None:
    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    with torch.no_grad():
        for rows in (6, 12, 3, 40):
            x = torch.randn(rows, rows + 1)
            torch.testing.assert_close(compiled(x), function(x))


def test_in_training() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2)[:, : math.ceil(x.shape[1] / 3)] * (x.shape[1] / 3)).sin().sum()

    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    for size in SIZES:
        gradients = []
        for f in (function, compiled):
            x = torch.linspace(-1, 1, size[0] * size[1]).reshape(size).requires_grad_()
            f(x).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


# Index computations that divide by a size that varies, with steps that are constants beside it.
FLATTENED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copied": lambda x: x.transpose(0, 1).reshape(-1, 5).clone(),
    "summed": lambda x: x.transpose(0, 1).reshape(-1, 5).sum(0),
    "multiplied": lambda x: x.transpose(0, 1).reshape(-1, 5) @ torch.ones(5, 2),
    "with a remainder by a constant": lambda x: x.reshape(-1, 2, 5)[:, :, :4].transpose(1, 2).reshape(-1, 2) * 2,
    "windows": lambda x: x.transpose(0, 2).unfold(2, 2, 1).reshape(-1, 4) + 1,
}


@pytest.mark.parametrize("name", FLATTENED)
def test_one_size_varies_and_the_others_are_constants(name: str) -> None:
    function = FLATTENED[name]
    compiled = torch.compile(function, backend="zefuse")
    for size in (2, 3, 4, 9):
        x = torch.arange(size * 2 * 5.0).reshape(size, 2, 5)
        torch.testing.assert_close(compiled(x), function(x))


def kept_whole(function: Callable[..., torch.Tensor], calls: list[tuple[Any, ...]]) -> None:
    """Compares with eager, and sees that nothing falls back to it."""
    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", dynamic=True, fullgraph=True)
    with torch.no_grad(), observe(lambda _, graph: graphs.append(graph)):
        for inputs in calls:
            torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=1e-5, atol=1e-5)
    assert graphs
    for graph in graphs:
        assert graph.report()["fallbacks"] == []


def test_padding_by_a_number_of_either_sign() -> None:
    """One graph holds for all: torch guards the result's size alone. Nothing may be left of the tensor, or of its padding."""
    x = torch.randn(4, 8)
    numbers = (3, 5, -2, 7, -6)
    kept_whole(lambda x, n: F.pad(x, (n, 0)) + 1, [(x, n) for n in (*numbers, -8, 0)])
    kept_whole(lambda x, n: F.pad(x, (1, n), value=2.0) + 1, [(x, n) for n in (*numbers, -8)])
    kept_whole(lambda x, n: F.pad(x, (n, -1, 2, n)) * 2, [(x, n) for n in (3, 5, -2)])
    kept_whole(lambda x, n: F.pad(x[:, n:], (n, 0)) + 1, [(x, n) for n in (3, 5, 8)])
    kept_whole(lambda x, n: F.pad(x, (n, n)) * 2, [(torch.arange(6).reshape(2, 3), n) for n in (2, 3)])


def test_convolution_padded_by_a_size() -> None:
    x = torch.randn(2, 4, 9, 9)
    kept_whole(
        lambda x, weight: F.conv2d(x, weight, padding=weight.shape[-1] // 2),
        [(x, torch.randn(4, 4, size, size)) for size in (3, 5, 7)],
    )
    kept_whole(
        lambda x, weight: F.conv1d(x, weight, padding=weight.shape[-1] // 2, stride=2),
        [(x.flatten(2), torch.randn(3, 4, size)) for size in (3, 5, 7)],
    )


def test_convolution_of_as_many_groups_as_a_size_falls_back_with_a_reason() -> None:
    graphs: list[Any] = []
    compiled = torch.compile(lambda x, w: F.conv2d(x, w, groups=x.shape[1]) * 2, backend="zefuse", dynamic=True)
    with torch.no_grad(), observe(lambda _, graph: graphs.append(graph)):
        for channels in (6, 8):
            x, weight = torch.randn(2, channels, 9, 9), torch.randn(channels, 1, 3, 3)
            torch.testing.assert_close(compiled(x, weight), F.conv2d(x, weight, groups=channels) * 2)
    (graph,) = graphs
    (fallback,) = graph.report()["fallbacks"]
    assert fallback["reason"].endswith("argument 'groups' is a symbolic size")
