"""Finds and loads the compiled part, ``zefuse._C``.

All shared libraries (``libzefuse_core.so.1``, ``libze_zefuse_cpu.so.1``) lie in one folder: ``lib`` beside this file (in a
checkout, a link that ``make build`` makes to ``build/release/lib``), or ``ZEFUSE_LIBRARY_DIR``. What is compiled for one
torch (``_C``, ``libzefuse_aten.so``) lies in a folder of its own there (``torch_versions.py``).
"""

from __future__ import annotations

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
    import torch  # loads libtorch and the one libgomp before _C asks for them

    from zefuse import torch_versions

    file = torch_versions.extension(library_dir(), torch.__version__)
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
