"""Special functions over their whole domain, numbers made of sizes, and operands of no dimension or no element."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from op_case import ALL_FLOATS, INTEGERS, Case, indices, mask
from torch import Tensor

_F32 = (torch.float32,)
_EDGES = [0.0, -0.0, 1, 2, -1, -2, math.inf, -math.inf, math.nan, 1e-8, 1e8, -1e8, 100.0]


def _domain(dtype: torch.dtype, low: float, high: float) -> Callable[[], Tensor]:
    return lambda: torch.cat([torch.linspace(low, high, 301), torch.tensor(_EDGES)]).to(dtype)


def _of(name: str, low: float = -9.0, high: float = 12.0) -> list[Case]:
    function = getattr(torch, name, None) or getattr(torch.special, name)
    return [
        Case(f"{name}_{str(dtype).removeprefix('torch.')}", function, [_domain(dtype, low, high)], (dtype,)) for dtype in ALL_FLOATS
    ]  # fmt: skip


def _integers(dtype: torch.dtype) -> Callable[[], Tensor]:
    """Fibonacci numbers take most steps of Euclid's algorithm, neighbours of powers of two of the binary one."""
    limits = torch.iinfo(dtype)
    fibonacci = [1, 2]
    while sum(fibonacci[-2:]) <= limits.max:
        fibonacci.append(sum(fibonacci[-2:]))
    powers = [p for n in range(limits.bits) for p in (1 << n, (1 << n) - 1) if p <= limits.max]
    values = [*fibonacci, *powers, 0, 12, 18, 60, 84, limits.max, *(-v for v in fibonacci + powers if limits.min < 0)]
    return lambda: torch.tensor(values, dtype=dtype)


def _divisors(name: str) -> Callable[[Tensor], Tensor]:
    function = getattr(torch, name)
    return lambda x: function(x[:, None], x)


def _at(*values: int) -> Callable[[], Tensor]:
    return lambda: torch.tensor(values)


FUNCTIONS = [
    *(case for name in ("lgamma", "digamma", "i0", "i0e", "i1", "i1e", "signbit") for case in _of(name)),
    *_of("erfinv", -1.1, 1.1),
    *_of("frexp"),
    *(Case(f"frexp_small_{dtype}", lambda x: torch.frexp(x * torch.finfo(x.dtype).tiny), [_domain(dtype, -2, 2)], (dtype,)) for dtype in ALL_FLOATS),
    *(Case(f"{name}_{dtype}", _divisors(name), [_integers(dtype)], (dtype,)) for name in ("gcd", "lcm") for dtype in (*INTEGERS, torch.int16, torch.int8, torch.uint8)),
    Case("gcd_types", lambda x, y: (torch.gcd(x, y), torch.lcm(y, x)), [indices(90, 6, 7, dtype=torch.int8), indices(5000, 7)], (torch.int64,)),
    Case("special_of_integers", lambda x: (torch.lgamma(x), torch.i0(x), torch.digamma(x), torch.signbit(x)), [(20,)], INTEGERS),
    *(Case(f"hypot_{dtype}", lambda x: torch.hypot(x, x.flip(0)), [_domain(dtype, -5, 9)], (dtype,)) for dtype in ALL_FLOATS),
    *(Case(f"nextafter_{dtype}", lambda x: torch.nextafter(x, x.flip(0)), [_domain(dtype, -5, 9)], (dtype,)) for dtype in (torch.float32, torch.float64)),
]  # fmt: skip

NUMBERS = [
    Case("size_root", lambda x: (x * x.shape[1] ** -0.5, x / math.sqrt(x.shape[1])), [(5, 7)]),
    Case("size_quotient", lambda x: (x * (x.shape[0] / x.shape[1]), x + 0.1 / x.shape[0]), [(5, 7)]),
    Case("size_fill", lambda x, m: (x.masked_fill(m, x.shape[0]), torch.where(m, x, x.shape[1] / 2)), [(5, 7), mask(5, 7)], _F32),
    Case("size_smoothing", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"), [(6, 8), indices(8, 6)], _F32),
]  # fmt: skip

SMALLEST = [
    Case("no_dim_index", lambda z, i: (z.index_select(0, i), z.gather(0, i[0])), [(), _at(0)], _F32),
    Case("no_dim_gather", lambda x, i: x.gather(0, i), [(4,), lambda: torch.tensor(2)], _F32),
    Case("no_dim_scatter", lambda z, i, s: (z.scatter(0, i, s), z.scatter_add(0, i, s), z.scatter_reduce(0, i, s, "mean")), [(), lambda: torch.tensor(0), ()], _F32),
    Case("no_dim_index_add", lambda z, i, s: z.index_add(0, i, s), [(), lambda: torch.tensor(0), ()], _F32),
    Case("product_of_nothing", lambda a, b, c: (a @ b, torch.addmm(c, a, b, beta=2)), [(3, 0), (0, 4), (4,)], _F32, dynamic=False),
    Case("products_of_nothing", torch.bmm, [(2, 3, 0), (2, 0, 4)], _F32, dynamic=False),
    Case("product_without_rows", lambda a, b: a @ b, [(0, 3), (3, 4)], _F32, dynamic=False),
    Case("scatter_extremes", lambda x, i, y: (x.scatter_reduce(1, i, y, "amax", include_self=False), x.scatter_reduce(1, i, y, "amin", include_self=False)), [(3, 5), indices(5, 3, 7), (3, 7)], (*INTEGERS, torch.uint8)),
]  # fmt: skip

SPECIAL = [*FUNCTIONS, *NUMBERS, *SMALLEST]
