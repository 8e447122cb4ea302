"""The process that runs samples: an operator, dtype and mode, and which of its samples, to what became of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "fuzz"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1] / "python"))

from serve import Answer, serve


def prepare() -> Answer:
    from database import Call, calls
    from trial import trial

    kept: dict[tuple[str, str, str], list[Call]] = {}  # of the last row: its samples are asked for one after the other

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        row = (question["operator"], question["dtype"], question["mode"])
        if row not in kept:
            kept.clear()
            kept[row] = calls(*row)
        if "number" not in question:
            return {"samples": len(kept[row])}
        return trial(kept[row][question["number"]], row[2])

    return answer


if __name__ == "__main__":
    serve(prepare)
