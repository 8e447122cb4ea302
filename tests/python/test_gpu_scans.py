"""Scans whose rows work-items share (lowering/schedule/gpu/gpu_scan.cpp), on the CPU that poses as a GPU, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import zefuse
from zefuse.testing import relative_error

GPU: dict[str, Any] = {"device": "gpu:0"}
# A sub-group's row, a group's in one piece and in several, with elements that fill no piece, and more rows than a group takes.
SIZES = [(3, 65), (40, 257), (2, 5000), (2, 2049), (1100, 300)]
FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def near(actual: Any, expected: Any, dtype: torch.dtype) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(actual, expected, strict=True):
            near(one, other, dtype)
    elif expected.is_floating_point():
        assert relative_error(actual.float(), expected.float()) < (1e-5 if dtype == torch.float32 else 8e-3)
    else:
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(sizes).to(dtype) for sizes in SIZES]
    explanation = zefuse.explain(lambda inputs: [x.cumsum(-1) for x in inputs], inputs, options=GPU)
    assert not explanation.fallbacks and len(explanation.kernels) == len(SIZES)
    assert not [kernel for kernel in explanation.kernels if "a row per work-item" in kernel["schedule"]]
    for x, result in zip(inputs, explanation.result, strict=True):
        near(result, x.float().cumsum(-1).to(dtype), dtype)


KINDS: dict[str, Callable[..., Any]] = {
    "integers": lambda x: (x * 100).long().cumsum(-1),
    "largest integers": lambda x: (x * 100).long().cummax(-1),
    "masks": lambda x: (x > 0).cumsum(-1) * (x > 0),
    "two": lambda x: (x.cumsum(-1), (x * 2).cumsum(-1) + x),
    "one of another": lambda x: (x.cumsum(-1) * 0.1).cumsum(-1),
    "with what is around it": lambda x: x.exp().cumsum(-1).log() * x[0],
    "extremes and where": lambda x: x.cummax(-1),
    "products": lambda x: (1 + x * 1e-3).cumprod(-1),
    "backwards": lambda x: x.flip(-1).cumsum(-1).flip(-1),
}


@pytest.mark.parametrize("sizes", SIZES[:3], ids=str)
def test_kinds(sizes: tuple[int, int]) -> None:
    torch.manual_seed(0)
    functions, inputs = list(KINDS.values()), [torch.randn(sizes) for _ in KINDS]
    explanation = zefuse.explain(
        lambda inputs: [function(x) for function, x in zip(functions, inputs, strict=True)], inputs, options=GPU
    )
    assert not explanation.fallbacks
    for function, x, result in zip(functions, inputs, explanation.result, strict=True):
        near(result, function(x), x.dtype)


def test_rows_of_any_length() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(lambda x: x.cumsum(-1), backend="zefuse", dynamic=True, options=GPU)
    for length in (70, 2048, 3333, 2):
        x = torch.randn(3, length)
        near(compiled(x), x.cumsum(-1), x.dtype)


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_a_scan_that_is_padded(device: str) -> None:
    """A scan computes its rows before it is known which are in the padding, where there is nothing to read."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.logcumsumexp(x, 0)
        return torch.nn.functional.avg_pool1d(torch.nn.functional.interpolate(y, scale_factor=2), 2, padding=1)

    for sizes in ((2, 1, 4), (3, 5, 33)):
        x = torch.randn(sizes)
        result = torch.compile(function, backend="zefuse", dynamic=False, options={"device": device})(x)
        torch.testing.assert_close(result, function(x), rtol=1e-4, atol=1e-5)
