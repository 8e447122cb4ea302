"""The report at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


def summary(answers: Mapping[int, dict[str, Any]], seconds: float) -> str:
    states = "same refused known torch wrong broken".split()
    lines = ["", f"{'column':16}" + "".join(f"{state:>9}" for state in states)]
    columns = dict.fromkeys(answer["column"] for answer in answers.values())
    for column in columns:
        counts = Counter(answer["status"] for answer in answers.values() if answer["column"] == column)
        lines.append(f"{column:16}" + "".join(f"{counts[state]:9}" for state in states))
    counts = Counter(answer["status"] for answer in answers.values())
    lines.append(f"{'all':16}" + "".join(f"{counts[state]:9}" for state in states))
    for title, name in (("operators through ATen or in eager", "fallbacks"), ("graphs whole in eager", "whole")):
        reasons = Counter(
            _short(reason) for answer in answers.values() for reason in dict.fromkeys(answer.get(name, ()))
        )
        if reasons:
            lines += [
                "",
                f"{title}, by reason (graphs):",
                *(f"{n:6}  {reason}" for reason, n in reasons.most_common(25)),
            ]
    known = Counter(answer["reason"] for answer in answers.values() if answer["status"] == "known")
    if known:
        lines += ["", "known differences:", *(f"{n:6}  {reason}" for reason, n in known.most_common())]
    spent = Counter[str]()
    for answer in answers.values():
        spent.update(answer.get("seconds", {}))
    if spent:
        lines += ["", "processor time: " + ", ".join(f"{name} {s:.0f} s" for name, s in spent.most_common())]
    if seconds:
        lines.append(f"{seconds:.0f} s")
    return "\n".join(lines)


def _short(reason: str) -> str:
    return reason.splitlines()[0][:150]
