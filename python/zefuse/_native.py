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

from zefuse.errors import InstallationError

_lock = threading.Lock()


def library_dir() -> Path:
    """The folder of the compiled libraries."""
    return Path(os.environ.get("ZEFUSE_LIBRARY_DIR") or Path(__file__).parent / "lib")


@cache
def load() -> ModuleType:
    """Loads ``zefuse._C`` once. Thread-safe. Raises InstallationError."""
    with _lock:  # a cache lets several threads in at first
        return _load()


@cache
def _load() -> ModuleType:
    import torch  # loads libtorch and the one libgomp before _C asks for them

    from zefuse.installing import torch_versions

    file = torch_versions.extension(library_dir(), torch.__version__)
    spec = importlib.util.spec_from_file_location("zefuse._C", file)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)  # loads the library
        sys.modules["zefuse._C"] = module
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop("zefuse._C", None)
        if isinstance(error, ImportError):
            raise InstallationError(broken(file, error)) from error
        raise
    return module


def broken(file: Path, error: Exception) -> str:
    """What is wrong with a library that could not be loaded, and what to do."""
    if not library_dir().is_dir():
        what = f"there is no folder {library_dir()}"
    elif not file.exists():
        what = f"{file.name} is missing in {file.parent}"
    elif "undefined symbol" in str(error) and "6zefuse" in str(error):  # a function that the other build does not have
        what = f"{file} and {library_dir() / 'libzefuse_core.so.1'} are of different builds of zefuse ({error})"
    else:
        what = f"{file} cannot be loaded: {error}"
    return (
        f"zefuse's compiled part is not whole: {what}; install zefuse again (in a checkout: `make build`), or set "
        "ZEFUSE_LIBRARY_DIR to another build's lib folder"
    )
