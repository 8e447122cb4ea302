"""Every operator with a lowering, end to end against eager: same dtypes, sizes, strides and values, nothing left to ATen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from op_cases import Case, name, parameters

from zefuse.backend import observe
from zefuse.explanation import Explanation


def check(case: Case, dtype: torch.dtype, dynamic: bool) -> None:
    inputs = case.inputs(dtype)
    compiled: list[Any] = []
    with torch.no_grad(), observe(lambda _, graph: compiled.append(graph)):
        expected = case.function(*inputs)
        actual = torch.compile(case.function, backend="zefuse", dynamic=dynamic, fullgraph=True)(*inputs)
    widened = dtype == torch.bfloat16 and case.bf16_atol is not None
    tolerance = {"rtol": 1.6e-2, "atol": case.bf16_atol} if widened else {}
    torch.testing.assert_close(actual, expected, equal_nan=True, **tolerance)
    for ours, eager in zip(
        torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(expected), strict=True
    ):
        if isinstance(eager, torch.Tensor) and eager.numel():
            assert ours.stride() == eager.stride()
    reasons = [fallback["reason"] for graph in compiled for fallback in Explanation.of(graph).fallbacks]
    assert reasons == []


@pytest.mark.parametrize(("case", "dtype"), parameters(dynamic=False), ids=name)
def test_static(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype, dynamic=False)


@pytest.mark.parametrize(("case", "dtype"), [(c, d) for c, d in parameters(dynamic=True) if d == c.dtypes[0]], ids=name)
def test_dynamic(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype, dynamic=True)
