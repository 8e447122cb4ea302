"""Dropout by eager's own formula, with the elements dropped that eager drops."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


def native_dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    """Only the draw is a call of its own: the products fuse with what stands around them."""
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    keep = _drawn(input, 1 - p)
    return input * keep * (0.0 if p == 1 else 1 / (1 - p)), keep


def _drawn(input: torch.Tensor, p: float) -> torch.Tensor:
    """Eager fills a mask with the input's strides. The operator that a graph has fills a contiguous one: of the dimensions in the
    order in which they lie."""
    like = torch.zeros((), dtype=torch.bool, device=input.device).expand(input.shape)  # only its shape is read
    order = _as_it_lies(input) if input.device.type == "cpu" and _drawn_as_it_lies() else list(range(input.dim()))
    if order == sorted(order):
        return torch.ops.aten.bernoulli.p(like, p)
    back = [order.index(dim) for dim in range(len(order))]
    return torch.ops.aten.bernoulli.p(like.permute(order), p).permute(back)


def _as_it_lies(tensor: torch.Tensor) -> list[int]:
    from torch._prims_common import compute_elementwise_output_logical_to_physical_perm

    found: Any = compute_elementwise_output_logical_to_physical_perm(tensor)
    return list(found[0] if isinstance(found, tuple) else found)  # by torch's version


@cache
def _drawn_as_it_lies() -> bool:
    """Whether eager draws for a mask that is not contiguous in the order of its memory: where MKL draws (on Intel's processors) it
    is that of the indices."""
    with _disable_current_modes(), torch.inference_mode(False):
        flat, turned = torch.empty(8, 8), torch.empty(8, 8).t()
        for mask in (flat, turned):
            mask.bernoulli_(0.5, generator=torch.Generator().manual_seed(0))
        return torch.equal(turned.t(), flat)


def decompositions() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.native_dropout.default: native_dropout}
