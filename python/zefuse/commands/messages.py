"""Errors of a command as sentences: what is wrong, where, and what to do. The one place that decides how they read."""

from __future__ import annotations

import errno
import os
import sys
import traceback

from zefuse.errors import ZefuseError

TRACEBACK = "ZEFUSE_TRACEBACK"


def tell(error: BaseException) -> None:
    """Prints the sentence on standard error; with ZEFUSE_TRACEBACK=1 where it was raised as well."""
    if sys.stderr is None:
        return
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    text = sentence(error)
    print(text if text.startswith("zefuse") else f"zefuse: {text}", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """The message of an error; never a traceback."""
    if isinstance(error, ZefuseError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "zefuse":
        package = error.name.partition(".")[0]
        return f"the Python package {package!r} is not installed for {sys.executable}: pip install {package}"
    if isinstance(error, ImportError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return _system(error)
    if isinstance(error, MemoryError):
        return "out of memory"
    first = next(iter(str(error).strip().splitlines()), "")
    return (
        f"{type(error).__name__}: {first}\n  This is no error that zefuse expects. {TRACEBACK}=1 shows where it was raised; "
        "please report it with that"
    )


def _system(error: OSError) -> str:
    """What the operating system refused."""
    where = f"{os.fsdecode(error.filename)!r}: " if isinstance(error.filename, str | bytes) else ""
    advice = {
        errno.EACCES: "no permission; choose another place, or change its owner or mode",
        errno.EPERM: "no permission; choose another place, or change its owner or mode",
        errno.EROFS: "the file system is read-only; choose another place",
        errno.ENOSPC: "no space is left on its disk",
        errno.ENOENT: "no such file or folder",
        errno.EISDIR: "this is a folder; name a file",
        errno.ENOTDIR: "a part of this path is a file, not a folder",
    }
    return where + advice.get(error.errno or 0, error.strerror or str(error))
