"""One graph: run in eager and compiled, compared, and what differs judged: ours, torch's, or known."""

from __future__ import annotations

import itertools
import time
from typing import Any

from compare import Difference, differences
from execute import Outcome, compiled, eager
from known import reason_of
from program import Program


def check(program: Program) -> dict[str, Any]:
    """``status``: "same", "wrong", "torch" (another backend does the same), "known" or "refused" (eager raises, as we do)."""
    times = {"start": time.process_time()}
    expected = eager(program)
    times["eager"] = time.process_time()
    ours = compiled(program)
    times["compiled"] = time.process_time()
    found = differences(program, expected, ours.outcomes)
    times["compare"] = time.process_time()
    answer: dict[str, Any] = {"status": "refused" if any(outcome.error for outcome in expected) else "same"}
    reasons = {"fallbacks": ours.fallbacks, "whole": ours.whole}
    answer |= {"graphs": ours.graphs} | {name: found for name, found in reasons.items() if found}
    if found:
        answer |= _judged(program, found, expected)
    moments = list(times.items())
    answer["seconds"] = {name: round(at - before, 3) for (_, before), (name, at) in itertools.pairwise(moments)}
    return answer


def alone(program: Program, backend: str) -> dict[str, Any]:
    """As ``check`` with one back end, of which no other is asked whether it does the same."""
    expected = eager(program)
    found = differences(program, expected, compiled(program, backend).outcomes)
    if not found:
        return {"status": "refused" if any(outcome.error for outcome in expected) else "same"}
    return _known_or_wrong(program, found[0])


def _judged(program: Program, found: list[Difference], expected: list[Outcome]) -> dict[str, Any]:
    # Functionalization and torch's decompositions are not ours to mend; the second judge is asked of strides only, since
    # decompositions keep no eager strides, nor do some operators' shape rules (a batch norm, logical_or of a number).
    torchs = {_what(difference) for difference in _differences(program, expected, "aot_eager")}
    if any(difference.kind.endswith("strides") for difference in found):
        decomposed = _differences(program, expected, "decomposed")
        torchs |= {_what(difference) for difference in decomposed if _of_strides(difference)}
    worst = next((difference for difference in found if _what(difference) not in torchs), None)
    if worst is None:
        return {"status": "torch", "kind": found[0].kind, "text": found[0].text}
    return _known_or_wrong(program, worst)


def _known_or_wrong(program: Program, difference: Difference) -> dict[str, Any]:
    answer = {"kind": difference.kind, "text": difference.text}
    if reason := reason_of(program, difference.kind, difference.text):
        return answer | {"status": "known", "reason": reason}
    return answer | {"status": "wrong"}


def _of_strides(difference: Difference) -> bool:
    """How an output lies, and so where in it another begins."""
    return difference.kind.endswith("strides") or (
        difference.kind == "sharing" and "memory of its own" not in difference.text
    )


def _what(difference: Difference) -> tuple[str, str]:
    """Its kind; of a wrong element also of which value, and of outputs that share memory all of it."""
    if difference.kind == "sharing":
        return difference.kind, difference.text
    wrong = difference.kind.rpartition(" ")[2] in ("value", "nan")
    return difference.kind, difference.text.partition(":")[0] if wrong else ""


def _differences(program: Program, expected: list[Outcome], backend: str) -> list[Difference]:
    """Of another backend from eager."""
    return differences(program, expected, compiled(program, backend).outcomes)
