"""The child in which ``zefuse doctor`` loads what may be broken: torch, our libraries, the extension module. It says a line
as soon as each is known, so that a crash loses what comes after it and nothing before.
"""

from __future__ import annotations

import json
import os
from typing import Any

PREFIX = "zefuse-doctor: "
# With the folder of the libraries and their names behind it.
PROGRAM = "import sys; from zefuse.doctor.probe import main; main(sys.argv[1], sys.argv[2:])"


def say(**what: Any) -> None:
    # After a line end, since libraries print what they like.
    os.write(1, f"\n{PREFIX}{json.dumps(what)}\n".encode())


def short(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:400]


def registered() -> list[str]:
    """The names of zefuse's entry points, which is how ``torch.compile(backend="zefuse")`` finds the package."""
    from importlib.metadata import entry_points

    return [entry.value for entry in entry_points(group="torch_dynamo_backends", name="zefuse")]


def main(folder: str, libraries: list[str]) -> None:
    import ctypes
    import warnings

    warnings.simplefilter("ignore")
    torch_there = False
    say(step="importing torch")
    try:
        import torch

        say(
            torch={
                "version": str(torch.__version__),
                "folder": os.path.dirname(torch.__file__ or ""),
                "cuda": torch.version.cuda,
                "threads": torch.get_num_threads(),
                "cxx11_abi": bool(torch.compiled_with_cxx11_abi()),
            }
        )
        torch_there = True
    except Exception as error:  # a broken torch raises anything
        say(torch_error=short(error))
    say(backends=registered())
    for name in libraries:
        say(step=f"loading {name}")
        try:
            ctypes.CDLL(os.path.join(folder, name), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            say(loaded=name)
        except OSError as error:
            say(not_loaded={"name": name, "why": short(error)})
    if not torch_there:
        return
    say(step="loading zefuse._C")
    try:
        from zefuse import _native, reports

        native = _native.load()
        say(native={"build_id": native.build_id(), "file": native.__file__})
    except Exception as error:
        say(native_error=short(error))
        return
    for name in ("targets", "compilers", "devices"):
        say(step=f"asking zefuse._C for its {name}")
        try:
            say(**{name: reports.ask(name)})
        except Exception as error:
            say(failed={"name": name, "why": short(error)})
    say(step="")
