"""Running sums, products and extremes."""

from __future__ import annotations

import torch
from op_case import ALL_FLOATS, INTEGERS, SMALL_INTEGERS, Case, mask, strided, transposed

T = (3, 5, 7)
_ALL = (*ALL_FLOATS, *INTEGERS, *SMALL_INTEGERS)
_F32 = (torch.float32,)

SCANS = [
    Case("cumsum", lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1)), [T], (*_ALL, torch.bool)),
    Case("cumsum_long", lambda x: x.cumsum(-1), [(3, 1000)]),
    Case("cumsum_wide", lambda x: x.cumsum(0), [(20, 70)]),
    Case("cumsum_dtype", lambda x: (x.cumsum(0, dtype=torch.float64), x.cumsum(-1, dtype=torch.int32)), [T], _F32),
    Case("cumsum_fused", lambda x: (x.exp().cumsum(-1) + 1).log() * x, [T]),
    Case("cumsum_two", lambda x: (x.cumsum(-1), (x * 2).cumsum(-1) + x), [T]),
    Case("cumsum_of_cumsum", lambda x: x.cumsum(1).cumsum(1) - x.cumsum(1).cumsum(0), [T]),
    Case("cumsum_softmax", lambda x: x.softmax(-1).cumsum(-1), [T]),
    Case("cumsum_sum", lambda x: x.cumsum(-1).sum(-1), [T]),
    Case("cumsum_flipped", lambda x: x.flip(-1).cumsum(-1).flip(-1), [T]),
    Case("cumsum_mask", lambda m: m.cumsum(-1) * m, [mask(3, 9)], _F32),
    Case("cumsum_transposed", lambda x, y: (x.cumsum(0), y.cumsum(1)), [transposed(7, 5), strided(4, 6)], _F32),
    Case("cumsum_zero_dim", lambda x: (x.cumsum(0), x.cumprod(0)), [()]),
    Case("cumsum_one", lambda x: (x.cumsum(0), x.cummax(0), x.cumprod(0)), [(1, 7)], (*_ALL, torch.uint8)),
    Case("cumsum_empty", lambda x: x.cumsum(0), [(0, 4)], dynamic=False),
    Case("cumprod", lambda x: (x.cumprod(0), x.cumprod(-1)), [T], _ALL),
    Case("logcumsumexp", lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), [T], (torch.float32, torch.float64)),
    Case("logcumsumexp_infinity", lambda x, m: torch.where(m, x, -torch.inf).logcumsumexp(-1), [T, mask(*T)], _F32),
    Case("cummax", lambda x: (x.cummax(0), x.cummax(-1), x.cummin(1)), [T], _ALL),
    Case(
        "cummax_nan",
        lambda x, m: (torch.where(m, x, torch.nan).cummax(-1), torch.where(m, x, torch.nan).cummin(0)),
        [T, mask(*T)],
        _F32,
    ),
    Case("cummax_ties", lambda x: x.floor().cummax(-1), [(3, 50)], _F32, low=-1.0, high=1.0),
]
