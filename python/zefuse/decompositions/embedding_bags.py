"""Bags of embeddings: rows of a table, combined bag by bag, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_SUM, _MEAN, _MAX = 0, 1, 2


def _equal_bags(starts: Tensor, count: int) -> int | None:
    """The length of each bag where the graph being traced says that ``starts`` is ``arange(0, count, length)``.

    That is what torch makes of two-dimensional indices: sums over a dimension instead of additions at computed places.
    """
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if (mode := get_proxy_mode()) is None:
        return None
    slot = get_proxy_slot(starts, mode.tracer, None)
    node = getattr(getattr(slot, "proxy", None), "node", None)
    if node is None or node.target is not torch.ops.aten.arange.start_step or len(node.args) < 3:
        return None
    first, _, length = node.args[:3]
    whole = first == 0 and isinstance(length, int) and length > 0
    return length if whole and statically_known_true(starts.shape[0] * length == count) else None


def _of_bag(t: Tensor, bag_of: Tensor, count: Any, reduce: str, start: Any) -> Tensor:
    """Elements [indices, ...] combined into their bags, each with ``start``."""
    made = torch.full((count, *t.shape[1:]), start, dtype=t.dtype, device=t.device)
    places = bag_of.view(-1, *[1] * (t.dim() - 1)).expand(t.shape)
    return made.scatter_reduce(0, places, t, reduce)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The bags, the bag of each index (for the gradient), the bags' sizes, and of maxima the table's rows they came from."""
    if (
        sparse
        or scale_grad_by_freq
        or indices.dim() != 1
        or (isinstance(indices.shape[0], int) and indices.shape[0] == 0)
    ):
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    count, bags = indices.shape[0], starts.shape[0]
    rows = torch.ops.aten.embedding(weight, indices)
    simple = mode != _MAX and padding_idx < 0
    if simple and per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if simple and (length := _equal_bags(starts, count)) is not None:
        out = rows.view(bags, length, weight.shape[1]).sum(1)
        sizes = torch.full_like(starts, length)
        bag_of = (
            torch.arange(bags, dtype=offsets.dtype, device=offsets.device)[:, None].expand(bags, length).reshape(-1)
        )
        return out / length if mode == _MEAN else out, bag_of, sizes, torch.zeros_like(sizes)
    # A bag begins where offsets say; several at one place are empty but for the last.
    begins = torch.zeros(count + 1, dtype=torch.int64, device=indices.device)
    begins = begins.index_add(0, starts.long(), torch.ones_like(starts, dtype=torch.int64))
    bag_of = begins.cumsum(0)[:-1] - 1
    counts = torch.ones_like(bag_of) if padding_idx < 0 else (indices != padding_idx).long()
    sizes = torch.zeros(bags, dtype=torch.int64, device=weight.device).index_add(0, bag_of, counts)
    largest = torch.zeros_like(sizes)
    if mode == _MAX:
        number = torch.arange(count, device=indices.device)
        behind = torch.where(counts != 0, number, count)
        first = _of_bag(behind, bag_of, bags, "amin", count)[bag_of] == number
        # A bag's first element stays though it is NaN, a later NaN is not greater.
        left_out = (counts == 0)[:, None] | (torch.isnan(rows) & ~first[:, None])
        rows = torch.where(left_out, -torch.inf, rows)
        out = _of_bag(rows, bag_of, bags, "amax", -torch.inf)
        found = ((rows == out[bag_of]) | torch.isnan(rows)) & ~left_out
        place = _of_bag(torch.where(found, number[:, None], count), bag_of, bags, "amin", count)
        largest = indices.long()[place.clamp_max(count - 1)]
        out = torch.where((sizes == 0)[:, None], 0.0, out)
    else:
        if padding_idx >= 0:
            rows = torch.where((counts == 0)[:, None], 0.0, rows)
        if per_sample_weights is not None and not simple:
            rows = rows * per_sample_weights[:, None]
        out = torch.zeros(bags, weight.shape[1], dtype=weight.dtype, device=weight.device).index_add(0, bag_of, rows)
        if mode == _MEAN:
            out = out / sizes.clamp_min(1)[:, None].to(out.dtype)
    return out, bag_of.to(offsets.dtype), sizes.to(offsets.dtype), largest.to(offsets.dtype)


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_of: Tensor,
    sizes: Tensor,
    largest: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    if sparse or scale_grad_by_freq or bag_of.shape != indices.shape or indices.dim() != 1:
        return NotImplemented
    made = torch.zeros(num_weights, grad.shape[1], dtype=grad.dtype, device=grad.device)
    if mode == _MAX:
        if largest.shape != grad.shape:
            return NotImplemented
        return made.scatter_add(0, largest.long(), torch.where((sizes == 0)[:, None], 0.0, grad))
    if padding_idx < 0 and (length := _equal_bags(offsets, indices.shape[0])) is not None:
        bags, width = grad.shape
        rows = (grad / length if mode == _MEAN else grad)[:, None].expand(bags, length, width).reshape(-1, width)
    else:
        rows = grad[bag_of]
        if mode == _MEAN:
            rows = rows / sizes[bag_of].clamp_min(1)[:, None].to(rows.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if padding_idx >= 0:
        rows = torch.where((indices == padding_idx)[:, None], 0.0, rows)
    return made.index_add(0, indices, rows)


def per_sample_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bag_of: Tensor, mode: int, padding_idx: int = -1
) -> Any:
    if bag_of.shape != indices.shape or indices.dim() != 1:
        return NotImplemented
    made = (grad[bag_of] * weight[indices]).sum(1)
    return torch.where(indices == padding_idx, 0.0, made) if padding_idx >= 0 else made


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._embedding_bag.default: embedding_bag,
        aten._embedding_bag_forward_only.default: embedding_bag,
        aten._embedding_bag_backward.default: embedding_bag_backward,
        aten._embedding_bag_per_sample_weights_backward.default: per_sample_weights_backward,
    }
