"""Reductions with too few results to fill a GPU: partial results of slices, then their combination, on the CPU that poses as one.

Against eager: every kind of reduction, sizes that no number of slices divides, symbolic and empty ones, strided inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error

GPU: dict[str, Any] = {"device": "gpu:0"}
NOTE = "; partial results of slices, which the next kernel combines"
Function = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


def parts(explanation: Explanation) -> int:
    """Kernels that make partial results; nothing runs anywhere but on the device."""
    assert not explanation.fallbacks
    assert {kernel["target"] for kernel in explanation.kernels} == {"dg2-g11"}
    return sum(NOTE in kernel["schedule"] for kernel in explanation.kernels)


def near(actual: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        for one, other in zip(actual, expected, strict=True):
            near(one, other)
    elif expected.is_floating_point():
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        bound = {torch.float32: 5e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[expected.dtype]
        assert relative_error(actual.float(), expected.float()) < bound
    else:
        assert torch.equal(actual, expected) and actual.dtype == expected.dtype


REDUCTIONS: dict[str, tuple[Function, int]] = {
    "sum": (lambda x: x.sum(), 1),
    "mean of squares": (lambda x: (x * x).mean(), 1),
    "mean and what follows": (lambda x: torch.sigmoid((x * x).mean() * 3 + 1), 1),
    "amax": (lambda x: x.amax(), 1),
    "amin": (lambda x: x.amin(), 1),
    "max": (lambda x: x.max(), 1),
    "any": (lambda x: (x > 3.5).any(), 1),
    "all": (lambda x: (x < 3.5).all(), 1),
    "prod": (lambda x: torch.where(x > 2, -1.0, 1.0).prod(), 1),
    "argmax": (lambda x: x.argmax(), 2),
    "argmin": (lambda x: x.argmin(), 2),
    "max of rows": (lambda x: x.reshape(1, -1).max(1), 2),
    "var": (lambda x: x.var(), 1),
    "var and mean": (lambda x: torch.var_mean(x), 1),
    "std": (lambda x: x.std(), 1),
    "norm": (lambda x: x.norm(), 1),
    "count": (lambda x: (x > 0).sum(), 1),
    "whole softmax": (lambda x: torch.softmax(x.reshape(1, -1), 1), 2),
    "two of the same": (lambda x: (x.sum(), (x * x).sum()), 1),
    "elements beside": (lambda x: (x.exp(), x.exp().sum()), 1),
}
SIZES: dict[str, tuple[int, ...]] = {
    "even": (512, 512),
    "odd": (513, 511),
    "prime": (262147,),
    "few long rows": (3, 100003),
    "many short rows": (50021, 5),
    "three": (5, 331, 127),
}


def explained(functions: Sequence[Function], inputs: Sequence[torch.Tensor]) -> Explanation:
    """Of one graph of them, each of an input of its own; the results are near eager's."""
    explanation = zefuse.explain(
        lambda inputs: [function(x) for function, x in zip(functions, inputs, strict=True)],
        list(inputs),
        options=GPU,
    )
    for function, x, result in zip(functions, inputs, explanation.result, strict=True):
        near(result, function(x))
    return explanation


def test_every_kind() -> None:
    torch.manual_seed(0)
    functions = [function for function, _ in REDUCTIONS.values()]
    x = torch.randn(SIZES["odd"])
    explanation = explained(functions, [x.clone() for _ in functions])
    assert parts(explanation) == sum(expected for _, expected in REDUCTIONS.values())


@pytest.mark.parametrize("size", ["even", "odd"])
def test_a_variance_far_from_zero_is_of_one_walk(size: str) -> None:
    """Slices have means of their own, far apart here, and what deviates from these is added up; squares alone would leave nothing."""
    torch.manual_seed(4)
    x = torch.randn(SIZES[size]) + torch.linspace(1000, 1030, SIZES[size][0])[:, None]
    explanation = zefuse.explain(lambda x: torch.var_mean(x, correction=0), x, options=GPU)
    variance, mean = explanation.result
    assert abs(float(variance) / float(x.double().var(correction=0)) - 1) < 2e-6
    assert abs(float(mean) / float(x.double().mean()) - 1) < 2e-7
    assert parts(explanation) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_sizes_that_slices_do_not_divide(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    numbers = [torch.randn(size) * 3 for size in SIZES.values()]
    inputs = [(x > 0) if dtype == torch.bool else x.to(dtype) for x in numbers]
    explanation = explained([torch.sum] * len(inputs), inputs)
    assert parts(explanation) == len(inputs)
    assert len(explanation.kernels) == 2 * len(inputs)  # what slices leave over is in the second


def test_the_position_is_the_first() -> None:
    """Of equal extremes in several slices; of NaN too."""
    x = torch.zeros(512, 513)
    x[100, 7] = x[300, 9] = 2
    function, _ = REDUCTIONS["argmax"]
    compiled = torch.compile(function, backend="zefuse", options=GPU)
    assert compiled(x) == 100 * 513 + 7
    x[511, 512] = torch.nan
    x[400, 1] = torch.nan
    assert compiled(x) == 400 * 513 + 1
    assert torch.compile(torch.amax, backend="zefuse", options=GPU)(x).isnan()


STRIDED: dict[str, Function] = {
    "transposed": lambda x: x.t().sum(),
    "every other": lambda x: (x[:, ::2] * 2).sum(),
    "from an offset": lambda x: x[1:, 3:].amax(),
    "flipped": lambda x: x.flip(0).argmax(),
    "broadcast": lambda x: (x + x[:1]).mean(),
    "three columns": lambda x: x[:, :3].repeat(200, 1).sum(0),
    "middle": lambda x: x.reshape(2, -1, 4).amax(1),
}


def test_strided_inputs() -> None:
    torch.manual_seed(2)
    explanation = explained(list(STRIDED.values()), [torch.randn(600, 604) for _ in STRIDED])
    assert parts(explanation) >= len(STRIDED)


@pytest.mark.parametrize("dim", [0, 1])
def test_few_results(dim: int) -> None:
    """A group each would leave most of the device idle."""
    torch.manual_seed(3)
    x = torch.randn(3, 200001) if dim else torch.randn(200001, 3)
    for function in (lambda x: x.sum(dim), lambda x: torch.softmax(x, dim), lambda x: x.max(dim)):
        explanation = zefuse.explain(function, x, options=GPU)
        near(explanation.result, function(x))
        assert parts(explanation) >= 1


@pytest.mark.parametrize("kind", ["sum", "argmax", "var", "all"])
def test_symbolic_sizes(kind: str) -> None:
    function, expected = REDUCTIONS[kind]
    torch.manual_seed(4)
    graphs: list[Any] = []
    compiled = torch.compile(function, backend="zefuse", options=GPU)
    for rows, columns in ((700, 500), (3, 500), (7, 500), (700, 500), (1, 500)):
        x = torch.randn(rows, 2, columns)
        torch._dynamo.mark_dynamic(x, 0)
        with backend.observe(lambda _, graph: graphs.append(graph)):
            near(compiled(x), function(x))
    dynamic = Explanation.of(graphs[0])
    assert parts(dynamic) == (2 if kind == "var" else expected)  # a mean over a symbolic number comes first
    assert any("s" in str(kernel) for kernel in dynamic.kernels)


def test_symbolic_inner_sizes_and_empty_ones() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(), (x * 2).sum(0), x.any()

    torch.manual_seed(5)
    compiled = torch.compile(function, backend="zefuse", options=GPU, dynamic=True)
    for sizes in ((300, 700), (17, 4), (1000, 3), (257, 1023)):
        x = torch.randn(sizes)
        near(compiled(x), function(x))
    for empty in (torch.zeros(0, 5), torch.zeros(0)):
        near(torch.compile(lambda x: x.sum(), backend="zefuse", options=GPU)(empty), empty.sum())
    emptied = torch.compile(lambda x: x.sum(), backend="zefuse", options=GPU)
    for rows in (700, 0, 2):
        x = torch.randn(rows, 1000)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        near(emptied(x), x.sum())


def test_short_reductions_and_many_results_are_one_launch() -> None:
    cases: list[tuple[torch.Tensor, Function]] = [
        (torch.randn(300, 300), lambda x: x.sum()),
        (torch.randn(512, 512), lambda x: x.sum(1)),
        (torch.randn(64, 8192), lambda x: x.sum(1)),
        (torch.randn(4096, 300), lambda x: x.sum(0)),
    ]
    for x, function in cases:
        explanation = zefuse.explain(function, x, options=GPU)
        near(explanation.result, function(x))
        assert len(explanation.kernels) == 1 and parts(explanation) == 0


def test_the_same_bits_every_time() -> None:
    x = torch.randn(1000, 1003)
    compiled = torch.compile(lambda x: (x * x).mean(), backend="zefuse", options=GPU)
    first = compiled(x)
    assert all(torch.equal(compiled(x), first) for _ in range(5))


COLUMNS: dict[str, Function] = {
    "sum": lambda x: x.sum(0),
    "sum and maximum": lambda x: (x.sum(0), x.amax(0)),
    "count": lambda x: (x > 0).sum(0),
    "what follows": lambda x: torch.softmax(x, 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", [(700, 512), (1500, 96), (333, 257)], ids=str)
def test_columns(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    """Sums over the outer dimension: sub-groups' partial results, in pieces of an access, meet in local memory."""
    torch.manual_seed(0)
    parts(explained(list(COLUMNS.values()), [torch.randn(sizes).to(dtype) for _ in COLUMNS]))
