"""What changed between two snapshots, in words: which operators are no longer fused, what fell back, what lies otherwise."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from zefuse.pytest_plugin.snapshot import Graph, Snapshot, Step
from zefuse.wording import counted


def changes(old: Snapshot, new: Snapshot) -> list[str]:
    """A sentence per change; empty where nothing changed."""
    said: list[str] = []
    if old.graph_breaks != new.graph_breaks:
        said.append(f"graph breaks: {old.graph_breaks} before, {new.graph_breaks} now")
    if len(old.graphs) != len(new.graphs):
        said.append(f"{counted(len(new.graphs), 'graph')}, {len(old.graphs)} before")
    for number, (before, after) in enumerate(zip(old.graphs, new.graphs, strict=False), 1):
        where = f"graph {number} ({after.kind}): " if max(len(old.graphs), len(new.graphs)) > 1 else ""
        said += [where + text for text in _of_graph(before, after)]
    return list(dict.fromkeys(said))


def _of_graph(old: Graph, new: Graph) -> Iterator[str]:
    if old.kind != new.kind:
        yield f"it is a graph of {new.kind}, of {old.kind} before"
    for what, before, after in (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs)):
        yield from _of_shapes(what, before, after)
    matcher = difflib.SequenceMatcher(None, _keys(old.steps), _keys(new.steps), autojunk=False)
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag == "equal":
            for was, now in zip(old.steps[a0:a1], new.steps[b0:b1], strict=True):
                yield from _of_step(was, now)
        else:
            yield from _of_steps(old.steps[a0:a1], new.steps[b0:b1])


def _keys(steps: Sequence[Step]) -> list[tuple[str, tuple[str, ...], str]]:
    return [(step.kind, step.operators, step.library) for step in steps]


def _of_shapes(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    if sorted(old) == sorted(new) and what == "input":
        return  # tracing orders them, which nobody asked for
    if len(old) != len(new):
        yield f"{counted(len(new), what)}, {len(old)} before"
    for number, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            layout = "the layout" if before.split(" strides")[0] == after.split(" strides")[0] else "the shape"
            yield f"{layout} of {what} {number} changed: {before} before, {after} now"


def _of_step(old: Step, new: Step) -> Iterator[str]:
    """The same operators; sizes may differ."""
    name = _name(new.operators)
    if old.shapes != new.shapes:
        plain = [[shape.split(" strides")[0] for shape in shapes] for shapes in (old.shapes, new.shapes)]
        what = "gives another layout" if plain[0] == plain[1] else "gives another shape"
        yield f"{name} {what}: {', '.join(new.shapes)}, {', '.join(old.shapes)} before{_moved([old], [new])}"
    elif old.bytes != new.bytes:
        yield f"{name} moves other amounts of memory{_moved([old], [new])}"


def _of_steps(old: Sequence[Step], new: Sequence[Step]) -> Iterator[str]:
    """Steps that have no twin: fused otherwise, fallen back, gone or new."""
    cost = _cost(old, new)
    before, after = Counter(_all(old)), Counter(_all(new))
    said = []
    fallen = [step for step in new if step.kind == "fallback"]
    for step in fallen:
        was = any(set(step.operators) & set(each.operators) for each in old if each.kind != "fallback")
        said.append(f"{_name(step.operators)} {'now runs' if was else 'runs'} through ATen")
    rescued = [step for step in old if step.kind == "fallback" and not any(_shares(step, each) for each in fallen)]
    for step in rescued:
        if any(_shares(step, each) for each in new):
            said.append(f"{_name(step.operators)} no longer runs through ATen")
    said += _regrouped(old, [step for step in new if step.kind != "fallback"], "no longer fused with")
    said += _regrouped(new, [step for step in old if step.kind != "fallback"], "now fused with")
    if gone := before - after:
        said.append(f"{_counts(gone)} {'is' if sum(gone.values()) == 1 else 'are'} gone")
    if added := after - before:
        said.append(f"{_counts(added)} {'is' if sum(added.values()) == 1 else 'are'} new")
    if not said:
        said.append(
            f"{'; '.join(_name(step.operators) for step in new or old)} {'in another order' if new else 'gone'}"
        )
    yield "; ".join(dict.fromkeys(said)) + cost


def _regrouped(together: Sequence[Step], apart: Sequence[Step], how: str) -> list[str]:
    """Of each step of ``together`` whose operators are in several steps of ``apart``: what was taken off it."""
    said = []
    for step in together:
        parts = [
            [name for name in each.operators if name in step.operators]
            for each in apart
            if set(each.operators) & set(step.operators)
        ]
        parts = [part for part in parts if part]
        if len(step.operators) < 2 or len(parts) < 2:
            continue
        # The part that keeps the most is what the others were fused with.
        main = max(parts, key=len)
        for part in parts:
            if part is not main and Counter(part) != Counter(step.operators):
                said.append(f"{_name(part)} is {how} {_name(main)}")
    return said


def _cost(old: Sequence[Step], new: Sequence[Step]) -> str:
    parts = []
    for kind in ("kernel", "call", "fallback"):
        by = sum(step.kind == kind for step in new) - sum(step.kind == kind for step in old)
        if by:
            parts.append(f"{by:+} {counted(abs(by), kind).split(' ', 1)[1]}")
    return (": " + ", ".join(parts) if parts else "") + _moved(old, new, ", " if parts else ": ")


def _moved(old: Sequence[Step], new: Sequence[Step], before: str = ": ") -> str:
    by = sum(step.size for step in new) - sum(step.size for step in old)
    if not by:
        return ""
    size = abs(by)
    text = f"{size} B" if size < 10_000 else f"{size / 1e3:.1f} KB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"
    return f"{before}{'+' if by > 0 else '-'}{text}"


def _shares(one: Step, other: Step) -> bool:
    return bool(set(one.operators) & set(other.operators))


def _all(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        yield from step.operators


def _name(operators: Sequence[str], most: int = 4) -> str:
    """In words that a user knows: ``_softmax`` is softmax."""
    names = list(dict.fromkeys(name.strip("_").removeprefix("native_") for name in operators))
    text = ", ".join(names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def _counts(operators: Counter[str]) -> str:
    return ", ".join(
        name.strip("_") if times == 1 else f"{name.strip('_')} x{times}" for name, times in sorted(operators.items())
    )
