"""Where a compiled model's time goes, in one sentence: compiling, work between steps, fallbacks, memory, arithmetic, small kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zefuse.wording import Rows, counted, duration, printed

if TYPE_CHECKING:
    from zefuse.options import Options

_NEAR = 0.4  # of a peak: so near that the peak is what holds a step back
_CALLS = 20

_ADVICE = {
    "between steps": "guards, Python and allocation: call with larger batches, or serve a package (zefuse compile)",
    "fallbacks": "operators without a kernel, which ATen runs: zefuse.explain says why",
    "memory": "the machine's bandwidth is the limit: bf16 or quantized weights move less",
    "arithmetic": "the machine's arithmetic is the limit: bf16, more threads or a smaller model",
    "small steps": "steps too small to reach a limit of the machine: larger batches, or fewer and larger operators",
}


@dataclass
class StepProfile:
    """Seconds a call, of all steps of one name. ``bound``: a key of the advice, without "between steps"."""

    name: str
    kind: str  # kernel, call or fallback
    times: int
    seconds: float
    bytes: int
    flops: int
    bound: str


@dataclass
class Profile:
    """``call`` and ``compiling`` in seconds, ``bandwidth`` in bytes a second, ``arithmetic`` in operations a second."""

    name: str
    threads: int
    compiling: float
    call: float
    bandwidth: float
    arithmetic: float
    steps: list[StepProfile] = field(default_factory=list)

    def shares(self) -> dict[str, float]:
        """Of a call, by what holds it back, the largest first."""
        sums = dict.fromkeys(_ADVICE, 0.0)
        for step in self.steps:
            sums[step.bound] += step.seconds
        inside = sum(sums.values())
        whole = max(self.call, inside)
        sums["between steps"] = whole - inside
        return dict(sorted(((name, seconds / whole) for name, seconds in sums.items()), key=lambda item: -item[1]))

    def sentence(self) -> str:
        """The bottleneck."""
        if not self.steps:
            return "Nothing was compiled, so there is nothing to profile; zefuse.explain says why."
        (what, share), *_ = self.shares().items()
        goes = "is spent between steps" if what == "between steps" else f"goes to {what}"
        text = (
            f"{share:.0%} of a call ({duration(self.call)}, {counted(self.threads, 'thread')}) {goes}: {_ADVICE[what]}."
        )
        calls = self.compiling / self.call
        return text + (f" Compiling took as long as {calls:,.0f} calls." if calls >= 1 else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in vars(self).items() if name != "steps"},
            "steps": [vars(step) for step in self.steps],
            "shares": self.shares() if self.steps else {},
            "sentence": self.sentence(),
        }

    def save(self, path: str) -> str:
        """Writes the roofline as a picture (SVG). Returns the path."""
        from zefuse.profiling.roofline import picture

        with open(path, "w", encoding="utf-8") as file:
            file.write(picture(self))
        return path

    def __str__(self) -> str:
        return printed(self)

    __repr__ = __str__

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        numbers = ("times", "time", "share", "GB/s", "GFLOP/s")
        table = Rows(f"zefuse profile: {self.name}", ("step", *numbers, "held back by"), key="step", numeric=numbers)
        inside = sum(step.seconds for step in self.steps)  # more than a call where other work came between
        for step in self.steps[:15]:
            rates = [f"{number / step.seconds / 1e9:.1f}" if number else "" for number in (step.bytes, step.flops)]
            share = f"{step.seconds / max(self.call, inside, 1e-12):.0%}"
            table.add_row(step.name, str(step.times), duration(step.seconds), share, *rates, step.bound)
        if self.steps:
            yield table
        yield Text(f"This machine: {self.bandwidth / 1e9:.1f} GB/s, {self.arithmetic / 1e9:.0f} GFLOP/s in f32.")
        yield Text(self.sentence())


def profile(
    model: Any,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | Options | None = None,
) -> Profile:
    """Compiles a copy of the model and times its calls without gradients, then each step. ``inputs`` as for ``zefuse.check``.

    Raises InvalidArgumentError for inputs that do not fit and where the model fails in eager, and OptionError.
    """
    import torch

    from zefuse import peaks
    from zefuse.checking.subject import Subject
    from zefuse.explaining.explanation import Explanation, fresh, watch
    from zefuse.options import Options

    checked = Options.make(options)
    subject = Subject.of(model, inputs, kwargs).copy()
    subject.require_eager()
    explanation = Explanation()
    calls = []
    with torch.no_grad(), watch(explanation, checked) as graphs:
        compiled = torch.compile(fresh(subject.model), backend="zefuse", options=checked.to_dict())
        for number in range(_CALLS + 2):
            began = time.perf_counter()
            compiled(*subject.args, **subject.kwargs)
            calls.append(time.perf_counter() - began)
            if number == 1 and not graphs:
                break
        for graph in graphs:
            graph.compiled.time_steps(True)
        for _ in range(_CALLS if graphs else 0):
            compiled(*subject.args, **subject.kwargs)
    steady = statistics.median(calls[2:] or calls[1:])
    made = Profile(
        subject.name,
        torch.get_num_threads(),
        calls[0] - steady,
        steady,
        peaks.bandwidth(torch.get_num_threads()),
        peaks.arithmetic(),
    )
    made.steps = _steps(explanation, made)
    return made


def _steps(explanation: Any, made: Profile) -> list[StepProfile]:
    found: dict[tuple[str, str], StepProfile] = {}
    for kind, entries in (
        ("kernel", explanation.kernels),
        ("call", explanation.calls),
        ("fallback", explanation.fallbacks),
    ):
        for entry in entries:
            name = entry.get("name") or entry.get("op") or entry["kind"]
            step = found.setdefault((kind, name), StepProfile(name, kind, 0, 0.0, 0, 0, ""))
            step.times += 1
            step.seconds += entry.get("seconds", 0.0)
            step.bytes += entry.get("bytes") or 0
            step.flops += entry.get("flops") or 0
    for step in found.values():
        step.bound = _bound(step, made)
    return sorted((step for step in found.values() if step.seconds), key=lambda step: -step.seconds)


def _bound(step: StepProfile, made: Profile) -> str:
    if step.kind == "fallback":
        return "fallbacks"
    if not step.seconds:
        return "small steps"
    of_peak = {
        "memory": step.bytes / step.seconds / made.bandwidth,
        "arithmetic": step.flops / step.seconds / made.arithmetic,
    }
    nearest = max(of_peak, key=lambda name: of_peak[name])
    return nearest if of_peak[nearest] >= _NEAR else "small steps"
