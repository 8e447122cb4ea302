"""XPU tensors for tests on machines without an Intel GPU, as posing_cuda.py has CUDA's: torch's device "xpu" lies in the
posing GPU's memory.

Its streams are queues of tests/unit/posing_sycl, which stands for SYCL; those of stream 7 are in another context than the rest.
In a process that has dpctl, they are SYCL's own, on the posing GPU (test_sycl.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

assert "torch" not in sys.modules, "torch has asked already whether there is an XPU"
ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "build" / "release" / "lib"
library = ctypes.CDLL(str(LIBRARIES / "libzefuse_posing_xpu.so"), ctypes.RTLD_GLOBAL)
"""Functions for tests: posing_wait(), posing_emptied(), posing_use_stream(number)."""
dpctl: Any = sys.modules.get("dpctl")
if dpctl:
    queues = [dpctl.SyclQueue(property="in_order") for _ in range(8)]
    for _number, _queue in enumerate(queues):
        library.posing_xpu_queue(_number // 4, _number % 4, ctypes.c_void_p(_queue.addressof_ref()))
else:
    os.environ["ZEFUSE_CPU_DRIVER_AS"] = "gpu"
    os.environ.setdefault("ZEFUSE_SYCL", str(LIBRARIES / "libzefuse_posing_sycl.so"))
    sycl = ctypes.CDLL(str(LIBRARIES / "libzefuse_posing_sycl.so"), ctypes.RTLD_GLOBAL)

import torch

library.posing_start()
_attention = torch.nn.functional.scaled_dot_product_attention


def _attention_of_xpu(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, **named: Any,
) -> torch.Tensor:  # fmt: skip
    """What a torch with XPU dispatches to, which a torch without has no way to be told."""
    if query.device.type != "xpu" or named:
        return _attention(query, key, value, attn_mask, dropout_p, is_causal, **named)
    operator = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
    return operator(query, key, value, attn_mask, dropout_p, is_causal)[0]


torch.nn.functional.scaled_dot_product_attention = _attention_of_xpu  # type: ignore[assignment, unused-ignore]
torch.xpu._lazy_init = lambda: None  # type: ignore[assignment, unused-ignore]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "python")]
