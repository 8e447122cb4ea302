"""What was freed, given back to the system.

malloc keeps freed memory where anything lies behind it. While a model's weights are read, packed and moved that is as much as all of
them; after a trace it is what the trace took.
"""

from __future__ import annotations

import ctypes
import gc

_KEPT = 16 << 20


class Freed:
    """Counts the bytes that somebody frees on his way through a model."""

    def __init__(self) -> None:
        self._kept = 0  # that the system may not have back yet

    def note(self, count: int) -> None:
        self._kept += count
        if self._kept > _KEPT:
            give_back()
            self._kept = 0


def give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def after_trace() -> None:
    """A trace's graphs are full of cycles, and old: they would lie there until Python's next full collection, which may never come."""
    gc.collect()
    give_back()
