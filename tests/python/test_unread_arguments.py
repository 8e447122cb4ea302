"""What forward keeps for backward: nothing that backward's operators are given and do not read."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from zefuse.graphs import observers


def test_running_statistics_are_not_saved() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    theirs = copy.deepcopy(model)
    x = torch.randn(2, 3, 6, 5)
    graphs: list[Any] = []
    token = observers.captured_graphs.set(lambda graph, _: graphs.append(graph))
    try:
        for _ in range(2):  # the second step's statistics come of the first's
            torch.compile(model, backend="zefuse")(x).square().mean().backward()
            theirs(x).square().mean().backward()
    finally:
        observers.captured_graphs.reset(token)
    backward = graphs[1].graph
    unread = [node.name for node in backward.find_nodes(op="placeholder") if not node.users]
    assert not unread, unread
    (norm,) = backward.find_nodes(op="call_function", target=torch.ops.aten.native_batch_norm_backward.default)
    assert norm.args[3:5] == (None, None) and norm.args[7] is True
    for (name, ours), eager in zip(model.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, eager, msg=name)
    for ours, eager in zip(model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, eager.grad, rtol=1e-4, atol=1e-6)


def test_frozen_statistics_stay() -> None:
    """In evaluation the derivative goes by them."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4).eval()
    nn.init.uniform_(norm.running_mean)
    nn.init.uniform_(norm.running_var)
    x = torch.randn(3, 4, requires_grad=True)
    gradients = [
        torch.autograd.grad(run(x).square().sum(), (x, *norm.parameters()))
        for run in (torch.compile(norm, backend="zefuse"), norm)
    ]
    for ours, eager in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, eager)
