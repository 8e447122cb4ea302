"""Products of a single row, and attention of a single query, as sums: how a decoding step computes them.

Such a product uses each element of its matrix once, so memory decides how long it takes, not arithmetic. As a sum it is one of
zefuse's own kernels, which reads the matrix as it lies (a library wants a packed copy of it) and computes in its rows whatever the
matrix is made of (dequantisation, the heads that share keys) and whatever comes after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """For tracing: each leaves what is not of a single row as it is."""
    return {
        aten.mm.default: _mm,
        aten.addmm.default: _addmm,
        aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    }


def row_times(row: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """``row`` [K] times each row of ``matrix`` [N, K], in f32."""
    return (row.float() * matrix.float()).sum(1)


def _takes(*operands: torch.Tensor) -> bool:
    return all(each.dtype in (torch.float32, torch.bfloat16, torch.float16) for each in operands)


def _is_row(tensor: torch.Tensor) -> bool:
    return isinstance(tensor.shape[-2], int) and tensor.shape[-2] == 1


def _mm(row: torch.Tensor, matrix: torch.Tensor) -> Any:
    if not _is_row(row) or not _takes(row, matrix):
        return NotImplemented
    return row_times(row.reshape(-1), matrix.t()).to(row.dtype).unsqueeze(0)


def _addmm(bias: torch.Tensor, row: torch.Tensor, matrix: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not _is_row(row) or not _takes(bias, row, matrix) or beta != 1 or alpha != 1:
        return NotImplemented
    return (row_times(row.reshape(-1), matrix.t()) + bias.float()).to(row.dtype).unsqueeze(0)


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: torch.Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if not _is_row(query) or not _takes(query, key, value) or dropout_p or is_causal:
        return NotImplemented
    scores = (query.float() * key.float()).sum(-1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        scores = scores + attn_mask.float().squeeze(-2)
    probabilities = torch.ops.aten._safe_softmax(scores, -1)
    result = (probabilities.unsqueeze(-1) * value.float()).sum(-2, keepdim=True).to(query.dtype)
    return result, scores.logsumexp(-1, keepdim=True)
