"""``zefuse tune``: who carries an operator out is measured too, and what was quickest is compiled. Times are made up: no clock decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import zefuse
from zefuse import backend, tuning
from zefuse.cli import main
from zefuse.testing import relative_error
from zefuse.tuning import measuring, operators
from zefuse.tuning.measuring import Tuned, tune
from zefuse.tuning.rows import Limits

functional = torch.nn.functional


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(48, 32)
        self.convolution = torch.nn.Conv1d(8, 16, 5, padding=2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return functional.gelu(self.linear(x)) * 2, self.convolution(y).relu()


INPUTS = (torch.randn(24, 48), torch.randn(2, 8, 40))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "cache"
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(made))
    return made


Costs = Callable[[dict[str, float]], None]
EAGER = {"eager": 1.0, "kernels": 2.0, "product, blocks": 50.0}  # quickest


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Costs:
    """Microseconds of a step by a word of what the report says of it: "eager", "product, blocks" (our kernel of one), "gemm"; else 10."""
    table: dict[str, float] = {}

    def timed(self: Any, compiled: Any, least: dict[int, float]) -> None:
        report = compiled.report()
        for kind in ("kernels", "calls", "fallbacks"):
            for each in report[kind]:
                words = f"{kind} {each.get('schedule', '')}".replace("fallbacks", "eager")
                found = [cost for word, cost in table.items() if word in words]
                least[each["step"]] = max(found, default=10.0) * 1e-6

    monkeypatch.setattr(measuring._GraphTuner, "_timed", timed)
    monkeypatch.setattr(operators, "_SHARE", 0.0)
    return lambda given: (table.clear(), table.update(given))[0]


def tuned(**options: Any) -> Tuned:
    with torch.no_grad():
        return tune(Layers().eval(), INPUTS, options=options, limits=Limits(300, 60))


def explained(**options: Any) -> Any:
    torch._dynamo.reset()
    model = Layers().eval()
    with torch.no_grad():
        result = zefuse.explain(model, *INPUTS, options=options)
        assert relative_error(result.result, model(*INPUTS)) < 1e-5
    return result


def test_eagers_operators_where_they_are_quicker(folder: Path, costs: Costs) -> None:
    costs(EAGER)
    assert not explained().fallbacks
    found = tuned()
    chosen = {kernel.name: kernel for kernel in found.kernels if kernel.choice}
    assert {"aten.addmm.default", "aten.convolution.default"} <= chosen.keys(), found
    assert all(kernel.words == "eager's operator" for kernel in chosen.values())
    assert not any(kernel.discarded for kernel in found.kernels), found
    after = explained()
    assert {"aten::addmm", "aten::convolution"} <= {each["op"] for each in after.fallbacks}
    assert all(
        "tuned: eager's operator instead of the cost model's choice, " in each["reason"] and " µs" in each["reason"]
        for each in after.fallbacks
    )
    assert not explained(tuned=False).fallbacks
    assert not explained(strict=True).fallbacks  # where no operator may run in ATen


@pytest.mark.parametrize(
    ("word", "choices"),
    [
        ("gemm", {"aten.addmm.default": "the library's gemm"}),
        ("three parts", {"aten.addmm.default": "the product of numbers in three parts of bf16"}),
        ("torch's MKL", {"aten.addmm.default": "the product of torch's MKL"}),
        ("in panels", {"aten.addmm.default": "the product of a weight packed in panels"}),
        ("by a product", {"aten.convolution.default": "the library's convolution by a product"}),
        ("padded copy", {"aten.convolution.default": "the library's direct convolution of a padded copy"}),
    ],
)
def test_another_of_the_librarys_ways(word: str, choices: dict[str, str], folder: Path, costs: Costs) -> None:
    costs({word: 1.0, "eager": 50.0, "product, blocks": 50.0})
    found = tuned()
    assert {kernel.name: kernel.words for kernel in found.kernels if kernel.choice} == choices
    after = explained()
    said = [call["schedule"] for call in after.calls if "schedule" in call]
    assert len(said) == 1 and all(words in said[0] for words in choices.values()) and not after.fallbacks
    assert "library calls that were measured" in str(after)


def test_a_kernel_of_its_own(folder: Path, costs: Costs) -> None:
    costs({"product, blocks": 1.0, "eager": 50.0})
    before = explained()
    assert len(before.calls) == 2
    found = tuned()
    chosen = {kernel.name: kernel.words for kernel in found.kernels if kernel.choice}
    assert chosen["aten.addmm.default"] == "a kernel of its own", found
    after = explained()
    assert len(after.calls) < 2
    assert any("tuned: a kernel of its own" in kernel["schedule"] for kernel in after.kernels)


def test_what_is_not_quicker_is_not_kept(folder: Path, costs: Costs) -> None:
    costs(EAGER)
    tuned()
    assert tuning.load(str(folder), "cpu")
    costs({"eager": 500.0, "kernels": 500.0})
    found = tuned(tuned=False)
    assert [(kernel.name, kernel.said()) for kernel in found.kernels if kernel.choice] == []
    assert any(kernel.tried for kernel in found.kernels)
    assert tuning.load(str(folder), "cpu") == {}


def families() -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    x, w, image, taps = torch.randn(40, 64), torch.randn(64, 48), torch.randn(2, 8, 12, 12), torch.randn(16, 8, 3, 3)
    convolved = lambda image, taps: functional.conv2d(image, taps, padding=1).relu()  # noqa: E731
    turned = lambda image, taps: functional.conv_transpose2d(image, taps.transpose(0, 1), stride=2)  # noqa: E731
    return {
        "f32": (lambda x, w: functional.gelu(x @ w), (x, w)),
        "bf16": (lambda x, w: (x @ w).relu(), (x.bfloat16(), w.bfloat16())),
        "f16": (lambda x, w: (x @ w) * 2, (x.half(), w.half())),
        "f64": (lambda x, w: x @ w + 1, (x.double(), w.double())),
        "i64": (lambda x, w: x @ w, ((x * 9).long(), (w * 9).long())),
        "batches": (lambda x: torch.bmm(x, x.transpose(1, 2)), (x.reshape(4, 10, 64),)),
        "convolution": (convolved, (image, taps)),
        "convolution bf16": (convolved, (image.bfloat16(), taps.bfloat16())),
        "transposed": (turned, (image, taps)),
        "scan": (lambda x: x.cumsum(0).sort(-1).values, (x,)),
        "norm": (lambda x: functional.layer_norm(x, (64,)).softmax(-1), (x,)),
    }


@pytest.mark.parametrize("family", families())
def test_every_implementation_is_right(family: str, folder: Path, costs: Costs) -> None:
    """What the tuner itself compares: all are tried, and none is discarded."""
    function, inputs = families()[family]
    costs({})
    found = tune(function, inputs, limits=Limits(300, 60))
    discarded = [line for kernel in found.kernels if kernel.is_operator for line in kernel.discarded]
    assert not discarded and not found.stopped
    assert sum(kernel.tried for kernel in found.kernels if kernel.is_operator) >= 1


def test_a_model_in_two_graphs_and_its_backward(folder: Path, costs: Costs) -> None:
    costs(EAGER)
    model = Layers()
    found = tune(model, INPUTS, training=True, limits=Limits(300, 60))
    assert {kernel.graph for kernel in found.kernels if kernel.choice} == {0, 1}
    torch._dynamo.reset()
    kinds: list[str] = []

    def see(kind: str, graph: Any) -> None:
        if any("tuned" in each["reason"] for each in graph.report()["fallbacks"]):
            kinds.append(kind)

    with backend.observe(see):
        sum(each.sum() for each in torch.compile(model, backend="zefuse")(*INPUTS)).backward()
    assert kinds == ["forward", "backward"]


@pytest.mark.parametrize("standalone", [False, True])
def test_packages(standalone: bool, folder: Path, costs: Costs, tmp_path: Path) -> None:
    """A package holds what was measured, but no eager operators where it must run without torch; and it is found by its graph."""
    costs(EAGER)
    tuned()
    model = Layers().eval()
    program = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, INPUTS), program)
    package = tmp_path / "model.zefuse"
    command = ["compile", str(program), "-o", str(package), "--targets", "host", "--quiet"]
    assert main(command + ["--standalone"] * standalone) == 0
    assert relative_error(zefuse.load(package)(*INPUTS), model(*INPUTS)) < 1e-5
    after = explained(package=str(package), package_only=True)
    assert bool(after.fallbacks) == (not standalone)
