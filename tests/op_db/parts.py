"""Rows are run in parts, each a range of the row's samples: a row of a thousand keeps no thread busy alone, and no work is lost
when the time is up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

PART = 100  # samples: some ten seconds

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Part:
    row: Row
    begin: int = 0
    end: int | None = None  # None: the row, of which nobody has asked yet how many samples it has
    of: int = 0  # samples of the row that are wanted
    samples: int = 0  # that it has


def missing(row: Row, results: Sequence[dict[str, Any]]) -> Iterator[Part]:
    """What is to be run of a row, some of which has been."""
    if not results:
        yield Part(row)
        return
    of, samples = results[0].get("of"), results[0].get("samples")
    for begin, end in _gaps(results):
        for start in range(begin, end, PART):
            yield Part(row, start, min(start + PART, end), of, samples)


def joined(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A row's result, of those of its parts. ``"left"``: samples that were not run yet."""
    ordered = sorted(results, key=lambda result: result.get("from", 0))
    total = {key: dict(sum((Counter(result[key]) for result in ordered), Counter())) for key in ("counts", "kinds")}
    lists = {
        key: list({str(entry): entry for result in ordered for entry in result[key]}.values())
        for key in ("findings", "fallbacks", "whole")
    }
    seconds = round(sum(result["seconds"] for result in ordered), 1)
    left = sum(end - begin for begin, end in _gaps(ordered))
    return {"row": tuple(ordered[0]["row"]), "seconds": seconds, "left": left} | total | lists


def _gaps(results: Sequence[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    if any("of" not in result for result in results):
        return  # a row as a whole
    reached = 0
    for result in sorted(results, key=lambda result: result["from"]):
        if result["from"] > reached:
            yield reached, result["from"]
        reached = max(reached, result["to"])
    if reached < results[0]["of"]:
        yield reached, results[0]["of"]
