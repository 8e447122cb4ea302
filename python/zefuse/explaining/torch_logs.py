"""What is compiled, told in torch's own places: TORCH_LOGS="zefuse" ("+zefuse" for the tables), the artefacts of TORCH_TRACE that
tlparse shows, and ``torch._dynamo.utils.counters["zefuse"]``.

torch gives the logger of a module that TORCH_LOGS names its level and handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("zefuse")


def tell(kind: str, compiled: Any, graph_module: torch.fx.GraphModule) -> None:
    """Of one compiled graph: ``kind`` is inference, forward or backward. Only the counters cost where nobody listens."""
    from torch._dynamo.utils import counters
    from torch._logging import _internal

    report = compiled.report()
    numbers = counters["zefuse"]
    numbers["graphs"] += 1
    for name in ("kernels", "calls", "fallbacks"):
        numbers[name] += len(report[name])
    traced = _internal.trace_log.handlers
    if not traced and not _log.isEnabledFor(logging.INFO):
        return
    from zefuse.explaining.explanation import Explanation

    explanation = Explanation.of(compiled, kind)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s graph:\n%s", kind, explanation)
    elif _log.isEnabledFor(logging.INFO):
        _log.info("%s graph: %s", kind, explanation.summary())
        for entry in explanation.fallbacks:
            _log.info("fallback: %s: %s", entry["op"], entry["reason"])
    if traced:
        _trace(kind, compiled, graph_module, explanation)


def _trace(kind: str, compiled: Any, graph_module: torch.fx.GraphModule, explanation: Any) -> None:
    import os
    from functools import partial
    from pathlib import Path

    texts: dict[str, Callable[[], str]] = {
        f"zefuse_{kind}_graph": lambda: graph_module.print_readable(print_output=False),
        f"zefuse_{kind}_explanation": lambda: str(explanation),
        f"zefuse_{kind}_plan": compiled.plan_json if hasattr(compiled, "plan_json") else lambda: "",
    }
    folder = getattr(compiled, "dump_folder", "")
    if folder and os.path.isdir(folder):  # options={"dump_dir": ...} or ZEFUSE_DUMP: the stages too
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                name = str(file.relative_to(folder)).replace("/", "_")
                texts[f"zefuse_{kind}_{name}"] = partial(file.read_text, errors="replace")
    for name, text in texts.items():
        _artifact(name, text)


def _artifact(name: str, text: Any) -> None:
    from torch._logging._internal import trace_structured

    trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=text)
