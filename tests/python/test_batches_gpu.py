"""Small kernels that do the same to tensors of different sizes are one launch on a GPU: on the CPU that poses as one, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zefuse

SIZES = [
    (64, 3, 7, 7),
    (1,),
    (2,),
    (7, 5),
    (33,),
    (64, 64),
    (31, 1024),
    (127,),
    (128, 128),
    (3, 3, 3),
    (255, 257),
    (1023,),
    (512, 96),
]


def kernels(function: Any, *inputs: Any) -> tuple[list[dict[str, Any]], Any]:
    explanation = zefuse.explain(function, *inputs, options={"device": "gpu:0"})
    assert not explanation.fallbacks
    return explanation.kernels, explanation.result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32], ids=str)
def test_casts_of_many_sizes(dtype: torch.dtype) -> None:
    """Of sizes that differ by less than four times or are one group's, and not of one element, which is another kernel."""
    torch.manual_seed(0)
    tensors = [torch.randn(size) * 100 for size in SIZES]

    def function(tensors: list[torch.Tensor], scale: torch.Tensor) -> list[torch.Tensor]:
        return [(tensor * scale).to(dtype) for tensor in tensors]

    scale = torch.tensor(0.75)
    launched, result = kernels(function, tensors, scale)
    for ours, eager in zip(result, function(tensors, scale), strict=True):
        assert torch.equal(ours, eager)
    classes = {max(10, tensor.numel().bit_length() - 1) >> 1 for tensor in tensors if tensor.numel() > 1}
    assert len(launched) == len(classes) + 1, [kernel["schedule"] for kernel in launched]


def test_each_has_its_own_results() -> None:
    """Two results and two inputs of each, one of them shared; a large one stays alone."""
    torch.manual_seed(0)
    tensors = [torch.randn(rows, 96) for rows in (100, 101, 137, 64, 128, 40000)]
    others = [torch.randn_like(tensor) for tensor in tensors]

    def function(tensors: list[torch.Tensor], others: list[torch.Tensor]) -> list[torch.Tensor]:
        made = []
        for a, b in zip(tensors, others, strict=True):
            c = torch.lerp(a, b, 0.25)
            made += [c, c.square() + 1]
        return made

    launched, result = kernels(function, tensors, others)
    for ours, eager in zip(result, function(tensors, others), strict=True):
        torch.testing.assert_close(ours, eager)
    assert len(launched) == 2, [kernel["schedule"] for kernel in launched]


def test_of_what_reads_nothing_the_results_tell_the_shape() -> None:
    """Both lie in the same strides, and take nothing whose shape could differ."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1, torch.full((2, 5, 2), 3.0), torch.full((4, 5, 2), 3.0)

    x = torch.randn(3)
    launched, result = kernels(function, x)
    assert len(launched) == 2
    for ours, eager in zip(result, function(x), strict=True):
        assert torch.equal(ours, eager)
