"""Tensors that lie in memory in drawn ways, for tests of strides."""

from __future__ import annotations

import random

import torch


def drawn_layout(sizes: list[int], draw: random.Random) -> torch.Tensor:
    """Of these sizes: in any order, channels last, a part of a larger one, or repeated."""
    kind = draw.choice(["order", "order", "last", "part", "repeated"])
    if kind == "last" and len(sizes) == 4:
        return torch.randn(sizes).contiguous(memory_format=torch.channels_last)
    if kind == "part":
        return torch.randn([size * draw.choice([1, 2]) for size in sizes])[tuple(slice(size) for size in sizes)]
    if kind == "repeated":
        return torch.randn([draw.choice([1, size]) for size in sizes]).expand(sizes)
    order = draw.sample(range(len(sizes)), len(sizes))
    return torch.randn([sizes[dim] for dim in order]).permute([order.index(dim) for dim in range(len(sizes))])
