"""What ``zefuse cache`` does: look at, explain, empty and move the cache of plans and native code."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from zefuse import reports
from zefuse.options import default_cache_dir

_RECENT = 256  # entries that a reason is looked for in


def directory() -> str:
    """The folder in use when no option names another; empty when there is none."""
    return os.environ.get("ZEFUSE_CACHE_DIR", default_cache_dir())


def entries(folder: str | None = None) -> list[dict[str, Any]]:
    """All entries, newest first: ``file``, ``key`` (field to value), ``note`` (the kernel's name), ``bytes`` (of the file),
    ``created``, ``last_used`` (Unix seconds; to the hour)."""
    found: list[dict[str, Any]] = reports.ask("cache", directory() if folder is None else folder)
    return found


def recent(folder: str, kind: str) -> list[dict[str, Any]]:
    """As ``entries``, of one kind, those that were used last: what compiling can afford to look at, whatever the folder holds."""
    found: list[dict[str, Any]] = reports.ask("cache_recent", folder, kind, str(_RECENT))
    return found


def why(folder: str | None = None, count: int = 20) -> list[str]:
    """For the newest ``count`` entries, one line each: which field of its key no earlier entry had, and so why it was made."""
    return _why(entries(folder), count)


def why_made(folder: str, count: int) -> list[str]:
    """``why`` of native code, among the entries that were used last."""
    return _why(recent(folder, "native"), count)


def _why(found: list[dict[str, Any]], count: int) -> list[str]:
    lines = []
    for position, entry in enumerate(found[:count]):
        name = entry["note"] or entry["key"].get("kind", "entry")
        when = datetime.fromtimestamp(entry["created"]).isoformat(sep=" ", timespec="seconds")
        lines.append(f"{when}  {name} ({entry['file'][:12]}): {_reason(entry, found[position + 1 :])}")
    return lines


def why_missed(folder: str, kind: str, fields: Sequence[tuple[str, str]], note: str) -> str:
    """For a key without an entry: which of its fields the nearest entry of this kind and note has otherwise, among those that
    were used last."""
    alike = [entry for entry in recent(folder, kind) if entry["note"] == note]
    return _reason({"key": {"kind": kind, **dict(fields)}, "note": note}, alike)


def _reason(entry: dict[str, Any], earlier: list[dict[str, Any]]) -> str:
    def differing(other: dict[str, Any]) -> list[str]:
        names = list(entry["key"]) + [name for name in other["key"] if name not in entry["key"]]
        return [name for name in names if entry["key"].get(name) != other["key"].get(name)]

    same_kind = [other for other in earlier if other["key"].get("kind") == entry["key"].get("kind")]
    if not same_kind:
        return "the first of its kind"
    # The fewest differing fields; among those the one with the same name, else the newest.
    nearest = min(same_kind, key=lambda other: (len(differing(other)), other["note"] != entry["note"]))
    fields = differing(nearest)
    if not fields:
        return "an equal entry was there and was damaged or removed meanwhile"
    changes = ", ".join(
        f"{name} was {_short(nearest['key'].get(name))}, is {_short(entry['key'].get(name))}" for name in fields
    )
    return f"the nearest earlier entry{_named(nearest)} differs in {changes}"


def _named(entry: dict[str, Any]) -> str:
    return f" ({entry['note']})" if entry["note"] else ""


def _short(value: str | None) -> str:
    return "absent" if value is None else value if len(value) <= 48 else value[:12] + "..."


def numbers(folder: str) -> dict[str, Any]:
    """What ``stat`` says, as plain data: ``folder``, ``entries``, ``bytes`` and ``kinds``, with the entries and bytes of each."""
    kinds: dict[str, dict[str, int]] = {}
    for entry in entries(folder) if folder else ():
        of_kind = kinds.setdefault(entry["key"].get("kind", "?"), {"entries": 0, "bytes": 0})
        of_kind["entries"] += 1
        of_kind["bytes"] += entry["bytes"]
    sums = {name: sum(each[name] for each in kinds.values()) for name in ("entries", "bytes")}
    return {"folder": folder, **sums, "kinds": kinds}


def stat(folder: str | None = None) -> str:
    """Folder, number and size of the entries by kind, oldest and newest."""
    place = directory() if folder is None else folder
    if not place:
        return "no cache: ZEFUSE_CACHE_DIR is empty, or this user has no home folder"
    found = entries(place)
    numbers: Counter[str] = Counter(entry["key"].get("kind", "?") for entry in found)
    sizes: Counter[str] = Counter()
    for entry in found:
        sizes[entry["key"].get("kind", "?")] += entry["bytes"]
    lines = [f"{place}: {len(found)} entries, {sum(sizes.values()) / 1e6:.1f} MB"]
    lines += [f"  {kind}: {numbers[kind]} entries, {sizes[kind] / 1e6:.1f} MB" for kind in sorted(numbers)]
    if found:
        day = [datetime.fromtimestamp(found[at]["created"]).isoformat(sep=" ", timespec="seconds") for at in (-1, 0)]
        lines.append(f"  made between {day[0]} and {day[1]}")
    return "\n".join(lines)
