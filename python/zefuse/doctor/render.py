"""The page of ``zefuse doctor``, for a terminal of any width. Of the standard library alone: it has to show what a broken
installation looks like.
"""

from __future__ import annotations

import textwrap

from zefuse.doctor.finding import LEVELS, Finding, Report

_COLOURS = {"ok": "32", "note": "36", "warning": "33;1", "problem": "31;1"}
_INDENT = 2
_MARK = max(len(level) for level in LEVELS) + 2
_WIDEST = 110  # columns of text: longer lines are hard to read
_NARROWEST = 40


def page(report: Report, width: int, colour: bool = False) -> str:
    """Findings by section; a fix stands under its finding after an arrow."""
    width = max(_NARROWEST, min(width, _WIDEST))
    lines: list[str] = []
    for section in report.sections:
        if section.findings:
            lines += [*([""] if lines else []), _paint(section.title, "1", colour)]
            lines += [line for finding in section.findings for line in _finding(finding, width, colour)]
    return "\n".join([*lines, "", *_verdict(report, width, colour)])


def _finding(finding: Finding, width: int, colour: bool) -> list[str]:
    hang = " " * (_INDENT + _MARK)
    mark = _paint(finding.level.ljust(_MARK), _COLOURS[finding.level], colour)
    first, *more = wrap(finding.text, width - len(hang)) or [""]
    lines = [" " * _INDENT + mark + first, *(hang + line for line in more)]
    return lines + [hang + line for line in wrap(finding.fix, width - len(hang), "-> ")]


def wrap(text: str, width: int, start: str = "") -> list[str]:
    """Paths and commands keep their hyphens; only a word longer than a line is cut. Lines after the first stand under the
    text behind ``start``."""
    width = max(_NARROWEST - _INDENT - _MARK, min(width, _WIDEST))
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)


def _verdict(report: Report, width: int, colour: bool) -> list[str]:
    counts = report.counts()
    others = [_count(counts[level], level) for level in ("warning", "note") if counts[level]]
    rest = f" ({' and '.join(others)})" if others else ""
    if report.good():
        text, level = f"No problem{rest}.", "ok"
    else:
        text, level = f"{_count(counts['problem'], 'problem')}{rest}.", "problem"
    lines = wrap(text, width)
    return [_paint(line, _COLOURS[level], colour) for line in lines]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\033[{code}m{text}\033[0m" if colour else text
