"""A graph as text that is kept beside a test: operators, fusion groups, shapes, bytes and calls.

A line is a step. Nothing in it changes between runs, machines or patch releases of torch: no times, no schedules, no names of
files or kernels. The text is read back to be compared, so that a change can be told in words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from zefuse.errors import DamagedError
from zefuse.explaining.plan_json import PlanJson

_KINDS = ("input", "kernel", "call", "fallback", "copy", "output")
_HEADER = "# Made by: pytest --zefuse-update"


@dataclass(frozen=True)
class Step:
    """``kind``: kernel, call (a library's), fallback or copy. ``shapes`` are of its results; ``bytes`` as text: a number or "dynamic"."""

    kind: str
    operators: tuple[str, ...]
    shapes: tuple[str, ...] = ()
    bytes: str = ""
    library: str = ""  # of a call: matmul, convolution, ... with what it does on the way out

    @property
    def size(self) -> int:
        return int(self.bytes) if self.bytes.isdigit() else 0


@dataclass
class Graph:
    kind: str  # inference, forward, backward
    inputs: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass
class Snapshot:
    graphs: list[Graph] = field(default_factory=list)
    graph_breaks: int = 0

    @classmethod
    def of(cls, graphs: Iterable[tuple[str, Any]], graph_breaks: int) -> Snapshot:
        """Of compiled graphs with their kinds."""
        return cls([_graph(kind, compiled) for kind, compiled in graphs], graph_breaks)

    def text(self) -> str:
        lines = [_HEADER, f"graph breaks: {self.graph_breaks}"]
        for number, graph in enumerate(self.graphs, 1):
            steps = [*graph.steps]
            counts = [f"{kind} {sum(step.kind == kind for step in steps)}" for kind in ("kernel", "call", "fallback")]
            lines += [
                "",
                f"graph {number}: {graph.kind} | {', '.join(counts)} | {sum(step.size for step in steps)} bytes",
            ]
            lines += [f"  input    | {shape}" for shape in graph.inputs]
            for step in graph.steps:
                library = f"{step.library}: " if step.library else ""
                fields = [library + _joined(step.operators), ", ".join(step.shapes)]
                fields += [f"{step.bytes} bytes"] if step.bytes else []
                lines.append(f"  {step.kind:8} | " + " | ".join(fields))
            lines += [f"  output   | {shape}" for shape in graph.outputs]
        return "\n".join(lines) + "\n"

    @classmethod
    def read(cls, text: str, place: str) -> Snapshot:
        """What ``text()`` wrote. Raises DamagedError, of ``place``, with the line."""
        made = cls()
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                made._read_line(line)
            except (ValueError, IndexError) as error:
                raise DamagedError(
                    f"{place}:{number}: this is no line of a snapshot: {line.strip()!r}; pytest --zefuse-update writes it anew"
                ) from error
        return made

    def _read_line(self, line: str) -> None:
        if match := re.fullmatch(r"graph breaks: (\d+)", line):
            self.graph_breaks = int(match[1])
        elif match := re.match(r"graph \d+: (\w+)", line):
            self.graphs.append(Graph(match[1]))
        else:
            kind, *fields = (part.strip() for part in line.split("|"))
            if kind not in _KINDS:
                raise ValueError(kind)
            graph = self.graphs[-1]
            if kind in ("input", "output"):
                (graph.inputs if kind == "input" else graph.outputs).append(fields[0])
                return
            library, colon, operators = fields[0].partition(": ")
            if not colon:
                library, operators = "", fields[0]
            shapes = re.findall(r"\w+\[.*?\](?: strides \[.*?\])?", fields[1])
            size = fields[2].removesuffix(" bytes") if len(fields) > 2 else ""
            graph.steps.append(Step(kind, _split(operators), tuple(shapes), size, library))


def _joined(operators: Sequence[str]) -> str:
    """``mul x2, add``: neighbours that are the same are counted."""
    groups = ((name, len(list(group))) for name, group in itertools.groupby(operators))
    return ", ".join(name if times == 1 else f"{name} x{times}" for name, times in groups)


def _split(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for word in text.split(", "):
        match = re.fullmatch(r"(\S+?)(?: x(\d+))?", word)
        if match is None:
            raise ValueError(text)
        names += [match[1]] * int(match[2] or 1)
    return tuple(names)


def _graph(kind: str, compiled: Any) -> Graph:
    report = compiled.report()
    graph = Graph(kind)
    for plan in PlanJson.all(compiled.plan_json()):
        graph.inputs += [_input(plan, each) for each in plan.inputs]
        graph.steps += _steps(plan)
        graph.outputs += [plan.shape(value) for value in plan.outputs()]
    # What runs in eager, between plans, has no step in one.
    for entry in report["fallbacks"]:
        if entry.get("step") is None:
            graph.steps.append(Step("fallback", (_operator(entry["op"]),)))
    return graph


def _operator(name: str) -> str:
    """``aten.mul.Tensor`` -> ``mul``; of other namespaces the name with it."""
    name = name.replace("::", ".")
    parts = name.split(".")
    return parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else ".".join(parts[:2])


def _input(plan: PlanJson, value: dict[str, Any]) -> str:
    kind = value.get("kind", "user")
    return plan.shape(value) if kind in ("user", "parameter") else str(kind)


def _steps(plan: PlanJson) -> Iterator[Step]:
    for step in plan.steps:
        operators = tuple(_operator(name) for name in step.note.get("ops", ())) or (step.kind.lower(),)
        size = plan.size(step.note["bytes"]) if "bytes" in step.note else ""
        shapes = tuple(plan.shape(plan.values[value]) for value in step.writes)
        if step.kind == "Launch":
            yield Step("kernel", operators, shapes, size)
        elif step.kind == "AtenCall":
            yield Step("fallback", operators, shapes, size)
        elif step.kind == "Copy":
            yield Step("copy", operators)
        else:
            attached = [each["kind"] for each in step.fields.get("post_ops", ()) if "kind" in each]
            yield Step("call", operators, shapes, size, " + ".join([step.kind.lower(), *attached]))
