"""Functions that Dynamo leaves to Python without a graph break: it tells nobody, unless it is asked as ``explain`` does here."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from zefuse.explaining.dynamo_events import EXPLAINED, in_one_line

_FAILED = "an error was suppressed during compilation"
_NO_OPERATOR = "No ops traced for the FX graph"
_IS_SKIPPED = "frame is in the Dynamo skipfiles list"


@dataclass
class Skipped:
    """What Dynamo skipped during a call. Functions of torch's own are not listed: it skips them all the time."""

    functions: dict[str, str] = field(default_factory=dict)
    """``"forward (model.py:12)"`` -> why it runs in Python."""
    no_operator: bool = False
    """A function was traced and had nothing to compile."""
    disabled: bool = False

    def why_nothing(self, graph_breaks: bool) -> str:
        """Of a call that made no graph: why, and what to do."""
        if self.disabled:
            return "torch.compile is switched off: see TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE, torch._dynamo.config.disable"
        if any("Dynamic shape operator" in reason for reason in self.functions.values()):
            return (
                "Dynamo skipped what makes sizes that depend on data; with torch._dynamo.config.capture_dynamic_output_shape_ops = "
                "True it traces them, and all else is compiled (docs/dynamic_shapes.md)"
            )
        if self.functions:
            return (
                "Dynamo skipped what is listed as skipped; change what its reason names, or compile the parts of the model that "
                "it does not touch (torch.compile on a submodule)"
            )
        if graph_breaks:
            return (
                "all of its work lies in graph breaks; change what their reasons name, or compile a part of the model "
                "(torch.compile on a submodule)"
            )
        if self.no_operator:
            return "the call runs no operator of torch that a graph could hold; nothing to do, unless it should"
        return (
            "Dynamo traced no function of it: it is marked with torch.compiler.disable, is of a file that Dynamo skips, is no "
            "Python function, or torch.compiler.set_stance forbids it; pass a Python function or module that calls torch's "
            "operators"
        )


@contextmanager
def watch() -> Iterator[Skipped]:
    """Filled when the block ends."""
    from torch._dynamo import config, eval_frame
    from torch._dynamo.utils import counters

    skipped = Skipped()
    before = Counter(counters["unimplemented"])
    broken = Counter(counters["graph_break"])
    # Dynamo keeps the reasons for fullgraph=True only. In a version of torch without this list there are none to tell.
    state = getattr(eval_frame, "dynamo_tls", None)
    outer = getattr(state, "skip_reasons", None)
    if state is not None:
        state.skip_reasons = []
    try:
        yield skipped
    finally:
        reasons = list(getattr(state, "skip_reasons", None) or ())
        if state is not None:
            state.skip_reasons = outer if outer is None else [*outer, *reasons]
        errors = (Counter(counters["unimplemented"]) - before) - (Counter(counters["graph_break"]) - broken)
        _sort(skipped, reasons, list(errors))
        skipped.disabled = bool(config.disable) or os.environ.get("TORCH_COMPILE_DISABLE") == "1"


def _sort(skipped: Skipped, reasons: list[str], errors: list[str]) -> None:
    unexplained = []
    for text in reasons:
        match = re.fullmatch(r"(.*) \((.*):(\d+)\): (.*)", text, re.DOTALL)
        if match is None:
            continue
        name, file, line, reason = match.groups()
        name = name.removesuffix(EXPLAINED)
        if _NO_OPERATOR in reason:
            skipped.no_operator = True
        elif reason == _FAILED:
            unexplained.append(f"{name} ({file}:{line})")
        elif reason != _IS_SKIPPED and not _is_of_torch(file):
            skipped.functions[f"{name} ({file}:{line})"] = reason
    # One error for one function is the rule; of several the order is that of both lists.
    for function, error in zip(unexplained, [*errors, *[_FAILED] * len(unexplained)], strict=False):
        if error != _FAILED or not _is_of_torch(function):
            skipped.functions[function] = in_one_line(error)


def _is_of_torch(file: str) -> bool:
    return "/torch/" in file or "/zefuse/" in file
