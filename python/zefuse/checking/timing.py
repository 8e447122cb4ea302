"""Whether compiling pays: eager and compiled calls take turns, so that what else the machine does slows all of them."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from zefuse.wording import counted, duration

if TYPE_CHECKING:
    from zefuse.checking.subject import Subject
    from zefuse.options import Options

_SAME = 1.05  # times as fast that nobody would call faster
_MOST_ROUNDS = 200
NAMES = {"eager": "eager", "zefuse": "zefuse", "inductor": "Inductor"}


@dataclass
class Timing:
    """Seconds. ``calls``: of each contender; ``first``: of the first call, compiling included."""

    what: str  # "a call without gradients", "a training step"
    threads: int
    calls: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.calls[name])

    def spread(self, name: str) -> float:
        """Half the distance between the quartiles, over the median: how noisy the machine was."""
        times = self.calls[name]
        if len(times) < 4:
            return 0.0
        low, _, high = statistics.quantiles(times, n=4)
        return (high - low) / 2 / self.median(name)

    def pays_after(self, other: str = "eager") -> int | None:
        """After how many calls compiling has paid, against ``other``; None: never."""
        won = self.median(other) - self.median("zefuse")
        if won <= 0:
            return None
        cost = self.first["zefuse"] - self.first.get(other, self.median(other))
        return max(1, math.ceil(cost / won))

    def sentence(self) -> str:
        if "zefuse" not in self.calls or "eager" not in self.calls:
            return "Whether compiling pays was not measured."
        eager, ours = self.median("eager"), self.median("zefuse")
        times = eager / ours
        # On a noisy machine a small difference says nothing.
        same = max(_SAME, 1 + self.spread("eager") + self.spread("zefuse"))
        figures = (
            f"{duration(ours)} for {self.what} against {duration(eager)} in eager, {counted(self.threads, 'thread')}"
        )
        if times >= same and (after := self.pays_after()) is not None:
            text = (
                f"Compiling pays: {times:.2f} times as fast as eager ({figures}); "
                f"what the first call takes longer ({self.first['zefuse']:.1f} s) is made up for after {counted(after, 'call')}."
            )
        elif times > 1 / same:
            text = f"Compiling does not pay here: no difference beyond what the machine's noise explains ({figures})."
        else:
            text = f"Compiling does not pay here: {1 / times:.2f} times slower than eager ({figures})."
        if "inductor" in self.calls:
            text += f" Inductor: {duration(self.median('inductor'))}, first call {self.first['inductor']:.1f} s."
        return text

    def table(self) -> Any:
        from rich.table import Table

        table = Table()
        for column in ("", "median", "first call", "calls", "against eager"):
            table.add_column(column, justify="right" if column else "left")
        for name, times in self.calls.items():
            against = f"{self.median('eager') / self.median(name):.2f} x" if "eager" in self.calls else ""
            table.add_row(
                NAMES.get(name, name), duration(self.median(name)), duration(self.first[name]), str(len(times)), against
            )
        return table

    def to_dict(self) -> dict[str, Any]:
        medians = {name: self.median(name) for name in self.calls}
        return {**asdict(self), "medians": medians, "sentence": self.sentence()}


def measure(
    what: str, contenders: Mapping[str, Callable[[], Any]], seconds: float, say: Callable[[str], None]
) -> Timing:
    """Calls each contender once, then in turns for about so many seconds, three rounds at least."""
    import torch

    timing = Timing(what, torch.get_num_threads())
    ready: dict[str, Callable[[], Any]] = {}
    for name, call in contenders.items():
        say(f"timing: first call of {NAMES.get(name, name)}")
        began = time.perf_counter()
        try:
            call()
        except Exception as error:  # another compiler's: what it raises is its own
            timing.left_out[name] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            continue
        timing.first[name] = time.perf_counter() - began
        ready[name] = call
    for call in ready.values():  # allocations and packed weights of the second call
        call()
    say("timing: in turns")
    end = time.monotonic() + seconds
    timing.calls = {name: [] for name in ready}
    for number in range(_MOST_ROUNDS):
        if number >= 3 and time.monotonic() > end:
            break
        for name, call in ready.items():
            began = time.perf_counter()
            call()
            timing.calls[name].append(time.perf_counter() - began)
    return timing


def of_model(subject: Subject, options: Options, inductor: bool, seconds: float, say: Callable[[str], None]) -> Timing:
    """Measures a call without gradients, of a model in training mode a step: forward and backward."""
    import torch

    from zefuse.checking import running
    from zefuse.checking.modes import Mode
    from zefuse.explaining.explanation import fresh

    training = subject.training and subject.learns()
    mode = Mode("grad" if training else "no_grad")

    def contender(compile_with: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], Any]:
        prepared = running.prepared_for(subject, mode)
        called: list[Callable[..., Any]] = []

        def call() -> None:
            if not called:
                called.append(compile_with(prepared.model))
            with mode.entered():
                result = called[0](*prepared.args, **prepared.kwargs)
                if training:
                    outputs = [
                        leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)
                    ]
                    sum(output.float().sum() for output in outputs if output.requires_grad).backward()  # type: ignore[union-attr]

        return call

    contenders = {
        "eager": contender(lambda model: model),
        "zefuse": contender(lambda model: running.compiled(model, mode, options)),
    }
    if inductor:
        contenders["inductor"] = contender(lambda model: torch.compile(fresh(model), dynamic=False))
    what = "a training step" if training else "a call without gradients"
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        return measure(what, contenders, seconds, say)
