"""Attention of tensors on a GPU, while a model is traced, as one operator.

Which operators ``scaled_dot_product_attention`` becomes there is torch's choice among its own kernels, by the device, the mask's strides
and its build; one of them is two products around a softmax. Traced it is the operator that zefuse lowers, whatever torch would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class OneAttention(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and (made := _attend(*args, **given)) is not None:
            return made
        return func(*args, **given)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """None: torch's own way."""
    if query.device.type == "cpu" or dropout_p or not query.dim() == key.dim() == value.dim() == 4:
        return None
    if not query.dtype == key.dtype == value.dtype or query.shape[-1] != value.shape[-1]:
        return None
    if enable_gqa:
        key, value = _repeated(key, query), _repeated(value, query)
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(query.dtype)
    out: torch.Tensor = _attention(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return out


def _repeated(heads: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Each head once for each of its queries'."""
    batch, count, length, width = heads.shape
    times = query.shape[1] // count
    return heads.unsqueeze(2).expand(batch, count, times, length, width).reshape(batch, -1, length, width)
