"""Compares cases, compiled, with themselves in eager: values, gradients, dtypes, strides, and that no operator fell back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from op_case import Case, name
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
    _compare(case, dtype, actual, expected)
    assert fallbacks(compiled) == []


def check_together(cases: Sequence[Case], dtype: torch.dtype) -> None:
    """With known sizes, as one graph of all cases: most of what a small compilation takes is the same for any function."""
    functions, inputs = [case.function for case in cases], [case.inputs(dtype) for case in cases]

    def all_of_them(inputs: list[list[Any]]) -> list[Any]:
        return [function(*given) for function, given in zip(functions, inputs, strict=True)]

    def together() -> None:
        compiled: list[Any] = []
        with torch.no_grad(), observe(lambda _, graph: compiled.append(graph)):
            expected = all_of_them(inputs)
            actual = torch.compile(all_of_them, backend="zefuse", dynamic=False, fullgraph=True)(inputs)
        for case, ours, eager in zip(cases, actual, expected, strict=True):
            _compare(case, dtype, ours, eager)
        assert fallbacks(compiled) == []

    _alone_where_wrong(cases, dtype, together, lambda case: check(case, dtype, dynamic=False))


def groups(cases: Sequence[Case], size: int = 8) -> list[list[Case]]:
    return [list(cases[at : at + size]) for at in range(0, len(cases), size)]


def names(value: object) -> str | None:
    """Of a parameter that is a group, for pytest."""
    return ",".join(case.name for case in value) if isinstance(value, list) else name(value)


def _alone_where_wrong(
    cases: Sequence[Case], dtype: torch.dtype, together: Callable[[], None], alone: Callable[[Case], None]
) -> None:
    """Each by itself where something is wrong with all of them: the error then is of the first that is, and names it."""
    try:
        together()
    except Exception:
        for case in cases:
            torch._dynamo.reset()
            try:
                alone(case)
            except Exception as error:
                error.add_note(f"{case.name}, {dtype}")
                raise
        raise


def _compare(case: Case, dtype: torch.dtype, actual: Any, expected: Any) -> None:
    widened = dtype == torch.bfloat16 and case.bf16_atol is not None
    tolerance = {"rtol": 1.6e-2, "atol": case.bf16_atol} if widened else {}

    def exact() -> Any:
        with torch.no_grad():
            return case.function(*in_f64(case.inputs(dtype)))

    assert_as_good_as_eager(actual, expected, exact, **tolerance)
    for ours, eager in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if isinstance(eager, Tensor) and eager.numel():
            assert ours.stride() == eager.stride()


def check_gradients(case: Case, dtype: torch.dtype, dynamic: bool) -> None:
    """Forward and backward, with a gradient that differs per element of each floating output."""
    _check_gradients([case], dtype, dynamic)


def check_gradients_together(cases: Sequence[Case], dtype: torch.dtype) -> None:
    """``check_gradients`` with known sizes, as ``check_together``."""
    _alone_where_wrong(
        cases,
        dtype,
        lambda: _check_gradients(cases, dtype, dynamic=False),
        lambda case: check_gradients(case, dtype, dynamic=False),
    )


def _check_gradients(cases: Sequence[Case], dtype: torch.dtype, dynamic: bool) -> None:
    functions = [case.function for case in cases]

    def all_of_them(inputs: list[list[Any]]) -> list[Any]:
        return [function(*given) for function, given in zip(functions, inputs, strict=True)]

    def run(function: Any, convert: Callable[[Any], Any] = lambda inputs: inputs) -> list[tuple[list[Any], list[Any]]]:
        torch.manual_seed(0)
        inputs = [
            [t.requires_grad_() if t.is_floating_point() else t for t in convert(case.inputs(dtype))] for case in cases
        ]
        outputs = [[leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)] for made in function(inputs)]
        differentiable, weights = [], []
        for of_case in outputs:
            generator = torch.Generator().manual_seed(1)
            for output in of_case:
                if output.requires_grad:
                    differentiable.append(output)
                    weight = torch.rand(output.shape, generator=generator).to(dtype) + 0.5
                    weights.append(weight.to(output.dtype))
        torch.autograd.backward(differentiable, weights)
        gradients = [[t.grad for t in given if t.requires_grad] for given in inputs]
        return list(zip(outputs, gradients, strict=True))

    compiled: list[Any] = []
    expected = run(all_of_them)
    with observe(lambda _, graph: compiled.append(graph)):
        actual = run(torch.compile(all_of_them, backend="zefuse", dynamic=dynamic, fullgraph=True))
    tolerance = {"rtol": 3e-2, "atol": 3e-2} if dtype in (torch.bfloat16, torch.float16) else {}
    exact = functools.cache(lambda: run(all_of_them, in_f64))
    for number, (ours, eagers) in enumerate(zip(actual, expected, strict=True)):
        assert_as_good_as_eager(ours, eagers, lambda number=number: exact()[number], **tolerance)  # type: ignore[misc]
    assert fallbacks(compiled) == []
