"""Attention with a mask, in f32: one call of the CPU's library, whatever the mask's sizes and strides, as eager computes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import zefuse

BATCH, HEADS, ROWS, KEYS, DEPTH = 2, 4, 70, 90, 24
LOWEST = torch.finfo(torch.float32).min


def _lowest() -> torch.Tensor:
    """As transformers' masks are, with a row that keeps nothing: its keys weigh the same."""
    mask = torch.zeros(BATCH, 1, ROWS, KEYS).masked_fill(torch.rand(BATCH, 1, ROWS, KEYS) > 0.5, LOWEST)
    mask[:, :, 3] = LOWEST
    return mask


def _nothing() -> torch.Tensor:
    mask = torch.rand(BATCH, 1, ROWS, KEYS) > 0.5
    mask[:, :, 5] = False
    return mask


MASKS: dict[str, Callable[[], torch.Tensor]] = {
    "causal": lambda: torch.ones(ROWS, KEYS, dtype=torch.bool).tril(),
    "padding": lambda: torch.rand(BATCH, 1, 1, KEYS) > 0.3,
    "full": lambda: torch.randn(BATCH, HEADS, ROWS, KEYS),
    "expanded": lambda: torch.randn(1, HEADS, ROWS, KEYS).expand(BATCH, HEADS, ROWS, KEYS),
    "transposed": lambda: torch.randn(KEYS, ROWS).t(),
    "lowest": _lowest,
    "nothing": _nothing,
}  # fmt: skip


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@pytest.mark.parametrize("kind", MASKS)
def test_as_eager(kind: str) -> None:
    torch.manual_seed(0)
    query = torch.randn(BATCH, ROWS, HEADS, DEPTH).transpose(1, 2)
    key, value = (torch.randn(BATCH, KEYS, HEADS, DEPTH).transpose(1, 2) for _ in range(2))
    mask = MASKS[kind]()
    expected = _attention(query, key, value, mask)
    actual = torch.compile(_attention, backend="zefuse")(query, key, value, mask)
    torch.testing.assert_close(actual, expected, rtol=1.3e-6, atol=1e-5)
    assert actual.stride() == expected.stride()
    explanation = zefuse.explain(_attention, query, key, value, mask)
    assert len(explanation.kernels) == (mask.dtype is torch.bool)  # torch makes numbers of it first
    assert [call["kind"] for call in explanation.calls] == ["attention"]


@pytest.mark.parametrize("kind", ["causal", "lowest", "full"])
def test_gradients_are_eagers(kind: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(BATCH, HEADS, count, DEPTH, requires_grad=True) for count in (ROWS, KEYS, KEYS)]
    mask = MASKS[kind]()
    expected = torch.autograd.grad(_attention(*inputs, mask).square().sum(), inputs)
    compiled = torch.compile(_attention, backend="zefuse")
    for ours, theirs in zip(torch.autograd.grad(compiled(*inputs, mask).square().sum(), inputs), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
