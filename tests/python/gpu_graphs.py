"""Shared by the tests of the GPU road: the posing GPU's options, graphs whose counters are watched, eager's tolerances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from zefuse import backend
from zefuse.explaining.explanation import Explanation

GPU = {"device": "gpu:0"}
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
# Dtypes, and whether sizes are symbols: f16 and bf16 are the matrix engine's, by the same kernels.
FORMS = [(torch.float32, False), (torch.float32, True), (torch.float16, False), (torch.bfloat16, True)]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32)).eval()


def counters_of(explanation: Explanation) -> dict[str, Any]:
    """Of the first graph, after the call."""
    return explanation.graphs[0]["counters"]


class Watched:
    """A compiled function whose graphs' counters can be read at any time."""

    def __init__(self, function: Any, **options: Any) -> None:
        self.graphs: list[Any] = []
        self._compiled = torch.compile(function, backend="zefuse", options={**GPU, **options})

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        with backend.observe(lambda _, graph: self.graphs.append(graph)):
            return self._compiled(*inputs, **keywords)

    def counters(self) -> dict[str, int]:
        return self.graphs[0].counters()


def near_eager(result: torch.Tensor, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """As near to eager as torch's own tests ask of sums of the inputs' type."""
    tolerances = {torch.float32: (1.3e-6, 2e-5), torch.float16: (1e-3, 1e-2), torch.bfloat16: (1.6e-2, 6e-2)}
    rtol, atol = max(tolerances[inputs[0].dtype], tolerances[result.dtype])
    torch.testing.assert_close(result, function(*inputs), rtol=rtol, atol=atol)


def in_f32(arguments: dict[str, Any]) -> dict[str, Any]:
    mask = arguments.get("attn_mask")
    return {**arguments, "attn_mask": mask.float()} if mask is not None and mask.is_floating_point() else arguments
