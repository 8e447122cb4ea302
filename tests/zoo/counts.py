"""`make kernel-counts`: writes tests/zoo/kernel_counts.json, the kernels, library calls and fallbacks of each small model.

.venv/bin/python tests/zoo/counts.py [name ...]

`make test` compares (tests/python/test_zoo.py): a fusion that is lost, or a fallback that appears, turns it red. Better counts do
too: write the table anew and look at its difference in the commit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "zoo" / "kernel_counts.json"


def recorded() -> dict[str, Any]:
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}


def difference(name: str, counts: dict[str, Any], kernels: Mapping[str, int] | None = None) -> str:
    """What differs from the table for the graphs (by kind) in ``counts``, one line each; empty when nothing does. ``kernels``: of
    a graph ("T5, backward"), where this torch makes other graphs than the table's."""
    wanted, lines = recorded().get(name, {}), []
    for kind, found in counts.items():
        summary, expected = found.summary(), wanted.get(kind)
        if expected is None:
            lines.append(f"{name}, {kind}: {summary}, not in the table")
            continue
        expected |= {"kernels": (kernels or {}).get(f"{name}, {kind}", expected["kernels"])}
        for what in sorted(summary.keys() | expected.keys()):
            if summary.get(what) != expected.get(what):
                lines.append(f"{name}, {kind}: {what} {summary.get(what)}, the table has {expected.get(what)}")
    if not lines:
        return ""
    return "\n".join(
        [*lines, f"If that is meant: make kernel-counts MODELS={name!r}, and commit {TABLE.relative_to(ROOT)}."]
    )


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    import warnings

    import torch

    import zoo
    from zoo import examine

    warnings.simplefilter("ignore")
    table = recorded()
    for name in zoo.MAKERS:
        if len(sys.argv) > 1 and not any(part.lower() in name.lower() for part in sys.argv[1:]):
            continue
        before = table.get(name, {})
        table[name] = {}
        for examined in (examine.inference, examine.training):
            torch._dynamo.reset()
            for kind, counts in examined(zoo.make(name)).counts.items():
                table[name][kind] = counts.summary()
        for kind, now in table[name].items():
            if before.get(kind) != now:
                print(f"{name}, {kind}: {before.get(kind)} -> {now}", flush=True)
        ordered = {key: table[key] for key in zoo.MAKERS if key in table}
        lines = [
            f'"{key}": {{\n' + ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in kinds.items()) + "\n}"
            for key, kinds in ordered.items()
        ]
        TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"written: {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
