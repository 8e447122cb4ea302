"""Numbers in sentences, and tables as text."""

from __future__ import annotations

import io
from typing import Any


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 kernel``, ``2 kernels``; ``plural`` where it is more than an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """``12 us``, ``3.45 ms``, ``6.78 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def printed(table: Any) -> str:
    """What rich prints of it, without colours, 100 columns wide."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=100, no_color=True).print(table)
    return stream.getvalue().rstrip()
