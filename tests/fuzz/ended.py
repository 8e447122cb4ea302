"""Whose fault it is that a program ended its worker, or gave no answer in time: the worker could not judge it."""

from __future__ import annotations

from typing import Any

from pool import Worker
from program import Program

ENDS = ("crash", "hang")
TIMES = 3  # what reads memory that is not its own does not end each time


def judged(worker: Worker, program: Program, answer: dict[str, Any]) -> dict[str, Any]:
    """``answer``, or another one where ``aot_eager`` alone does the same: "torch", or what zefuse alone is found to do where it
    was the judge that ended the process."""
    if answer.get("kind") not in ENDS or answer["status"] != "wrong":
        return answer
    for _ in range(TIMES if answer["kind"] == "crash" else 1):
        theirs = worker.ask({"program": program.to_json(), "alone": "aot_eager"})
        if theirs.get("kind") in ENDS:
            break
    if theirs.get("kind") not in ENDS or (answer["kind"] == "hang" and theirs["kind"] != "hang"):
        return answer
    ours = worker.ask({"program": program.to_json(), "alone": "zefuse"})
    if ours["status"] in ("same", "refused") or ours.get("kind") in ENDS:
        first = theirs["text"].splitlines()[0]
        return answer | {"status": "torch", "text": f"aot_eager, too: {first}"}
    return answer | ours
