"""A random program: inputs and steps as texts of Python, so that it can be saved, shrunk and printed as source.

Nothing here needs torch: the process that hands out work does not import it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from columns import BY_NAME


@dataclass
class Input:
    name: str
    text: str  # an expression over the symbols of sizes and the inputs before it
    seed: int = 0

    def source(self) -> str:
        return f"torch.manual_seed({self.seed})\n{self.name} = {self.text}"


@dataclass
class Step:
    """``name = text``; ``{0}`` in the text is the first of ``args``. ``like`` makes an input that can stand for the result."""

    name: str
    text: str
    args: list[str]
    like: str | None = None

    def source(self) -> str:
        return f"{self.name} = {self.text.format(*self.args)}"


@dataclass
class Program:
    column: str
    sizes: list[dict[str, int]]  # one call per entry
    inputs: list[Input]
    steps: list[Step]
    outputs: list[str]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def dynamic(self) -> bool | None:
        """torch.compile's argument. None: a size becomes a symbol when it first changes."""
        return None if self.settings.get("automatic") else BY_NAME[self.column].dynamic

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Program:
        return Program(
            data["column"],
            data["sizes"],
            [Input(**entry) for entry in data["inputs"]],
            [Step(**entry) for entry in data["steps"]],
            data["outputs"],
            data["settings"],
        )

    def make_inputs_source(self) -> str:
        """``def make_inputs(B, C, ...)``."""
        lines = [line for entry in self.inputs for line in entry.source().split("\n")]
        names = ", ".join(entry.name for entry in self.inputs)
        body = "\n".join(f"    {line}" for line in [*lines, f"return [{names}]"])
        return f"def make_inputs({', '.join(self.sizes[0])}):\n{body}\n"

    def function_source(self, wrap: str = "") -> str:
        """``def function(x0, ...)``; ``wrap``: the name of a function that every step's result, its arguments and its name go through."""
        lines = []
        for step in self.steps:
            lines.append(step.source())
            if wrap:
                lines.append(f"{step.name} = {wrap}({step.name}, [{', '.join(step.args)}], {step.name!r})")
        names = ", ".join(entry.name for entry in self.inputs)
        result = f"return ({''.join(f'{name}, ' for name in self.outputs)})"
        body = "\n".join(f"    {line}" for line in [*lines, result])
        return f"def function({names}):\n{body}\n"

    def without_unused(self) -> Program:
        """Steps without effect on an output go, as do inputs that nothing reads. In-place steps and later reads of what they
        change are kept: whether those matter is found by trying."""
        needed = set(self.outputs)
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.name in needed or writes(step):
                steps.insert(0, step)
                needed.update(step.args)
        kept: list[Input] = []
        for entry in reversed(self.inputs):
            if entry.name in needed:
                kept.insert(0, entry)
                needed.update(re.findall(r"\bx\d+\b", entry.text))
        text = "".join(entry.text for entry in kept)
        used = [name for name in self.sizes[0] if re.search(rf"\b{name}\b", text)]
        sizes = [{name: size[name] for name in used} for size in self.sizes]
        return dataclasses.replace(self, inputs=kept, steps=steps, sizes=sizes)


def writes(step: Step) -> bool:
    return re.search(r"\w_\(", step.text) is not None
