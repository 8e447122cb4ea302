"""Who takes part in tests/bench/peers.py, and on which terms."""

from __future__ import annotations

import os
from pathlib import Path

import children
import pytest

PROGRAM = """
import sys
sys.path.insert(0, {bench!r})
import peers
peers.keep_to_capability()
from torch._inductor import config
from torch._inductor.cpp_builder import CppOptions
print(config.cpp.simdlen, *CppOptions(compiler="g++").get_cflags())
"""


@pytest.mark.parametrize("capability", ["avx2", ""])
def test_inductor_compiles_for_avx2_where_eager_is_kept_to_it(capability: str) -> None:
    bench = str(Path(__file__).resolve().parents[1] / "bench")
    env = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CPP_MARCH"}
    env |= {"ATEN_CPU_CAPABILITY": capability} if capability else {}
    done = children.run(PROGRAM.format(bench=bench), env=env)
    width, *flags = done.stdout.split()
    assert width == ("256" if capability else "None")
    assert ("march=x86-64-v3" if capability else "march=native") in flags
