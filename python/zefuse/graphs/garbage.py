"""Python's collections of cyclic garbage while a graph is traced.

Tracing makes objects by the hundred thousand, nearly all of which live on, and each full collection looks at all of
them: 0.25 s for ViT-S's training step, which had three. The one that has come due when the graph is made takes place while
another thread compiles it, if one does: this one has nothing else to do.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from zefuse import _native

_lock = threading.Lock()
_users = 0
_before = (0, 0, 0)
_NEVER = 1 << 30


@contextmanager
def no_full_collections() -> Iterator[None]:
    """Young objects are collected as ever; a full collection that came due comes in a wait for the compiler, or afterwards, once."""
    global _users, _before
    _use_waits()
    with _lock:
        if _users == 0:
            _before = gc.get_threshold()
            gc.set_threshold(*_before[:2], _NEVER)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and gc.get_threshold() == (*_before[:2], _NEVER):  # else somebody chose others meanwhile
                gc.set_threshold(*_before)


@cache
def _use_waits() -> None:
    _native.load().set_meanwhile(_in_a_wait)


def _in_a_wait() -> None:
    if _users and gc.isenabled() and gc.get_count()[2] > _before[2]:
        gc.collect()


def _in_child() -> None:
    """Another thread of the parent's may have been tracing: nobody here will end that."""
    global _lock, _users
    _lock = threading.Lock()
    if _users:
        _users = 0
        gc.set_threshold(*_before)


os.register_at_fork(after_in_child=_in_child)
