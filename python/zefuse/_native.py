"""Finds and loads the compiled part, ``zefuse._C``.

All shared libraries (``_C``, ``libzefuse_aten.so``, ``libze_zefuse_cpu.so.1``) lie in one folder: ``lib`` beside this
file (in a checkout, a link that ``make build`` makes to ``build/release/lib``), or ``ZEFUSE_LIBRARY_DIR``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import threading
from functools import cache
from pathlib import Path
from types import ModuleType

_lock = threading.Lock()


def library_dir() -> Path:
    """The folder of the compiled libraries."""
    return Path(os.environ.get("ZEFUSE_LIBRARY_DIR") or Path(__file__).parent / "lib")


@cache
def load() -> ModuleType:
    """Loads ``zefuse._C`` once. Thread-safe."""
    with _lock:  # a cache lets several threads in at first
        return _load()


@cache
def _load() -> ModuleType:
    folder = library_dir()
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        file = folder / f"_C{suffix}"
        if file.exists():
            break
    else:
        raise ImportError(
            f"zefuse's compiled part is not built: no _C*.so in {folder}; run `make build` "
            "(or set ZEFUSE_LIBRARY_DIR to another build's lib folder)"
        )
    import torch  # noqa: F401  loads libtorch and the one libgomp before _C asks for them

    spec = importlib.util.spec_from_file_location("zefuse._C", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["zefuse._C"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["zefuse._C"]
        raise
    return module
