"""A GPU's kernels write an input's new value where the old one lies: on the CPU that poses as one, against eager, with sizes that
vectors, sub-groups and groups do not divide."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from zefuse import backend
from zefuse.explaining.explanation import Explanation

GPU: dict[str, Any] = {"device": "gpu:0"}


def compiled(function: Callable[..., Any], graphs: list[Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    run = torch.compile(function, backend="zefuse", options=GPU, dynamic=False)

    def observed(*inputs: Any) -> Any:
        with backend.observe(lambda _, graph: graphs.append(graph)):
            return run(*inputs)

    return observed


def in_place(graph: Any) -> list[str]:
    """Schedules of the kernels that write so."""
    return [kernel["schedule"] for kernel in Explanation.of(graph).kernels if "in place" in kernel["schedule"]]


@pytest.mark.parametrize("channels", [64, 70, 3], ids=str)
@pytest.mark.parametrize("places", [72, 5], ids=str)
def test_running_statistics(channels: int, places: int) -> None:
    """Behind a convolution channels are columns, in vectors of which the last would overlap the one before, and sub-groups that
    share a sum compute the last columns again. The counter is written by an early kernel, whose memory later ones must not use."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, channels, 1), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 2, 1)
    ).train()
    theirs = copy.deepcopy(model)
    graphs: list[Any] = []
    run = compiled(model, graphs)
    for _ in range(4):  # queued twice, recorded, replayed
        x = torch.randn(2, 4, places, 64)
        run(x).square().mean().backward()
        theirs(x).square().mean().backward()
        for (name, ours), eager in zip(model.named_buffers(), theirs.buffers(), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6, msg=name)
    for ours, eager in zip(model.parameters(), theirs.parameters(), strict=True):
        assert (ours.grad - eager.grad).abs().max() <= 1e-4 * max(float(eager.grad.abs().max()), 1e-2)
    assert len(in_place(graphs[0])) >= 2
    assert graphs[0].counters()["host_steps"] == 0, "nothing is copied at the end"


@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "one by one"])
def test_an_optimizers_step(foreach: bool) -> None:
    torch.manual_seed(0)
    sizes = [(7,), (257, 3), (1,), (64, 65), (7,), (1021,), (33, 1024)]
    mine = [nn.Parameter(torch.randn(size)) for size in sizes]
    other = [nn.Parameter(p.detach().clone()) for p in mine]
    steps = [torch.optim.AdamW(p, lr=0.1, foreach=foreach) for p in (mine, other)]
    graphs: list[Any] = []
    run = compiled(steps[0].step, graphs)
    for _ in range(4):
        for ours, eager in zip(mine, other, strict=True):
            ours.grad = torch.randn_like(ours)
            eager.grad = ours.grad.clone()
        run()
        steps[1].step()
    for ours, eager in zip(mine, other, strict=True):
        torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5)
        for name, state in steps[0].state[ours].items():
            torch.testing.assert_close(state, steps[1].state[eager][name], rtol=2e-5, atol=2e-6, msg=name)
    assert in_place(graphs[0])


def columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = x.sum(1)
    x.mul_(2).add_(y)
    return before


def normalized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Each element is read again after its row's sums: that kernel must not."""
    x.sub_(x.mean(1, keepdim=True)).mul_(y)
    return x.exp()


def moving(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A row's old value is in the sum that makes the new one."""
    old = x[:, 0]
    old.lerp_((y - old[:, None]).square().sum(1), 0.25)
    return x * 2


def transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y.t().contiguous().t() if y.shape[0] != y.shape[1] else y.t())
    return x.amax(0)


def cache(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    at = torch.tensor([2, 0, 5])
    x.index_copy_(0, at, y[:3])
    return (x * y).sum(1)


def window(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:4] = y[2:5]
    return x.cumsum(0)


@pytest.mark.parametrize("size", [(129, 129), (70, 253), (257, 64)], ids=str)
@pytest.mark.parametrize("function", [columns, normalized, moving, transposed, cache, window], ids=lambda f: f.__name__)
def test_functions(function: Callable[..., torch.Tensor], size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    mine = torch.randn(size)
    other = mine.clone()
    run = compiled(function, [])
    for _ in range(4):
        y = torch.randn(size) / 8
        torch.testing.assert_close(run(mine, y), function(other, y), rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(mine, other, rtol=2e-5, atol=2e-5)
