"""Training forms of attention and batch normalization: values and gradients against eager's, nothing left to ATen."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from op_case import Case, mask, name
from op_check import check_gradients, check_gradients_together, groups, names

_Q, _IMAGE, _CHANNELS = (2, 3, 7, 8), (4, 6, 5, 3), (6,)


def _empty_row() -> torch.Tensor:
    attends = torch.rand(7, 7, generator=torch.Generator().manual_seed(2)) > 0.3
    attends[3] = False
    return attends


def _running(
    x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    mean, variance = mean.detach().clone(), variance.detach().clone()
    return F.batch_norm(x, mean, variance, weight, None, training=True, momentum=0.2), mean, variance


def _given(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, *affine: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, mean.detach(), variance.detach(), *affine)


CASES = [
    Case("sdpa", F.scaled_dot_product_attention, [_Q, _Q, _Q]),
    Case("sdpa_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [_Q, _Q, _Q]),
    Case("sdpa_scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), [_Q, _Q, _Q]),
    Case("sdpa_cross", F.scaled_dot_product_attention, [_Q, (2, 3, 5, 8), (2, 3, 5, 8)]),
    Case("sdpa_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [_Q, _Q, _Q, mask(2, 1, 7, 7)]),
    Case("sdpa_empty_row", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [_Q, _Q, _Q, _empty_row]),
    Case("sdpa_gqa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), [(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)]),
    Case("batch_norm", _running, [_IMAGE, _CHANNELS, _CHANNELS, _CHANNELS]),
    Case("batch_norm_1d", _running, [(9, 6), _CHANNELS, _CHANNELS, _CHANNELS]),
    Case("batch_norm_no_statistics", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [_IMAGE, _CHANNELS, _CHANNELS]),
    Case("batch_norm_given_statistics", _given, [_IMAGE, *[_CHANNELS] * 4], low=0.5),
    Case("instance_norm", lambda x, w, b: F.instance_norm(x, None, None, w, b), [_IMAGE, _CHANNELS, _CHANNELS]),
]  # fmt: skip


@pytest.mark.parametrize("cases", groups(CASES), ids=names)
def test_static(cases: list[Case]) -> None:
    check_gradients_together(cases, torch.float32)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_dynamic(case: Case) -> None:
    check_gradients(case, torch.float32, dynamic=True)


@pytest.mark.parametrize("case", [dataclasses.replace(case, low=-1, high=1) for case in CASES[:2]], ids=name)
def test_gradients_in_bfloat16(case: Case) -> None:
    check_gradients(case, torch.bfloat16, dynamic=False)
