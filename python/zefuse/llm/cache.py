"""The key-value cache of compiled generation: memory for a fixed number of tokens, allocated once.

Beside ``transformers``' own ``StaticCache``: the length is one Python integer for all layers, and a sliding or chunked layer has
memory for every token, so that no control flow depends on how full it is; the attention mask, which ``transformers`` makes for
either layout, leaves out what lies outside the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, StaticLayer

from zefuse.errors import InvalidArgumentError
from zefuse.llm import cache_memory, cache_parts
from zefuse.llm.cache_parts import LayerShape

ROOM_STEP = 64  # tokens; each new size of a graph's inputs costs it about a millisecond


class KeyValueLayer(StaticLayer):
    """One decoder layer's keys and values, ``[batch, heads, capacity, head_dim]``; see ``strides_of`` for how they lie."""

    def __init__(self, owner: KeyValueCache) -> None:
        super().__init__(max_cache_len=owner.capacity)
        self._owner = owner

    # Transformers' layers have a tensor here; ours have one count for all of them.
    @property
    def cumulative_length(self) -> int:
        return self._owner.length

    @cumulative_length.setter
    def cumulative_length(self, _: Any) -> None:
        pass

    def allocate(self, batch: int, shape: LayerShape, device: torch.device) -> None:
        keys = torch.empty((batch, shape.key_heads, 0, shape.key_dim), dtype=shape.dtype, device=device)
        values = torch.empty((batch, shape.key_heads, 0, shape.value_dim), dtype=shape.dtype, device=device)
        self.lazy_initialization(keys, values)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.batch_size, self.num_heads = key_states.shape[:2]
        self.k_head_dim, self.v_head_dim = key_states.shape[-1], value_states.shape[-1]
        shape = LayerShape.of(key_states, value_states, self._owner.format)
        self.memory = [self._memory(part.width, part.dtype) for part in shape.parts]
        self.keys, self.values = self.memory[:2]
        self.is_initialized = True

    def _memory(self, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Token after token in memory, so that the first ones are a tensor of the same strides."""
        shape = (self.max_cache_len, self.batch_size, self.num_heads, width)
        # Zeros, not garbage: a masked position still takes part in products, with probability 0, and 0 * NaN is NaN.
        return torch.zeros(shape, dtype=dtype, device=self.device).permute(1, 2, 0, 3)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """In the same memory: a new tensor's strides would be other ones."""
        filled = self._owner.length
        for whole in self.memory:
            part = whole[:, :, :filled]
            part.copy_(part.index_select(0, beam_idx.to(part.device)))

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """What the original forward calls, for a call that is not compiled."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        count = key_states.shape[-2]
        start = self._owner.room_for(count)
        rows = cache_parts.written(key_states, value_states, self._owner.format)
        for whole, new in zip(self.memory, rows, strict=True):
            whole[:, :, start : start + count] = new
        self._owner.written(self, count)
        return cache_parts.read(self.memory, self.dtype)

    def get_seq_length(self) -> int:
        return self._owner.length

    def reset(self) -> None:
        if self.is_initialized:
            for whole in self.memory:
                whole.zero_()
        self._owner.length = 0


def strides_of(batch: int, heads: int, dim: int) -> tuple[int, int, int, int]:
    """Of a layer's keys or values, however many tokens they are."""
    return heads * dim, dim, batch * heads * dim, 1


class KeyValueCache(Cache):
    """Keys and values of all layers. Owned by the ``generate()`` call that made it; not for several threads at a time."""

    def __init__(self, num_layers: int, capacity: int, format: str | None = None) -> None:
        """``format``: of ``cache_parts.FORMATS``; None keeps keys and values as they are."""
        self.capacity, self.format = capacity, format
        self.length = 0  # tokens in the cache, the same for every layer
        self._seen: tuple[int, list[torch.Tensor], list[torch.Tensor]] = (0, [], [])
        super().__init__(layers=[KeyValueLayer(self) for _ in range(num_layers)])

    def room_after(self, count: int) -> int:
        """How many tokens' memory a call that adds ``count`` sees: the filled part, in steps that change seldom."""
        return min(self.capacity, -(-(self.length + count) // ROOM_STEP) * ROOM_STEP)

    def room_for(self, count: int) -> int:
        """Where the next ``count`` tokens go. Raises InvalidArgumentError where they do not fit, before anything is written."""
        if self.length + count > self.capacity:
            raise InvalidArgumentError(
                f"the key-value cache holds {self.capacity} tokens and has {self.length}; {count} more do not fit: "
                "start generate() again with a larger max_length or max_new_tokens"
            )
        return self.length

    def allocate(self, batch: int, shapes: Sequence[LayerShape], device: torch.device, *_: Any) -> None:
        missing = [(layer, shape) for layer, shape in zip(self.layers, shapes, strict=True) if not layer.is_initialized]
        if missing and device.type == "cpu":
            cache_memory.check(
                sum(shape.bytes_of_a_token for _, shape in missing) * batch * self.capacity, self.capacity, batch
            )
        for layer, shape in missing:
            layer.allocate(batch, shape, device)

    def seen(self, room: int) -> list[torch.Tensor]:
        """All layers' keys, then all values, then scales, of the first ``room`` tokens. Kept for the next call, which mostly sees as
        many: making the views takes 0.1 ms for 30 layers."""
        whole = [each for of_kind in zip(*(layer.memory for layer in self.layers), strict=True) for each in of_kind]
        of_room, of_whole, views = self._seen
        if of_room != room or any(a is not b for a, b in zip(of_whole, whole, strict=True)):
            views = [each[:, :, :room] for each in whole]
            self._seen = (room, whole, views)
        return views

    def advance(self, count: int) -> None:
        """``count`` tokens were written by a compiled call."""
        self.length += count

    def written(self, layer: KeyValueLayer, count: int) -> None:
        """The layers of a forward write one after the other at the same place; the last one moves it on."""
        if layer is self.layers[-1]:
            self.length += count
