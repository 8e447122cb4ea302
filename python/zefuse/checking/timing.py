"""Whether compiling pays: eager and compiled calls take turns, so that what else the machine does slows all of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zefuse.wording import counted

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
        figures = f"{_time(ours)} for {self.what} against {_time(eager)} in eager, {counted(self.threads, 'thread')}"
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
            text += f" Inductor: {_time(self.median('inductor'))}, first call {self.first['inductor']:.1f} s."
        return text

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


def _time(seconds: float) -> str:
    return (
        f"{seconds * 1e6:.0f} us"
        if seconds < 1e-3
        else f"{seconds * 1e3:.2f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
    )
