"""The strides of a result that ATen's TensorIterator allocates, by the layouts of its operands.

Terms: a layout is a tensor's sizes and strides; of a number, which eager makes a tensor without dimensions, both are empty. Sizes and
strides may be symbols: what they do not say raises ``Undecided``, and no guard is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

Layout = tuple[Sequence[Any], Sequence[Any]]
Strides = tuple[Any, ...]

NUMBER: Layout = ((), ())
_CHANNELS_LAST = (0, 2, 3, 1)


class Undecided(Exception):
    """Symbolic sizes do not say it, and no guard shall."""


def eager_strides(operands: Sequence[Layout]) -> Strides:
    """Of a new result, in eager's order of checks (``TensorIterator.cpp``: ``compute_fast_setup_type``, ``reorder_dimensions``)."""
    sizes = broadcast([shape for shape, _ in operands])
    if all(equal(shape, sizes) for shape, _ in operands):
        if all(lies_in(layout, range(len(sizes))) for layout in operands):
            return in_order(sizes, range(len(sizes)))
        if len(sizes) == 4 and all(lies_in(layout, _CHANNELS_LAST) for layout in operands):
            return in_order(sizes, _CHANNELS_LAST)
        first = operands[0][1]
        if all(is_dense(layout) for layout in operands) and all(equal(strides, first) for _, strides in operands):
            return tuple(first)
    order = _order(sizes, [_repeated(layout, sizes) for layout in operands])
    if list(order) == list(range(len(sizes))):
        return in_order(sizes, order)
    return in_order(sizes, order, least=0)


def broadcast(shapes: Iterable[Sequence[Any]]) -> list[Any]:
    sizes: list[Any] = []
    for shape in shapes:
        sizes = [1] * (len(shape) - len(sizes)) + sizes
        for at in range(-len(shape), 0):
            if is_one(sizes[at]):
                sizes[at] = shape[at]
    return sizes


def lies_in(layout: Layout, order: Sequence[int]) -> bool:
    """Whether it has no gaps and its dimensions are in this order, outermost first; those of size 1 may have any stride."""
    sizes, strides = layout
    expected = 1
    if list(order) == list(range(len(sizes))) and has_zero(sizes):
        return True
    for dim in reversed(order):
        if not is_one(sizes[dim]):
            if not sure(strides[dim] == expected):
                return False
            expected *= sizes[dim]
    return True


def is_dense(layout: Layout) -> bool:
    """Whether it has neither gaps nor elements in one place, in whatever order."""
    sizes, strides = layout
    return lies_in(layout, _sorted(range(len(sizes)), lambda one, other: sure(strides[one] < strides[other])))


def _sorted(dims: Iterable[int], inner: Callable[[int, int], bool]) -> list[int]:
    """Outermost first. By insertion: with symbols, few comparisons can be decided."""
    found: list[int] = []
    for dim in dims:
        at = next((at for at, other in enumerate(found) if inner(other, dim)), len(found))
        found.insert(at, dim)
    return found


def _repeated(layout: Layout, sizes: Sequence[Any]) -> list[Any]:
    """Its strides for a result of these sizes; 0 where it is repeated."""
    shape, strides = layout
    missing = len(sizes) - len(shape)
    return [0] * missing + [
        0 if is_one(size) and not is_one(of) else stride
        for size, stride, of in zip(shape, strides, sizes[missing:], strict=True)
    ]


def _order(sizes: Sequence[Any], strides: Sequence[Sequence[Any]]) -> list[int]:
    """The dimensions, outermost first: as the first operand has them, and where it does not say, the next."""

    def compare(inner: int, outer: int) -> int:
        for each in strides:
            one, other = each[inner], each[outer]
            if is_zero(one) or is_zero(other):
                continue
            if sure(one < other):
                return -1
            if not sure(one == other) or sure(sizes[inner] > sizes[outer]):
                return 1
        return 0

    order = list(reversed(range(len(sizes))))
    for place in range(1, len(order)):
        moved = place
        for at in reversed(range(place)):
            compared = compare(order[at], order[moved])
            if compared > 0:
                order[at], order[moved] = order[moved], order[at]
                moved = at
            elif compared < 0:
                break
    return order[::-1]


def in_order(sizes: Sequence[Any], order: Sequence[int], least: int = 1) -> Strides:
    """Without gaps. ``least``: what a size of 0 counts for."""
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= least if isinstance(sizes[dim], int) and sizes[dim] == 0 else sizes[dim]
    return tuple(strides)


def equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(sure(mine == its) for mine, its in zip(one, other, strict=True))


def is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def is_zero(stride: Any) -> bool:
    return isinstance(stride, int) and stride == 0


def has_zero(sizes: Sequence[Any]) -> bool:
    return any(is_zero(size) for size in sizes)


def sure(said: Any) -> bool:
    if isinstance(said, bool):
        return said
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if statically_known_true(said):
        return True
    if statically_known_true(torch.sym_not(said)):  # type: ignore[no-untyped-call]
        return False
    raise Undecided


def strides_of_a_copy(layout: Layout) -> Strides:
    return tuple(layout[1]) if is_dense(layout) else eager_strides([layout, NUMBER])
