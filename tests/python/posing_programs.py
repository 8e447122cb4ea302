"""Programs for torch's device "cuda" on the posing GPU (posing_cuda.py), each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parent
_LIBRARY = _HERE.parents[1] / "build" / "release" / "lib" / "libzefuse_posing_cuda.so"
needs_posing_cuda = pytest.mark.skipif(not _LIBRARY.exists(), reason="not built: scripts/build posing_cuda")

_BEGIN = f"""
import sys
sys.path.insert(0, {str(_HERE)!r})
from posing_cuda import library
"""


def run(program: str, **environment: str) -> str:
    """The program's output; it has to end well. It finds posing_cuda's ``library`` and the modules of tests/python."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + program],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
