"""AOTAutograd prints the joint graph and both its parts for its structured log, also where nobody keeps one: 0.1 s of ViT-S's first
training step on a two-core host, a twentieth of all that torch does there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

_here = threading.local()


@contextmanager
def not_printed() -> Iterator[None]:
    """Of graphs that this thread compiles within. Whoever listens to torch's logs, or to its structured trace, hears the same as ever."""
    _watch_torch()
    before = getattr(_here, "quiet", False)
    _here.quiet = True
    try:
        yield
    finally:
        _here.quiet = before


@cache
def _watch_torch() -> None:
    """torch has no switch for it: its functions return the text, which its cache of compiled graphs keeps as well (ours is none)."""
    from torch._functorch._aot_autograd import graph_compile

    for name, nothing in (("_log_joint_graph", None), ("_log_fw_bw_graphs", (None, None))):
        if (log := getattr(graph_compile, name, None)) is not None:
            setattr(graph_compile, name, _where_read(log, nothing))


def _where_read(log: Callable[..., Any], nothing: Any) -> Callable[..., Any]:
    @wraps(log)
    def logged(*args: Any, **kwargs: Any) -> Any:
        if getattr(_here, "quiet", False) and not _is_read():
            return nothing
        return log(*args, **kwargs)

    return logged


def _is_read() -> bool:
    from torch._functorch._aot_autograd import graph_compile
    from torch._logging._internal import trace_log

    loggers = (getattr(graph_compile, name, None) for name in ("aot_joint_log", "aot_graphs_log"))
    return bool(trace_log.handlers) or any(log is None or log.isEnabledFor(logging.INFO) for log in loggers)
