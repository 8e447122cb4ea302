"""What became of a language model: ``zefuse.llm.report(model)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zefuse.wording import counted

FROM_CACHE = "from the cache"  # in Graph.cache


@dataclass
class Graph:
    """One compiled graph. Times in seconds."""

    kind: str  # "prefill" or "decode"
    batch: int | None  # None: any
    layers: int
    different_layers: int  # traced; the others are copies of these
    trace_seconds: float
    compile_seconds: float
    kernels: int
    library_calls: int
    fallbacks: int
    copies: int  # of cache memory, in each call
    cache: str = ""  # whether zefuse's cache had it, and why not
    calls: int = 0  # how often it ran

    @classmethod
    def of(
        cls, kind: str, batch: int | None, layers: int, different: int, seconds: tuple[float, float],
        plan: Mapping[str, Any], cache: str = "",
    ) -> Graph:  # fmt: skip
        kernels, library_calls, fallbacks, copies = (
            len(plan[name]) for name in ("kernels", "calls", "fallbacks", "copies")
        )
        return cls(kind, batch, layers, different, *seconds, kernels, library_calls, fallbacks, copies, cache)

    def __str__(self) -> str:
        return (
            f"{self.kind}, {'any batch' if self.batch is None else f'batch {self.batch}'}: {counted(self.kernels, 'kernel')}, "
            f"{counted(self.library_calls, 'library call')}, {counted(self.fallbacks, 'fallback')}; "
            + self._origin()
            + (f"; ran {counted(self.calls, 'time')}" if self.calls else "")
        )

    def _origin(self) -> str:
        if self.cache == FROM_CACHE:
            return f"{FROM_CACHE}, loaded in {self.compile_seconds:.2f} s"
        return (
            f"{self.different_layers} of {counted(self.layers, 'layer')} traced ({self.trace_seconds:.1f} s), "
            f"compiled in {self.compile_seconds:.1f} s" + (f"; {self.cache}" if self.cache else "")
        )


def left_of(kind: str, plan: Mapping[str, Any]) -> list[str]:
    """What of a graph no kernel or library call does, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for entry in plan["fallbacks"]:
        by_reason.setdefault(entry["reason"], []).append(entry["op"])
    if by_reason and not plan["kernels"] and not plan["calls"]:
        return [f"{kind}: the whole graph ({next(iter(by_reason))})"]
    return [
        f"{kind}: {counted(len(names), 'operator')}, {', '.join(dict.fromkeys(names))} ({reason})"
        for reason, names in by_reason.items()
    ]


@dataclass
class Report:
    """Printed by ``optimize``; what is compiled later is added as it happens."""

    model: str
    changed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)

    def note_left(self, reason: str) -> None:
        if reason not in self.left:
            self.left.append(reason)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"zefuse: {self.model}"]
        lines += [f"  {text}" for text in self.changed]
        lines += [f"  left as it was: {text}" for text in self.left]
        lines += [f"  {graph}" for graph in self.graphs]
        return "\n".join(lines)
