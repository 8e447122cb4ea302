"""The GPU road without a GPU: the CPU driver poses as a discrete one (conftest.py), whose memory the host cannot touch.

Kernels have GPU schedules, data is staged, and everything is counted. docs/gpu.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import zoo
from torch import nn
from zoo import examine

import zefuse
from zefuse.explanation import Explanation
from zefuse.testing import relative_error

GPU = {"device": "gpu:0"}

# Steps of the zoo that run on the host, by operator: why.
ON_THE_HOST = {"cumsum": "a scan", "sub_cat_ne_cumsum": "a scan"}


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

    def __call__(self, *inputs: Any) -> Any:
        from zefuse import backend

        with backend.observe(lambda _, graph: self.graphs.append(graph)):
            return self._compiled(*inputs)

    def counters(self) -> dict[str, int]:
        return self.graphs[0].counters()


def test_mlp_runs_on_the_gpu_alone() -> None:
    model, x = mlp(), torch.randn(8, 64)
    with torch.no_grad():
        explanation = zefuse.explain(model, x, options=GPU)
        assert relative_error(explanation.result, model(x)) < 1e-5
    assert explanation.device == "gpu:0"
    assert {kernel["target"] for kernel in explanation.kernels} == {"dg2-g11"}
    assert [kernel["name"] for kernel in explanation.kernels] == [
        "matmul_8x128_gelu_erf",
        "native_layer_norm",
        "matmul_8x32",
    ]
    assert not explanation.calls and not explanation.fallbacks


def test_copies_are_counted_and_parameters_stay() -> None:
    model, x = mlp(), torch.randn(8, 64)
    weights = sum(p.numel() * 4 for p in model.parameters())
    with torch.no_grad():
        compiled = Watched(model)
        compiled(x)
        first = compiled.counters()
        assert first["parameters_uploaded"] == 6
        assert first["bytes_to_device"] == weights + x.numel() * 4
        assert (first["copies_to_host"], first["bytes_to_host"]) == (1, 8 * 32 * 4)
        for _ in range(3):
            compiled(x)
        later = compiled.counters()
    assert later["launches"] == 4 * 3
    assert later["parameters_uploaded"] == 6
    assert later["copies_to_device"] - first["copies_to_device"] == 3
    assert later["bytes_to_device"] - first["bytes_to_device"] == 3 * x.numel() * 4
    assert later["bytes_to_host"] == 4 * first["bytes_to_host"]
    assert later["host_steps"] == 0


@pytest.mark.parametrize("write", ["in_place", "data", "optimizer"])
def test_changed_parameters_are_seen(write: str) -> None:
    model, x = mlp(), torch.randn(8, 64)
    compiled = Watched(model)
    with torch.no_grad():
        compiled(x)
    weight = model[0].weight
    if write == "in_place":
        with torch.no_grad():
            weight.mul_(2)
    elif write == "data":
        weight.data.mul_(2)
    else:
        weight.grad = torch.ones_like(weight)
        torch.optim.SGD([weight], lr=0.1).step()
    with torch.no_grad():
        assert relative_error(compiled(x), model(x)) < 1e-5
        before = compiled.counters()["parameters_uploaded"]
        assert before > 6
        compiled(x)
        assert compiled.counters()["parameters_uploaded"] == before


@pytest.mark.parametrize("name", zoo.MAKERS)
def test_zoo_inference(name: str) -> None:
    result = examine.inference(zoo.make(name), options=GPU)
    assert result.error <= examine.OUTPUT_ERROR
    for counts in result.counts.values():
        assert counts.calls == 0
        assert counts.fallbacks.keys() <= ON_THE_HOST.keys(), counts.reasons
