"""What inference on the CPU makes of parameters alone (a weight under weight norm) is kept from the second call on, and so is its
form for the library."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zefuse
from zefuse import backend

_KEPT = 1  # of three launches: the others lay out what comes in and goes out
_OTHERS = 2


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(32, 32, 64, padding=32, groups=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def _compiled(model: nn.Module, **options: Any) -> tuple[Callable[[Tensor], Tensor], list[Any]]:
    graphs: list[Any] = []
    torch._dynamo.reset()
    run = torch.compile(model, backend="zefuse", dynamic=options.pop("dynamic", None), options=options)

    def call(x: Tensor) -> Tensor:
        with backend.observe(lambda _, graph: graphs.append(graph)):
            return run(x)

    return call, graphs


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return _Normed().eval()


@torch.no_grad()
def test_made_once(model: nn.Module) -> None:
    call, graphs = _compiled(model)
    x = torch.randn(2, 32, 40)
    for _ in range(6):
        torch.testing.assert_close(call(x), model(x))
    (graph,) = graphs
    counters = graph.counters()
    assert counters["weights_packed"] == _KEPT + 1  # its form for the library as well
    assert counters["launches"] == 2 * _KEPT + 6 * _OTHERS


@torch.no_grad()
@pytest.mark.parametrize("how", ["in place", "data", "replaced", "optimizer"])
def test_changed_parameters_are_seen_at_once(model: nn.Module, how: str) -> None:
    call, _ = _compiled(model)
    x = torch.randn(2, 32, 40)
    for _ in range(4):
        call(x)
    magnitude = model.layer.parametrizations.weight.original0
    if how == "in place":
        magnitude.mul_(2)
    elif how == "data":
        magnitude.data.mul_(2)
    elif how == "replaced":
        model.layer.parametrizations.weight.original0 = nn.Parameter(magnitude * 2)
    else:
        magnitude.grad = torch.ones_like(magnitude)
        torch.optim.SGD([magnitude], lr=1.0).step()
    for _ in range(4):
        torch.testing.assert_close(call(x), model(x))


@torch.no_grad()
def test_sizes_share_them(model: nn.Module) -> None:
    call, graphs = _compiled(model, dynamic=True)
    for length in (40, 56, 48, 40, 56, 48):
        x = torch.randn(2, 32, length)
        torch.testing.assert_close(call(x), model(x))
    (graph,) = graphs
    assert graph.counters()["launches"] == 2 * _KEPT + 6 * _OTHERS


@torch.no_grad()
def test_not_where_it_is_not_wanted(model: nn.Module) -> None:
    _, (graph,) = _called(model, kept_weights=False)
    assert graph.counters()["launches"] == 4 * (_KEPT + _OTHERS)
    with torch.enable_grad():
        _, graphs = _called(copy.deepcopy(model).train())
    assert all(graph.counters()["weight_packs_reused"] == 0 for graph in graphs)


def _called(model: nn.Module, **options: Any) -> tuple[Callable[[Tensor], Tensor], list[Any]]:
    call, graphs = _compiled(model, **options)
    for _ in range(4):
        call(torch.ones(2, 32, 40))
    return call, graphs


@torch.no_grad()
def test_a_package(model: nn.Module, tmp_path: Path) -> None:
    x = torch.randn(2, 32, 40)
    zefuse.compile_package(torch.export.export(model, (x,)), tmp_path / "model.zefuse", standalone=True)
    loaded = zefuse.load(tmp_path / "model.zefuse")
    for _ in range(4):
        torch.testing.assert_close(loaded(x), model(x))
