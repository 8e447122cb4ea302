"""zefuse: a torch.compile backend. ``torch.compile(model, backend="zefuse")`` needs no import of this package.

Importing this package is cheap: torch and the compiled part load with the first use of a name below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Explanation",
    "Options",
    "ZefuseError",
    "__version__",
    "capture",
    "cmake_dir",
    "compile_package",
    "devices",
    "enable_precompile",
    "explain",
    "include_dir",
    "load",
]

if TYPE_CHECKING:
    from zefuse.aot import compile_package, load
    from zefuse.c_interface import cmake_dir, include_dir
    from zefuse.captured import capture
    from zefuse.errors import ZefuseError
    from zefuse.explanation import Explanation, explain
    from zefuse.options import Options
    from zefuse.precompile import enable_precompile
    from zefuse.targets import devices

_PLACE = {
    "Explanation": "zefuse.explanation",
    "Options": "zefuse.options",
    "ZefuseError": "zefuse.errors",
    "capture": "zefuse.captured",
    "cmake_dir": "zefuse.c_interface",
    "compile_package": "zefuse.aot",
    "devices": "zefuse.targets",
    "enable_precompile": "zefuse.precompile",
    "explain": "zefuse.explanation",
    "include_dir": "zefuse.c_interface",
    "load": "zefuse.aot",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module 'zefuse' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PLACE[name]), name)
