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
    for rows, columns, depth in [(7, 5, 3), (33, 50, 140), (9, 17, 40), (40, 1, 9), (1, 33, 20), (65, 130, 60)]:
        a = tensor(dtype, depth, rows).t() if transposed else tensor(dtype, rows, depth)
        b = tensor(dtype, columns, depth).t() if transposed else tensor(dtype, depth, columns)
        pairs.append((a, b))
    explanation = zefuse.explain(lambda pairs: [torch.mm(a, b) for a, b in pairs], pairs)
    for result, (a, b) in zip(explanation.result, pairs, strict=True):
        assert_product(result, a @ b)
    assert len(explanation.kernels) == len(pairs) and not explanation.fallbacks
    assert all(kernel["schedule"].startswith("product, blocks of ") for kernel in explanation.kernels)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
def test_any_size(dtype: torch.dtype) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b + 1

    graphs = []
    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    with backend.observe(lambda _, graph: graphs.append(graph)):
        for batch, rows, columns, depth in [(3, 9, 50, 20), (2, 40, 70, 150), (5, 33, 7, 2), (2, 2, 129, 300)]:
            a, b = tensor(dtype, batch, rows, depth), tensor(dtype, batch, depth, columns)
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
        (torch.float64, 1, "matrix product of f64: eager is quicker with few rows (1) and 16384 multiplications"),
        (torch.float16, 4, "matrix product of f16: eager is quicker with few rows (4) and 65536 multiplications"),
        (torch.int8, 1, "matrix product of i8: eager is quicker with few rows (1) and 16384 multiplications"),
    ],
    ids=str,
)
def test_sizes_that_eager_multiplies_sooner(dtype: torch.dtype, rows: int, reason: str) -> None:
    a, b = tensor(dtype, rows, 128), tensor(dtype, 128, 128)
    explanation = zefuse.explain(torch.mm, a, b)
    assert [fallback["reason"] for fallback in explanation.fallbacks] == [f"aten::mm: {reason}"]
    assert_product(explanation.result, a @ b)
    for sooner in (torch.int64, torch.int32):
        a, b = tensor(sooner, 128, 128), tensor(sooner, 128, 128)
        assert not zefuse.explain(torch.mm, a, b).fallbacks
