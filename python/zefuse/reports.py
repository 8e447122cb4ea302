"""What the compiled part says without torch: of packages, the cache, targets, compilers and devices (runtime/reports).

The library is asked in C, as JSON, so that a command that needs no torch does not wait seconds for it. In a process that has
torch it is ``libzefuse_core.so.1``, which ``zefuse._C`` has loaded; else ``libzefuse_runtime.so.1``, which comes without LLVM.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from zefuse import _native
from zefuse.errors import BY_CODE, InstallationError, InternalError

if TYPE_CHECKING:
    import ctypes


def ask(what: str, *arguments: str) -> Any:
    """The report ``what`` (runtime/reports/entry.cpp lists them), as plain data. Raises what ``zefuse.errors`` names."""
    return _answer(_library("torch" in sys.modules), [what, *arguments])


@cache
def _library(beside_torch: bool) -> ctypes.CDLL:
    import ctypes

    if beside_torch:
        _native.load()
    file = _native.library_dir() / ("libzefuse_core.so.1" if beside_torch else "libzefuse_runtime.so.1")
    try:
        library = ctypes.CDLL(os.fspath(file))
        report, free = library.zefuse_report, library.zefuse_report_free
    except (OSError, AttributeError) as error:
        raise InstallationError(_native.broken(file, error)) from error
    report.restype = ctypes.c_void_p
    report.argtypes = (ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t)
    free.argtypes = (ctypes.c_void_p,)
    return library


def _answer(library: ctypes.CDLL, words: list[str]) -> Any:
    import ctypes

    made = library.zefuse_report((ctypes.c_char_p * len(words))(*map(os.fsencode, words)), len(words))
    if not made:
        raise MemoryError
    try:
        answer = json.loads((ctypes.string_at(made)).decode(errors="surrogateescape"))
    finally:
        library.zefuse_report_free(made)
    if "ok" in answer:
        return answer["ok"]
    raise BY_CODE.get(answer["error"].replace(" ", "_"), InternalError)(answer["message"])


def of_plan(text: str) -> dict[str, Any]:
    """A plan's report as ``zefuse.explain`` reads it. The compiled part calls this too."""
    return _with_details(json.loads(text))


def _with_details(report: dict[str, Any]) -> dict[str, Any]:
    details = report.pop("details")
    return report | (json.loads(details) if details else {}) | {"stages": {}}


class PlanOnly:
    """A plan that was read, not loaded, with the methods of a compiled graph that say what it is."""

    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report

    def report(self) -> dict[str, Any]:
        return self._report

    def counters(self) -> dict[str, Any]:
        return {}

    def step_times(self) -> list[Any]:
        return []


def plan(package: str, section: str) -> PlanOnly:
    """The plan in a section of a package."""
    return PlanOnly(_with_details(ask("plan", package, section)))
