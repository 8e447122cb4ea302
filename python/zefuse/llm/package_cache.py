"""The key-value cache of a package's plans: memory of the caller's, of which each call sees the filled part and writes its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zefuse.errors import InvalidArgumentError
from zefuse.llm import cache_memory
from zefuse.packages import c_model
from zefuse.wording import counted


class KeyValueCache:
    """Memory for the keys and values (and scales) of ``capacity`` tokens of each of some sequences. Not for several threads at a time.

    Sequences of unequal length end together: the first ``padding`` places of each hold none of its tokens.
    """

    def __init__(self, layers: Sequence[c_model.Info], capacity: int, step: int, batch: int = 1) -> None:
        self.capacity, self.most, self._step = capacity, batch, step  # most: sequences
        self.length = 0  # places that are filled, padding included
        self.padding = np.zeros(batch, np.int64)
        # Each begins at a multiple of 64: codes of eight bits may end anywhere.
        self._widths = [each.sizes[1] * each.sizes[3] * each.element_bytes for each in layers]
        sizes = [-(-width * capacity * batch // 64) * 64 for width in self._widths]
        size = sum(sizes)
        self.bytes = size
        cache_memory.check(size, capacity, batch)
        self._memory = np.zeros(size + 64, np.uint8)  # zeros: a masked number still takes part in products
        first = -self._memory.ctypes.data % 64
        self._parts, self.tensors, at = list[Any](), list[Any](), first
        for each, size in zip(layers, sizes, strict=True):
            self._parts.append(self._memory[at : at + size])
            address = self._memory.ctypes.data + at
            self.tensors.append(c_model.tensor(address, each.dtype, (batch, *each.sizes[1:]), (1, 1, 1, 1)))
            at += size
        self._lay(batch, 0)

    @property
    def batch(self) -> int:
        """How many sequences it has at present."""
        return len(self.padding)

    def _lay(self, batch: int, shown: int) -> None:
        """Token after token, so that the first ones are a tensor of the same strides."""
        self._shown = shown
        for tensor in self.tensors:
            _, heads, _, dim = tensor.shape[:4]
            tensor.shape[0], tensor.shape[2] = batch, shown
            for dimension, stride in enumerate((heads * dim, dim, batch * heads * dim, 1)):
                tensor.strides[dimension] = stride

    def select(self, sequences: Sequence[int]) -> None:
        """These sequences alone, in this order; one may be there several times. Raises InvalidArgumentError for more than the memory
        was made for, or others than it has."""
        rows = np.array(sequences, np.int64)
        if not 1 <= len(rows) <= self.most or rows.min() < 0 or rows.max() >= self.batch:
            raise InvalidArgumentError(
                f"sequences {list(sequences)} of a key-value cache that has {self.batch} and memory for {self.most}"
            )
        if len(rows) == self.batch and (rows == np.arange(self.batch)).all():
            return
        for part, width in zip(self._parts, self._widths, strict=True):
            before = part[: self.length * self.batch * width].reshape(self.length, self.batch, width)
            after = part[: self.length * len(rows) * width].reshape(self.length, len(rows), width)
            after[:] = before[:, rows]  # which copies first
        self.padding = self.padding[rows]
        self._lay(len(rows), self._shown)

    def show(self, count: int) -> None:
        """As many tokens as the cache will have after ``count`` more, in steps that change seldom. Raises InvalidArgumentError where
        they do not fit."""
        if self.length + count > self.capacity:
            raise InvalidArgumentError(
                f"the key-value cache holds {counted(self.capacity, 'token')} and has {self.length}; {count} more do not fit"
            )
        shown = min(self.capacity, -(-(self.length + count) // self._step) * self._step)
        if shown != self._shown:
            self._lay(self.batch, shown)
