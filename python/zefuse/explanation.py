"""``zefuse.explain(model, *inputs)``: what became of a model, without reading generated code."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

from zefuse.options import Options
from zefuse.skipped import EXPLAINED
from zefuse.wording import counted


@dataclass
class Explanation:
    """What one call of a model compiled to. Lists are in execution order; each entry's ``graph`` numbers its graph.

    kernels: ``{"graph", "name", "ops", "sources", "bytes", "schedule", "target"}``: one launch each
    calls: ``{"graph", "kind", "ops", "sources", "bytes"}``: library calls (oneDNN); ``"left_out"``: why what follows is no epilogue
    fallbacks: ``{"graph", "op", "reason", "sources"}``: operators that run through ATen, and why
    not_joined: ``{"graph", "first", "second", "reason"}``: kernels (numbers among their graph's) that fusion left apart
    graphs: ``{"graph", "kind", "symbols", "inputs", "stages", "counters"}``: kind is inference, forward or backward
    stages: seconds per compilation stage, over all graphs
    graph_breaks: reason -> how often Dynamo broke the graph for it
    skipped: function -> why Dynamo left all of it to Python, which is no graph break
    nothing_compiled: where there is no graph: why, and what to do; else empty

    With ``explain(timed_calls=n)``, kernels, calls and fallbacks also have ``"seconds"``, the mean of n calls by the clock, and
    ``"thread_seconds"``, the calling thread's processor time (all of the work under ``OMP_NUM_THREADS=1``).
    """

    kernels: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    fallbacks: list[dict[str, Any]] = field(default_factory=list)
    not_joined: list[dict[str, Any]] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    graph_breaks: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    nothing_compiled: str = ""
    device: str = "cpu"
    result: Any = field(default=None, repr=False)
    """What the call returned; not part of ``to_dict()``."""

    def add(self, kind: str, compiled: Any) -> None:
        """Adds the report of one compiled graph."""
        report = compiled.report()
        number = len(self.graphs)
        times = compiled.step_times()
        for name in ("kernels", "calls", "fallbacks"):
            for entry in report[name]:
                step = entry.pop("step", None)  # None: it runs in eager, between plans
                if times and step is not None and (calls := times[step][0]):
                    entry["seconds"], entry["thread_seconds"] = (total / calls for total in times[step][1:])
                getattr(self, name).append({"graph": number, **entry})
        self.not_joined.extend({"graph": number, **entry} for entry in report.get("not_joined", ()))
        for stage, seconds in report["stages"].items():
            self.stages[stage] = self.stages.get(stage, 0.0) + seconds
        self.graphs.append(
            {
                "graph": number,
                "kind": kind,
                "symbols": report.get("symbols", []),
                "inputs": report.get("inputs", []),
                "stages": report["stages"],
                "counters": compiled.counters(),
            }
        )

    @classmethod
    def of(cls, compiled: Any, kind: str = "inference") -> Explanation:
        """The explanation of one compiled graph (or of a loaded package's)."""
        explanation = cls()
        explanation.add(kind, compiled)
        return explanation

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``json.dumps`` takes it."""
        return {
            "device": self.device,
            "kernels": self.kernels,
            "calls": self.calls,
            "fallbacks": self.fallbacks,
            "not_joined": self.not_joined,
            "graphs": self.graphs,
            "stages": self.stages,
            "graph_breaks": self.graph_breaks,
            "skipped": self.skipped,
            "nothing_compiled": self.nothing_compiled,
        }

    def _apart(self) -> list[tuple[str, ...]]:
        names: dict[int, list[str]] = {}
        for kernel in self.kernels:
            names.setdefault(kernel["graph"], []).append(kernel["name"])
        return [
            (
                str(pair["graph"]),
                names[pair["graph"]][pair["first"]],
                names[pair["graph"]][pair["second"]],
                pair["reason"],
            )
            for pair in self.not_joined
        ]

    def _slowest(self, most: int = 15) -> Any:
        """Where the time goes: steps of one name together, the longest first. Nothing unless calls were timed."""
        sums: dict[tuple[str, str], list[float]] = {}
        steps = [*self.kernels, *self.calls, *self.fallbacks]
        for entry in steps:
            if "seconds" in entry:
                name = entry.get("name") or (_kind(entry) if "kind" in entry else entry["op"])
                of_name = sums.setdefault((str(entry["graph"]), name), [0, 0.0, 0.0])
                for at, part in enumerate((1, entry["seconds"], entry["bytes"] or 0)):
                    of_name[at] += part
        if not sums:
            return
        from rich.table import Table

        total = sum(seconds for _, seconds, _ in sums.values())
        table = Table(title=f"time of steps: {total * 1e3:.3f} ms a call", title_justify="left")
        for column in ("graph", "steps", "name", "ms", "share", "GB/s"):
            table.add_column(column, justify="left" if column == "name" else "right")
        for (graph, name), (number, seconds, moved) in sorted(sums.items(), key=lambda item: -item[1][1])[:most]:
            rate = f"{moved / seconds / 1e9:.1f}" if moved and seconds else ""
            table.add_row(
                graph, f"{number:.0f}", name, f"{seconds * 1e3:.3f}", f"{seconds / max(total, 1e-12):.0%}", rate
            )
        yield table

    def summary(self) -> str:
        """One line: ``2 kernels, 1 library call, 0 fallbacks, 1 graph, 0 graph breaks on cpu``."""

        return (
            f"{counted(len(self.kernels), 'kernel')}, {counted(len(self.calls), 'library call')}, "
            f"{counted(len(self.fallbacks), 'fallback')}, {counted(len(self.graphs), 'graph')}, "
            f"{counted(sum(self.graph_breaks.values()), 'graph break')} on {self.device}"
        )

    def __str__(self) -> str:
        """The tables as plain text; ``rich.print(explanation)`` shows them in the terminal's colours and width."""
        from rich.console import Console

        stream = io.StringIO()
        Console(file=stream, width=140, no_color=True).print(self)
        return stream.getvalue().rstrip()

    __repr__ = __str__

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield f"[bold]zefuse[/bold]: {self.summary()}"
        if self.nothing_compiled:
            yield _plain(f"nothing was compiled: {self.nothing_compiled}")
        # Rows that read the same (the layers of a model) are shown once, with how often they come.
        yield from self._slowest()
        yield from _table(
            "kernels",
            ("graph", "times", "kernel", "operators", "source", "bytes", "schedule"),
            [
                (
                    str(k["graph"]),
                    k["name"],
                    operators(k["ops"]),
                    _lines(k["sources"]),
                    in_bytes(k["bytes"]),
                    k["schedule"],
                )
                for k in self.kernels
            ],
        )
        yield from _table(
            "library calls",
            ("graph", "times", "kind", "operators", "source", "bytes"),
            [
                (str(c["graph"]), _kind(c), operators(c["ops"]), _lines(c["sources"]), in_bytes(c["bytes"]))
                for c in self.calls
            ],
        )
        yield from _table(
            "fallbacks (run through ATen)",
            ("graph", "times", "operator", "reason", "source"),
            [(str(f["graph"]), f["op"], f["reason"], _lines(f["sources"])) for f in self.fallbacks],
        )
        yield from _table(
            "library calls that did not take what follows",
            ("graph", "times", "kind", "reason"),
            [(str(call["graph"]), _kind(call), call["left_out"]) for call in self.calls if "left_out" in call],
        )
        yield from _table(
            "kernels left apart", ("graph", "times", "kernel", "not joined with", "reason"), self._apart()
        )
        for reason, number in self.graph_breaks.items():
            yield _plain(f"graph break ({number}): {reason}")
        for function, reason in self.skipped.items():
            yield _plain(f"skipped by Dynamo, runs in Python: {function}: {reason}")
        if self.stages:
            yield "stages: " + ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in self.stages.items())


def explain(
    model: Callable[..., Any],
    *inputs: Any,
    options: Mapping[str, Any] | Options | None = None,
    timed_calls: int = 0,
    **kwargs: Any,
) -> Explanation:
    """Compiles ``model`` for these inputs, runs it once and says what it became.

    ``kwargs`` are the model's. Runs under the grad mode of the caller: wrap it in ``torch.no_grad()`` to see what
    inference becomes. What the caller compiled before stays as it is.

    ``timed_calls``: after that, so many calls more, whose steps are timed (a training step's backward too, if the caller's
    model runs it). Times are in seconds, sizes in bytes.

    Raises what the model raises, OptionError, and with ``strict`` FallbackError. The result of the call is in ``.result``.
    """
    import torch

    explanation = Explanation()
    checked = Options.make(options)
    explanation.device = checked.device
    target = getattr(model, "_orig_mod", model)  # of a model that is compiled already
    with watch(explanation) as graphs:
        compiled = torch.compile(fresh(target), backend="zefuse", options=checked.to_dict())
        explanation.result = compiled(*inputs, **kwargs)
        for number in range(timed_calls):
            for _, graph in graphs if number == 0 else ():
                graph.time_steps(True)
            compiled(*inputs, **kwargs)
    return explanation


@contextmanager
def watch(explanation: Explanation) -> Iterator[list[tuple[str, Any]]]:
    """What is compiled inside goes into the explanation when the block ends. Gives the graphs with their kinds, as they come."""
    from torch._dynamo.utils import counters

    from zefuse import backend, skipped

    before = Counter(counters["graph_break"])
    graphs: list[tuple[str, Any]] = []
    with backend.observe(lambda kind, graph: graphs.append((kind, graph))), skipped.watch() as left:
        yield graphs
    for kind, graph in graphs:
        explanation.add(kind, graph)
    explanation.graph_breaks = dict(Counter(counters["graph_break"]) - before)
    explanation.skipped = left.functions
    if not graphs:
        explanation.nothing_compiled = left.why_nothing(bool(explanation.graph_breaks))


def _plain(text: str) -> Any:
    """Brackets in it are no markup."""
    from rich.text import Text

    return Text(text)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:
    """A table of the distinct rows in order; the column "times" is put in after the first. Nothing for no rows."""
    from rich.table import Table

    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in ("graph", "times", "bytes") else "left", overflow="fold")
    for row, times in Counter(rows).items():
        table.add_row(row[0], str(times), *row[1:])
    yield table


def fresh(target: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable on a new code object: Dynamo files what it compiles there, and the caller's stays as it is."""

    def renamed(function: FunctionType) -> FunctionType:
        code = function.__code__.replace(co_name=function.__code__.co_name + EXPLAINED)
        copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    if isinstance(target, FunctionType):
        return renamed(target)
    forward = getattr(type(target), "forward", None)
    hooks = getattr(target, "_forward_hooks", None) or getattr(target, "_forward_pre_hooks", None)
    if isinstance(forward, FunctionType) and not hooks and "forward" not in vars(target):
        return MethodType(renamed(forward), target)

    def call(*args: Any, **kwargs: Any) -> Any:  # one frame more: a graph break inside is counted in both
        return target(*args, **kwargs)

    return renamed(call)  # type: ignore[arg-type]


def operators(ops: list[str]) -> str:
    """``["aten.mul.Tensor", "aten.mul.Tensor"]`` -> ``"mul x2"``."""
    names = Counter(op.removeprefix("aten.").removeprefix("aten::").split(".")[0] for op in ops)
    return ", ".join(name if times == 1 else f"{name} x{times}" for name, times in names.items())


def _kind(call: dict[str, Any]) -> str:
    """``matmul + gelu_erf, add``: with what the library does on the way out."""
    return " + ".join(filter(None, (call["kind"], ", ".join(call.get("post_ops", ())))))


def _lines(sources: list[str], most: int = 3) -> str:
    """File names without folders, each line once."""
    distinct = list(dict.fromkeys(source.rsplit("/", 1)[-1] for source in sources))
    return ", ".join(distinct[:most]) + (f" and {len(distinct) - most} more" if len(distinct) > most else "")


def in_bytes(number: int | None) -> str:
    """``None`` where the size depends on a symbol."""
    if number is None:
        return "dynamic"
    for unit in ("B", "KB", "MB"):
        if number < 10000:
            return f"{number:.0f} {unit}"
        number = number / 1000  # type: ignore[assignment]
    return f"{number:.1f} GB"
