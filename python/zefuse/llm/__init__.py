"""Language models: ``optimize(model)`` compiles what ``generate()`` of a ``transformers`` model runs, a decoder or an
encoder-decoder.

- ``load`` reads a model and its tokenizer from disk.
- ``optimize`` returns the model; ``generate()`` and the rest are called as before.
- ``compile_package`` writes a package of one, ``load_package`` loads it in a process without torch and ``transformers``.
- ``report`` tells what was changed, what was compiled since, and what was left.

``transformers`` is needed for the others, not for importing this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_PLACE = {
    "Report": "reports",
    "compile_package": "packaging",
    "load": "optimizing",
    "load_package": "package",
    "optimize": "optimizing",
    "report": "optimizing",
}
__all__ = ["Report", "compile_package", "load", "load_package", "optimize", "report"]

if TYPE_CHECKING:
    from zefuse.llm.optimizing import load, optimize, report
    from zefuse.llm.package import load_package
    from zefuse.llm.packaging import compile_package
    from zefuse.llm.reports import Report


def __getattr__(name: str) -> Any:
    import importlib

    if name not in __all__:
        raise AttributeError(f"module 'zefuse.llm' has no attribute {name!r}")
    return getattr(importlib.import_module(f"zefuse.llm.{_PLACE[name]}"), name)
