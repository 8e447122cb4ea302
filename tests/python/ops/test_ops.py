"""Every operator with a lowering, end to end against eager: same dtypes, sizes, strides and values, nothing left to ATen."""

from __future__ import annotations

import pytest
import torch
from op_case import Case, name
from op_cases import parameters
from op_check import check


@pytest.mark.parametrize(("case", "dtype"), parameters(dynamic=False), ids=name)
def test_static(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype, dynamic=False)


@pytest.mark.parametrize(("case", "dtype"), [(c, d) for c, d in parameters(dynamic=True) if d == c.dtypes[0]], ids=name)
def test_dynamic(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype, dynamic=True)
