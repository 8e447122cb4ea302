"""Programs for torch's device "cuda" on the posing GPU (posing_cuda.py), each in a process of its own (children.py)."""

from __future__ import annotations

import os
from pathlib import Path

import children
import pytest

_HERE = Path(__file__).resolve().parent
_LIBRARY = _HERE.parents[1] / "build" / "release" / "lib" / "libzefuse_posing_cuda.so"
needs_posing_cuda = pytest.mark.skipif(not _LIBRARY.exists(), reason="not built: scripts/build posing_cuda")


def run(program: str, imports: tuple[str, ...] = (), whole: bool = False, **environment: str) -> str:
    """The program's output; it has to end well. It finds posing_cuda's ``library`` and the modules of tests/python."""
    done = children.run(
        "from posing_cuda import library\n" + program,
        timeout=600,
        env=os.environ | {"ZEFUSE_CPU_DRIVER_AS": "gpu"} | environment,
        whole=whole,
        imports=("posing_cuda", *imports),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
