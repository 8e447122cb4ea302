"""The comparison that the operators' tests share: what it takes for as good as eager."""

from __future__ import annotations

import pytest
import torch
from op_check import assert_as_good_as_eager
from torch import Tensor

EXACT = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def accepts(ours: Tensor, eager: Tensor, exact: Tensor = EXACT) -> bool:
    try:
        assert_as_good_as_eager([ours], [eager], lambda: [exact])
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_nearer_to_f64(dtype: torch.dtype) -> None:
    near, far = (EXACT * 1.05).to(dtype), (EXACT * 1.1).to(dtype)
    assert accepts(near, far)
    assert not accepts(far, near)
    assert accepts(far, far)


def test_the_largest_error_decides() -> None:
    ours = (EXACT + torch.tensor([0.2, 0.2, 0.2])).bfloat16()
    assert accepts(ours, (EXACT + torch.tensor([0.0, 0.0, 0.5])).bfloat16())
    assert not accepts(ours, (EXACT + torch.tensor([0.1, 0.1, 0.1])).bfloat16())


def test_only_floating_and_finite() -> None:
    assert not accepts(torch.tensor([1]), torch.tensor([2]), torch.tensor([1]))
    assert not accepts(torch.tensor([True]), torch.tensor([False]), torch.tensor([True]))
    assert not accepts(EXACT, EXACT * 1.1)
    infinite = torch.tensor([1.0, torch.inf, 3.0])
    assert not accepts(EXACT.float(), infinite)
    assert not accepts(infinite, EXACT.float() * 1.1)
    assert not accepts(EXACT.float(), EXACT.float() * 1.1, EXACT * torch.nan)


def test_each_tensor_for_itself() -> None:
    near, far = EXACT.float(), EXACT.float() * 1.1
    with pytest.raises(AssertionError):
        assert_as_good_as_eager([near, torch.tensor([1])], [far, torch.tensor([2])], lambda: [EXACT, torch.tensor([1])])
    assert_as_good_as_eager([near, torch.tensor([1])], [far, torch.tensor([1])], lambda: [EXACT, torch.tensor([1])])


def test_dtypes_and_sizes_stay_eagers() -> None:
    assert not accepts(EXACT.float(), EXACT.bfloat16() * 1.1)
    assert not accepts(EXACT.float()[None], EXACT.float() * 1.1)
