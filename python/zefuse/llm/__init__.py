"""Language models: ``optimize(model)`` compiles what ``generate()`` of a ``transformers`` decoder runs.

- ``load`` reads a model and its tokenizer from disk.
- ``optimize`` returns the model; ``generate()`` and the rest are called as before.
- ``report`` tells what was changed, what was compiled since, and what was left.

``transformers`` is needed for these, not for importing this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Report", "load", "optimize", "report"]

if TYPE_CHECKING:
    from zefuse.llm.optimizing import load, optimize, report
    from zefuse.llm.reports import Report


def __getattr__(name: str) -> Any:
    import importlib

    if name not in __all__:
        raise AttributeError(f"module 'zefuse.llm' has no attribute {name!r}")
    place = "zefuse.llm.reports" if name == "Report" else "zefuse.llm.optimizing"
    return getattr(importlib.import_module(place), name)
