"""What this machine can do at most, measured: bytes and floating-point operations a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def bandwidth(threads: int) -> float:
    """Bytes a second that so many threads read, the best of five passes over 512 MB. Needs no torch."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    numbers = np.ones(1 << 27, np.float32)
    parts = np.array_split(numbers, threads)
    with ThreadPoolExecutor(threads) as pool:
        return numbers.nbytes / _best(lambda: list(pool.map(np.max, parts)))  # what NumPy does fastest with a number


def arithmetic() -> float:
    """Floating-point operations a second in f32 with torch's threads, the best of five products of 1024 x 1024."""
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
