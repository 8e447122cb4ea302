"""Attention of CUDA tensors with dropout, in the plan: two products around a softmax that drops weights, by random_numbers.

The scores lie in memory, so it is for few of them. Torch's kernels, which keep none, draw in an order of their own; where they compute the
forward they compute the backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from zefuse.decompositions import fused_attention, random_numbers
from zefuse.decompositions.fused_attention import aten

MOST_SCORES = 1 << 24
"""64 MiB of f32, about what a GPU's second cache holds."""

Tensor = torch.Tensor


def _drops(query: Tensor, key: Tensor, dropout_p: float) -> bool:
    """Whether such attention is computed here."""
    scores = (*query.shape[:-1], key.shape[-2])
    fixed = all(isinstance(size, int) for size in scores)
    return dropout_p > 0 and fixed and math.prod(scores) <= MOST_SCORES and query.dtype is not torch.float64


def _weights(seed: Tensor, like: Tensor, dropout_p: float) -> Tensor:
    """By what each weight is multiplied."""
    kept = random_numbers.uniform(seed, like.shape) < 1 - dropout_p
    return kept * (1 / (1 - dropout_p) if dropout_p < 1 else 0.0)


def _in_eager(
    query: Tensor, key: Tensor, value: Tensor, seed: Tensor, dropout_p: float, is_causal: bool, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:  # fmt: skip
    return fused_attention.in_eager(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale,
        drop=lambda weights: weights * _weights(seed, weights, dropout_p),
    )  # fmt: skip


def _backward_in_eager(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, seed: Tensor, dropout_p: float,
    is_causal: bool, attn_mask: Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    return fused_attention.backward_in_eager(
        grad_out, query, key, value, out, logsumexp, 0.0, is_causal, attn_mask=attn_mask, scale=scale,
        drop=lambda weights: weights * _weights(seed, weights, dropout_p),
    )  # fmt: skip


def _heads_inside(sizes: torch.Size, like: Tensor) -> Tensor:
    swapped = (*sizes[:-3], sizes[-2], sizes[-3], sizes[-1])
    return like.new_empty(swapped).transpose(-2, -3)


def _fake(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Any:
    out = _heads_inside(torch.Size((*query.shape[:-1], value.shape[-1])), query)
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _fake_backward(grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Any:
    return tuple(_heads_inside(each.shape, each) for each in (query, key, value))


_attention = random_numbers.define(
    "attention(Tensor query, Tensor key, Tensor value, Tensor seed, float dropout_p, bool is_causal, Tensor? attn_mask=None, "
    "float? scale=None) -> (Tensor, Tensor)",
    _in_eager,
    _fake,
)
_gradient = random_numbers.define(
    "attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, Tensor seed, "
    "float dropout_p, bool is_causal, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor, Tensor)",
    _backward_in_eager,
    _fake_backward,
)


def _forward(whole: Callable[..., Any], has_bias: bool, long: bool) -> Callable[..., Any]:
    """``whole``: without dropout. ``long``: the results of flash attention and cuDNN's."""

    def decomposition(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        bias, args_left = (args[0], args[2:]) if has_bias else (None, args)
        dropout_p, is_causal, debug = args_left + (0.0, False, False)[len(args_left) :]
        if debug or not _drops(query, key, dropout_p):
            return whole(query, key, value, *args, **kwargs)
        seed = random_numbers.seed(query.device)
        out, sums = _attention(query, key, value, seed, dropout_p, is_causal, bias, kwargs.get("scale"))
        no_offset = torch.zeros((), dtype=torch.int64, device=query.device)
        if not long:
            return out, sums, seed, no_offset
        return out, sums, None, None, query.shape[-2], key.shape[-2], seed, no_offset, query.new_empty((0,))

    return decomposition


def _flash_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, cum_seq_q: Any, cum_seq_k: Any,
    max_q: Any, max_k: Any, dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if not _drops(query, key, dropout_p):
        return fused_attention.flash_backward(
            grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
            philox_offset, scale=scale,
        )  # fmt: skip
    return _gradient(grad_out, query, key, value, out, logsumexp, philox_seed, dropout_p, is_causal, None, scale)


def _efficient_backward(
    grad_out_: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, out: Tensor, logsumexp: Tensor,
    philox_seed: Any, philox_offset: Any, dropout_p: float, grad_input_mask: list[bool], is_causal: bool = False, *,
    scale: float | None = None,
) -> Any:  # fmt: skip
    if not _drops(query, key, dropout_p):
        return fused_attention.efficient_backward(
            grad_out_, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask,
            is_causal, scale=scale,
        )  # fmt: skip
    gradient: Callable[..., Any] = _with_bias if grad_input_mask[3] else _gradient
    grads = gradient(grad_out_, query, key, value, out, logsumexp, philox_seed, dropout_p, is_causal, attn_bias, scale)
    return grads if grad_input_mask[3] else (*grads, None)


def _cudnn_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, philox_seed: Any,
    philox_offset: Any, attn_bias: Tensor | None, cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any, dropout_p: float,
    is_causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if not _drops(query, key, dropout_p):
        return fused_attention.cudnn_backward(
            grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, cum_seq_q, cum_seq_k, max_q,
            max_k, dropout_p, is_causal, scale=scale,
        )  # fmt: skip
    return _gradient(grad_out, query, key, value, out, logsumexp, philox_seed, dropout_p, is_causal, attn_bias, scale)


def _with_bias(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, seed: Tensor, dropout_p: float,
    is_causal: bool, attn_bias: Tensor, scale: float | None,
) -> Any:  # fmt: skip
    """The bias's gradient too: that of the scores, summed where it was broadcast."""
    scores: list[Tensor] = []
    grads = fused_attention.backward_in_eager(
        grad_out, query, key, value, out, logsumexp, 0.0, is_causal, attn_mask=attn_bias, scale=scale,
        drop=lambda weights: weights * _weights(seed, weights, dropout_p), take_scores=scores.append,
    )  # fmt: skip
    return *grads, scores[0].sum_to_size(attn_bias.shape).to(attn_bias.dtype)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Overload -> decomposition, in place of fused_attention's."""
    return {
        aten._scaled_dot_product_flash_attention.default: _forward(fused_attention.flash, False, True),
        aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
        aten._scaled_dot_product_efficient_attention.default: _forward(fused_attention.efficient, True, False),
        aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
        aten._scaled_dot_product_cudnn_attention.default: _forward(fused_attention.cudnn, True, True),
        aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_backward,
    }
