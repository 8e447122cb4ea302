"""Who is told of graphs while they are compiled: explain, testing, capture and precompile set these, the backend looks at them.

Below the backend and below those who listen, so that neither has to know the other. Each is of its thread or context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Told of each graph compiled while set (explain, testing): observer(kind, compiled), kind "inference", "forward", "backward".
compiled_graphs: ContextVar[Callable[[str, Any], None] | None] = ContextVar("zefuse_compiled_graphs", default=None)

# Takes each compiled graph while set (precompile) and gives what is called in its place.
recorder: ContextVar[Callable[[str, Any, torch.fx.GraphModule], Any] | None] = ContextVar(
    "zefuse_recorder", default=None
)

# Told of each graph that becomes a plan, with its parameters' numbers, while set (capture).
captured_graphs: ContextVar[Callable[[torch.fx.GraphModule, Sequence[int]], None] | None] = ContextVar(
    "zefuse_captured_graphs", default=None
)

# Told of each graph as Dynamo hands it over, while set (explain).
dynamo_graphs: ContextVar[Callable[[torch.fx.GraphModule], None] | None] = ContextVar(
    "zefuse_dynamo_graphs", default=None
)


@contextmanager
def observe(observer: Callable[[str, Any], None]) -> Iterator[None]:
    """Calls ``observer(kind, compiled_graph)`` for each graph compiled inside, on this thread or context, after those of the
    blocks around it."""
    outer = compiled_graphs.get()

    def every(kind: str, compiled: Any) -> None:
        if outer is not None:
            outer(kind, compiled)
        observer(kind, compiled)

    token = compiled_graphs.set(every)
    try:
        yield
    finally:
        compiled_graphs.reset(token)
