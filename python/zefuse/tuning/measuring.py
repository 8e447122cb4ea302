"""Measuring who carries a model's operators out, and the schedules of its kernels, where they run: in the model's own plan, on
its own data.

All kernels of a graph try their next candidate in the same plan, so that a graph is compiled as often as its kernel with the
most candidates has some, and not once for each. A plan whose results differ from the cost model's is taken apart, kernel by
kernel, to find whose candidate it is.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from zefuse import _native, tuning
from zefuse.checking import comparing
from zefuse.checking.running import Outcome
from zefuse.checking.subject import Subject
from zefuse.errors import DeadlineError, DeviceError, UnsupportedError, ZefuseError
from zefuse.explaining.explanation import fresh, run_backward
from zefuse.graphs import observers, seeds
from zefuse.options import Options
from zefuse.tuning.operators import OperatorTuner
from zefuse.tuning.rows import Choice, Kernel, Limits, Stop
from zefuse.wording import Rows, counted, duration, printed

if TYPE_CHECKING:
    from zefuse.tuning import Table

_GAIN = 0.97  # of the cost model's time, below which a choice is kept: less is noise
_SHARE = 0.01  # of a call's steps, below which a kernel is not worth measuring
_CALLS = 7  # of a candidate; the least time of each step counts
_ROUNDS = 9  # in which what won and the cost model's take turns at the end
_HOPELESS = 3.0  # times the cost model's time of a first call, after which a candidate has no second one


@dataclass
class Tuned:
    """What ``tune`` found. ``stopped``: why it ended early, else empty."""

    name: str
    device: str
    kernels: list[Kernel]
    kept_in: str
    left_out: list[str] = field(default_factory=list)
    stopped: str = ""

    def sentence(self) -> str:
        quicker = [kernel for kernel in self.kernels if kernel.choice]
        tried = sum(kernel.tried for kernel in self.kernels)
        groups = []
        for word, operators in (("kernel", False), ("operator", True)):
            rows = [kernel for kernel in self.kernels if kernel.is_operator == operators]
            kept = sum(bool(kernel.choice) for kernel in rows)
            if not operators or any(kernel.tried for kernel in rows):
                groups.append(f"{counted(kept, word)} of {len(rows)}")
        text = (
            f"{' and '.join(groups)} quicker than by the cost model, of {counted(tried, 'candidate')} on {self.device}"
        )
        if self.kept_in and quicker:
            text += f"; kept in {self.kept_in}"
        elif quicker:
            text += "; kept nowhere: there is no cache folder"
        return text + "."

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence()}

    def __str__(self) -> str:
        return printed(self)

    __repr__ = __str__

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        numbers = ("launches", "before", "after", "tried")
        table = Rows(f"zefuse tune: {self.name}", ("kernel", *numbers, "choice"), key="kernel", numeric=numbers)
        for kernel in sorted(self.kernels, key=lambda kernel: -kernel.before * kernel.launches):
            words = kernel.said() or kernel.left or "the cost model's"
            after = duration(kernel.after) if kernel.choice else ""
            table.add_row(kernel.name, str(kernel.launches), duration(kernel.before), after, str(kernel.tried), words)
        yield table
        for kernel in self.kernels:
            for line in kernel.discarded:
                yield Text(f"discarded: {kernel.name}: {line}")
        for line in self.left_out:
            yield Text(f"not tuned: {line}")
        if self.stopped:
            yield Text(f"stopped early: {self.stopped}")
        yield Text(self.sentence())


def tune(
    model: Any,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | Options | None = None,
    training: bool = False,
    limits: Limits | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Compiles a copy of the model, measures its kernels' candidates, and keeps what is quicker in the cache.

    ``inputs`` as for ``zefuse.check``. ``training``: with gradients, the backward graph too. Raises NotFoundError for a device that
    is not there, InvalidArgumentError for inputs that do not fit and where the model fails in eager, and OptionError.
    """
    checked = Options.make(options)
    limits = limits or Limits()
    values = checked.to_dict()
    device = values["device"]
    tuning.fields(device)
    end = time.monotonic() + limits.seconds
    subject = Subject.of(model, inputs, kwargs).copy()
    subject.require_eager()
    progress(f"compiling {subject.name}")
    graphs, left_out = _graphs(subject, checked, training)
    folder = tuning.folder_of(values)
    found = Tuned(subject.name, device, [], folder, left_out)
    # What loses is of no use to anybody: its code is not kept in the user's cache.
    with tempfile.TemporaryDirectory(prefix="zefuse-tune-") as scratch:
        own = {key: value for key, value in values.items() if key not in ("package", "package_only", "dump_dir")}
        own |= {"cache_dir": scratch, "list_decisions": True, "device_timeout_s": limits.deadline, "package": ""}
        for number, graph in enumerate(graphs):
            if found.stopped:
                break
            tuner = _GraphTuner(number, graph, own, limits, end, progress)
            try:
                tuner.run()
            except (DeviceError, DeadlineError) as error:
                found.stopped = str(error).splitlines()[0]
            found.kernels += [*tuner.kernels.values(), *tuner.operators.values()]
            found.stopped = found.stopped or tuner.stopped
    quicker: Table = {
        kernel.key: {
            "name": kernel.name,
            "choice": kernel.choice,
            "before_us": round(kernel.before * 1e6, 3),
            "after_us": round(kernel.after * 1e6, 3),
        }
        for kernel in found.kernels
        if kernel.choice
    }
    # Of what was not tried to its end, an earlier choice stays unless there is a better one.
    measured = list(quicker) if found.stopped else [kernel.key for kernel in found.kernels if kernel.tried]
    if folder and measured:
        tuning.update(folder, (values["cache_limit_mb"] or 2048) << 20, device, measured, quicker)
    return found


@dataclass
class _Graph:
    """A graph that became one plan, and what it was called with."""

    kind: str
    module: Any
    parameters: Sequence[int]
    arguments: list[Any] | None = None


def _graphs(subject: Subject, options: Options, training: bool) -> tuple[list[_Graph], list[str]]:
    """The graphs of a call, and what of it cannot be tuned."""
    graphs: list[_Graph] = []
    left_out: list[str] = []
    parts: list[tuple[Any, Sequence[int]]] = []

    def record(kind: str, compiled: Any, module: Any) -> Any:
        made_of = [*parts]
        parts.clear()
        if len(made_of) != 1 or not hasattr(compiled, "step_times"):
            left_out.append(f"a graph of {counted(len(made_of), 'part')}, between which operators run in eager")
        graph = _Graph(kind, *made_of[0]) if made_of else _Graph(kind, None, [])
        if made_of and len(made_of) == 1:
            graphs.append(graph)

        def run(arguments: list[Any]) -> Any:
            if graph.arguments is None:
                graph.arguments = [*arguments, compiled.draw()] if isinstance(compiled, seeds.Seeded) else [*arguments]
                for at, value in enumerate(graph.arguments):  # an activation may be written or freed later
                    if isinstance(value, torch.Tensor) and at not in graph.parameters:
                        graph.arguments[at] = _copied(value)
            return compiled(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    tokens = (
        observers.recorder.set(record),
        observers.captured_graphs.set(lambda module, parameters: parts.append((module, list(parameters)))),
    )
    try:
        with torch.set_grad_enabled(training):
            compiled = torch.compile(fresh(subject.model), backend="zefuse", options=options.to_dict())
            result = compiled(*subject.args, **subject.kwargs)
            if training:
                run_backward(result, subject.model, (subject.args, subject.kwargs))
    finally:
        observers.recorder.reset(tokens[0])
        observers.captured_graphs.reset(tokens[1])
    if not graphs and not left_out:
        left_out.append("nothing was compiled; zefuse.explain says why")
    return [graph for graph in graphs if graph.arguments is not None], left_out


class _GraphTuner:
    def __init__(
        self,
        number: int,
        graph: _Graph,
        values: Mapping[str, Any],
        limits: Limits,
        end: float,
        progress: Callable[[str], None],
    ) -> None:
        self._number, self._graph, self._values, self._limits, self._end = number, graph, values, limits, end
        self._progress = progress
        self.kernels: dict[str, Kernel] = {}
        self.operators: dict[str, Kernel] = {}
        self._table: dict[str, Choice] = {}  # of operators
        self.stopped = ""

    def run(self) -> None:
        self._base = self._compile({})
        if self._values["device"] == "cpu":
            self._choose_operators()
        candidates = self._candidates()
        times, self._expected = self._measure(self._base, None)
        if self._base.counters()["library_calls"]:
            for kernel in self._base.report()["kernels"]:
                if kernel["library"]:
                    candidates[self._steps[kernel["step"]]] = []
                    self.kernels[self._steps[kernel["step"]]].left = "the device's library has it"
        for key, seconds in times.items():
            self.kernels[key].before = seconds
        whole = sum(times[key] * self.kernels[key].launches for key in times)
        for key, kernel in self.kernels.items():
            if candidates[key] and times[key] * kernel.launches < _SHARE * whole:
                kernel.left = "too short to matter"
                candidates[key] = []
        best = dict(times)
        quicker: dict[str, list[tuple[float, Choice]]] = {key: [] for key in candidates}
        with contextlib.suppress(Stop):
            for number in range(max(map(len, candidates.values()), default=0)):
                row = {key: each[number] for key, each in candidates.items() if number < len(each)}
                for key, seconds in self._try(row).items():
                    if seconds < best[key] * _GAIN:
                        quicker[key].append((seconds, row[key]))
            # What was quicker alone may be quicker together.
            row = {key: _together(found) for key, found in quicker.items() if len({*_names(found)}) > 1}
            for key, seconds in self._try(row).items() if row else ():
                quicker[key].append((seconds, row[key]))
        self._confirm({key: min(found, key=lambda each: each[0])[1] for key, found in quicker.items() if found})

    def _choose_operators(self) -> None:
        """Before the schedules of the kernels that are left then."""
        self._expected = self._call(self._base)
        tuner = OperatorTuner(self._number, _Measured(self), self._limits, self._end, self._progress)
        try:
            tuner.run(self._base)
        except Stop:
            self._out_of_time()
        finally:
            self.operators, self._table = tuner.rows, tuner.chosen
        if self._table:
            self._base = self._compile({})

    def _out_of_time(self) -> None:
        self.stopped = "the time that --seconds gave was over"

    def _compile(self, table: Mapping[str, Choice]) -> Any:
        table = {**self._table, **table}
        text = tuning.as_text({key: {"choice": choice} for key, choice in table.items()}) if table else ""
        values = {**self._values, "tuning": text}
        return _native.load().compile(self._graph.module, list(self._graph.parameters), values)

    def _candidates(self) -> dict[str, list[Choice]]:
        """One number changed in each."""
        found: dict[str, list[Choice]] = {}
        self._steps: dict[int, str] = {}
        report = self._base.report()
        self._keys = [launch["key"] for launch in report["decisions"]]
        for launch, kernel in zip(report["decisions"], report["kernels"], strict=True):
            key = launch["key"]
            self._steps[kernel["step"]] = key
            made = self.kernels.setdefault(key, Kernel(key, launch["name"], self._number))
            made.launches += 1
            found[key] = [
                {decision["name"]: number}
                for decision in launch["decisions"]
                for number in decision["choices"]
                if number != decision["taken"]
            ]
            if not found[key]:
                made.left = "its schedule has no choice"
        return found

    def _try(self, row: Mapping[str, Choice]) -> dict[str, float]:
        """Seconds a launch of each kernel with its candidate, of those whose results are right."""
        if time.monotonic() > self._end:
            self._out_of_time()
            raise Stop
        self._progress(f"graph {self._number}: {counted(len(row), 'kernel')} with another schedule")
        for key in row:
            self.kernels[key].tried += 1
        problem = ""
        try:
            compiled = self._compile(row)
            if [launch["key"] for launch in compiled.report()["decisions"]] != self._keys:
                raise UnsupportedError("it has no such schedule, and would be divided")
            times, outcome = self._measure(compiled, self._expected)
            differences = comparing.compare(outcome, self._expected, None).differences
            if not differences:
                return {key: times[key] for key in row} if times else self._apart(row)
            problem = f"wrong values: {differences[0]}"
        except (DeviceError, DeadlineError):
            raise
        except ZefuseError as error:
            problem = str(error).splitlines()[0]
        if len(row) > 1:
            return self._apart(row)
        for key, choice in row.items():
            self.kernels[key].discarded.append(f"{_worded(choice)}: {problem}")
        return {}

    def _apart(self, row: Mapping[str, Choice]) -> dict[str, float]:
        """Each alone: one of them is wrong, does not compile or takes too long."""
        times: dict[str, float] = {}
        for key, choice in row.items() if len(row) > 1 else ():
            self.kernels[key].tried -= 1  # counted once
            times |= self._try({key: choice})
        if len(row) == 1:
            for key, choice in row.items():
                self.kernels[key].discarded.append(f"{_worded(choice)}: not done within {self._limits.deadline} s")
        return times

    def _measure(self, compiled: Any, expected: Outcome | None) -> tuple[dict[str, float], Outcome]:
        """Seconds a launch by kernel, the least of several calls, and what the first one returned; no seconds where that
        missed the deadline."""
        began = time.monotonic()
        outcome = self._call(compiled)
        least: dict[int, float] = {}
        for number in range(_CALLS):
            self._timed(compiled, least)
            late = time.monotonic() - began > self._limits.deadline
            if late and expected is not None:
                return {}, outcome
            if late or (expected is not None and number == 0 and self._hopeless(least)):
                break
        return self._by_kernel(least), outcome

    def _hopeless(self, least: Mapping[int, float]) -> bool:
        times = self._by_kernel(least)
        return all(times[key] > _HOPELESS * self.kernels[key].before for key in times if self.kernels[key].tried)

    def _timed(self, compiled: Any, least: dict[int, float]) -> None:
        compiled.time_steps(True)
        self._call(compiled)
        for step, (calls, seconds, _) in enumerate(compiled.step_times()):
            if calls:
                least[step] = min(least.get(step, seconds), seconds)
        compiled.time_steps(False)

    def _by_kernel(self, least: Mapping[int, float]) -> dict[str, float]:
        sums = dict.fromkeys(self.kernels, 0.0)
        for step, key in self._steps.items():
            sums[key] += least.get(step, 0.0) / self.kernels[key].launches
        return sums

    def _call(self, compiled: Any) -> Outcome:
        """With the arguments as they were, and the same random numbers."""
        arguments = self._arguments(compiled)
        outcome = Outcome()
        given = [*arguments]
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            outcome.add("output", compiled(given))
        outcome.add("input afterwards", [arguments[at] for at in self._written])
        return outcome

    def _arguments(self, compiled: Any) -> list[Any]:
        if not hasattr(self, "_written"):
            inputs = json.loads(compiled.plan_json()).get("inputs", [])
            assert self._graph.arguments is not None
            count = len(self._graph.arguments)
            self._written = [at for at, each in enumerate(inputs) if each.get("written") and at < count]
        arguments = list(self._graph.arguments or ())
        for at in self._written:
            arguments[at] = _copied(arguments[at])
        return arguments

    def _confirm(self, winners: dict[str, Choice]) -> None:
        """The cost model's choice and what won take turns; what does not win again is not kept."""
        while winners:
            compiled = self._compile(winners)
            if comparing.compare(self._call(compiled), self._expected, None).differences:
                # Each was right alone.
                key, choice = winners.popitem()
                self.kernels[key].discarded.append(f"{_worded(choice)}: wrong values together with others")
                continue
            before: dict[int, float] = {}
            after: dict[int, float] = {}
            for _ in range(_ROUNDS):
                self._timed(self._base, before)
                self._timed(compiled, after)
            by_model, by_choice = self._by_kernel(before), self._by_kernel(after)
            schedules = {self._steps[each["step"]]: each["schedule"] for each in compiled.report()["kernels"]}
            for key, choice in winners.items():
                kernel = self.kernels[key]
                if by_choice[key] < by_model[key] * _GAIN:
                    kernel.before, kernel.after, kernel.choice = by_model[key], by_choice[key], choice
                    kernel.schedule = schedules[key]
            return


class _Measured:
    """What the tuner of operators asks of a graph."""

    def __init__(self, tuner: _GraphTuner) -> None:
        self._tuner = tuner
        self.compile, self.call, self.timed = tuner._compile, tuner._call, tuner._timed

    def differences(self, outcome: Outcome) -> Sequence[str]:
        return [str(each) for each in comparing.compare(outcome, self._tuner._expected, None).differences]


def _names(found: Sequence[tuple[float, Choice]]) -> Iterator[str]:
    for _, choice in found:
        yield from choice


def _together(found: Sequence[tuple[float, Choice]]) -> Choice:
    """The quickest number of each decision."""
    made: Choice = {}
    for _, choice in sorted(found, key=lambda each: -each[0]):
        made |= choice
    return made


def _worded(choice: Choice) -> str:
    return ", ".join(f"{name} {number}" for name, number in choice.items())


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value.detach())
