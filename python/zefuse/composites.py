"""Operators that torch has no decomposition for, in terms of operators that the importer lowers."""

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


def composites() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.replication_pad1d_backward.default: replication_pad_backward,
        aten.replication_pad2d_backward.default: replication_pad_backward,
        aten.replication_pad3d_backward.default: replication_pad_backward,
    }
