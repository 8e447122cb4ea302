"""A CI test for your own model: fails when a change makes it compile to more kernels, fall back, or compute something else.

pytest examples/test_graph_regression.py
"""

from typing import Any

import torch
from torch import nn

from zefuse.testing import assert_compiled


class Classifier(nn.Module):
    """A linear layer, normalised and squashed: what a small head looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 128)
        self.norm = nn.LayerNorm(128)
        self.out = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.out(self.norm(nn.functional.gelu(self.hidden(x)))), dim=-1)


@torch.no_grad()
def test_classifier_stays_fused() -> None:
    torch.manual_seed(0)
    explanation = assert_compiled(
        Classifier().eval(),
        (torch.randn(32, 64),),
        kernels=2,  # layer norm; softmax
        calls=2,  # both linear layers, the first with its GELU
        fallbacks=0,
        rtol=1e-5,
    )
    # One step further: what is in a kernel, by operator.
    assert any("softmax" in op or "amax" in op for op in explanation.kernels[-1]["ops"]), explanation


@torch.no_grad()
def test_classifier_compiles_to_its_snapshot(zefuse_graph: Any) -> None:
    """Beside this file, in zefuse_graphs/; `pytest examples --zefuse-update` writes it anew."""
    torch.manual_seed(0)
    zefuse_graph.check(Classifier().eval(), torch.randn(32, 64), max_kernels=2)
