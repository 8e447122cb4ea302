"""Who carries an operator out: the cost model's choice, eager's operator, a kernel of our own, or another of the library's ways
(compiler/import/implementations.h). Measured in the model's own plan, one operator after the other.

An operator's step may hold others too, and another plan may divide them differently: what is compared is the time of the
smallest parts of both plans that compute the same nodes of the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from zefuse.errors import DeadlineError, DeviceError, ZefuseError
from zefuse.tuning.rows import Choice, Kernel, Limits, Stop
from zefuse.wording import duration

DECISION = "implementation"
EAGER = 1  # its number: Implementation::eager

_GAIN = 0.95  # of the time before, below which a choice is kept: less is noise
_SHARE = 0.02  # of a call's steps, below which an operator is not worth measuring
_CALLS = 7  # in which both take turns; the least time of each step counts
_HOPELESS = 2.0  # times the time before of a first call, after which there is no second one


class Measured(Protocol):
    """A graph whose plans are compiled and run."""

    def compile(self, table: Mapping[str, Choice]) -> Any: ...

    def call(self, compiled: Any) -> Any: ...

    def timed(self, compiled: Any, least: dict[int, float]) -> None: ...

    def differences(self, outcome: Any) -> Sequence[str]: ...


class OperatorTuner:
    """``rows``: what was found, by key. ``chosen``: what is kept."""

    def __init__(
        self, number: int, graph: Measured, limits: Limits, end: float, progress: Callable[[str], None]
    ) -> None:
        self._number, self._graph, self._limits, self._end, self._progress = number, graph, limits, end, progress
        self.rows: dict[str, Kernel] = {}
        self.chosen: dict[str, Choice] = {}

    def run(self, base: Any) -> None:
        """``base``: by the cost model. Raises Stop."""
        self._base = base
        self._graph.call(base)
        self._least: dict[int, float] = {}
        for _ in range(_CALLS):
            self._graph.timed(base, self._least)
        nodes, choices = self._operators()
        whole = sum(self._least.values())
        for key in sorted(nodes, key=lambda key: -self._seconds(nodes[key])):
            row, before = self.rows[key], self._seconds(nodes[key])
            if before < _SHARE * whole:
                row.left = "too short to matter"
                continue
            row.before = before / row.launches
            for words, number in choices[key].items():
                if time.monotonic() > self._end:
                    raise Stop
                self._progress(f"graph {self._number}: {row.name} by {words}")
                row.tried += 1
                self._try(row, nodes[key], words, number)

    def _operators(self) -> tuple[dict[str, set[str]], dict[str, dict[str, int]]]:
        """Of each key: its nodes, and what there is to try."""
        report = self._base.report()
        in_eager = {node for each in report["fallbacks"] for node in report["nodes"][each["step"]]}
        nodes: dict[str, set[str]] = {}
        choices: dict[str, dict[str, int]] = {}
        for each in report["operators"]:
            key, name = each["key"], each["node"]
            # What runs in eager already has a kernel to try, if any.
            choices.setdefault(key, {}).update(
                {words: number for words, number in each["choices"].items() if name not in in_eager or number > EAGER}
            )
            nodes.setdefault(key, set()).add(name)
            self.rows.setdefault(key, Kernel(key, each["op"], self._number)).launches += 1
        for key in [key for key in nodes if not choices[key]]:
            del nodes[key], self.rows[key]
        return nodes, choices

    def _seconds(self, nodes: Iterable[str]) -> float:
        steps = self._base.report()["nodes"]
        return sum(self._least.get(at, 0.0) for at, each in enumerate(steps) if not {*each}.isdisjoint(nodes))

    def _try(self, row: Kernel, nodes: set[str], words: str, number: int) -> None:
        try:
            compiled = self._graph.compile({**self.chosen, row.key: {DECISION: number}})
            began = time.monotonic()
            differences = self._graph.differences(self._graph.call(compiled))
        except (DeviceError, DeadlineError):
            raise
        except ZefuseError as error:
            row.discarded.append(f"{words}: {str(error).splitlines()[0]}")
            return
        if differences:
            row.discarded.append(f"{words}: wrong values: {differences[0]}")
            return
        ours, theirs = same_parts(self._base.report()["nodes"], compiled.report()["nodes"], nodes)
        before: dict[int, float] = {}
        after: dict[int, float] = {}
        for number_of_call in range(_CALLS):
            self._graph.timed(compiled, after)
            if time.monotonic() - began > self._limits.deadline:
                row.discarded.append(f"{words}: not done within {self._limits.deadline} s")
                return
            if number_of_call == 0 and _sum(after, theirs) > _HOPELESS * _sum(self._least, ours):
                return
            self._graph.timed(self._base, before)
        by_base, by_choice = _sum(before, ours), _sum(after, theirs)
        if by_choice >= _GAIN * by_base:
            return
        first = not row.choice
        row.before = by_base / row.launches if first else row.before
        row.after = by_choice / row.launches
        row.choice, row.words = {DECISION: number}, words
        self.chosen[row.key] = row.choice
        self._base, self._least = compiled, after
        self._progress(f"{row.name}: {words}, {duration(by_base)} -> {duration(by_choice)}")


def same_parts(
    first: Sequence[Sequence[str]], second: Sequence[Sequence[str]], nodes: Iterable[str]
) -> tuple[list[int], list[int]]:
    """The steps of two plans, given by the nodes that each computes, that have to do with ``nodes``: the smallest parts of both
    that compute the same."""
    grown = {*nodes}
    while True:
        more = grown.union(*(each for steps in (first, second) for each in steps if not grown.isdisjoint(each)))
        if more == grown:
            break
        grown = more
    at = [[at for at, each in enumerate(steps) if not grown.isdisjoint(each)] for steps in (first, second)]
    return at[0], at[1]


def _sum(least: Mapping[int, float], steps: Iterable[int]) -> float:
    return sum(least.get(step, 0.0) for step in steps)
