"""What Dynamo did during a call: where it broke the graph, and why it compiled again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from zefuse.graphs import observers

EXPLAINED = "_explained"  # how explain's copy of a function ends


@dataclass
class DynamoEvents:
    """``breaks``: ``{"reason", "source", "line"}``, the user's file and line, and what stands there. ``recompiles``: ``{"function",
    "reason"}``, the guard that failed with the old and the new value."""

    breaks: list[dict[str, str]] = field(default_factory=list)
    recompiles: list[dict[str, str]] = field(default_factory=list)

    def take(self, graph_module: Any) -> None:
        """A graph as Dynamo hands it over: it says why it ends where it does."""
        why = getattr(graph_module, "compile_subgraph_reason", None)
        if why is None or not getattr(why, "graph_break", False):
            return
        frames = [frame for frame in getattr(why, "user_stack", ()) or () if "/torch/" not in frame.filename]
        frame = frames[-1] if frames else None
        source = f"{frame.filename}:{frame.lineno}" if frame else ""
        text = (frame.line or "").strip() if frame else ""
        entry = {"reason": in_one_line(str(why.reason)), "source": source, "line": text}
        if entry not in self.breaks:
            self.breaks.append(entry)


def in_one_line(reason: str) -> str:
    """Dynamo's text for a graph break, without what is for Dynamo's developers."""
    lines = [line.strip() for line in reason.split("Developer debug context")[0].splitlines()]
    return "; ".join(filter(None, lines))


@contextmanager
def watch() -> Iterator[DynamoEvents]:
    """Breaks are there as they come, recompilations when the block ends."""
    events = DynamoEvents()
    outer = observers.dynamo_graphs.get()

    def take(graph_module: Any) -> None:
        if outer is not None:
            outer(graph_module)
        events.take(graph_module)

    before = _metrics()  # the last few dozen, so that counting is not enough
    token = observers.dynamo_graphs.set(take)
    try:
        yield events
    finally:
        observers.dynamo_graphs.reset(token)
        for metrics in _metrics():
            reason = getattr(metrics, "recompile_reason", None)
            if reason and all(metrics is not one for one in before):
                file = getattr(metrics, "co_filename", "") or ""
                text = _guard(str(reason))
                if not (file.endswith(_WRAPPERS) and _ANOTHER.match(text)):
                    events.recompiles.append(
                        {"function": f"{getattr(metrics, 'co_name', '')} ({file})", "reason": text}
                    )


# Torch calls every module that it compiles through one function of its own: another module there was not compiled before.
_WRAPPERS = "torch/_dynamo/external_utils.py"
_ANOTHER = re.compile(r"___check_(type|obj)_id\((L\['fn'\]|fn)\b")


def _guard(reason: str) -> str:
    """The guard that failed, without its number and without the stack, which leads through torch."""
    text = " ".join(reason.split("User stack trace:")[0].split()).replace(EXPLAINED, "")
    return re.sub(r"^\d+/\d+: ", "", text)


def _metrics() -> list[Any]:
    try:
        from torch._dynamo.utils import get_compilation_metrics
    except ImportError:
        return []
    return list(get_compilation_metrics())
