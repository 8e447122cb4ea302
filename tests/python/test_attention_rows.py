"""Rows of attention whose scores are all minus infinity as products, without a mask: eager gives zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F


def _query(rows: int, dtype: torch.dtype) -> torch.Tensor:
    """Against keys that are positive: one row of infinite scores, one of products beyond the type's range, else numbers."""
    query = torch.rand(2, 4, rows, 8) + 0.5
    query[1, 2, 1] = -torch.inf
    query[0, 3, rows - 1] = -3e38
    return query.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "keys"), [(3, 5), (80, 2), (300, 400)])
@pytest.mark.parametrize("form", ["plain", "causal", "groups", "training"])
def test_a_row_of_minus_infinity_gives_zeros(dtype: torch.dtype, rows: int, keys: int, form: str) -> None:
    options: dict[str, Any] = {"is_causal": form == "causal"}
    query, heads = _query(rows, dtype), 4
    if form == "groups":
        options["enable_gqa"], heads = True, 2
    key = (20 + torch.rand(2, heads, keys, 8)).to(dtype)
    value = torch.randn(2, heads, keys, 8).to(dtype)
    inputs = [tensor.requires_grad_(form == "training") for tensor in (query, key, value)]

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, **options)

    expected, actual = attention(*inputs), torch.compile(attention, backend="zefuse")(*inputs)
    assert not expected[1, 2, 1].any()
    assert not expected[0, 3, rows - 1].any()
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    if form == "training":
        wanted = torch.autograd.grad(expected.sum(), inputs)
        given = torch.autograd.grad(actual.sum(), inputs)
        for ours, theirs in zip(given, wanted, strict=True):
            # Eager's are NaN where a key's gradient adds zero times an infinite query.
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=10 * tolerance, equal_nan=True)


def test_a_nan_among_scores_of_minus_infinity_stays() -> None:
    query = torch.full((1, 1, 2, 1), -torch.inf)
    key = torch.tensor([1.0, torch.nan, 2.0])[None, None, :, None]
    ours = torch.compile(F.scaled_dot_product_attention, backend="zefuse")(query, key, torch.ones(1, 1, 3, 1))
    assert ours.isnan().all()
