"""Shared by the tests of the GPU road: the posing GPU's options, graphs whose counters are watched, eager's tolerances."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation

GPU = {"device": "gpu:0"}
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
# Dtypes, and whether sizes are symbols: f16 and bf16 are the matrix engine's, by the same kernels.
FORMS = [(torch.float32, False), (torch.float32, True), (torch.float16, False), (torch.bfloat16, True)]


def one_launch_each(
    functions: Iterable[Callable[..., torch.Tensor]],
    inputs: Callable[[], list[torch.Tensor]],
    near: Callable[[int, torch.Tensor, list[torch.Tensor]], None] | None = None,
) -> Explanation:
    """Of one graph of all of them, each with inputs of its own, whose kernels were launched once each. ``near``: what compares the
    result of the function of this number; near_eager, where there is none."""
    functions = list(functions)
    given = [inputs() for _ in functions]
    explanation = zefuse.explain(
        lambda given: [function(*each) for function, each in zip(functions, given, strict=True)], given, options=GPU
    )
    assert counters_of(explanation)["launches"] == len(explanation.kernels)
    for number, (function, each, result) in enumerate(zip(functions, given, explanation.result, strict=True)):
        if near is None:
            near_eager(result, function, *each)
        else:
            near(number, result, each)
    return explanation


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
