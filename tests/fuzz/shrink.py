"""Makes a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from pool import Worker
from program import Input, Program, Step


def smaller(worker: Worker, program: Program, seconds: float) -> tuple[dict[str, Any], Program]:
    """What becomes of a program, and the smallest that fails as it does, with its text."""
    answer = worker.ask({"program": program.to_json()})

    def fails(candidate: Program) -> bool:
        result = worker.ask({"program": candidate.to_json()})
        if result["status"] != "wrong" or result["kind"] != answer["kind"]:
            return False
        answer["text"] = result["text"]
        return True

    if answer["status"] == "wrong" and seconds and fails(program.without_unused()):
        program = shrink(program.without_unused(), fails, seconds)
    return answer, program


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float) -> Program:
    """``fails``: whether a program still has the fault."""
    end = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(program):
            if time.monotonic() > end:
                return program
            if candidate != program and fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    """Large cuts first."""
    for output in program.outputs:
        if len(program.outputs) > 1:
            yield dataclasses.replace(program, outputs=[output]).without_unused()
    for output in program.outputs:
        if len(program.outputs) > 1:
            rest = [name for name in program.outputs if name != output]
            yield dataclasses.replace(program, outputs=rest).without_unused()
    names = [step.name for step in program.steps]
    for number in reversed(range(1, len(names))):  # a prefix alone
        if names[number - 1] not in program.outputs:
            head = dataclasses.replace(program, steps=program.steps[:number], outputs=[names[number - 1]])
            yield head.without_unused()
    for step in program.steps:
        if step.like and "_(" not in step.text:
            yield _as_input(program, step).without_unused()
    for step in reversed(program.steps):
        for argument in dict.fromkeys(step.args):
            yield _replaced(program, step, argument).without_unused()
    if program.settings:
        yield dataclasses.replace(program, settings={})
    for calls in ([program.sizes[-1]], program.sizes[:-1], program.sizes[1:]):
        if calls and len(calls) < len(program.sizes):
            yield dataclasses.replace(program, sizes=calls)
    for number, entry in enumerate(program.inputs):
        for text in _plainer(entry.text):
            inputs = [*program.inputs[:number], dataclasses.replace(entry, text=text), *program.inputs[number + 1 :]]
            yield dataclasses.replace(program, inputs=inputs).without_unused()
    yield from _smaller_sizes(program)


def _as_input(program: Program, step: Step) -> Program:
    assert step.like is not None
    name = f"x{1 + max((int(entry.name[1:]) for entry in program.inputs), default=-1)}"
    inputs = [*program.inputs, Input(name, step.like)]
    return _replaced(dataclasses.replace(program, inputs=inputs), step, name)


def _replaced(program: Program, gone: Step, by: str) -> Program:
    """Without a step: what read its result reads another value."""
    rename = lambda name: by if name == gone.name else name  # noqa: E731
    steps = [
        dataclasses.replace(step, args=[rename(name) for name in step.args])
        for step in program.steps
        if step is not gone
    ]
    return dataclasses.replace(program, steps=steps, outputs=list(dict.fromkeys(map(rename, program.outputs))))


def _plainer(text: str) -> Iterator[str]:
    """Without the last call or index, with fewer dimensions, with float32."""
    if (found := re.fullmatch(r"(.+?)(\.\w+\([^()]*\)|\[[^\[\]]*\])", text)) and "torch" in found.group(1):
        yield found.group(1)
    if found := re.search(r"\b[A-E], ", text):
        yield text.replace(found.group(), "", 1)
    for dtype in ("bfloat16", "float16", "float64"):
        if dtype in text:
            yield text.replace(dtype, "float32")


def _smaller_sizes(program: Program) -> Iterator[Program]:
    for call, sizes in enumerate(program.sizes):
        for name, size in sizes.items():
            for smaller in (1, 2, 3, 4, size // 2, size - 1):
                if 0 < smaller < size:
                    changed = [dict(entry) for entry in program.sizes]
                    changed[call][name] = smaller
                    yield dataclasses.replace(program, sizes=changed)
