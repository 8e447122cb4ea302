"""The operators that ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call in inference, in terms of others.

torch has each as one operator (aten/src/ATen/native/transformers), and no decomposition. Nested tensors, which a padding mask
makes of a batch, stay with torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

# What a mask that is given is a mask of: [queries, keys]; [batch, keys]; both, [batch, heads, queries, keys].
_SOURCE, _PADDING, _JOINED = 0, 1, 2


def multi_head_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, embed_dim: int, num_head: int, qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor, proj_weight: torch.Tensor, proj_bias: torch.Tensor, mask: torch.Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """``[batch, queries, embed_dim]``, and the weights (over all heads their mean) where they are needed."""
    if query.is_nested or key.is_nested or value.is_nested:
        return NotImplemented
    if mask is not None and mask_type not in (_SOURCE, _PADDING, _JOINED):
        return NotImplemented

    def heads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(*tensor.shape[:2], num_head, embed_dim // num_head).transpose(1, 2)

    if query is key and key is value:
        parts = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        parts = tuple(map(F.linear, (query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3)))
    q, k, v = map(heads, parts)
    allowed = None
    if mask is not None:
        masked = mask.to(torch.bool)
        if mask_type == _PADDING:
            masked = masked[:, None, None, :]
        allowed = ~masked.expand(query.shape[0], masked.shape[1] if masked.dim() == 4 else 1, *q.shape[2:3], k.shape[2])
    weights = None
    if not need_weights:
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        if allowed is not None:  # of no key eager's own softmax makes NaN, where attention's makes 0
            context = torch.where(allowed.any(-1, keepdim=True), context, torch.nan)
    else:
        scores = q * (embed_dim // num_head) ** -0.5 @ k.transpose(-2, -1)
        if allowed is not None:
            scores = torch.where(allowed, scores, -torch.inf)
        weights = torch.softmax(scores, -1)
        context = weights @ v
        if average_attn_weights:
            weights = weights.mean(1)
    joined = context.transpose(1, 2).reshape(*query.shape[:2], embed_dim)
    return F.linear(joined, proj_weight, proj_bias), weights


def encoder_layer(
    src: torch.Tensor, embed_dim: int, num_heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor, proj_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: torch.Tensor, norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor, norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor, ffn_bias_1: torch.Tensor, ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """``[batch, tokens, embed_dim]``, as ``src``."""
    if src.is_nested:
        return NotImplemented

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    attended = multi_head_attention(
        x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
    )
    if attended is NotImplemented:
        return NotImplemented
    x = src + attended[0]
    if not norm_first:
        x = norm(x, norm_weight_1, norm_bias_1)
    inner = F.linear(norm(x, norm_weight_2, norm_bias_2) if norm_first else x, ffn_weight_1, ffn_bias_1)
    x = x + F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._native_multi_head_attention.default: multi_head_attention,
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }
