"""The strides of ``x[indices]`` in eager: ATen's ``index`` hands its TensorIterator the source, with the indexed dimensions repeated, and
the indices as operands, so that the result's order follows the indices' strides too. torch's shape rule looks at the source alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from zefuse.decompositions.iterator_strides import (
    Layout,
    Strides,
    Undecided,
    broadcast,
    eager_strides,
    equal,
    has_zero,
    is_one,
    strides_of_a_copy,
    sure,
)


def strides_of_index(source: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Strides:
    """As ``AdvancedIndex`` and ``build_index_op`` (``TensorAdvancedIndexing.cpp``) have them. Masks, whose sizes depend on data, are not
    decided."""
    given = [each for each in indices if each is not None]
    if not given or any(each.dtype in (torch.bool, torch.uint8, torch.int8) for each in given):
        raise Undecided
    sizes, strides = list(source.shape), list(source.stride())
    each_dim = [*indices, *[None] * (len(sizes) - len(indices))]
    at = [dim for dim, index in enumerate(each_dim) if index is not None]
    if at[-1] - at[0] + 1 != len(at):  # not side by side: the indexed dimensions become the first ones
        order = [*at, *(dim for dim, index in enumerate(each_dim) if index is None)]
        sizes, strides = [sizes[dim] for dim in order], [strides[dim] for dim in order]
        at = list(range(len(at)))
    begin, end = at[0], at[-1] + 1
    replaced = broadcast([each.shape for each in given])
    operands: list[Layout] = [
        ([*sizes[:begin], *replaced, *sizes[end:]], [*strides[:begin], *[0] * len(replaced), *strides[end:]])
    ]
    as_kernel = [_expanded(each, replaced) for each in given]
    if source.device.type != "cpu" and any(not equal(each, as_kernel[0]) for each in as_kernel):
        raise Undecided  # the GPUs' kernels copy some of them
    ones_after = len(sizes) - end
    for each in as_kernel:
        shape = [*[1] * begin, *replaced, *[1] * ones_after]
        operands.append((shape, _with_ones((replaced, each), begin, ones_after)))
    return eager_strides(operands)


def _expanded(index: torch.Tensor, sizes: Sequence[Any]) -> Strides:
    """Its strides once it has been repeated to these sizes, and converted to int64."""
    missing = len(sizes) - index.dim()
    strides: list[Any] = []
    for dim in reversed(range(len(sizes))):
        size = index.shape[dim - missing] if dim >= missing else 1
        if is_one(size) and not is_one(sizes[dim]):
            strides.insert(0, 0)
        elif dim >= missing:
            strides.insert(0, index.stride(dim - missing))
        else:
            strides.insert(0, sizes[dim + 1] * strides[0] if strides else 1)
    return tuple(strides) if index.dtype == torch.int64 else strides_of_a_copy((sizes, strides))


def _with_ones(layout: Layout, before: int, after: int) -> Strides:
    """Its strides once a ``reshape`` has put dimensions of size 1 around it: those it has, but that runs of dimensions which lie without
    gaps give those of size 1 among them new ones (``computeStride``)."""
    sizes, strides = layout
    if not sizes:
        return (1,) * (before + after)
    shape = [*[1] * before, *sizes, *[1] * after]
    if has_zero(sizes):
        if before + after == 0:
            return tuple(strides)
        found: list[Any] = [1]
        for size in reversed(shape[1:]):
            found.insert(0, found[0] * (1 if size == 0 else size))
        return tuple(found)
    new: list[Any] = [None] * len(shape)
    place, base, count, covered = len(shape) - 1, strides[-1], 1, 1
    for dim in reversed(range(len(sizes))):
        count = count * sizes[dim]
        if dim > 0 and (is_one(sizes[dim - 1]) or sure(strides[dim - 1] == count * base)):
            continue
        while place >= 0 and (is_one(shape[place]) or sure(covered < count)):
            new[place] = covered * base
            covered = covered * shape[place]
            place -= 1
        if dim > 0:
            base, count, covered = strides[dim - 1], 1, 1
    return tuple(new)
