"""Matrix products of types that the CPU's library does not take: kernels, with what stands around them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from op_case import tensor

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import assert_compiled

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
TYPES = [torch.float64, torch.float16, *INTEGERS]


def assert_product(result: torch.Tensor, expected: torch.Tensor) -> None:
    if not result.dtype.is_floating_point:
        assert torch.equal(result, expected)
    elif result.dtype == torch.float16:
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=2e-2)
    else:
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_values(dtype: torch.dtype, transposed: bool) -> None:
    """Rows, columns and sums that no block divides, and fewer of them than one holds."""
    pairs = []
    sizes = [(7, 5, 3), (33, 50, 140), (9, 17, 40), (40, 1, 9), (1, 33, 20), (65, 130, 60), (2, 600, 30), (5, 130, 140)]
    for rows, columns, depth in sizes:
        a = tensor(dtype, depth, rows).t() if transposed else tensor(dtype, rows, depth)
        b = tensor(dtype, columns, depth).t() if transposed else tensor(dtype, depth, columns)
        pairs.append((a, b))
    explanation = zefuse.explain(lambda pairs: [torch.mm(a, b) for a, b in pairs], pairs)
    for result, (a, b) in zip(explanation.result, pairs, strict=True):
        assert_product(result, a @ b)
    assert len(explanation.kernels) == len(pairs) and not explanation.fallbacks
    assert all(kernel["schedule"].startswith("product, ") for kernel in explanation.kernels)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_and_columns_along_the_sum(dtype: torch.dtype) -> None:
    """A linear layer's: inner products of both as they lie, with a tail of the sum, of rows and of columns."""
    layers = []
    for rows, columns, depth in [(1, 5, 70), (2, 3, 64), (5, 7, 129), (33, 2, 65), (40, 1, 200), (3, 64, 256)]:
        layers.append([tensor(dtype, *shape) for shape in ((rows, depth), (columns, depth), (columns,))])
    layers.append([tensor(dtype, *shape) for shape in ((2, 3, 5, 80), (4, 80), (4,))])
    layers.append([layers[2][0][:, 1:], layers[2][1][:, :-1], layers[2][2]])  # rows with a gap between them

    def function(layers: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        return [torch.nn.functional.linear(x, weight, bias) * 2 for x, weight, bias in layers]

    explanation = zefuse.explain(function, layers)
    for result, expected in zip(explanation.result, function(layers), strict=True):
        assert_product(result, expected)
    assert not explanation.fallbacks and len(explanation.kernels) == len(layers)
    assert all(" sums at a time, along " in kernel["schedule"] for kernel in explanation.kernels)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around(dtype: torch.dtype, transposed: bool) -> None:
    """Sums of the largest and least numbers, in eager's bits."""
    limits = torch.iinfo(dtype)
    a, b = (torch.randint(0, 2, (9, 300)) * 2 - 1, torch.randint(0, 2, (300, 40)) * 2 - 1)
    low, high = torch.tensor(limits.min, dtype=dtype), torch.tensor(limits.max, dtype=dtype)
    a, b = torch.where(a < 0, low, high), torch.where(b < 0, low, high)
    if transposed:
        b = b.t().contiguous().t()
    for rows in (1, 4, 9):
        explanation = zefuse.explain(torch.mm, a[:rows], b)
        assert not explanation.fallbacks
        assert torch.equal(explanation.result, a[:rows] @ b)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
def test_any_size(dtype: torch.dtype, transposed: bool) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ (b.mT if transposed else b) + 1

    graphs = []
    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    with backend.observe(lambda _, graph: graphs.append(graph)):
        for batch, rows, columns, depth in [(3, 9, 50, 20), (2, 40, 70, 150), (5, 33, 7, 2), (2, 2, 129, 300)]:
            a = tensor(dtype, batch, rows, depth)
            b = tensor(dtype, batch, *((columns, depth) if transposed else (depth, columns)))
            assert torch.equal(compiled(a, b), function(a, b))
    assert len(graphs) == 1 and not Explanation.of(graphs[0]).fallbacks


AROUND: dict[str, Callable[..., torch.Tensor]] = {
    "epilogue": lambda x, w, b, r: torch.maximum((x @ w + b) * 3, r),
    "residual_read_transposed": lambda x, w, b, r: (x @ w).t() - r.t(),
    "heads": lambda x, w, b, r: (x @ w + b).view(12, 5, 4).transpose(0, 1) * 2,
    "batches": lambda x, w, b, r: x.view(3, 4, 24) @ w + b,
    "broadcast": lambda x, w, b, r: torch.matmul(x.view(3, 1, 4, 24), w.view(2, 24, 10)) - 1,
    "view": lambda x, w, b, r: x[::2] @ w[:, 3:17] + b[3:17],
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int16], ids=str)
def test_what_follows_is_in_the_kernel(dtype: torch.dtype) -> None:
    functions = list(AROUND.values())
    shapes = (12, 24), (24, 20), (20,), (12, 20)
    inputs = [[tensor(dtype, *shape) for shape in shapes] for _ in functions]
    assert_compiled(
        lambda inputs: [function(*given) for function, given in zip(functions, inputs, strict=True)],
        (inputs,),
        kernels=len(functions),
    )


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_scaled_sums(dtype: torch.dtype) -> None:
    """addmm's factors; integers wrap around."""
    c, a, b = tensor(dtype, 20), tensor(dtype, 12, 24), tensor(dtype, 24, 20)

    def function(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.addmm(c, a, b, beta=3, alpha=2)

    explanation = zefuse.explain(function, c, a, b)
    assert not explanation.fallbacks
    assert_product(explanation.result, function(c, a, b))


def test_operands_are_read_before_they_are_overwritten() -> None:
    """A product reads rows and columns that it has written by then: its result lies elsewhere first."""

    def function(x: torch.Tensor, w: torch.Tensor) -> None:
        x.copy_(x @ w + x)

    x, w = tensor(torch.int64, 40, 40), tensor(torch.int64, 40, 40)
    expected = x @ w + x
    torch.compile(function, backend="zefuse")(x, w)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_part_of_a_product_is_overwritten(dynamic: bool) -> None:
    """By what is computed of it: where vectors cross the part's border, no sums are at hand."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = x @ y
        return product.sin(), product.tensor_split(3, -1)[1].sub_(2)

    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for size in (6, 18):
        x, y = torch.randn(size, 1, dtype=torch.float64), torch.randn(1, size, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, y), function(x, y))


def test_equal_products_stay_apart() -> None:
    """No batch, and not side by side: neither has a schedule."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ y, y @ x

    x, y = tensor(torch.int64, 20, 20), tensor(torch.int64, 20, 20)
    explanation = zefuse.explain(function, x, y)
    assert len(explanation.kernels) == 2
    for result, expected in zip(explanation.result, function(x, y), strict=True):
        assert torch.equal(result, expected)


def test_half_precision_sums_in_single() -> None:
    """4000 addends of 1: f16 would stop at 2048."""
    ones = torch.ones(9, 4000, dtype=torch.float16), torch.ones(4000, 3, dtype=torch.float16)
    explanation = zefuse.explain(torch.mm, *ones)
    assert not explanation.fallbacks and bool((explanation.result == 4000).all())


@pytest.mark.parametrize("rows", [3, 96])
def test_large_products_of_f16_are_the_librarys(rows: int) -> None:
    """Which multiplies them as f32 where the processor has no instructions for them; what follows is attached."""
    a, weight, bias = (tensor(torch.float16, *shape) for shape in ((rows, 512), (1024, 512), (1024,)))

    def function(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.linear(a, weight, bias))

    assert_compiled(function, (a, weight, bias), kernels=0, calls=1, fallbacks=0, rtol=2e-3)
    assert_compiled(
        lambda a, w: a.t() @ w.t(), (a.t().contiguous(), weight), kernels=0, calls=1, fallbacks=0, rtol=2e-3
    )
    batches = tensor(torch.float16, 3, rows, 512), tensor(torch.float16, 3, 512, 400)
    assert_compiled(torch.matmul, batches, kernels=0, calls=1, fallbacks=0, rtol=2e-3)


@pytest.mark.parametrize(
    ("dtype", "rows", "reason"),
    [
        (torch.float64, 128, "matrix product of f64: eager's library is quicker with 2097152 multiplications"),
    ],
    ids=str,
)
def test_sizes_that_eager_multiplies_sooner(dtype: torch.dtype, rows: int, reason: str) -> None:
    a, b = tensor(dtype, rows, 128), tensor(dtype, 128, 128)
    explanation = zefuse.explain(torch.mm, a, b)
    assert [fallback["reason"] for fallback in explanation.fallbacks] == [f"aten::mm: {reason}"]
    assert_product(explanation.result, a @ b)
    for dtype in INTEGERS:
        for rows in (1, 128):
            torch._dynamo.reset()
            x, weight = tensor(dtype, rows, 128), tensor(dtype, 128, 128)
            assert not zefuse.explain(torch.nn.functional.linear, x, weight).fallbacks
            fallbacks = zefuse.explain(torch.mm, x, weight).fallbacks
            assert len(fallbacks) == (dtype == torch.int64 and rows == 128)
    torch._dynamo.reset()  # else rows are symbolic by now
    x, weight = tensor(torch.float16, 1, 512), tensor(torch.float16, 512, 512)
    fallbacks = zefuse.explain(torch.nn.functional.linear, x, weight).fallbacks
    assert ["eager is quicker with one row and 262144 multiplications" in each["reason"] for each in fallbacks] == [
        True
    ]
    assert not zefuse.explain(lambda x, w: torch.nn.functional.linear(x, w), x[:, :256], weight[:, :256]).fallbacks
    torch._dynamo.reset()
    assert not zefuse.explain(torch.mm, tensor(torch.float64, 32, 512), tensor(torch.float64, 512, 512)).fallbacks
