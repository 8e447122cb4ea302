"""The graph tests of a run as a table in Markdown, for a change request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zefuse.wording import counted

_COLUMNS = ("kernels", "calls", "fallbacks", "graph_breaks", "recompiles")


def markdown(rows: Sequence[tuple[str, str, Mapping[str, Any]]], stale: Sequence[str] = ()) -> str:
    """``rows``: a test's name, its outcome and its properties. ``stale``: snapshots that no test makes any more."""
    failed = sum(outcome != "passed" for _, outcome, _ in rows)
    lines = [f"### Compiled graphs: {counted(len(rows), 'test')}, {failed} failed", ""]
    lines += ["| test | kernels | calls | fallbacks | graph breaks | recompiles | MB moved |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for name, outcome, found in rows:
        mark = "" if outcome == "passed" else " **failed**"
        cells = [f"`{name}`{mark}", *(str(found.get(column, "")) for column in _COLUMNS)]
        moved = found.get("bytes")
        cells.append(f"{moved / 1e6:.2f}" if isinstance(moved, int) else "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    changed = [(name, text) for name, _, found in rows for text in str(found.get("change", "")).split("\n") if text]
    if changed:
        lines += ["", "#### What changed", ""]
        lines += [f"- `{name}`: {text}" for name, text in changed]
    if stale:
        lines += ["", "#### Snapshots that no test makes any more", ""]
        lines += [f"- `{path}`" for path in stale]
    return "\n".join(lines) + "\n"
