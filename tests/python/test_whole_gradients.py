"""Derivatives reach the importer as autograd asks for them: what a training step traces, and what its forward saves for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zefuse.decompositions.table import GRADIENTS
from zefuse.graphs import observers


def graphs_of(module: Any, x: torch.Tensor) -> list[torch.fx.Graph]:
    """Forward's and backward's, as they are compiled."""
    graphs: list[torch.fx.Graph] = []
    token = observers.captured_graphs.set(lambda gm, _: graphs.append(gm.graph))
    try:
        torch.compile(module, backend="zefuse")(x).float().square().sum().backward()
    finally:
        observers.captured_graphs.reset(token)
    assert len(graphs) == 2
    return graphs


def operators(graph: torch.fx.Graph) -> list[str]:
    return [node.target._opname for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def test_each_is_one_operator() -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for function in (
                nn.functional.gelu, nn.functional.elu, nn.functional.silu, torch.sigmoid, torch.tanh, torch.relu,
                nn.functional.leaky_relu, nn.functional.hardtanh, nn.functional.hardswish, nn.functional.hardsigmoid,
            ):  # fmt: skip
                x = function(x)
            return self.norm(x)  # type: ignore[no-any-return]

    _, backward = graphs_of(Layers(), torch.randn(4, 8, requires_grad=True))
    found = [name for name in operators(backward) if name.endswith("_backward")]
    assert sorted(found) == sorted(GRADIENTS)
    # Beside them the loss's derivative, and of what is cheap the function anew.
    assert not {"exp", "erf", "sub", "rsub", "where", "scalar_tensor", "le", "sum"} & set(operators(backward))


def test_a_cast_before_a_norm_is_not_saved() -> None:
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product, self.norm = nn.Linear(64, 64).bfloat16(), nn.LayerNorm(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm((self.product(x) * 2).float())  # type: ignore[no-any-return]

    _, backward = graphs_of(Narrow(), torch.randn(8, 64).bfloat16())
    given = [node for node in backward.nodes if node.op == "placeholder"]
    wide = [
        node.name for node in given if node.meta["val"].shape == (8, 64) and node.meta["val"].dtype == torch.float32
    ]
    assert wide == ["tangents_1"]


def test_a_norms_bias_is_not_saved() -> None:
    _, backward = graphs_of(nn.LayerNorm(8), torch.randn(4, 8, requires_grad=True))
    given = [node.meta["val"] for node in backward.nodes if node.op == "placeholder"]
    assert [tuple(each.shape) for each in given].count((8,)) == 1, "the weight"


def test_complex_numbers_run_in_eager() -> None:
    x = torch.randn(4, dtype=torch.complex64, requires_grad=True)
    (ours,) = torch.autograd.grad(torch.compile(torch.tanh, backend="zefuse")(x).abs().sum(), x)
    (eager,) = torch.autograd.grad(torch.tanh(x).abs().sum(), x)
    torch.testing.assert_close(ours, eager)
