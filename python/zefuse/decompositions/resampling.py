"""Sampling an image at computed places, and antialiased resizing, with their gradients.

Formulas: aten/src/ATen/native/GridSampler.h and cpu/UpSampleKernel.cpp. Low-precision images compute in f32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_BILINEAR, _NEAREST = 0, 1  # interpolation modes; 2 is bicubic
_ZEROS, _BORDER = 0, 1  # padding modes; 2 is reflection


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _reflected(x: Tensor, twice_low: int, twice_high: Any) -> tuple[Tensor, Tensor]:
    """Coordinates reflected into [low, high], and the sign of their derivative."""
    if isinstance(twice_high, int) and twice_low == twice_high:
        return torch.zeros_like(x), torch.zeros_like(x)
    low = twice_low / 2
    span = torch.zeros_like(x) + (twice_high - twice_low)  # may be symbolic: an integer, halved in the kernel
    span = span * 0.5
    inside = x - low
    distance = inside.abs()
    extra = torch.fmod(distance, span)
    even = torch.remainder(torch.floor(distance / span), 2) == 0
    sign = torch.where((inside < 0) == even, -1.0, 1.0)
    return torch.where(even, extra + low, span - extra + low), sign


def _source(coordinate: Tensor, size: Any, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """Where in an axis of ``size`` a coordinate of [-1, 1] lies, and the derivative."""
    if align:
        x, scale = (coordinate + 1) / 2 * (size - 1), torch.ones_like(coordinate) * (size - 1) / 2
    else:
        x, scale = ((coordinate + 1) * size - 1) / 2, torch.ones_like(coordinate) * size / 2
    if padding == _ZEROS:
        return x, scale
    if padding != _BORDER:
        x, sign = _reflected(x, 0, 2 * (size - 1)) if align else _reflected(x, -1, 2 * size - 1)
        scale = scale * sign
    last = torch.zeros_like(x) + (size - 1)
    moves = (x > 0) & (x < last)
    # NaN becomes 0, as std::max(x, 0) makes it.
    x = torch.minimum(torch.where(x > 0, x, 0.0), last)
    return x, torch.where(moves, scale, 0.0)


class _Sampler:
    """``image`` [N, C, sizes...] read at ``grid`` [N, points..., axes], whose axes are the sizes' in reverse."""

    def __init__(self, image: Tensor, grid: Tensor, padding: int, align: bool) -> None:
        self.image, self.grid = _wide(image), _wide(grid)
        self.sizes = image.shape[2:]
        axes = len(self.sizes)
        found = [_source(self.grid[..., axes - 1 - a], self.sizes[a], padding, align) for a in range(axes)]
        self.at, self.scale = [x for x, _ in found], [scale for _, scale in found]

    def _places(self, corner: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Of whole coordinates: the elements' numbers in the image's last dimensions as one, and which exist."""
        exists: Any = None
        linear: Any = 0
        for x, size in zip(corner, self.sizes, strict=True):
            inside = (x >= 0) & (x < size)
            exists = inside if exists is None else exists & inside
            linear = linear * size + torch.where(inside, x, 0.0).to(torch.int64)
        flat = [self.grid.shape[0], 1, -1]
        return torch.where(exists, linear, 0).reshape(flat), exists

    def _flat(self, t: Tensor) -> Tensor:
        """[N, points...] as [N, 1, points]"""
        return t.reshape(t.shape[0], 1, -1)

    def read(self, corner: list[Tensor]) -> Tensor:
        """[N, C, points]: zeros outside."""
        places, exists = self._places(corner)
        image = self.image.reshape(*self.image.shape[:2], -1)
        channels = self.image.shape[1]
        values = image.gather(2, places.expand(-1, channels, -1))
        return torch.where(self._flat(exists), values, 0.0)

    def add(self, into: Tensor, corner: list[Tensor], updates: Tensor) -> Tensor:
        places, exists = self._places(corner)
        updates = torch.where(self._flat(exists), updates, 0.0)
        return into.scatter_add(2, places.expand(-1, updates.shape[1], -1), updates)

    def corners(self) -> list[tuple[list[Tensor], list[Tensor], list[Tensor]]]:
        """The 2^axes neighbours of each point: coordinates, weight per axis, and the sign of the weight's derivative."""
        floors = [x.floor() for x in self.at]
        found = []
        for upper in itertools.product((False, True), repeat=len(self.at)):
            corner = [f + 1 if up else f for f, up in zip(floors, upper, strict=True)]
            weights = [x - f if up else f + 1 - x for x, f, up in zip(self.at, floors, upper, strict=True)]
            found.append((corner, weights, [1.0 if up else -1.0 for up in upper]))
        return found  # type: ignore[return-value]


def _product(factors: list[Tensor]) -> Tensor:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def grid_sampler(image: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Any:
    if mode not in (_BILINEAR, _NEAREST):
        if image.dim() != 4 or any(not isinstance(size, int) for size in image.shape[2:]):
            return NotImplemented
        from torch._decomp.decompositions import _grid_sampler_2d

        return _grid_sampler_2d(_wide(image), _wide(grid), mode, padding, align, False).to(image.dtype)
    sampler = _Sampler(image, grid, padding, align)
    if mode == _NEAREST:
        result = sampler.read([torch.round(x) for x in sampler.at])
    else:
        result = sum(  # type: ignore[assignment]
            sampler.read(corner) * sampler._flat(_product(weights)) for corner, weights, _ in sampler.corners()
        )
    return result.reshape(*image.shape[:2], *grid.shape[1:-1]).to(image.dtype)


def grid_sampler_backward(
    grad: Tensor, image: Tensor, grid: Tensor, mode: int, padding: int, align: bool, output_mask: list[bool]
) -> Any:
    if mode not in (_BILINEAR, _NEAREST):
        return NotImplemented
    sampler = _Sampler(image, grid, padding, align)
    pulled = _wide(grad).reshape(*grad.shape[:2], -1)
    to_image = torch.zeros_like(sampler.image).reshape(*image.shape[:2], -1)
    if mode == _NEAREST:
        to_image = sampler.add(to_image, [torch.round(x) for x in sampler.at], pulled)
        to_grid = torch.zeros_like(grid)
    else:
        slopes: list[Any] = [0] * len(sampler.at)
        for corner, weights, signs in sampler.corners():
            if output_mask[0]:
                to_image = sampler.add(to_image, corner, pulled * sampler._flat(_product(weights)))
            along = (sampler.read(corner) * pulled).sum(1).reshape(grid.shape[:-1])
            for axis, sign in enumerate(signs):
                others = [w for a, w in enumerate(weights) if a != axis]
                slopes[axis] = slopes[axis] + along * (_product(others) * sign)
        parts = [slope * scale for slope, scale in zip(slopes, sampler.scale, strict=True)]
        to_grid = torch.stack(parts[::-1], -1).to(grid.dtype)
    return (to_image.reshape(image.shape).to(image.dtype) if output_mask[0] else None), to_grid


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp_min(0)


def _cubic(x: Tensor) -> Tensor:
    a = -0.5
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


_TAPS: dict[Callable[[Tensor], Tensor], int] = {_triangle: 2, _cubic: 4}


def _weights(
    filter: Callable[[Tensor], Tensor], from_size: int, to_size: int, align: bool, scale: Any, like: Tensor
) -> Tensor:
    """[to_size, from_size]: what each new pixel takes of each old one."""
    if align:
        step = (from_size - 1) / (to_size - 1) if to_size > 1 else 0.0
    else:
        step = 1 / scale if scale else from_size / to_size
    wide, support = max(step, 1.0), _TAPS[filter] * 0.5 * max(step, 1.0)
    old = torch.arange(from_size, dtype=torch.float32, device=like.device)
    center = (torch.arange(to_size, dtype=torch.float32, device=like.device) + 0.5)[:, None] * step
    first = torch.trunc(center - support + 0.5).clamp_min(0)
    behind = torch.trunc(center + support + 0.5).clamp_max(from_size)
    taken = torch.where((old >= first) & (old < behind), filter((old - center + 0.5) * (1 / wide)), 0.0)
    return (taken / taken.sum(1, keepdim=True)).to(like.dtype)


def _resize(filter: Callable[[Tensor], Tensor]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def applies(image: Tensor, sizes: Any) -> bool:
        return image.dtype in (torch.float32, torch.bfloat16) and all(isinstance(s, int) for s in sizes)

    def weights(like: Tensor, old: Any, new: Any, align: bool, scales: tuple[Any, Any]) -> list[Tensor]:
        return [_weights(filter, old[a], new[a], align, scales[a], like) for a in (0, 1)]

    def forward(
        image: Tensor, output_size: list[int], align_corners: bool, scales_h: Any = None, scales_w: Any = None
    ) -> Any:
        if not applies(image, (*image.shape[2:], *output_size)):
            return NotImplemented
        rows, columns = weights(image, image.shape[2:], output_size, align_corners, (scales_h, scales_w))
        order = torch._prims_common.suggest_memory_format(image)
        return torch.matmul(rows, torch.matmul(image, columns.t())).contiguous(memory_format=order)

    def backward(
        grad: Tensor,
        output_size: list[int],
        input_size: list[int],
        align_corners: bool,
        scales_h: Any = None,
        scales_w: Any = None,
    ) -> Any:
        if not applies(grad, (*input_size[2:], *output_size)):
            return NotImplemented
        rows, columns = weights(grad, input_size[2:], output_size, align_corners, (scales_h, scales_w))
        return torch.matmul(rows.t(), torch.matmul(grad, columns))

    return forward, backward


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    bilinear, bilinear_backward = _resize(_triangle)
    bicubic, bicubic_backward = _resize(_cubic)
    return {
        aten.grid_sampler_2d.default: grid_sampler,
        aten.grid_sampler_3d.default: grid_sampler,
        aten.grid_sampler_2d_backward.default: grid_sampler_backward,
        aten.grid_sampler_3d_backward.default: grid_sampler_backward,
        aten._upsample_bilinear2d_aa.default: bilinear,
        aten._upsample_bilinear2d_aa_backward.default: bilinear_backward,
        aten._upsample_bicubic2d_aa.default: bicubic,
        aten._upsample_bicubic2d_aa_backward.default: bicubic_backward,
    }
