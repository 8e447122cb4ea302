"""The key-value cache as a model sees it while ``tracing`` runs it on fake tensors: no layer has memory, each may write its part once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache

from zefuse.errors import UnsupportedError
from zefuse.llm import cache_parts, cross_attention
from zefuse.llm.cache import strides_of
from zefuse.llm.cache_parts import LayerShape
from zefuse.llm.layers import LayerIndex


@dataclass(frozen=True)
class CacheSize:
    """What all layers' parts of the cache have in common."""

    layers: int
    room: Any  # how many tokens it shows, a symbol
    format: str | None
    device: torch.device

    def memory(self, batch: int, shape: LayerShape) -> list[torch.Tensor]:
        """One layer's part."""
        return [
            torch.empty_strided(
                (batch, shape.key_heads, self.room, part.width),
                strides_of(batch, shape.key_heads, part.width),
                dtype=part.dtype,
                device=self.device,
            )
            for part in shape.parts
        ]


class ModelCache(Cache):
    """The cache as what stands around the layers sees it: a length and a capacity."""

    def __init__(self, size: CacheSize, start: Any) -> None:
        self.size, self.start = size, start
        super().__init__(layers=[])

    is_compileable = True
    is_sliding = property(lambda self: [False] * self.size.layers)

    def __len__(self) -> int:
        return self.size.layers

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        return self.start

    def get_query_offset(self, layer_idx: int = 0) -> Any:
        return self.start

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.size.room, 0

    def get_max_length(self, layer_idx: int | None = None) -> Any:
        return self.size.room

    def update(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError("the model writes the key-value cache outside of its layers")


class LayerCache(ModelCache):
    """The cache as one layer sees it: it may write its own part, once. Functional, so that no trace writes to an input."""

    def __init__(self, size: CacheSize, number: int, start: Any, memory: list[Any] | None) -> None:
        super().__init__(size, start)
        self.number, self.memory, self.written = number, memory, list[Any]()
        self.shape: LayerShape | None = None

    def update(self, key_states: Any, value_states: Any, layer_idx: Any, *_: Any, **__: Any) -> Any:
        number = layer_idx.value if isinstance(layer_idx, LayerIndex) else layer_idx
        if number != self.number or self.shape is not None:
            raise UnsupportedError("a layer writes the key-value cache of another one, or its own twice")
        self.shape = LayerShape.of(key_states, value_states, self.size.format)
        batch, _, count, _ = key_states.shape
        if self.memory is None:
            self.memory = self.size.memory(batch, self.shape)
        position = torch.arange(count, device=key_states.device) + self.start
        rows = cache_parts.written(key_states, value_states, self.shape.format)
        self.written = [before.index_copy(2, position, new) for before, new in zip(self.memory, rows, strict=True)]
        return cache_parts.read(self.written, self.shape.dtype)

    def result(self) -> list[Any]:
        if self.shape is None:
            raise UnsupportedError("a layer does not write the key-value cache")
        return self.written


@dataclass
class LayerParts:
    """One layer's parts of the cache, and the object that the layer gets for them."""

    own: LayerCache | None
    cross: cross_attention.LayerView | None
    seen: Cache | None

    def written(self) -> list[Any]:
        return [
            *(() if self.own is None else self.own.result()),
            *(() if self.cross is None else self.cross.written()),
        ]

    def shapes(self) -> list[LayerShape]:
        shapes = [part.shape for part in (self.own, self.cross) if part is not None]
        return [shape for shape in shapes if shape is not None]

    def memory(self) -> list[Any]:
        return [
            *(() if self.own is None else self.own.memory or ()),
            *(() if self.cross is None else self.cross.memory()),
        ]
