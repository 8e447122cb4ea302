"""Compares one case compiled with itself in eager: values, gradients, dtypes, strides, and that no operator fell back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from op_case import Case
from torch.utils._pytree import tree_leaves

from zefuse.backend import observe
from zefuse.explanation import Explanation


def fallbacks(compiled: Sequence[Any]) -> list[str]:
    return [fallback["reason"] for graph in compiled for fallback in Explanation.of(graph).fallbacks]


def check(case: Case, dtype: torch.dtype, dynamic: bool) -> None:
    inputs = case.inputs(dtype)
    compiled: list[Any] = []
    with torch.no_grad(), observe(lambda _, graph: compiled.append(graph)):
        expected = case.function(*inputs)
        actual = torch.compile(case.function, backend="zefuse", dynamic=dynamic, fullgraph=True)(*inputs)
    widened = dtype == torch.bfloat16 and case.bf16_atol is not None
    tolerance = {"rtol": 1.6e-2, "atol": case.bf16_atol} if widened else {}
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
    for ours, eager in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if isinstance(eager, torch.Tensor) and eager.numel():
            assert ours.stride() == eager.stride()
    assert fallbacks(compiled) == []


def check_gradients(case: Case, dtype: torch.dtype, dynamic: bool) -> None:
    """Forward and backward, with a gradient that differs per element of each floating output."""

    def run(function: Any) -> tuple[list[Any], list[Any]]:
        torch.manual_seed(0)
        inputs = [t.requires_grad_() if t.is_floating_point() else t for t in case.inputs(dtype)]
        outputs = [leaf for leaf in tree_leaves(function(*inputs)) if isinstance(leaf, torch.Tensor)]
        differentiable = [output for output in outputs if output.requires_grad]
        generator = torch.Generator().manual_seed(1)
        weights = [torch.rand(o.shape, generator=generator).to(o.dtype) + 0.5 for o in differentiable]
        torch.autograd.backward(differentiable, weights)
        return outputs, [t.grad for t in inputs if t.requires_grad]

    compiled: list[Any] = []
    expected = run(case.function)
    with observe(lambda _, graph: compiled.append(graph)):
        actual = run(torch.compile(case.function, backend="zefuse", dynamic=dynamic, fullgraph=True))
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype in (torch.bfloat16, torch.float16) else {}
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
    assert fallbacks(compiled) == []
