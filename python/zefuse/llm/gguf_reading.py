"""One reading of a GGUF file, where ``transformers`` would take three, each of seconds.

It reads the file for the configuration and again for the tokenizer, and this package a third time for the weights; a vocabulary of
50,000 words is half a million slices of a ``numpy.memmap``, which are slow, each time. And it makes the same table of names
once for each module of the model.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np

_lock = threading.Lock()  # of who replaces functions of gguf


class _Reader(gguf.GGUFReader):
    """Slices a plain array of the same memory. (A gguf whose reader has no such method is slow, as it was.)"""

    def _build_fields(self, offs: int, count: int) -> int:
        plain: Any = self.data.view(np.ndarray)
        self.data = plain
        return super()._build_fields(offs, count)


@contextmanager
def read_once(path: Path) -> Iterator[None]:
    """Every reader that is asked of ``gguf`` for the file meanwhile is the same one. Others are as ever, in any thread."""
    reader = _Reader(path)
    library: Any = gguf
    with _lock:
        original, names = library.GGUFReader, library.get_tensor_name_map

        def same(place: Any, *more: Any, **options: Any) -> Any:
            if more or options or os.fspath(place) != os.fspath(path):
                return original(place, *more, **options)
            return reader

        library.GGUFReader, library.get_tensor_name_map = same, functools.cache(names)
        try:
            yield
        finally:
            library.GGUFReader, library.get_tensor_name_map = original, names
