"""``zefuse.explain(model, *inputs)``: what became of a model, without reading generated code."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from zefuse.errors import InvalidArgumentError, ZefuseError
from zefuse.explaining.dynamo_events import EXPLAINED, in_one_line
from zefuse.explaining.plan_json import PlanJson
from zefuse.explaining.report_words import call_kind, in_bytes, operators, places
from zefuse.graphs import observers
from zefuse.options import Options
from zefuse.wording import Rows, counted

_MOST_REASONS = 10  # of what the cache did not have


@dataclass
class Explanation:
    """What one call of a model compiled to. Lists are in execution order; each entry's ``graph`` numbers its graph.

    - kernels: ``{"graph", "name", "ops", "sources", "modules", "bytes", "schedule", "target", "library"}``: one launch each; ``modules``
      are the paths of the modules that the operators are in, ``library``: the vendor's library takes it where that is there
    - calls: ``{"graph", "kind", "ops", "sources", "modules", "bytes"}``: library calls (oneDNN); ``"left_out"``: why what follows is
      no epilogue
    - fallbacks: ``{"graph", "op", "reason", "sources"}``: operators that run through ATen, and why
    - not_joined: ``{"graph", "first", "second", "reason"}``: kernels (numbers among their graph's) that fusion left apart
    - graphs: ``{"graph", "kind", "symbols", "inputs", "stages", "counters"}``: kind is inference, forward or backward
    - stages: seconds per compilation stage, over all graphs
    - graph_breaks: reason -> how often Dynamo broke the graph for it
    - breaks: ``{"reason", "source", "line"}``: where in the user's code; a break before the first operator of a graph has no entry
    - recompiles: ``{"function", "reason"}``: what was compiled again, and the guard that failed with its old and new value
    - cache: ``{"hits", "misses", "why"}``: native code found and made; of what was made, the field of its key that was new
    - skipped: function -> why Dynamo left all of it to Python, which is no graph break
    - nothing_compiled: where there is no graph: why, and what to do; else empty

    Each kernel, call and fallback has ``"flops"`` too, where sizes are known: of products exactly, of kernels one for each operator
    and element.

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
    breaks: list[dict[str, str]] = field(default_factory=list)
    recompiles: list[dict[str, str]] = field(default_factory=list)
    cache: dict[str, Any] = field(default_factory=dict)
    nothing_compiled: str = ""
    device: str = "cpu"
    result: Any = field(default=None, repr=False)
    """What the call returned; not part of ``to_dict()``."""
    drawn: list[Drawn] = field(default_factory=list, repr=False)
    """What ``save`` needs of each graph; not part of ``to_dict()``."""

    def add(self, kind: str, compiled: Any, parts: Sequence[tuple[Any, Sequence[int]]] = ()) -> None:
        """Adds the report of one compiled graph. ``parts``: the graphs and parameters that its plans were made of, for ``save``."""
        report = compiled.report()
        if (place := report.get("place", "cpu")) != "cpu":
            self.device = place
        number = len(self.graphs)
        times = compiled.step_times()
        plans = PlanJson.all(compiled.plan_json()) if hasattr(compiled, "plan_json") else []
        steps = [(plan, step) for plan in plans for step in plan.steps]
        self.drawn.append(Drawn(plans, list(parts)))
        for name in ("kernels", "calls", "fallbacks"):
            for entry in report[name]:
                step = entry.pop("step", None)  # None: it runs in eager, between plans
                if "modules" in entry:  # explain calls the model as a method of it
                    paths = [path.removeprefix("__self__").removeprefix(".") for path in entry["modules"]]
                    entry["modules"] = [path for path in paths if path]
                if step is not None and step < len(steps):
                    entry["flops"] = steps[step][0].flops(steps[step][1])
                    self.drawn[-1].entries[step] = entry
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
                "random": report.get("random", {}),
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
            "breaks": self.breaks,
            "recompiles": self.recompiles,
            "cache": self.cache,
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
                name = entry.get("name") or (call_kind(entry) if "kind" in entry else entry["op"])
                of_name = sums.setdefault((str(entry["graph"]), name), [0, 0.0, 0.0])
                for at, part in enumerate((1, entry["seconds"], entry["bytes"] or 0)):
                    of_name[at] += part
        if not sums:
            return
        total = sum(seconds for _, seconds, _ in sums.values())
        columns = ("graph", "steps", "name", "ms", "share", "GB/s")
        numbers = [column for column in columns if column != "name"]
        table = Rows(f"time of steps: {total * 1e3:.3f} ms a call", columns, key="name", numeric=numbers)
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

    def arithmetic(self) -> dict[str, float]:
        """The share of floating-point operations in library calls, kernels and fallbacks, of steps whose sizes are known; empty where
        none are."""
        sums = {
            name: sum(entry.get("flops") or 0 for entry in entries)
            for name, entries in (
                ("library calls", self.calls),
                ("kernels", self.kernels),
                ("fallbacks", self.fallbacks),
            )
        }
        total = sum(sums.values())
        return {name: number / total for name, number in sums.items() if number} if total else {}

    def save(self, path: str | os.PathLike[str], code: bool = True) -> str:
        """Writes one page of HTML that needs nothing else: the fused graphs drawn, tables, and with ``code`` each kernel's MLIR, SPIR-V
        and assembly, for which the graphs are compiled again. Returns the path."""
        from zefuse import page

        with open(path, "w", encoding="utf-8") as file:
            file.write(page.html(self, code))
        return os.fspath(path)

    def _repr_html_(self) -> str:
        """In a notebook: the page in a frame."""
        from zefuse import page

        return page.frame(self)

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
                    places(k),
                    in_bytes(k["bytes"]),
                    k["schedule"],
                )
                for k in self.kernels
            ],
        )
        yield from _table(
            "library calls",
            ("graph", "times", "kind", "operators", "source", "bytes"),
            [(str(c["graph"]), call_kind(c), operators(c["ops"]), places(c), in_bytes(c["bytes"])) for c in self.calls],
        )
        yield from _table(
            "fallbacks (run through ATen)",
            ("graph", "times", "operator", "reason", "source"),
            [(str(f["graph"]), f["op"], f["reason"], places(f)) for f in self.fallbacks],
        )
        yield from _table(
            "library calls that were measured",
            ("graph", "times", "kind", "choice"),
            [(str(call["graph"]), call_kind(call), call["schedule"]) for call in self.calls if "schedule" in call],
        )
        yield from _table(
            "library calls that did not take what follows",
            ("graph", "times", "kind", "reason"),
            [(str(call["graph"]), call_kind(call), call["left_out"]) for call in self.calls if "left_out" in call],
        )
        yield from _table(
            "kernels left apart", ("graph", "times", "kernel", "not joined with", "reason"), self._apart()
        )
        for graph in self.graphs:
            if random := graph["random"]:
                yield (
                    f"random numbers of graph {graph['graph']}: {counted(random['draws'], 'draw')} in kernels (Philox), by seeds from "
                    f"torch's generator of {random['generator']}"
                )
        for reason, number in self.graph_breaks.items():
            yield _plain(f"graph break ({number}): {in_one_line(reason)}")
        for entry in self.breaks:
            yield _plain("  broken at " + ": ".join(filter(None, (entry["source"], entry["line"]))))
        for entry in self.recompiles:
            yield _plain(f"compiled again: {entry['function']}: {entry['reason']}")
        for function, reason in self.skipped.items():
            yield _plain(f"skipped by Dynamo, runs in Python: {function}: {reason}")
        if shares := self.arithmetic():
            yield "arithmetic: " + ", ".join(f"{share:.0%} in {name}" for name, share in shares.items())
        if self.cache:
            yield f"cache: {counted(self.cache['hits'], 'hit')}, {self.cache['misses']} made"
            for line in self.cache["why"]:
                yield _plain(f"  {line}")
        if self.stages:
            yield "stages: " + ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in self.stages.items())


@dataclass
class Drawn:
    """A graph's plans, the graphs that they were made of, and by step the entries of the explanation."""

    plans: list[PlanJson]
    parts: list[tuple[Any, Sequence[int]]] = field(default_factory=list)
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)
    options: Options | None = None


def explain(
    model: Callable[..., Any],
    *inputs: Any,
    options: Mapping[str, Any] | Options | None = None,
    timed_calls: int = 0,
    target: str | None = None,
    backward: bool | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compiles ``model`` for these inputs, runs it once and says what it became.

    ``kwargs`` are the model's. Runs under the grad mode of the caller: wrap it in ``torch.no_grad()`` to see what
    inference becomes. With gradients on, the backward graph is shown as well, unless ``backward=False``; no ``.grad`` changes.
    What the caller compiled before stays as it is.

    ``target``: a GPU of ``zefuse targets``, which need not be here: the graphs are shown as they would be compiled for it.

    ``timed_calls``: after that, so many calls more, whose steps are timed (a training step's backward too, if the caller's
    model runs it). Times are in seconds, sizes in bytes.

    Raises what the model raises, OptionError, NotFoundError for a target that does not exist, and with ``strict`` FallbackError.
    The result of the call is in ``.result``. What other threads compile meanwhile is not in it, but for graph breaks and
    recompilations, which Dynamo counts for the process.
    """
    import torch

    explanation = Explanation()
    checked = Options.make(options)
    product = None if target is None else _product(target)
    explanation.device = checked.device
    target_model = getattr(model, "_orig_mod", model)  # of a model that is compiled already
    # The result's graph stays for the caller, which torch refuses of one whose saved tensors may be written over.
    kept = torch._functorch.config.patch(donated_buffer=False)
    with watch(explanation, checked, product) as graphs, kept:
        compiled = torch.compile(fresh(target_model), backend="zefuse", options=checked.to_dict())
        explanation.result = compiled(*inputs, **kwargs)
        if backward is not False and torch.is_grad_enabled():
            run_backward(explanation.result, target_model, (inputs, kwargs))
        for number in range(timed_calls):
            for graph in graphs if number == 0 else ():
                graph.compiled.time_steps(True)
            compiled(*inputs, **kwargs)
    return explanation


class Observed(NamedTuple):
    """A graph that was compiled, its kind, and the graphs and parameters that its plans were made of."""

    kind: str
    compiled: Any
    parts: list[tuple[Any, Sequence[int]]]


@contextmanager
def watch(
    explanation: Explanation, options: Options | None = None, product: str | None = None
) -> Iterator[list[Observed]]:
    """What is compiled inside goes into the explanation when the block ends, for the GPU ``product`` if one is named. Gives the graphs
    as they come."""
    from torch._dynamo.utils import counters

    from zefuse.explaining import dynamo_events, skipped

    before = Counter(counters["graph_break"])
    graphs: list[Observed] = []
    parts: list[tuple[Any, Sequence[int]]] = []
    outer = observers.captured_graphs.get()

    def take(graph_module: Any, parameters: Sequence[int]) -> None:
        parts.append((graph_module, tuple(parameters)))
        if outer is not None:
            outer(graph_module, parameters)

    def observe(kind: str, compiled: Any) -> None:
        graphs.append(Observed(kind, compiled, [*parts]))
        parts.clear()

    token = observers.captured_graphs.set(take)
    try:
        with observers.observe(observe), skipped.watch() as left, dynamo_events.watch() as events:
            yield graphs
    finally:
        observers.captured_graphs.reset(token)
    for kind, compiled, made_of in graphs:
        if product is None:
            explanation.add(kind, compiled, made_of)
            explanation.drawn[-1].options = options
            continue
        from zefuse.graphs.for_target import PlanOnly

        for graph_module, parameters in made_of:
            explanation.add(kind, PlanOnly(graph_module, parameters, options or Options.make(None), product))
    if product is not None:
        explanation.device = product
    explanation.graph_breaks = dict(Counter(counters["graph_break"]) - before)
    explanation.breaks, explanation.recompiles = events.breaks, events.recompiles
    explanation.skipped = left.functions
    explanation.cache = _cache(graphs, options)
    if not graphs:
        explanation.nothing_compiled = left.why_nothing(bool(explanation.graph_breaks))


def _cache(graphs: Sequence[Observed], options: Options | None) -> dict[str, Any]:
    """What native code was found, and why the rest was made."""
    counts = [graph.compiled.counters() for graph in graphs]
    hits, misses = (sum(each.get(f"native_cache_{what}", 0) for each in counts) for what in ("hits", "misses"))
    if not hits and not misses:
        return {}
    from zefuse import cache

    folder = cache.directory() if options is None or options.cache_dir is None else options.cache_dir
    made: list[str] = []
    if misses and folder:
        try:
            made = [line.split("  ", 1)[-1] for line in cache.why_made(folder, min(misses, _MOST_REASONS))]
        except ZefuseError:  # another process may be emptying it
            made = []
    return {"hits": hits, "misses": misses, "why": made}


def _product(target: str) -> str:
    """The GPU product that a target names."""
    from zefuse import targets

    _, products = targets.resolve([target])
    if not products:
        raise InvalidArgumentError(
            f"explain(target={target!r}): that is a processor, on which explain runs the model; name a GPU, such as bmg-g21"
        )
    return products[0]


def run_backward(result: Any, model: Any, inputs: Any) -> None:
    """So that the backward graph is compiled. The result's graph stays, for the caller's own backward."""
    import torch
    from torch.utils import _pytree as pytree

    outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    if isinstance(model, torch.nn.Module):
        leaves += model.parameters()
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not outputs or not wanted:
        return
    given = [torch.ones_like(output) for output in outputs]
    torch.autograd.grad(outputs, wanted, given, allow_unused=True, retain_graph=True)


def _plain(text: str) -> Any:
    """Brackets in it are no markup."""
    from rich.text import Text

    return Text(text)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Any:
    """A table of the distinct rows in order; the column "times" is put in after the first. Nothing for no rows. Rows that differ in
    numbers of modules alone (``layers.0.norm``, ``layers.1.norm``) are one, of ``layers.*.norm``."""
    if not rows:
        return
    table = Rows(title, columns, key=columns[2], numeric=("graph", "times", "bytes"), least=100)
    at = columns.index("source") - 1 if "source" in columns else None  # without "times"
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        key = row if at is None else (*row[:at], _any_layer(row[at]), *row[at + 1 :])
        alike.setdefault(key, []).append(row)
    for members in alike.values():
        row = members[0]
        if at is not None:
            row = (*row[:at], _merged([member[at] for member in members]), *row[at + 1 :])
        table.add_row(row[0], str(len(members)), *row[1:])
    yield table


def _any_layer(places: str) -> str:
    """Without the numbers of modules; those of lines stay."""
    return re.sub(r"(?<![\w:])\d+(?!\w)", "*", places)


def _merged(places: list[str]) -> str:
    """``layers.0.1`` and ``layers.1.1`` -> ``layers.*.1``."""
    words = [re.split(r"(\d+)", each) for each in places]
    return "".join(same[0] if len(set(same)) == 1 else "*" for same in zip(*words, strict=True))


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
