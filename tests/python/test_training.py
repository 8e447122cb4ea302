"""Training steps: forward, backward and optimizer, against eager. Fallbacks are allowed here."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zefuse.testing import relative_error

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 3, 2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(4),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        nn.Flatten(),
        nn.Linear(8, 4),
    ),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam fused"])
@pytest.mark.parametrize("name", MODELS)
def test_steps(name: str, optimizer: str) -> None:
    ours = MODELS[name]()
    ours(torch.randn(2, 8))  # lazy parameters
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="zefuse")
    make = {
        "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        "adam fused": lambda model: torch.optim.Adam(
            model.parameters(), lr=0.01, eps=0.1, fused=True
        ),  # eps: no gradient of pure noise decides a step,
    }[optimizer]
    optimizers = make(ours), make(theirs)
    for step in range(4):
        x, y = torch.randn(6, 8), torch.randint(4, (6,))
        losses = []
        for model, stepper in zip((compiled, theirs), optimizers, strict=True):
            stepper.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            stepper.step()
            losses.append(loss)
        assert relative_error(losses[0], losses[1]) < 1e-4, f"step {step}"
    assert relative_error(dict(ours.named_parameters()), dict(theirs.named_parameters())) < 1e-3
    assert relative_error(dict(ours.named_buffers()), dict(theirs.named_buffers())) < 1e-3


def test_input_gradients() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(x @ y, -1) * torch.tanh(x)).sum()

    ours = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    torch.compile(function, backend="zefuse", fullgraph=True)(*ours).backward()
    function(*theirs).backward()
    assert relative_error([t.grad for t in ours], [t.grad for t in theirs]) < 1e-5
