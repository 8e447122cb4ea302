"""zefuse: a torch.compile backend.

``torch.compile(model, backend="zefuse")`` needs no import of this package.
Its public names (every other module is internal and may change):

- ``check(model, x)``: whether the compiled model is right in every mode,
  and whether compiling pays.
- ``explain(model, x)`` compiles and runs a model once and says what became
  of it, as an ``Explanation``.
- ``Options``: what ``torch.compile(..., options=...)`` takes.
- ``devices()``: this machine's devices.
- ``compile_package(program, path)`` and ``load(path)``: compiled ahead of
  time, into a file. ``capture(function, x)`` returns the graphs of a
  compiled model, which ``compile_package`` takes too.
- ``enable_precompile()``: a later process finds compiled models in the
  cache before it traces them.
- ``include_dir()`` and ``cmake_dir()``: the C interface, for C and C++.
- ``invalidate_weights()``: compiled functions forget what they keep of
  parameters, after writes that no version counter sees.
- ``synchronize()``: waits for what compiled functions of CUDA or XPU
  tensors have queued, and raises errors of theirs that were not told yet.
- ``errors``: what fails raises a subclass of ``ZefuseError``, whose message
  says what is wrong and what to do.
- ``llm``: language models of the package transformers; llm.optimize(model)
  compiles what its generate() runs.
- ``testing``: for tests of compiled models, against eager.
- ``__version__``

Importing this package is cheap: torch and the compiled part load with the
first use of a name above. Tensors that compiled code takes and gives have
the shapes, dtypes and strides of the model that was compiled; sizes in
reports are in bytes, times in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"  # pyproject.toml and CMakeLists.txt read it here; zefuse.h has it too, which a test compares
__all__ = [
    "Explanation",
    "Options",
    "ZefuseError",
    "__version__",
    "capture",
    "check",
    "cmake_dir",
    "compile_package",
    "devices",
    "enable_precompile",
    "errors",
    "explain",
    "include_dir",
    "invalidate_weights",
    "llm",
    "load",
    "synchronize",
    "testing",
]

if TYPE_CHECKING:
    from zefuse import errors, llm, testing
    from zefuse.backend import invalidate_weights, synchronize
    from zefuse.checking import check
    from zefuse.errors import ZefuseError
    from zefuse.explaining.explanation import Explanation, explain
    from zefuse.options import Options
    from zefuse.packages.aot import compile_package, load
    from zefuse.packages.c_interface import cmake_dir, include_dir
    from zefuse.packages.captured import capture
    from zefuse.precompile.calls import enable_precompile
    from zefuse.targets import devices

_PLACE = {
    "Explanation": "zefuse.explaining.explanation",
    "Options": "zefuse.options",
    "ZefuseError": "zefuse.errors",
    "capture": "zefuse.packages.captured",
    "check": "zefuse.checking",
    "cmake_dir": "zefuse.packages.c_interface",
    "compile_package": "zefuse.packages.aot",
    "devices": "zefuse.targets",
    "enable_precompile": "zefuse.precompile.calls",
    "explain": "zefuse.explaining.explanation",
    "include_dir": "zefuse.packages.c_interface",
    "invalidate_weights": "zefuse.backend",
    "load": "zefuse.packages.aot",
    "synchronize": "zefuse.backend",
}
_MODULES = ("errors", "llm", "testing")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"zefuse.{name}")
    if name not in _PLACE:
        from zefuse.suggestions import closest

        close = "" if name.startswith("_") else closest(name, __all__)
        hint = f"; did you mean {close!r}?" if close else ""
        raise AttributeError(f"module 'zefuse' has no attribute {name!r}{hint}")
    return getattr(importlib.import_module(_PLACE[name]), name)


def __dir__() -> list[str]:
    """The public names alone; what was imported meanwhile is not among them."""
    return sorted(__all__)
