"""Distances between rows, and their gradients: aten/src/ATen/native/Distance.cpp and cpu/DistanceOpsKernel.cpp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_PRODUCT_FROM = 25  # rows: eager takes the matrix product above
_USES_PRODUCT, _NEVER = 1, 2  # compute_mode; None and 0 leave it to the sizes


def _reduced(difference: Tensor, p: float) -> Tensor:
    """The norm over the last dimension."""
    if p == 0:
        return (difference != 0).sum(-1).to(difference.dtype)
    size = difference.abs()
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    if math.isinf(p):
        return size.amax(-1)
    return size.pow(p).sum(-1).pow(1 / p)


def _slope(difference: Tensor, grad: Tensor, distance: Tensor, p: float) -> Tensor:
    """The gradient of each element of ``difference``; ``grad`` and ``distance`` broadcast to it."""
    sign, size = difference.sign(), difference.abs()
    if p == 1:
        return grad * sign
    if math.isinf(p):
        return grad * torch.where(size == distance, sign, 0.0)
    if p == 2:
        slope = grad * difference / distance
    elif p < 2:
        slope = sign * size.pow(p - 1) * grad / distance.pow(p - 1)
        if p < 1:
            slope = torch.where(difference == 0, 0.0, slope)
    else:
        slope = difference * size.pow(p - 2) * grad / distance.pow(p - 1)
    return torch.where(distance == 0, 0.0, slope)


def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Any:
    """[batch..., P, R] of x1 [batch..., P, M] and x2 [batch..., R, M]. Sizes that are symbols get a guard: of a row and itself
    differences are exactly zero, and the product leaves the root of a last bit."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    rows = (x1.shape[-2], x2.shape[-2])
    if any(isinstance(size, int) and size == 0 for size in (*rows, x1.shape[-1])):
        return NotImplemented
    many = any(guard_or_false(size > _PRODUCT_FROM) for size in rows)
    if p == 2 and (compute_mode == _USES_PRODUCT or (compute_mode != _NEVER and many)):
        n1, n2 = x1.pow(2).sum(-1, keepdim=True), x2.pow(2).sum(-1, keepdim=True)
        left = torch.cat([x1 * -2, n1, torch.ones_like(n1)], -1)
        right = torch.cat([x2, torch.ones_like(n2), n2], -1)
        return torch.matmul(left, right.mT).clamp_min(0).sqrt()
    return _reduced(x1[..., :, None, :] - x2[..., None, :, :], p)


def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, distance: Tensor) -> Any:
    if any(isinstance(size, int) and size == 0 for size in (*x1.shape, *x2.shape)):
        return NotImplemented
    if p == 0:
        return torch.zeros_like(x1)
    difference = x1[..., :, None, :] - x2[..., None, :, :]
    return _slope(difference, grad[..., None], distance[..., None], p).sum(-2)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = torch.ops.aten.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind()
    return first, second


def pdist(self: Tensor, p: float = 2) -> Any:
    if not isinstance(self.shape[0], int) or self.numel() == 0 or self.shape[0] < 2:
        return NotImplemented
    first, second = _pairs(self)
    return _reduced(self[first] - self[second], p)


def pdist_backward(grad: Tensor, self: Tensor, p: float, distance: Tensor) -> Any:
    if not isinstance(self.shape[0], int) or self.numel() == 0 or self.shape[0] < 2:
        return NotImplemented
    if p == 0:
        return torch.zeros_like(self)
    first, second = _pairs(self)
    slope = _slope(self[first] - self[second], grad[:, None], distance[:, None], p)
    return torch.zeros_like(self).index_add(0, first, slope).index_add(0, second, -slope)


def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(self - other, p)


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._cdist_forward.default: cdist,
        aten._cdist_backward.default: cdist_backward,
        aten._pdist_forward.default: pdist,
        aten._pdist_backward.default: pdist_backward,
        aten.dist.default: dist,
    }
