"""Which known name a mistyped one most likely means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """One of ``known``; empty where none is close. ``cutoff``: from 0, anything is close, to 1, only the same."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")
