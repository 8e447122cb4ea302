"""What an operator's entry draws from: the random generator and the values that the program has so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class NoFit(Exception):
    """The program has no value that the operator takes."""


@dataclass
class Value:
    name: str
    tensor: Tensor
    leaf: bool = False  # requires grad: not to be written


class Draw:
    def __init__(self, rng: random.Random, values: list[Value], dynamic: bool) -> None:
        self.rng = rng
        self.values = values
        self.dynamic = dynamic
        self.choice = rng.choice
        self.int = rng.randint

    def often(self, share: float) -> bool:
        return self.rng.random() < share

    def any(self, fits: Callable[[Tensor], bool] = lambda _: True) -> Value:
        """Recent values more often than old ones, so that programs are deep."""
        found = [value for value in self.values if fits(value.tensor)]
        if not found:
            raise NoFit
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def floating(self, rank: int = 0, at_most: int = 9) -> Value:
        return self.any(lambda t: t.is_floating_point() and rank <= t.dim() <= at_most)

    def number(self, rank: int = 0) -> Value:
        return self.any(lambda t: t.dtype != torch.bool and t.dim() >= rank)

    def ranked(self, rank: int, at_most: int = 9) -> Value:
        return self.any(lambda t: rank <= t.dim() <= at_most)

    def broadcast(self, value: Value, fits: Callable[[Tensor], bool] = lambda _: True) -> Value:
        """A value that broadcasts with this one."""
        return self.any(lambda t: fits(t) and broadcasts(value.tensor.shape, t.shape))

    def like(self, value: Value) -> Value:
        """A value of the same shape and dtype."""
        return self.any(lambda t: t.shape == value.tensor.shape and t.dtype == value.tensor.dtype)

    def dim(self, value: Value) -> int:
        """A dimension, counted from either end."""
        rank = max(value.tensor.dim(), 1)
        return self.rng.randrange(-rank, rank)

    def dims(self, value: Value, at_least: int = 1) -> list[int]:
        rank = value.tensor.dim()
        if rank < at_least:
            raise NoFit
        return self.rng.sample(range(rank), self.int(at_least, rank))

    def size(self, value: Value, dim: int, name: str = "{0}") -> str:
        """The text of a size: an expression where sizes are symbols."""
        return f"{name}.shape[{dim}]" if self.dynamic else str(value.tensor.shape[dim])

    def scalar(self, value: Value | None = None) -> str:
        if value is not None and value.tensor.dtype == torch.bool:
            return self.choice(["True", "False", "1"])
        if value is not None and not (value.tensor.is_floating_point() or value.tensor.is_complex()):
            return self.choice("0 1 2 3 -1 -2 7 100 True 2.5 -0.5".split())
        return self.choice("0.5 2 -1.5 3 1e-3 -1 0 0.0 1 2.5 1e4 float('inf') True".split())


def broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


# An operator's entry gives a text and the values for its places, or raises NoFit.
Entry = Callable[[Draw], tuple[str, list[Value]]]


def table(*rows: tuple[float, Entry]) -> list[tuple[float, Any]]:
    return list(rows)
