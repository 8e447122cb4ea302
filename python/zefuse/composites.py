"""Operators that torch has no decomposition for, or none that fits, in terms of operators that the importer lowers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def replication_pad_backward(grad: torch.Tensor, self: torch.Tensor, padding: list[int]) -> torch.Tensor:
    """Each padded position adds to the element it repeats."""
    indices: list[torch.Tensor | None] = [None] * self.dim()
    spatial = len(padding) // 2
    for axis in range(spatial):
        dim, before = self.dim() - 1 - axis, padding[2 * axis]
        places = torch.arange(grad.shape[dim], device=grad.device) - before
        shape = [1] * spatial
        shape[spatial - 1 - axis] = -1
        indices[dim] = places.clamp(0, self.shape[dim] - 1).view(shape)
    return torch.ops.aten.index_put(torch.zeros_like(self), indices, grad, True)


# An LSTM layer of more steps stays one call of ATen: unrolled, its graph would take minutes to compile.
_UNROLLED_STEPS = 128


def lstm_layer(input: torch.Tensor, *rest: Any) -> Any:
    """The layer that tracing makes of nn.LSTM in inference, step by step, as it comes in training."""
    w_ih, w_hh, b_ih, b_hh, hx, cx, reverse, batch_sizes, mode, _, layers, biases, bidirectional, batch_first, train = (
        rest
    )
    steps = input.shape[0]
    lstm = 2
    if (
        mode != lstm or layers != 1 or bidirectional or batch_first or train or batch_sizes
        or not isinstance(steps, int) or steps > _UNROLLED_STEPS
    ):  # fmt: skip
        return NotImplemented
    from torch._decomp.decompositions import one_layer_lstm

    weights = [w_ih, w_hh, b_ih, b_hh] if biases else [w_ih, w_hh]
    out, (hy, cy) = one_layer_lstm(input, (hx[0], cx[0]), weights, biases, reverse)  # type: ignore[no-untyped-call]
    return out, hy[None], cy[None], input.new_empty((0,), dtype=torch.uint8)


def native_dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    """Eager's own formula, so that only the draw is a call of its own: the products fuse with what stands around them."""
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    like = torch.zeros((), dtype=torch.bool, device=input.device).expand(input.shape)  # only its shape is read
    keep = torch.ops.aten.bernoulli.p(like, 1 - p)
    return input * keep * (0.0 if p == 1 else 1 / (1 - p)), keep


_SUM, _MEAN = 0, 1  # modes of embedding_bag; 2, the maximum, stays in ATen


def _equal_bags(starts: torch.Tensor, count: int) -> int | None:
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


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Rows of ``weight`` added into their bags, in order. Also the bag of each index, for the gradient, and the bags' sizes."""
    if mode not in (_SUM, _MEAN) or sparse or scale_grad_by_freq or padding_idx >= 0 or indices.dim() != 1:
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    count, bags = indices.shape[0], starts.shape[0]
    rows = torch.ops.aten.embedding(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if (length := _equal_bags(starts, count)) is not None:
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
    out = torch.zeros(bags, weight.shape[1], dtype=weight.dtype, device=weight.device).index_add(0, bag_of, rows)
    sizes = torch.zeros(bags, dtype=torch.int64, device=weight.device).index_add(0, bag_of, torch.ones_like(bag_of))
    if mode == _MEAN:
        out = out / sizes.clamp_min(1)[:, None].to(out.dtype)
    return out, bag_of.to(offsets.dtype), sizes.to(offsets.dtype), torch.zeros_like(sizes).to(offsets.dtype)


def embedding_bag_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bag_of: torch.Tensor,
    sizes: torch.Tensor,
    largest: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> Any:
    if mode not in (_SUM, _MEAN) or sparse or scale_grad_by_freq or padding_idx >= 0 or bag_of.shape != indices.shape:
        return NotImplemented
    if (length := _equal_bags(offsets, indices.shape[0])) is not None:
        bags, width = grad.shape
        rows = (grad / length if mode == _MEAN else grad)[:, None].expand(bags, length, width).reshape(-1, width)
    else:
        rows = grad[bag_of]
        if mode == _MEAN:
            rows = rows / sizes[bag_of][:, None].to(rows.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    return torch.zeros(num_weights, grad.shape[1], dtype=grad.dtype, device=grad.device).index_add(0, indices, rows)


def composites() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._embedding_bag.default: embedding_bag,
        aten._embedding_bag_forward_only.default: embedding_bag,
        aten._embedding_bag_backward.default: embedding_bag_backward,
        aten.mkldnn_rnn_layer.default: lstm_layer,
        aten.native_dropout.default: native_dropout,
        aten.replication_pad1d_backward.default: replication_pad_backward,
        aten.replication_pad2d_backward.default: replication_pad_backward,
        aten.replication_pad3d_backward.default: replication_pad_backward,
    }
