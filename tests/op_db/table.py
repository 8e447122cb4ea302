"""What a run gives, as text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from expected import EXPECTED, Expected, expectation

Results = Mapping[tuple[str, str, str], dict[str, Any]]


def unexpected(results: Results) -> list[tuple[tuple[str, str, str], dict[str, Any]]]:
    """Rows with the findings that no entry of the table of expected ones explains."""
    return [
        (row, finding)
        for row, result in results.items()
        for finding in result["findings"]
        if finding["status"] in ("wrong", "decomposition") and not expectation(row, finding["kind"], finding["text"])
    ]


def table(results: Results) -> str:
    states = "same refused torch decomposition wrong".split()
    lines = ["", f"{'mode, dtype':24}{'rows':>7}" + "".join(f"{state:>15}" for state in states)]
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (_, dtype, mode), result in results.items():
        for key in ((mode, dtype), ("all", "")):
            sums[key].update(result["counts"])
            sums[key]["rows"] += 1
            sums[key]["left"] += result.get("left", 0)
    for (mode, dtype), counts in sorted(sums.items()):
        head = f"{mode}, {dtype}" if dtype else mode
        line = f"{head:24}{counts['rows']:7}" + "".join(f"{counts[state]:15}" for state in states)
        lines.append(line + (f"   {counts['left']} samples of rows that were begun are left" if counts["left"] else ""))
    used: Counter[Expected] = Counter()
    for row, result in results.items():
        for finding in result["findings"]:
            if entry := expectation(row, finding["kind"], finding["text"]):
                used[entry] += 1
    if used:
        lines += ["", "expected (findings):", *(f"{n:6}  {entry.reason}" for entry, n in used.most_common())]
    if unused := [entry for entry in EXPECTED if entry not in used]:
        lines += ["", "expected, and not seen in this run:", *(f"        {entry.reason}" for entry in unused)]
    for title, name in (("operators through ATen", "fallbacks"), ("graphs whole in eager", "whole")):
        reasons = Counter(reason.splitlines()[0][:150] for result in results.values() for reason in result[name])
        if reasons:
            lines += ["", f"{title}, by reason (rows):", *(f"{n:6}  {text}" for text, n in reasons.most_common(40))]
    if open_ := unexpected(results):
        lines += ["", "not expected:"]
        for row, finding in open_:
            lines.append(
                f"{' '.join(row)} {finding['number']} ({finding['status']}): {finding['kind']}: {finding['text']}"
            )
    return "\n".join(lines)
