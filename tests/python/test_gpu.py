"""The GPU road without a GPU: the CPU driver poses as a discrete one (conftest.py), whose memory the host cannot touch.

Kernels have GPU schedules, data is staged, and everything is counted. docs/gpu.md.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import children
import pytest
import torch
import zoo
from gpu_graphs import GPU, Watched, mlp
from torch import nn
from zoo import examine

import zefuse
from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error


def test_mlp_runs_on_the_gpu_alone() -> None:
    model, x = mlp(), torch.randn(8, 64)
    with torch.no_grad():
        explanation = zefuse.explain(model, x, options=GPU)
        assert relative_error(explanation.result, model(x)) < 1e-5
    assert explanation.device == "gpu:0"
    assert {kernel["target"] for kernel in explanation.kernels} == {"dg2-g11"}
    assert [kernel["name"] for kernel in explanation.kernels] == [
        "matmul_8x128_gelu",
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


# torch's own random numbers, so that dropout and stochastic depth drop what eager drops: made on the host, in training alone.
RANDOM = {"aten.bernoulli.p", "aten.rand.default"}


@contextmanager
def on_the_gpu_alone(kinds: set[str]) -> Iterator[None]:
    """What is compiled and run inside: graphs of all these kinds, every step a kernel with the GPU's schedule (the CPU's have
    groups of one work-item) that was launched on the device, which had the data in memory of its own."""
    graphs: list[tuple[str, Any]] = []
    with backend.observe(lambda kind, graph: graphs.append((kind, graph))):
        yield
    assert {kind for kind, _ in graphs} == kinds
    for kind, graph in graphs:
        report, counters, plan = graph.report(), graph.counters(), json.loads(graph.plan_json())
        assert report["device"] == "gpu" and not report["fallbacks"], kind  # a plan is for any of the kind
        random = [call for call in report["calls"] if set(call["ops"]) <= RANDOM]
        assert random == report["calls"] and not (random and kind == "inference"), kind
        kernels = [step["kind"] for step in plan["steps"] if step["kind_type"] == "Launch"]
        # Running statistics are the user's tensors, on the host.
        copies = [step["kind"] for step in plan["steps"] if step["kind_type"] == "Copy"]
        assert not (copies and kind == "inference"), kind
        assert kernels and len(kernels) + len(copies) + len(random) == len(plan["steps"]), kind
        assert {plan["modules"][kernel.get("module_", 0)]["target"] for kernel in kernels} == {"dg2-g11"}, kind
        assert not [kernel["name"] for kernel in kernels if math.prod(kernel["group_size"]) < 8], kind
        calls = counters["calls"]
        assert calls >= 1 and counters["launches"] == calls * len(kernels), kind
        assert counters["host_steps"] == calls * (len(random) + len(copies)), kind
        assert counters["aten_calls"] == calls * len(random), kind
        assert counters["library_calls"] == 0 and counters["bytes_to_device"] > 0 < counters["bytes_to_host"], kind


def test_the_device_is_one_that_only_has_its_own_memory() -> None:
    """As conftest.py made it; that the host faults there and finds poison is tests/unit/driver's."""
    (gpu,) = [device for device in zefuse.devices() if device["device"] == "gpu:0"]
    assert "as a GPU" in gpu["name"] and not gpu["integrated"]


@pytest.mark.parametrize("name", zoo.DIFFERENT)
def test_zoo_inference(name: str) -> None:
    with on_the_gpu_alone({"inference"}):
        result = examine.inference(zoo.make(name), options=GPU)
    assert result.error <= examine.OUTPUT_ERROR


@pytest.mark.parametrize("name", zoo.DIFFERENT)
def test_zoo_training(name: str) -> None:
    with on_the_gpu_alone({"forward", "backward"}):
        result = examine.training(zoo.make(name), options=GPU)
    assert result.error <= examine.OUTPUT_ERROR
    assert result.gradient_error is not None and result.gradient_error <= examine.GRADIENT_ERROR


def test_resnet_modes_agree() -> None:
    """With and without gradients, in inference mode, channels last: the same numbers as eager, and as each other."""
    example = zoo.make("ResNet-18")
    model, (image,) = example.model, example.inputs
    last = image.to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = model(image)
    compiled = torch.compile(model, backend="zefuse", options=GPU)
    results = {"grad": compiled(image).detach(), "grad, channels_last": compiled(last).detach()}
    with torch.no_grad():
        results |= {"no_grad": compiled(image), "no_grad, channels_last": compiled(last)}
    with torch.inference_mode():
        results |= {"inference_mode": compiled(image), "inference_mode, channels_last": compiled(last)}
    for mode, result in results.items():
        assert (result - expected).abs().mean() <= 1e-5, mode


def test_batch_norm_behind_a_convolution_is_summed_in_slices() -> None:
    """Its channels are columns there, of which one group holds 64: the slices' groups and what is elementwise fill a device."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 64, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 2, 1)).train()
    theirs = copy.deepcopy(model)
    x = torch.randn(2, 4, 72, 64)
    graphs: list[Any] = []
    with backend.observe(lambda _, graph: graphs.append(graph)):
        y = torch.compile(model, backend="zefuse", options=GPU)(x)
        y.square().mean().backward()
    expected = theirs(x)
    expected.square().mean().backward()
    assert relative_error(y, expected) < 1e-5
    for ours, eager in zip(model.parameters(), theirs.parameters(), strict=True):
        assert (ours.grad - eager.grad).abs().max() <= 1e-4 * max(float(eager.grad.abs().max()), 1e-3)
    for ours, eager in zip(model.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(ours, eager)
    forward, backward = ([kernel["schedule"] for kernel in Explanation.of(graph).kernels] for graph in graphs)
    for schedules, slices in ((forward, 1), (backward, 2)):  # a mean and the deviations from it are of one walk
        assert sum("partial results of slices" in schedule for schedule in schedules) >= slices
        assert any(schedule.startswith("pointwise") for schedule in schedules[1:])


class Layer(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(nn.functional.linear(x, self.weight, self.bias))


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_layers_that_share_a_graph_keep_their_copies(device: str) -> None:
    """Compiled one by one they are one graph, and each call brings another layer's weights."""
    layers = [Layer(256, 384) for _ in range(5)]
    x = torch.randn(8, 256)
    graphs: list[Any] = []
    made: list[int] = []
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        for layer in layers:
            layer.compile(backend="zefuse", options={"device": device})
        for round in range(5):
            if round == 3:
                layers[2].weight.mul_(2)
            for layer in layers:
                assert relative_error(layer(x), layer.forward(x)) < 1e-5
            counters = graphs[0].counters()
            made.append(counters["parameters_uploaded"] + counters["weights_packed"])
    assert len(graphs) == 1
    each = [after - before for before, after in zip([0, *made], made, strict=False)]
    # Of two parameters each; a CPU packs one of them, and not for its first use.
    assert each == ([10, 8, 0, 1, 0] if device == "gpu:0" else [0, 5, 0, 0, 1])


def test_copies_of_layers_give_way_to_others() -> None:
    """6 MiB hold four of ten layers' weights: what is kept goes when memory is short."""
    script = """
import torch
from zefuse import backend
from zefuse.explaining.explanation import Explanation
class Layer(torch.nn.Linear):
    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight, self.bias)
layers = [Layer(512, 512) for _ in range(10)]
graphs = []
x = torch.randn(4, 512)
with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
    for layer in layers:
        layer.compile(backend="zefuse", options={"device": "gpu:0"})
    for round in range(4):
        for layer in layers:
            torch.testing.assert_close(layer(x), layer.forward(x), atol=1e-4, rtol=1e-4)
print(len(graphs), graphs[0].counters()["parameters_uploaded"])
"""
    for megabytes, uploads in (("6", None), ("60", 38)):
        child = children.run(script, env={**os.environ, "ZEFUSE_CPU_DRIVER_GPU_MEMORY_MB": megabytes})
        assert child.returncode == 0, child.stderr
        graphs, made = map(int, child.stdout.split())
        assert graphs == 1 and (made == uploads if uploads else made > 38)


def test_any_size() -> None:
    model = mlp()
    compiled = Watched(model)
    with torch.no_grad():
        for rows in (3, 2, 200, 3):
            x = torch.randn(rows, 64)
            torch._dynamo.mark_dynamic(x, 0)
            assert relative_error(compiled(x), model(x)) < 1e-5
    assert len(compiled.graphs) == 1
    assert compiled.counters()["parameters_uploaded"] == 6


@pytest.mark.parametrize("constant", [False, True])
def test_empty_buffers_have_addresses_on_the_device(constant: bool) -> None:
    """Sums over an empty dimension have rows, and so a launch, which is given the address of nothing."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = nn.functional.pad(torch.empty_like(x).fill_(1) if constant else x * 2, (0, 2, 1, 0, -1, 0))
        return torch.softmax(padded, -3), padded

    x = torch.randn(4, 1, 5, 7)
    torch.testing.assert_close(torch.compile(function, backend="zefuse", options=GPU)(x), function(x))


def test_host_steps_and_their_copies() -> None:
    """An operator through ATen between kernels: its input comes to the host, its result goes back."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x * 2).R.abs() + 1

    x = torch.randn(16, 16)
    compiled = Watched(function)
    assert relative_error(compiled(x), function(x)) < 1e-5
    counters, report = compiled.counters(), compiled.graphs[0].report()
    assert [fallback["op"] for fallback in report["fallbacks"]] == ["aten::linalg_qr"]
    assert counters["host_steps"] == counters["aten_calls"] == 1
    assert counters["bytes_to_device"] == 2 * x.numel() * 4  # the input; R
    assert counters["bytes_to_host"] == 2 * x.numel() * 4  # the operator's operand; the result
    torch._dynamo.reset()
    with pytest.raises(Exception, match="linalg_qr"):
        torch.compile(function, backend="zefuse", options={**GPU, "strict": True})(x)


def test_running_statistics_cost_no_wait() -> None:
    """They are the user's tensors: the device writes their new values, which come with the results."""
    script = """
import os, torch
from torch import nn
model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())])
other = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())])
other.load_state_dict(model.state_dict())
compiled = torch.compile(model, backend="zefuse", options={"device": "gpu:0"})
for step in range(3):
    x = torch.randn(2, 3, 16, 16)
    os.write(2, b"[call]")
    result = compiled(x)
    os.write(2, b"[called]")
    torch.testing.assert_close(result, other(x), atol=1e-4, rtol=1e-4)
    for one, two in zip(model.buffers(), other.buffers()):
        torch.testing.assert_close(one, two)
"""
    child = children.run(script, env={**os.environ, "ZEFUSE_ZE_TRACE": "1"})
    assert child.returncode == 0, child.stderr
    last = child.stderr.split("[call]")[-1].split("[called]")[0]
    assert last.count("zeEventHostSynchronize") == 1, last


def test_double_precision_runs_on_the_host() -> None:
    """dg2 has none: that kernel runs on the CPU, and the report says so."""
    x = torch.randn(8, 8)
    explanation = zefuse.explain(lambda x: torch.tanh(x.double()).cumsum(0).float() @ x, x, options=GPU)
    assert relative_error(explanation.result, torch.tanh(x.double()).cumsum(0).float() @ x) < 1e-6
    (fallback,) = explanation.fallbacks
    assert "runs on the host: kernel " in fallback["reason"]
    assert "computes in f64, and dg2-g11 has no double precision" in fallback["reason"]
    assert [kernel["target"] for kernel in explanation.kernels] == ["cpu", "dg2-g11"]


@pytest.mark.parametrize("scan", [torch.cumsum, torch.cumprod, torch.logcumsumexp])
def test_scans_sum_in_single_precision(scan: Callable[..., torch.Tensor]) -> None:
    """Eager on a CPU accumulates f32 in f64, which the device does not have; what is f32 stays on it."""
    x = torch.rand(6, 300) + 0.5
    explanation = zefuse.explain(lambda x: scan(x, 1).relu(), x, options=GPU)
    assert relative_error(explanation.result, scan(x, 1).relu()) < 1e-5
    assert not explanation.fallbacks
    assert {kernel["target"] for kernel in explanation.kernels} == {"dg2-g11"}


def test_bad_index_is_an_error() -> None:
    table = torch.randn(10, 4)

    def function(indices: torch.Tensor) -> torch.Tensor:
        return torch.relu(table[indices] * 2)

    compiled = torch.compile(function, backend="zefuse", options=GPU)
    good, bad = torch.tensor([1, -1, 9]), torch.tensor([1, 10, 9])
    assert torch.equal(compiled(good), function(good))
    with pytest.raises(IndexError, match="10"):
        compiled(bad)
    assert torch.equal(compiled(good), function(good))


def test_threads_share_a_compiled_function() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = mlp()
    compiled = torch.compile(model, backend="zefuse", options=GPU)
    inputs = [torch.randn(8, 64) for _ in range(32)]

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return compiled(x)

    with torch.no_grad():
        run(inputs[0])
        expected = [model(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for actual, wanted in zip(pool.map(run, inputs), expected, strict=True):
            assert relative_error(actual, wanted) < 1e-5
