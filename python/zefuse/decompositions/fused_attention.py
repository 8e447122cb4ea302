"""Attention as torch's dispatcher names it on a CUDA or XPU device, in terms of the operator that the importer lowers.

Which of its kernels eager would take (flash, memory-efficient, cuDNN, XPU's own) is in the operator's name; all compute the same. One
with dropout draws in its kernel: it stays whole and runs in eager, forward and backward, unless ``dropped_attention.py`` takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
_whole = aten._scaled_dot_product_flash_attention_for_cpu.default
_gradient = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _no_random_state(query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Nobody reads it: seed and offset."""
    empty = query.new_zeros((), dtype=torch.int64)
    return empty, empty.clone()


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p or return_debug_mask:
        return NotImplemented
    out, sums = _whole(query, key, value, 0.0, is_causal, scale=scale)
    return out, sums, None, None, query.shape[-2], key.shape[-2], *_no_random_state(query), query.new_empty((0,))


def efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p:
        return NotImplemented
    out, sums = _whole(query, key, value, 0.0, is_causal, attn_mask=attn_bias, scale=scale)
    return out, sums, *_no_random_state(query)


def cudnn(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p or return_debug_mask:
        return NotImplemented
    out, sums = _whole(query, key, value, 0.0, is_causal, attn_mask=attn_bias, scale=scale)
    return out, sums, None, None, query.shape[-2], key.shape[-2], *_no_random_state(query), None


def overrideable(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return cudnn(query, key, value, attn_bias, True, dropout_p, is_causal, return_debug_mask, scale=scale)


def flash_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any, dropout_p: float, is_causal: bool,
    philox_seed: Any, philox_offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p:
        return NotImplemented
    return _gradient(grad_out, query, key, value, out, logsumexp, 0.0, is_causal, scale=scale)


def efficient_backward(
    grad_out_: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None,
    out: torch.Tensor, logsumexp: torch.Tensor, philox_seed: Any, philox_offset: Any, dropout_p: float,
    grad_input_mask: list[bool], is_causal: bool = False, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p or grad_input_mask[3]:
        return NotImplemented
    grads = _gradient(grad_out_, query, key, value, out, logsumexp, 0.0, is_causal, attn_mask=attn_bias, scale=scale)
    return *grads, None


def cudnn_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, philox_seed: Any, philox_offset: Any, attn_bias: torch.Tensor | None, cum_seq_q: Any,
    cum_seq_k: Any, max_q: Any, max_k: Any, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout_p:
        return NotImplemented
    return _gradient(grad_out, query, key, value, out, logsumexp, 0.0, is_causal, attn_mask=attn_bias, scale=scale)


def overrideable_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None,
    grad_input_mask: list[bool], out: torch.Tensor, logsumexp: torch.Tensor, cum_seq_q: Any, cum_seq_k: Any, max_q: Any,
    max_k: Any, dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return efficient_backward(
        grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask,
        is_causal, scale=scale,
    )  # fmt: skip


def _scores(
    query: torch.Tensor, key: torch.Tensor, is_causal: bool, attn_mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    factor = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
    scores = query.float() @ _repeated(key, query).float().transpose(-2, -1) * factor
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype is torch.bool else scores + attn_mask
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores


def _exponentials(scores: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """Zeros for a query that sees no key."""
    return (scores - sums.masked_fill(sums == -math.inf, 0)[..., None]).exp()


def _repeated(key: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Each head of a group's."""
    groups = query.shape[-3] // key.shape[-3]
    return key if groups == 1 else key.repeat_interleave(groups, -3)


def _summed(grad: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    groups = grad.shape[-3] // like.shape[-3]
    return (grad if groups == 1 else grad.reshape(*grad.shape[:-3], -1, groups, *grad.shape[-2:]).sum(-3)).to(
        like.dtype
    )


def _heads_inside(values: torch.Tensor) -> torch.Tensor:
    """As tracing says that the results lie."""
    return values.transpose(1, 2).contiguous().transpose(1, 2) if values.dim() > 2 else values


def in_eager(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: torch.Tensor | None = None, scale: float | None = None,
    drop: Callable[[torch.Tensor], torch.Tensor] = lambda weights: weights,
) -> Any:  # fmt: skip
    scores = _scores(query, key, is_causal, attn_mask, scale)
    sums = scores.logsumexp(-1)
    out = drop(_exponentials(scores, sums)) @ _repeated(value, query).float()
    return _heads_inside(out.to(query.dtype)), _heads_inside(sums)


def backward_in_eager(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, dropout_p: float, is_causal: bool, *,
    attn_mask: torch.Tensor | None = None, scale: float | None = None,
    drop: Callable[[torch.Tensor], torch.Tensor] = lambda weights: weights,
    take_scores: Callable[[torch.Tensor], None] = lambda gradient: None,
) -> Any:  # fmt: skip
    factor = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
    share = _exponentials(_scores(query, key, is_causal, attn_mask, scale), logsumexp)
    grad = grad_out.float()
    of_share = drop(grad @ _repeated(value, query).float().transpose(-2, -1))
    of_scores = share * (of_share - (grad * out.float()).sum(-1, keepdim=True))
    take_scores(of_scores)
    of_scores, share = of_scores * factor, drop(share)
    return (
        _heads_inside((of_scores @ _repeated(key, query).float()).to(query.dtype)),
        _heads_inside(_summed(of_scores.transpose(-2, -1) @ query.float(), key)),
        _heads_inside(_summed(share.transpose(-2, -1) @ grad, value)),
    )


def for_eager(gm: torch.fx.GraphModule) -> None:
    """Of a part that runs in eager: torch has the operator that the importer lowers for the CPU alone."""
    instead = {_whole: in_eager, _gradient: backward_in_eager}
    for node in gm.graph.nodes:
        query = node.args[0].meta.get("val") if node.target in instead else None
        if isinstance(query, torch.Tensor) and query.device.type != "cpu":
            node.target = instead[node.target]
            gm.recompile()


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Overload -> decomposition. A forward and its backward agree: both keep the rows' sums as the lowered operator has them."""
    return {
        aten._scaled_dot_product_flash_attention.default: flash,
        aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
        aten._scaled_dot_product_efficient_attention.default: efficient,
        aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
        aten._scaled_dot_product_cudnn_attention.default: cudnn,
        aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
        aten._scaled_dot_product_fused_attention_overrideable.default: overrideable,
        aten._scaled_dot_product_fused_attention_overrideable_backward.default: overrideable_backward,
    }
