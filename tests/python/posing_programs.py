"""Programs for torch's devices "cuda" and "xpu" on the posing GPU (posing_cuda.py, posing_xpu.py), each in a process of its
own (children.py)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import children
import pytest

_LIBRARIES = Path(__file__).resolve().parents[2] / "build" / "release" / "lib"
needs_posing_cuda = pytest.mark.skipif(
    not (_LIBRARIES / "libzefuse_posing_cuda.so").exists(), reason="not built: scripts/build posing_cuda"
)
needs_posing_xpu = pytest.mark.skipif(
    not (_LIBRARIES / "libzefuse_posing_xpu.so").exists(), reason="not built: scripts/build posing_xpu posing_sycl"
)
SYCL = str(_LIBRARIES / "libzefuse_posing_sycl.so")


def run(
    program: str, imports: tuple[str, ...] = (), whole: bool = False, device: str = "cuda", **environment: str
) -> str:
    """The program's output; it has to end well. It finds the posing device's ``library`` and the modules of tests/python. A
    program is written for "cuda"; for another ``device`` it says that one's name."""
    if device != "cuda":
        program = re.sub(r"\bcuda\b", device, program)
        environment = {"ZEFUSE_SYCL": SYCL} | environment
    done = children.run(
        f"from posing_{device} import library\n" + program,
        timeout=600,
        env=os.environ | {"ZEFUSE_CPU_DRIVER_AS": "gpu"} | environment,
        whole=whole,
        imports=(f"posing_{device}", *imports),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
