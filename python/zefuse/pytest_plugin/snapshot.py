"""A graph as text that is kept beside a test: operators, fusion groups, shapes, bytes and calls.

A line is a step. Nothing in it changes between runs, machines or patch releases of torch: no times, no schedules, no names of
files or kernels. The text is read back to be compared, so that a change can be told in words.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zefuse.errors import DamagedError

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
    plans = json.loads(compiled.plan_json())
    graph = Graph(kind)
    for plan in plans if isinstance(plans, list) else [plans]:
        of_plan = _PlanReader(plan)
        graph.inputs += of_plan.inputs()
        graph.steps += of_plan.steps()
        graph.outputs += of_plan.outputs()
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


class _PlanReader:
    """A plan's JSON. What has its default value is left out there: the first value, f32, ..."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._values = plan.get("values", [])

    def inputs(self) -> list[str]:
        return [self._shape(each) for each in self._plan.get("inputs", ()) if each.get("kind") != "symbol"]

    def outputs(self) -> list[str]:
        return [
            self._shape(self._values[each.get("value", 0)])
            for each in self._plan.get("outputs", ())
            if self._is_value(each)
        ]

    def _is_value(self, output: dict[str, Any]) -> bool:
        return 0 <= output.get("value", 0) < len(self._values) and output.get("kind", "value") in ("value", "tensor")

    def steps(self) -> list[Step]:
        made = []
        for step in self._plan.get("steps", ()):
            kind, what = step.get("kind_type", ""), step.get("kind", {})
            note = what.get("note") or {}
            operators = tuple(_operator(name) for name in note.get("ops", ())) or (what.get("op", kind).lower(),)
            size = self._size(note["bytes"]) if "bytes" in note else ""
            if kind == "Launch":
                outputs = what.get("args", [])[-what["outputs"] :] if what.get("outputs") else []
                made.append(Step("kernel", operators, self._shapes(outputs), size))
            elif kind == "AtenCall":
                outputs = [value for value in what.get("outputs", ()) if value >= 0]
                made.append(Step("fallback", operators, self._shapes(outputs), size))
            elif kind == "Copy":
                made.append(Step("copy", operators))
            else:
                library = " + ".join(
                    [kind.lower(), *(each["kind"] for each in what.get("post_ops", ()) if "kind" in each)]
                )
                made.append(
                    Step("call", operators, self._shapes([what["out"]] if "out" in what else []), size, library)
                )
        return made

    def _shapes(self, values: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._shape(self._values[value]) for value in values)

    def _shape(self, value: dict[str, Any]) -> str:
        """``f32[8, 64]``, with strides where it is not contiguous."""
        sizes = [self._size(size) for size in value.get("sizes", ())]
        strides = [self._size(stride) for stride in value.get("strides", ())]
        text = f"{value.get('dtype', 'f32')}[{', '.join(sizes)}]"
        if all(number.isdigit() for number in (*sizes, *strides)) and strides != _contiguous(sizes, strides):
            text += f" strides [{', '.join(strides)}]"
        return text

    def _size(self, number: int) -> str:
        """A size expression, as text."""
        expression = self._plan["exprs"][number]
        kind = expression.get("op", "constant")
        if kind == "constant":
            return str(expression.get("value", 0))
        if kind == "symbol":
            return f"s{expression.get('value', 0)}"
        return "dynamic"


def _contiguous(sizes: Sequence[str], strides: Sequence[str]) -> list[str]:
    """The strides of a contiguous tensor; of a dimension of one element, where any stride is right, the one given."""
    wanted, step = [], 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        wanted.append(stride if size == "1" else str(step))
        step *= int(size)
    return wanted[::-1]
