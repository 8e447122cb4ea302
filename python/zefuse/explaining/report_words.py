"""How the entries of a compiled graph's report read: explain's tables and page, and what check says of a kernel."""

from __future__ import annotations

from collections import Counter
from typing import Any


def operators(ops: list[str]) -> str:
    """``["aten.mul.Tensor", "aten.mul.Tensor"]`` -> ``"mul x2"``."""
    names = Counter(op.removeprefix("aten.").removeprefix("aten::").split(".")[0] for op in ops)
    return ", ".join(name if times == 1 else f"{name} x{times}" for name, times in names.items())


def call_kind(call: dict[str, Any]) -> str:
    """``matmul + gelu_erf, add``: with what the library does on the way out."""
    return " + ".join(filter(None, (call["kind"], ", ".join(call.get("post_ops", ())))))


def places(entry: dict[str, Any]) -> str:
    """The modules, then the lines."""
    lines = _lines(entry["sources"])
    modules = _lines(entry.get("modules", []), most=2)
    return f"{modules}; {lines}" if modules and lines else modules or lines


def _lines(sources: list[str], most: int = 3) -> str:
    """File names without folders, each line once."""
    distinct = list(dict.fromkeys(source.rsplit("/", 1)[-1] for source in sources))
    return ", ".join(distinct[:most]) + (f" and {len(distinct) - most} more" if len(distinct) > most else "")


def in_bytes(number: int | None) -> str:
    """``None`` where the size depends on a symbol."""
    if number is None:
        return "dynamic"
    for unit in ("B", "KB", "MB"):
        if number < 10000:
            return f"{number:.0f} {unit}"
        number = number / 1000  # type: ignore[assignment]
    return f"{number:.1f} GB"
