"""nn.TransformerEncoderLayer and nn.MultiheadAttention in inference, where torch calls one operator for a whole layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from zefuse.testing import assert_compiled

BATCH, TOKENS, WIDTH = 2, 6, 16
MASKS = ("none", "source", "padding", "both", "all")  # all: of a sequence that is padding alone


def masks(kind: str, padding_name: str, source_name: str) -> dict[str, torch.Tensor]:
    source = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    padding = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    padding[1, 4:] = True
    padding[0] = kind == "all"
    given = {source_name: source} if kind in ("source", "both") else {}
    return given | ({padding_name: padding} if kind in ("padding", "both", "all") else {})


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("activation", "norm_first"), [("gelu", True), ("relu", False)])
def test_an_encoder_layer_has_no_fallback(activation: str, norm_first: bool, mask: str) -> None:
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, 32, 0.1, activation, batch_first=True, norm_first=norm_first
    ).eval()  # fmt: skip
    given = masks(mask, "src_key_padding_mask", "src_mask")

    def call(x: torch.Tensor) -> Any:
        return layer(x, **given)

    with torch.no_grad():
        assert_compiled(call, (torch.randn(BATCH, TOKENS, WIDTH),), kernels=None)


# Without "all": eager's own ways, of which a compiled graph has the slower, differ there (NaN and 0).
@pytest.mark.parametrize("mask", MASKS[:-1])
@pytest.mark.parametrize("weights", ["none", "mean", "each"])
def test_multi_head_attention_has_no_fallback(weights: str, mask: str) -> None:
    layer = nn.MultiheadAttention(WIDTH, 4, batch_first=True).eval()
    given = masks(mask, "key_padding_mask", "attn_mask")

    def call(x: torch.Tensor) -> Any:
        out, seen = layer(x, x, x, need_weights=weights != "none", average_attn_weights=weights == "mean", **given)
        return out if seen is None else (out, seen)

    with torch.no_grad():
        assert_compiled(call, (torch.randn(BATCH, TOKENS, WIDTH),), kernels=None)


def test_queries_of_their_own() -> None:
    operator = torch.ops.aten._native_multi_head_attention
    q, k = torch.randn(BATCH, TOKENS, WIDTH), torch.randn(BATCH, TOKENS, WIDTH)
    weights = (
        torch.randn(3 * WIDTH, WIDTH) / 4,
        torch.randn(3 * WIDTH),
        torch.randn(WIDTH, WIDTH) / 4,
        torch.randn(WIDTH),
    )

    def call(q: torch.Tensor, k: torch.Tensor, *weights: torch.Tensor) -> Any:
        return operator(q, k, k, WIDTH, 4, *weights, None, True, True)

    with torch.no_grad():
        assert_compiled(call, (q, k, *weights), kernels=None)
