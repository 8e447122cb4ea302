"""Compares one case compiled with itself in eager: values, gradients, dtypes, strides, and that no operator fell back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from op_case import Case
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from zefuse.backend import observe
from zefuse.explaining.explanation import Explanation


def fallbacks(compiled: Sequence[Any]) -> list[str]:
    return [fallback["reason"] for graph in compiled for fallback in Explanation.of(graph).fallbacks]


def in_f64(values: Any) -> Any:
    return tree_map_only(Tensor, lambda t: t.detach().double() if t.is_floating_point() else t, values)


def assert_as_good_as_eager(actual: Any, expected: Any, exact: Callable[[], Any], **tolerance: float) -> None:
    """``actual`` is what eager gives, within torch's tolerance (or the one given).

    A floating tensor that is not may be the better one: eager's own distance from f64 depends on the host (without AVX-512
    its bf16 convolutions are off by twice what ours are). It passes when its largest error is at most eager's, each measured
    against ``exact()``, the same computation in f64. Nothing that is not finite passes that way, and no f64."""
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
    except AssertionError as mismatch:
        ours, eagers, references = tree_leaves(actual), tree_leaves(expected), tree_leaves(exact())
        if not len(ours) == len(eagers) == len(references):
            raise
        for our, eager, reference in zip(ours, eagers, references, strict=True):
            if not _close(our, eager, **tolerance) and not _nearer(our, eager, reference):
                raise mismatch from None


def _close(ours: Any, eager: Any, **tolerance: float) -> bool:
    try:
        torch.testing.assert_close(ours, eager, equal_nan=True, **tolerance)
    except AssertionError:
        return False
    return True


def _nearer(ours: Any, eager: Any, reference: Any) -> bool:
    """Whether the largest error of ``ours`` is at most that of ``eager``."""
    tensors = all(isinstance(t, Tensor) for t in (ours, eager, reference))
    if not tensors or ours.dtype != eager.dtype or not ours.shape == eager.shape == reference.shape:
        return False
    if not eager.is_floating_point() or eager.dtype == torch.float64 or reference.dtype != torch.float64:
        return False
    if not all(t.isfinite().all() for t in (ours, eager, reference)):
        return False
    return bool((ours.double() - reference).abs().max() <= (eager.double() - reference).abs().max())


def check(case: Case, dtype: torch.dtype, dynamic: bool) -> None:
    inputs = case.inputs(dtype)
    compiled: list[Any] = []
    with torch.no_grad(), observe(lambda _, graph: compiled.append(graph)):
        expected = case.function(*inputs)
        actual = torch.compile(case.function, backend="zefuse", dynamic=dynamic, fullgraph=True)(*inputs)
    widened = dtype == torch.bfloat16 and case.bf16_atol is not None
    tolerance = {"rtol": 1.6e-2, "atol": case.bf16_atol} if widened else {}

    def exact() -> Any:
        with torch.no_grad():
            return case.function(*in_f64(case.inputs(dtype)))

    assert_as_good_as_eager(actual, expected, exact, **tolerance)
    for ours, eager in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if isinstance(eager, Tensor) and eager.numel():
            assert ours.stride() == eager.stride()
    assert fallbacks(compiled) == []


def check_gradients(case: Case, dtype: torch.dtype, dynamic: bool) -> None:
    """Forward and backward, with a gradient that differs per element of each floating output."""

    def run(function: Any, convert: Callable[[Any], Any] = lambda inputs: inputs) -> tuple[list[Any], list[Any]]:
        torch.manual_seed(0)
        inputs = [t.requires_grad_() if t.is_floating_point() else t for t in convert(case.inputs(dtype))]
        outputs = [leaf for leaf in tree_leaves(function(*inputs)) if isinstance(leaf, Tensor)]
        differentiable = [output for output in outputs if output.requires_grad]
        generator = torch.Generator().manual_seed(1)
        weights = [torch.rand(o.shape, generator=generator).to(dtype) + 0.5 for o in differentiable]
        torch.autograd.backward(differentiable, [w.to(o.dtype) for w, o in zip(weights, differentiable, strict=True)])
        return outputs, [t.grad for t in inputs if t.requires_grad]

    compiled: list[Any] = []
    expected = run(case.function)
    with observe(lambda _, graph: compiled.append(graph)):
        actual = run(torch.compile(case.function, backend="zefuse", dynamic=dynamic, fullgraph=True))
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype in (torch.bfloat16, torch.float16) else {}
    assert_as_good_as_eager(actual, expected, lambda: run(case.function, in_f64), **tolerance)
    assert fallbacks(compiled) == []
