"""The importer alone: every operator we claim becomes stage-1 IR that passes its contract, and the rest falls back with a reason."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from capture_graph import graph_of, imported, native
from op_cases import Case, name, parameters


def fallbacks(text: str) -> list[str]:
    return re.findall(r'reason = "([^"]*)"', text)


@pytest.mark.parametrize(("case", "dtype"), parameters(dynamic=False), ids=name)
def test_lowered_static(case: Case, dtype: torch.dtype) -> None:
    reasons = fallbacks(imported(case.function, case.inputs(dtype)))
    if dtype == torch.float16 and "product" in " ".join(reasons):
        pytest.skip("products of f16 run in ATen")
    assert reasons == []


@pytest.mark.parametrize(("case", "dtype"), [(c, d) for c, d in parameters(dynamic=True) if d == c.dtypes[0]], ids=name)
def test_lowered_dynamic(case: Case, dtype: torch.dtype) -> None:
    assert fallbacks(imported(case.function, case.inputs(dtype), dynamic=True)) == []
