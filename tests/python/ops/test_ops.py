"""Every operator with a lowering, end to end against eager: same dtypes, sizes, strides and values, nothing left to ATen."""

from __future__ import annotations

import pytest
import torch
from op_case import Case, name
from op_cases import CASES
from op_check import check, check_together, groups, names

_OF_DTYPE: dict[torch.dtype, list[Case]] = {}
for _case in CASES:
    for _dtype in _case.dtypes if _case.dynamic else _case.dtypes[1:]:  # of the others the first is test_alone's
        _OF_DTYPE.setdefault(_dtype, []).append(_case)


@pytest.mark.parametrize(
    ("cases", "dtype"), [(group, dtype) for dtype, cases in _OF_DTYPE.items() for group in groups(cases)], ids=names
)
def test_static(cases: list[Case], dtype: torch.dtype) -> None:
    check_together(cases, dtype)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_alone(case: Case) -> None:
    """With symbolic sizes, where it is for them."""
    check(case, case.dtypes[0], dynamic=case.dynamic)
