"""The model zoo in small: values, gradients and kernel counts of each model, packages of its graphs, and any batch size for a few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch_differences
import zoo
from zoo import counts, examine

import zefuse
from zefuse import backend
from zefuse.packages.captured import CapturedGraph
from zefuse.testing import relative_error


@pytest.fixture(scope="module", params=zoo.MAKERS)
def inferred(request: pytest.FixtureRequest) -> tuple[str, examine.Examined, list[CapturedGraph]]:
    """A model's name, what its inference came to, and the graphs of it: traced once for the tests of both."""
    results: list[examine.Examined] = []
    graphs = zefuse.capture(lambda: results.append(examine.inference(zoo.make(request.param))))
    return request.param, results[0], graphs


def test_inference(inferred: tuple[str, examine.Examined, list[CapturedGraph]]) -> None:
    name, result, _ = inferred
    assert result.error <= examine.OUTPUT_ERROR
    assert not result.graph_breaks
    assert result.counts, "nothing was compiled"
    if difference := counts.difference(name, result.counts, torch_differences.kernels_here()):
        pytest.fail(difference, pytrace=False)


def test_a_package_of_the_graphs(inferred: tuple[str, examine.Examined, list[CapturedGraph]], tmp_path: Path) -> None:
    """It serves the model wherever it is made, and traced, again."""
    name, _, captured = inferred
    zefuse.compile_package(captured, tmp_path / "m")
    example = zoo.make(name)
    graphs: list[Any] = []
    options = {"package": str(tmp_path / "m"), "package_only": True, "cache_dir": ""}
    with torch.no_grad(), backend.observe(lambda _, graph: graphs.append(graph)):
        actual = example.compile("zefuse", options=options)(*example.inputs)
        assert relative_error(actual, example.model(*example.inputs)) <= examine.OUTPUT_ERROR
    assert graphs
    for graph in graphs:
        counters = graph.counters()
        assert (counters["kernels_lowered"], counters["native_cache_misses"]) == (0, 0)


@pytest.mark.parametrize("name", zoo.MAKERS)
def test_training(name: str) -> None:
    result = examine.training(zoo.make(name))
    assert result.error <= examine.OUTPUT_ERROR
    assert result.gradient_error is not None and result.gradient_error <= examine.GRADIENT_ERROR
    assert result.counts.keys() == {"forward", "backward"}
    if difference := counts.difference(name, result.counts, torch_differences.kernels_here()):
        pytest.fail(difference, pytrace=False)


def test_lost_fusion_is_seen() -> None:
    result = examine.inference(zoo.make("DistilBERT"), options={"fuse": False})
    assert result.error <= examine.OUTPUT_ERROR
    assert "DistilBERT, inference: kernels" in counts.difference("DistilBERT", result.counts)


@pytest.mark.parametrize("name", ["BERT", "Llama", "ResNet-18", "DLRM", "MLP-Mixer"])
def test_any_batch_size(name: str) -> None:
    """One compilation serves every batch size, forward and backward."""
    example = zoo.make(name)
    seen: list[str] = []
    model = example.model
    assert example.batch_dims is not None
    with examine.observing(seen):
        compiled = torch.compile(model, backend="zefuse")
        for copies in (1, 2, 3):
            inputs = tuple(
                torch.cat([t] * copies, dim=dim) for t, dim in zip(example.inputs, example.batch_dims, strict=True)
            )
            for t, dim in zip(inputs, example.batch_dims, strict=True):
                torch._dynamo.mark_dynamic(t, dim)
            with torch.no_grad():
                assert relative_error(compiled(*inputs), model(*inputs)) <= examine.OUTPUT_ERROR, copies
            model.zero_grad()
            example.loss(model(*inputs)).backward()
            expected = [p.grad for p in model.parameters()]
            model.zero_grad()
            example.loss(compiled(*inputs)).backward()
            assert examine.tensors_error([p.grad for p in model.parameters()], expected) <= examine.GRADIENT_ERROR
    assert seen == ["inference", "forward", "backward"]
