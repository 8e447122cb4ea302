"""What this machine can do at most, measured: bytes and floating-point operations a second with torch's threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def bandwidth() -> float:
    """Bytes a second that torch's threads read, the best of five sums over 512 MB."""
    import torch

    numbers = torch.ones(1 << 27)
    return numbers.numel() * numbers.element_size() / _best(numbers.sum)


def arithmetic() -> float:
    """Floating-point operations a second in f32, the best of five products of 1024 x 1024."""
    import torch

    one = torch.ones(1024, 1024)
    return 2 * 1024**3 / _best(lambda: one @ one)


def _best(call: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best
