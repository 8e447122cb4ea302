"""What zefuse makes of one example: counts, fallbacks and errors against eager, for inference and for a training step."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from zefuse import backend
from zefuse.explaining.explanation import Explanation
from zefuse.testing import relative_error
from zoo.example import Example

# Largest error allowed, relative to the largest magnitude of the result (f32).
OUTPUT_ERROR = 1e-4
GRADIENT_ERROR = 1e-3


@dataclass
class Counts:
    """Of all graphs of one kind (a graph break makes several)."""

    graphs: int = 0
    kernels: int = 0
    calls: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)  # operator -> how often
    reasons: dict[str, str] = field(default_factory=dict)  # operator -> why

    def summary(self) -> dict[str, Any]:
        """What kernel_counts.json holds."""
        return {"kernels": self.kernels, "calls": self.calls, "fallbacks": dict(sorted(self.fallbacks.items()))}


@dataclass
class Examined:
    counts: dict[str, Counts]  # by kind: inference, or forward and backward
    error: float
    gradient_error: float | None = None
    graph_breaks: dict[str, int] = field(default_factory=dict)  # reason -> how often
    # Where a limit is passed: (error, gradient error) of "ours" and of "eager" from the same step in double precision.
    exact: dict[str, tuple[float, float]] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def counts_of(explanation: Explanation) -> dict[str, Counts]:
    counts: dict[str, Counts] = {}
    for graph in explanation.graphs:
        here = counts.setdefault(graph["kind"], Counts())
        here.graphs += 1
        number = graph["graph"]
        here.kernels += sum(entry["graph"] == number for entry in explanation.kernels)
        here.calls += sum(entry["graph"] == number for entry in explanation.calls)
        fallbacks = [entry for entry in explanation.fallbacks if entry["graph"] == number]
        here.fallbacks = dict(Counter(here.fallbacks) + Counter(entry["op"] for entry in fallbacks))
        here.reasons |= {entry["op"]: entry["reason"] for entry in fallbacks}
    return counts


def inference(example: Example, options: dict[str, Any] | None = None) -> Examined:
    with torch.no_grad():
        example.model.eval()
        expected = example.model(*example.inputs)
        actual, explanation = _observed(lambda: example.compile("zefuse", options=options)(*example.inputs))
    return Examined(counts_of(explanation), relative_error(actual, expected), graph_breaks=explanation.graph_breaks)


def training(example: Example, options: dict[str, Any] | None = None) -> Examined:
    """One step (dropout on, the same seed): the loss, every gradient and every buffer against eager's."""
    ours = example.model.train()
    theirs, start = copy.deepcopy(ours), copy.deepcopy(ours)
    torch.manual_seed(1)
    expected = example.step(theirs)
    torch.manual_seed(1)
    actual, explanation = _observed(lambda: example.step(example.compile("zefuse", options=options)))
    error = max(relative_error(actual, expected), tensors_error(list(ours.buffers()), list(theirs.buffers())))
    gradients = gradient_error(ours, theirs)
    exact = None
    if error > OUTPUT_ERROR or gradients > GRADIENT_ERROR:
        double = start.double()
        torch.manual_seed(1)
        loss = _in_double(example, double).step(double)
        exact = {
            name: (
                max(
                    relative_error(value, loss.to(value.dtype)),
                    tensors_error(list(model.buffers()), list(double.buffers())),
                ),
                gradient_error(model, double),
            )
            for name, model, value in (("ours", ours, actual), ("eager", theirs, expected))
        }
    return Examined(counts_of(explanation), error, gradients, explanation.graph_breaks, exact)


def _in_double(example: Example, model: torch.nn.Module) -> Example:
    def widen(inputs: tuple[torch.Tensor, ...] | None) -> tuple[torch.Tensor, ...] | None:
        return inputs and tuple(x.double() if x.is_floating_point() else x for x in inputs)

    inputs = widen(example.inputs) or ()
    return replace(example, model=model, inputs=inputs, training_inputs=widen(example.training_inputs))


def gradient_error(ours: torch.nn.Module, theirs: torch.nn.Module) -> float:
    return tensors_error([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])


def tensors_error(ours: Sequence[torch.Tensor | None], theirs: Sequence[torch.Tensor | None]) -> float:
    """The largest error of any tensor relative to its own scale; infinite where there is one and should be none.

    Some are zero but for rounding (the gradient of a key's bias before softmax, the running mean of what a linear layer made of
    normalized values) and have no scale of their own: where a tensor's largest number is below a thousandth of the
    largest of all, that is its scale. Integers must be equal.
    """
    floor = max((1e-3 * t.abs().max().item() for t in theirs if t is not None and t.is_floating_point()), default=0.0)
    worst = 0.0
    for actual, expected in zip(ours, theirs, strict=True):
        if expected is None and actual is None:
            continue
        if expected is None or actual is None or not torch.isfinite(actual).all():
            return float("inf")
        if not expected.is_floating_point():
            worst = max(worst, 0.0 if torch.equal(actual, expected) else float("inf"))
            continue
        worst = max(worst, (actual - expected).abs().max().item() / max(expected.abs().max().item(), floor))
    return worst


@contextmanager
def observing(kinds: list[str]) -> Iterator[None]:
    """Appends the kind of each graph that is compiled inside."""
    with backend.observe(lambda kind, _: kinds.append(kind)):
        yield


def _observed(run: Callable[[], Any]) -> tuple[Any, Explanation]:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    explanation = Explanation()
    before = Counter(counters["graph_break"])
    with backend.observe(explanation.add):
        result = run()
    explanation.graph_breaks = dict(Counter(counters["graph_break"]) - before)
    return result, explanation
