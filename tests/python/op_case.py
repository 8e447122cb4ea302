"""A tested operator: a function, what to call it with, and the makers of inputs that are not plain random tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FLOATS = (torch.float32, torch.bfloat16)
ALL_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32)
BOTH = FLOATS + INTEGERS
SMALL_INTEGERS = (torch.uint8, torch.int8, torch.int16)


@dataclass(frozen=True)
class Case:
    """A function of tensors. ``shapes`` makes one tensor each of the tested dtype, or calls a maker."""

    name: str
    function: Callable[..., Any]
    shapes: Sequence[Any]
    dtypes: Sequence[torch.dtype] = FLOATS
    low: float = -3.0  # values are uniform in [low, high)
    high: float = 3.0
    dynamic: bool = True  # also traced with symbolic sizes
    # Attention sums terms that cancel: where the result is near zero, eager's own error against f64 is this large.
    bf16_atol: float | None = None

    def inputs(self, dtype: torch.dtype) -> list[Any]:
        generator = torch.Generator().manual_seed(len(self.name))
        made = []
        for shape in self.shapes:
            if callable(shape):
                made.append(shape())
            elif dtype == torch.bool:
                made.append(torch.rand(shape, generator=generator) > 0.5)
            elif dtype.is_floating_point:
                values = torch.rand(shape, generator=generator, dtype=torch.float64)
                made.append((values * (self.high - self.low) + self.low).to(dtype))
            else:
                low = 0 if self.low >= 0 or dtype == torch.uint8 else -9
                high = 256 if dtype == torch.uint8 else 10
                made.append(torch.randint(low, high, shape, generator=generator, dtype=dtype))
        return made

    def __str__(self) -> str:
        return self.name


class Calls(nn.Module):
    """A function as a module, which export takes."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def indices(high: int, *shape: int, dtype: torch.dtype = torch.int64, low: int = 0) -> Callable[[], Tensor]:
    return lambda: torch.randint(low, high, shape, generator=torch.Generator().manual_seed(7), dtype=dtype)


def mask(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape, generator=torch.Generator().manual_seed(5)) > 0.4


def transposed(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, generator=torch.Generator().manual_seed(3)).transpose(-1, -2)


def tensor(dtype: torch.dtype, *shape: int) -> Tensor:
    """Integers are of the whole range, so that their sums wrap around."""
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max, shape, dtype=dtype)


def strided(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn([2 * size for size in shape], generator=torch.Generator().manual_seed(3))[
        tuple(slice(1, None, 2) for _ in shape)
    ]


def float(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, generator=torch.Generator().manual_seed(11))


def name(value: object) -> str | None:
    return str(value).removeprefix("torch.") if isinstance(value, Case | torch.dtype) else None
