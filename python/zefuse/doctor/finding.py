"""What ``zefuse doctor`` says: findings, by sections, over the facts that they were made from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "problem")

Facts = dict[str, Any]
"""Plain data of one theme, as ``--json`` prints it."""
AllFacts = dict[str, Facts]
"""By theme: what one sentence says may depend on several."""


@dataclass(frozen=True)
class Finding:
    key: str
    """Stable, for programs: ``torch.version``."""
    level: Level
    text: str
    """One sentence."""
    fix: str = ""
    """A command, or a sentence; empty where nothing is to be done."""

    def to_dict(self) -> dict[str, str]:
        return {"key": self.key, "level": self.level, "text": self.text, "fix": self.fix}


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    facts: Facts
    findings: list[Finding]


@dataclass(frozen=True)
class Report:
    version: str
    """Of zefuse."""
    sections: list[Section] = field(default_factory=list)
    seconds: float = 0.0

    def findings(self) -> list[Finding]:
        return [finding for section in self.sections for finding in section.findings]

    def counts(self) -> dict[str, int]:
        found = Counter(finding.level for finding in self.findings())
        return {level: found[level] for level in LEVELS}

    def good(self) -> bool:
        """No problem: warnings are the user's choice."""
        return self.counts()["problem"] == 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": 1,
            "zefuse": self.version,
            "verdict": "ok" if self.good() else "problem",
            "counts": self.counts(),
            "seconds": round(self.seconds, 2),
            "sections": [
                {
                    "key": section.key,
                    "title": section.title,
                    "findings": [finding.to_dict() for finding in section.findings],
                    "facts": section.facts,
                }
                for section in self.sections
            ],
        }
