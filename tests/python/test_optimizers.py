"""Compiled steps of the optimizers that torch itself keeps from Dynamo: one graph, nothing in eager, and torch's numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

STEPS: dict[str, Make] = {
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01, fused=True),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, amsgrad=True, weight_decay=0.1, fused=True),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, fused=True),
    "SGD with momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True, fused=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1, lr_decay=0.1, fused=True),
    "Adafactor": lambda params: torch.optim.Adafactor(params, lr=0.01, weight_decay=0.1),
    "Adafactor, maximizing": lambda params: torch.optim.Adafactor(
        params, lr=0.5, eps=(1e-6, 0.5), d=1.5, maximize=True
    ),
}


def trained(
    make: Make, shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32
) -> tuple[list[Explanation], float]:
    """The graphs of four compiled steps, and how far their parameters and states end from those of eager steps."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]
    theirs = copy.deepcopy(ours)
    optimizers = make(ours), make(theirs)
    graphs: list[Explanation] = []
    compiled = torch.compile(optimizers[0].step, backend="zefuse")
    with backend.observe(lambda kind, graph: graphs.append(Explanation.of(graph, kind))):
        for _ in range(4):
            for mine, other in zip(ours, theirs, strict=True):
                mine.grad = torch.randn_like(mine)
                other.grad = mine.grad.clone()
            compiled()
            optimizers[1].step()
    error = relative_error(ours, theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for name, value in optimizers[1].state[other].items():
            if value is not None:
                error = max(error, relative_error(optimizers[0].state[mine][name], value))
    return graphs, error


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_one_graph(name: str) -> None:
    graphs, error = trained(STEPS[name], [(32, 16), (32,), (3, 5, 7), (1,)])
    assert error < 1e-5  # a correction 1 - beta**step of f32, as torch compiles it; in eager of f64
    # The first step of momentum makes the buffers.
    assert 1 <= len(graphs) <= 1 + (name == "SGD with momentum")
    assert not any(graph.fallbacks for graph in graphs)


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.Adam(params, lr=torch.tensor(0.01), fused=True),
        lambda params: torch.optim.Adafactor(params, lr=0.01),
    ],
    ids=["a learning rate in a tensor", "Adafactor of bf16"],
)
def test_what_is_left_to_torch_is_right(make: Make) -> None:
    _, error = trained(make, [(8, 4), (8,)], torch.bfloat16)
    assert error < 1e-5


def test_a_scaler_of_gradients() -> None:
    """It gives the scale and what is infinite to a fused step, which then is torch's."""
    scale, bad = torch.tensor(4.0), torch.tensor(0.0)

    def make(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(params, lr=0.01, fused=True)
        optimizer.grad_scale, optimizer.found_inf = scale, bad  # type: ignore[attr-defined]
        return optimizer

    _, error = trained(make, [(8, 4), (8,)])
    assert error < 1e-5


def test_eager_steps_are_torchs() -> None:
    params = [torch.nn.Parameter(torch.ones(3))]
    params[0].grad = torch.ones(3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.optim.Adam(params, fused=True).step()
    assert any(event.key == "aten::_fused_adam_" for event in profile.key_averages())
