"""Operators that are taken apart by our own formulas: order statistics, distances, sampling, bags, masks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from op_case import ALL_FLOATS, FLOATS, INTEGERS, Case, indices, mask
from torch import Tensor

T = (3, 5, 7)
_F32 = (torch.float32,)
_DOUBLE = (torch.float32, torch.float64)


def _holed(x: Tensor, m: Tensor) -> Tensor:
    return torch.where(m, x, torch.nan)


def _ascending(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape, generator=torch.Generator().manual_seed(9)).sort(-1).values * 6 - 3


def _grid(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape, generator=torch.Generator().manual_seed(13)) * 2.6 - 1.3


ORDER = [
    Case("kthvalue", lambda x: (x.kthvalue(2, 1), x.kthvalue(3, 0, keepdim=True)), [T], _DOUBLE),
    Case("median_dim", lambda x: (x.median(1), x.median(-1, keepdim=True), x.nanmedian(0)), [T], _DOUBLE),
    Case("median", lambda x: (x.median(), x.nanmedian()), [T], (*ALL_FLOATS, *INTEGERS)),
    Case("median_int", lambda x: (x.median(1).values, x.nanmedian(0).values), [T], INTEGERS),
    Case("median_nan", lambda x, m: (_holed(x, m).median(-1), _holed(x, m).nanmedian(-1).values), [(4, 9), mask(4, 9)], _F32),
    Case("mode", lambda x: x.round().mode(1).values, [(4, 30)], FLOATS),
    Case("mode_int", lambda x: (x.mode(1).values, x.mode(0, keepdim=True).values), [(6, 30)], INTEGERS),
    Case("searchsorted", lambda s, x: (torch.searchsorted(s, x), torch.searchsorted(s, x, right=True, out_int32=True)), [_ascending(3, 10), (3, 6)], _F32),
    Case("searchsorted_line", lambda s, x: torch.searchsorted(s, x, side="right"), [_ascending(100), (3, 6)], _F32),
    Case("bucketize", lambda x, s: (torch.bucketize(x, s), torch.bucketize(x, s, right=True)), [T, _ascending(10)], _F32),
    Case("bucketize_nan", lambda x, m, s: torch.bucketize(_holed(x, m), s), [(4, 9), mask(4, 9), _ascending(7)], _F32),
]  # fmt: skip

DISTANCES = [
    *(Case(f"cdist_{p}", lambda x, y, p=p: torch.cdist(x, y, p=p), [(2, 5, 4), (2, 6, 4)], _DOUBLE) for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))),
    Case("cdist_many", lambda x, y: torch.cdist(x, y), [(30, 4), (26, 4)], _F32),
    Case("pdist", lambda x: (F.pdist(x), F.pdist(x, 1.0), F.pdist(x, 3.0)), [(6, 4)], _F32, dynamic=False),
    Case("dist", lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1)), [T, T], _DOUBLE),
    Case("pairwise_distance", lambda x, y: F.pairwise_distance(x, y), [(5, 4), (5, 4)], _F32),
]  # fmt: skip

SAMPLING = [
    *(
        Case(f"grid_sample_{mode}_{padding}{'_aligned' if align else ''}",
             lambda x, g, m=mode, p=padding, a=align: F.grid_sample(x, g, m, p, a), [(2, 3, 5, 6), _grid(2, 4, 3, 2)], _F32, dynamic=not align)
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ),
    Case("grid_sample_bicubic", lambda x, g: F.grid_sample(x, g, "bicubic", align_corners=False), [(2, 3, 5, 6), _grid(2, 4, 3, 2)], _F32, dynamic=False),
    Case("grid_sample_3d", lambda x, g: F.grid_sample(x, g, align_corners=False), [(1, 2, 4, 5, 3), _grid(1, 4, 3, 2, 3)], _F32),
    Case("resize_antialiased", lambda x: F.interpolate(x, size=[3, 4], mode="bilinear", antialias=True), [(2, 3, 7, 9)], _F32, dynamic=False),
    Case("resize_antialiased_up", lambda x: F.interpolate(x, size=[9, 4], mode="bilinear", antialias=True, align_corners=True), [(2, 3, 7, 9)], _F32, dynamic=False),
    Case("resize_antialiased_cubic", lambda x: F.interpolate(x, size=[5, 12], mode="bicubic", antialias=True), [(2, 3, 7, 9)], _F32, dynamic=False),
]  # fmt: skip

BAGS = [
    *(
        Case(f"embedding_bag_{mode}_{'padded' if padding is not None else 'plain'}",
             lambda i, w, o, m=mode, p=padding: F.embedding_bag(i, w, o, mode=m, padding_idx=p),
             [indices(10, 12), (10, 6), lambda: torch.tensor([0, 3, 3, 9])], FLOATS if mode == "max" else _F32)
        for mode in ("sum", "mean", "max")
        for padding in (None, 4)
    ),
    Case("embedding_bag_weighted", lambda i, w, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p, padding_idx=2), [indices(10, 4, 5), (10, 6), (4, 5)], _F32),
    Case("embedding_bag_max_nan", lambda i, w, m: F.embedding_bag(i, _holed(w, m), mode="max"), [indices(10, 4, 5), (10, 6), mask(10, 6)], _F32),
]  # fmt: skip

OTHERS = [
    Case("masked_scatter", lambda x, m, y: x.masked_scatter(m, y), [T, mask(*T), (105,)], (*FLOATS, *INTEGERS)),
    Case("masked_scatter_broadcast", lambda x, m, y: x.masked_scatter(m, y), [T, mask(5, 7), T], _F32),
    *(Case(f"index_reduce_{r}", lambda x, i, y, r=r: x.index_reduce(1, i, y, r, include_self=False), [T, indices(5, 4), (3, 4, 7)], _F32) for r in ("prod", "amax", "amin", "mean")),
    Case("put", lambda x, i, y: (x.put(i, y), x.put(i, y, accumulate=True)), [T, lambda: torch.tensor([[3, 50], [7, 104]]), (2, 2)], _F32),
    Case("addbmm", lambda m, x, y: torch.addbmm(m, x, y, beta=0.5, alpha=2.0), [(4, 6), (3, 4, 5), (3, 5, 6)], _F32),
    Case("addmv", lambda v, m, x: torch.addmv(v, m, x, beta=0.5), [(4,), (4, 5), (5,)], _F32),
    Case("bilinear", lambda x, y, w, b: F.bilinear(x, y, w, b), [(4, 5), (4, 3), (6, 5, 3), (6,)], (torch.float32, torch.int32)),
    Case("triangle_indices", lambda x: x + torch.tril_indices(4, 6, -1).sum() + torch.triu_indices(5, 3, 1).sum(), [(2,)], _F32),
    Case("round_decimals", lambda x: (x.round(decimals=2), (x * 100).round(decimals=-1), x.round(decimals=0)), [T], FLOATS),
    Case("unbind_copy", lambda x: [y + 1 for y in torch.unbind_copy(x, 1)], [T], _F32),
    Case("angle", torch.angle, [T], (*FLOATS, *INTEGERS)),
]  # fmt: skip

COMPOSITES = [*ORDER, *DISTANCES, *SAMPLING, *BAGS, *OTHERS]
WITH_GRADIENT = [
    *(c for c in (*DISTANCES, *SAMPLING, *BAGS) if not any(w in c.name for w in ("cdist_0", "bicubic", "nan", "cdist_many"))),
    *(c for c in OTHERS if not any(w in c.name for w in ("index_reduce", "put", "triangle", "angle", "round", "unbind"))),
    Case("sort", lambda x: (x.sort(-1).values * 2, x.topk(3, 0).values), [(6, 8)]),
    Case("median", lambda x: (x.median(-1).values, x.median(), x.kthvalue(2, 0).values), [(6, 9)]),
]  # fmt: skip
