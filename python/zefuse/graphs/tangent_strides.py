"""Gradients that come into a backward graph: which strides they may have.

AOTAutograd traces a backward with gradients that lie as the forward's results do, and copies one whose strides are others. It compares
the strides of dimensions of size 1 too, which say nothing of where elements lie. torch's shape rules and eager's operators differ
there: of one image with channels innermost, (1, 320, 64, 64), a norm's result has strides (320, 1, ...) by the rule and
(1310720, 1, ...) in eager, and in the compiled graph. So each such gradient was copied. A plan does not read those strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._guards import TracingContext


class Strides(tuple[int, ...]):
    """Equal to any that tell the same places of a tensor of ``sizes``."""

    counting: tuple[int, ...]  # the dimensions whose strides count

    def __new__(cls, strides: Sequence[int], sizes: Sequence[int] = ()) -> Strides:
        made = super().__new__(cls, strides)
        made.counting = tuple(dim for dim, size in enumerate(sizes) if size != 1)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(other) != len(self):
            return False
        return all(self[dim] == other[dim] for dim in self.counting)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self[dim] for dim in self.counting))


def compare_places() -> None:
    """Of the graphs that are being compiled: AOTAutograd takes gradients as they lie where only such strides differ."""
    context = TracingContext.try_get()
    for meta in () if context is None or context.fw_metadata is None else _formats(context.fw_metadata):
        if meta.stride is not None and 1 in meta.size:
            meta.stride = Strides(meta.stride, meta.size)


def _formats(metadata: Any) -> list[Any]:
    """Of plain tensors. Another torch may not have them: then there is nothing to change."""
    formats = [getattr(meta, "memory_format", None) for meta in getattr(metadata, "subclass_tangent_meta", None) or ()]
    return [each for each in formats if hasattr(each, "stride") and hasattr(each, "size")]
