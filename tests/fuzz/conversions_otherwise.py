"""Floats as integers where C leaves open what they become (other_ways.py): NaN, an infinity, or a number beyond the integer's range.

x86's instructions, and so eager, give the least integer, a GPU's the nearest one. Of a constant it is poison in LLVM: a choice between
it and another value may take that value everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _as_integer(value: Tensor, dtype: torch.dtype, open_one: int) -> Tensor:
    """``open_one`` where it is open. A type of less than 32 bits keeps the lowest of a wider one's, as in eager: -1 as a byte is 255."""
    bound = 2.0 ** (63 if dtype is torch.int64 else 31)
    whole = value.detach().double().trunc()
    inside = (whole >= -bound) & (whole < bound)
    return torch.where(inside, torch.where(inside, whole, 0.0).to(torch.int64), open_one).to(dtype)


def _converted(of: Callable[..., Any], open_one: int) -> Callable[..., Any]:
    """``of`` given the integers of a float's values where it is asked for an integer type."""

    def way(input: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = next((each for each in (*args, kwargs.get("dtype")) if isinstance(each, torch.dtype)), None)
        if type(input) is not Tensor or not input.is_floating_point() or dtype not in _INTEGERS:
            return of(input, *args, **kwargs)
        # As the float lies, which a result of the same size follows.
        integers = torch.empty_like(input, dtype=dtype).copy_(_as_integer(input, dtype, open_one))
        return of(integers, *args, **kwargs)

    return way


# The second is odd and positive in its lowest 8, 16, 32 and 64 bits, so that few sums and no sign of it are those of the least integer.
_OPEN_ONES = (0, 0x3C6EF3725A31356B)
_OF_A_TYPE = (Tensor.to, torch.sum, Tensor.sum)
CONVERSIONS: list[tuple[str, dict[Any, Callable[..., Any]]]] = [
    (r"torch\.u?int(8|16|32|64)\b", {of: _converted(of, one) for of in _OF_A_TYPE}) for one in _OPEN_ONES
]
