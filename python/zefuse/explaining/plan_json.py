"""A plan's JSON, read: shapes as text, what each step reads and writes, and its arithmetic.

What has its default value is left out of the JSON: the first value, the dtype f32, and so on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class PlanStep:
    """``kind``: Launch, Matmul, Convolution, Attention, Recurrence, AtenCall or Copy. ``reads`` and ``writes`` are values' numbers."""

    kind: str
    fields: dict[str, Any]
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)

    @property
    def note(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fields.get("note") or {}
        return found


class PlanJson:
    """One plan."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.values: list[dict[str, Any]] = plan.get("values", [])
        self.buffers: list[dict[str, Any]] = plan.get("buffers", [])
        self.inputs: list[dict[str, Any]] = plan.get("inputs", [])
        self.steps = [self._step(step) for step in plan.get("steps", ())]

    @classmethod
    def all(cls, text: str) -> list[PlanJson]:
        """Of what ``plan_json()`` gives: a plan, or the plans of the parts of a graph."""
        made = json.loads(text)
        return [cls(plan) for plan in (made if isinstance(made, list) else [made])]

    def outputs(self) -> list[dict[str, Any]]:
        """The values of outputs that are tensors."""
        given = self.plan.get("outputs", ())
        return [self.values[each.get("value", 0)] for each in given if each.get("kind", "tensor") == "tensor"]

    def shape(self, value: dict[str, Any]) -> str:
        """``f32[8, 64]``, with strides where it is not contiguous."""
        sizes = [self.size(size) for size in value.get("sizes", ())]
        strides = [self.size(stride) for stride in value.get("strides", ())]
        text = f"{value.get('dtype', 'f32')}[{', '.join(sizes)}]"
        if all(number.isdigit() for number in (*sizes, *strides)) and strides != _contiguous(sizes, strides):
            text += f" strides [{', '.join(strides)}]"
        return text

    def size(self, number: int) -> str:
        """A size expression: a number, a symbol, or "dynamic"."""
        expression = self.plan["exprs"][number]
        kind = expression.get("op", "constant")
        if kind == "constant":
            return str(expression.get("value", 0))
        return f"s{expression.get('value', 0)}" if kind == "symbol" else "dynamic"

    def numbers(self, value: int) -> list[int] | None:
        """A value's sizes; None where one depends on a symbol."""
        sizes = [self.size(size) for size in self.values[value].get("sizes", ())]
        return [int(size) for size in sizes] if all(size.isdigit() for size in sizes) else None

    def flops(self, step: PlanStep) -> int | None:
        """Floating-point operations: of products exactly, of kernels one for each operator and element; None where sizes depend on
        symbols. Copies have none."""
        if step.kind == "Copy":
            return 0
        sizes = [self.numbers(value) for value in step.writes]
        if any(size is None for size in sizes):
            return None
        written = [math.prod(size) for size in sizes if size is not None]
        read = {key: self.numbers(step.fields.get(key, 0)) for key in ("a", "input", "weight", "query", "key", "value")}
        if step.kind == "Recurrence":  # the products with the hidden state: gates [T, B, G H] by weight [G H, H]
            gates, hidden = (self.numbers(value) for value in step.reads[:2])
            if not gates or not hidden or step.fields.get("gradient"):
                return None
            if step.fields.get("cell") == "lstm_layer":  # input [T, B, I], all weights in one row
                return 2 * gates[0] * gates[1] * hidden[0]
            return 2 * math.prod(gates) * hidden[-1]
        if step.kind == "Matmul":
            return 2 * sum(written) * read["a"][-1] if read["a"] else None
        if step.kind == "Convolution":
            kind = step.fields.get("kind", "forward")
            weight, given = read["weight"], read["input"]
            if not weight or not given:
                return None
            if kind == "forward":
                return 2 * sum(written) * math.prod(weight[1:])
            return (
                2 * math.prod(given) * math.prod(weight[1:])
                if kind == "transposed"
                else 2 * sum(written) * math.prod(weight[2:])
            )
        if step.kind == "Attention":
            query, key, value = read["query"], read["key"], read["value"]
            if not query or not key or not value:
                return None
            return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        elements = [self.numbers(value) for value in (*step.writes, *step.reads)]
        largest = max((math.prod(each) for each in elements if each is not None), default=0)
        return largest * max(1, len(step.note.get("ops", ())))

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """(from, to, value): steps by number, ``-1 - n`` for input n."""
        writer: dict[int, int] = {
            number: -1 - buffer.get("index", 0)
            for number, buffer in enumerate(self.buffers)
            if buffer.get("storage", "input") == "input"
        }
        for number, step in enumerate(self.steps):
            for value in dict.fromkeys(step.reads):
                buffer = self.values[value].get("buffer", 0)
                if buffer in writer:
                    yield writer[buffer], number, value
            for value in step.writes:
                writer[self.values[value].get("buffer", 0)] = number

    def _step(self, step: dict[str, Any]) -> PlanStep:
        made = PlanStep(step.get("kind_type", ""), step.get("kind") or {})
        fields = made.fields
        if made.kind == "Launch":
            args, count = fields.get("args", []), fields.get("outputs", 0)
            made.reads, made.writes = args[: len(args) - count], args[len(args) - count :]
        elif made.kind == "AtenCall":
            made.reads = list(_tensors(fields.get("args", ())))
            made.writes = [value for value in fields.get("outputs", ()) if value >= 0]
        elif made.kind == "Recurrence":
            made.reads = fields.get("operands", [])
            made.writes = [value for value in fields.get("results", ()) if value >= 0]
        elif made.kind == "Copy":
            made.reads, made.writes = [fields.get("source", 0)], [fields.get("destination", 0)]
        else:
            names = {"Matmul": ("a", "b"), "Convolution": ("input", "weight"), "Attention": ("query", "key", "value")}
            made.reads = [fields.get(name, 0) for name in names.get(made.kind, ())]
            operands = [
                fields.get("bias", -1),
                fields.get("mask", -1),
                *(each.get("operand", -1) for each in fields.get("post_ops", ())),
            ]
            made.reads += [value for value in operands if value >= 0]
            made.writes = [fields.get("out", 0)] if made.kind in names else []
        return made


def _tensors(arguments: Sequence[dict[str, Any]]) -> Iterator[int]:
    for argument in arguments:
        if argument.get("kind", "none") == "tensor":
            yield argument.get("value", 0)
        yield from _tensors(argument.get("items", ()))


def _contiguous(sizes: Sequence[str], strides: Sequence[str]) -> list[str]:
    """The strides of a contiguous tensor; of a dimension of one element, where any stride is right, the one given."""
    wanted, step = [], 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        wanted.append(stride if size == "1" else str(step))
        step *= int(size)
    return wanted[::-1]
