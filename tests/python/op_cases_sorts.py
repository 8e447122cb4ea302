"""Sorting, the best of a row, and what follows from an order."""

from __future__ import annotations

import torch
from op_case import ALL_FLOATS, INTEGERS, SMALL_INTEGERS, Case, mask, strided, transposed
from torch import Tensor

T = (3, 5, 7)
_ALL = (*ALL_FLOATS, *INTEGERS, *SMALL_INTEGERS)
_F32 = (torch.float32,)


def _special(x: Tensor, m: Tensor) -> Tensor:
    return torch.where(m, x.round(), torch.where(x > 0, torch.nan, -0.0))


def _found(x: Tensor, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Which of equal elements are taken is open; that they are in these places is not."""
    return values, x.gather(-1, places)


SORTS = [
    Case("sort", lambda x: (x.sort(dim=0, stable=True), x.sort(dim=1, stable=True, descending=True)), [T], (*_ALL, torch.bool)),
    Case("sort_long", lambda x: x.sort(dim=-1, stable=True), [(3, 1000)], (torch.float32, torch.float64, torch.int64)),
    Case("sort_very_long", lambda x: x.sort(stable=True), [(20001,)], _F32),
    Case("sort_values", lambda x: x.sort().values, [(3, 37)], _ALL),
    Case("argsort", lambda x: x.argsort(dim=1, stable=True), [(4, 40)], INTEGERS),
    Case("sort_fused", lambda x, y: (x * y + 1).sort(-1).values * 2, [T, T]),
    Case("sort_softmax", lambda x: x.softmax(-1).sort(-1, descending=True), [T], _F32),
    Case(
        "sort_special",
        lambda x, m: (_special(x, m).sort(stable=True), _special(x, m).sort(stable=True, descending=True)),
        [(4, 33), mask(4, 33)],
        ALL_FLOATS,
    ),
    Case("sort_transposed", lambda x, y: (x.sort(0), y.sort(1)), [transposed(7, 5), strided(4, 6)], _F32),
    Case("sort_zero_dim", lambda x: (x.sort(), x.topk(1, 0)), [()]),
    Case("sort_one", lambda x: x.sort(-1), [(4, 1)]),
    Case("sort_empty", lambda x: (x.sort(0), x.sort(1)), [(0, 4)], dynamic=False),
    Case("sort_twice", lambda x: x.argsort(-1).argsort(-1), [(4, 20)], _F32),
    Case("sort_in_rows", lambda x: x.sort(1).values.cumsum(1) / x.sort(1).values.sum(1, keepdim=True), [(4, 20)], _F32, low=0.1),
    Case("msort", torch.msort, [T]),
    Case("topk", lambda x: (x.topk(3, 1), x.topk(2, 0, largest=False)), [T], (torch.float32, torch.float64)),
    Case("topk_ties", lambda x: (_found(x, *x.topk(3)), _found(x, *x.topk(5, largest=False))), [(4, 50)], _ALL),
    Case("topk_long", lambda x: (x.topk(50), x.topk(50, largest=False, sorted=True)), [(2, 3000)], _F32),
    Case("topk_half", lambda x: x.topk(600), [(2, 1000)], _F32),
    Case("topk_all", lambda x: x.topk(7), [T], _F32),
    Case("topk_none", lambda x: x.topk(0), [T], _F32, dynamic=False),
    Case("topk_dynamic", lambda x: x.topk(x.shape[1] // 2, 1), [T], _F32),
    Case("topk_routing", lambda x: (lambda w, e: (w.softmax(-1), e))(*x.topk(2)), [(40, 8)]),
    Case("topk_nan", lambda x, m: torch.where(m, x, torch.nan).topk(3).values, [(4, 20), mask(4, 20)], ALL_FLOATS),
    Case("nucleus", lambda x: _nucleus(x), [(3, 100)], _F32),
]  # fmt: skip


def _nucleus(scores: Tensor) -> Tensor:
    """Scores outside the smallest set of 0.9 of the probability become -inf."""
    ordered, places = scores.sort(-1, descending=True)
    outside = ordered.softmax(-1).cumsum(-1) > 0.9
    return scores.masked_fill(outside.scatter(-1, places, outside), -torch.inf)
