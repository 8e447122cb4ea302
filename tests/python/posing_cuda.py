"""CUDA tensors for tests on machines without CUDA: this makes torch's device "cuda" one whose memory is the posing GPU's.

Eager operators on such tensors run on the CPU, with copies; what zefuse compiles runs on the posing GPU, where the tensors are. Once per
process, for good, and before torch is imported: a program's first import, in a process of its own.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

assert "torch" not in sys.modules, "torch has asked already whether there is CUDA"
os.environ["ZEFUSE_CPU_DRIVER_AS"] = "gpu"
ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "release" / "lib" / "libzefuse_posing_cuda.so"
library = ctypes.CDLL(str(LIBRARY), ctypes.RTLD_GLOBAL)
"""Functions for tests: posing_wait(), posing_emptied(), posing_use_stream(number)."""

import torch

from zefuse.graphs import places

library.posing_start()
torch.cuda._lazy_init = lambda: None  # type: ignore[assignment, unused-ignore]
places.NAMES["cuda"] = "gpu:0"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "python")]
