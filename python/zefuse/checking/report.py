"""What a check found: a row per mode, what differs, and whether compiling pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from zefuse.checking.comparing import Difference
from zefuse.checking.timing import Timing
from zefuse.wording import Rows, counted, printed

SAME, DIFFERENT, FAILED, LEFT_OUT, UNCLEAR = "same", "different", "failed", "left out", "unclear"


@dataclass
class ModeResult:
    """``verdict``: "same" as eager; "different" (``differences``); "failed": the compiled model raised; "left out": eager
    raised, so there is nothing to compare with; "unclear": eager differs from itself. ``message`` says more.

    ``error`` and ``eager_error`` are relative: the largest distance over the largest magnitude of its tensor, from f64 where
    there is a reference in f64, else from eager.
    """

    mode: str
    verdict: str = SAME
    differences: list[Difference] = field(default_factory=list)
    error: float = 0.0
    eager_error: float | None = None
    message: str = ""
    notes: list[str] = field(default_factory=list)
    kernels: int = 0
    calls: int = 0
    fallbacks: int = 0
    graphs: int = 0
    graph_breaks: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "differences": [difference.to_dict() for difference in self.differences]}


@dataclass
class Culprit:
    """Where a difference begins, and a program that shows it."""

    mode: str
    operator: str
    source: str  # model.py:12; empty where it is not known
    kernel: str  # the kernel or call that computes it, with the operators fused into it
    alone: bool  # the operator is wrong without its neighbours
    operators: int  # in the reproducer
    reproducer: str = ""  # the file

    def __str__(self) -> str:
        at = f" at {self.source}" if self.source else ""
        fused = (
            "by itself" if self.alone else f"only together with its neighbours ({counted(self.operators, 'operator')})"
        )
        text = f"{self.mode}: the first operator that differs is {self.operator}{at}, in {self.kernel}; it differs {fused}."
        return text + (f"\n  Reproducer: {self.reproducer}" if self.reproducer else "")


@dataclass
class Report:
    """What ``zefuse.check`` returns. True where nothing differs and nothing failed."""

    name: str
    modes: list[ModeResult] = field(default_factory=list)
    culprit: Culprit | None = None
    culprit_message: str = ""  # why there is no culprit though something differs
    timing: Timing | None = None
    between_modes: float = 0.0  # the largest relative distance between modes that compute the same
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.compared()) and not self.wrong()

    def __bool__(self) -> bool:
        return self.ok

    def wrong(self) -> list[ModeResult]:
        return [result for result in self.modes if result.verdict in (DIFFERENT, FAILED)]

    def compared(self) -> list[ModeResult]:
        return [result for result in self.modes if result.verdict in (SAME, DIFFERENT, FAILED)]

    def sentence(self) -> str:
        """Whether it is right, in one sentence."""
        wrong, compared = self.wrong(), self.compared()
        if not compared:
            reasons = {result.message for result in self.modes if result.message}
            return f"{self.name} could not be checked: {'; '.join(sorted(reasons)) or 'no mode was tried'}."
        if not wrong:
            right = f"{self.name} computes what eager does in {counted(len(compared), 'mode')}"
            if not any(result.graphs for result in compared):
                right += ", but nothing was compiled"
            unclear = [result.mode for result in self.modes if result.verdict == UNCLEAR]
            return right + (f"; it is unclear in {', '.join(unclear)}." if unclear else ".")
        names = "; ".join(result.mode for result in wrong)
        return f"{self.name} is wrong in {len(wrong)} of {counted(len(compared), 'mode')}: {names}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``json.dumps`` takes it."""
        return {
            "name": self.name,
            "ok": self.ok,
            "sentence": self.sentence(),
            "modes": [result.to_dict() for result in self.modes],
            "between_modes": self.between_modes,
            "culprit": vars(self.culprit) if self.culprit else None,
            "culprit_message": self.culprit_message,
            "timing": self.timing.to_dict() if self.timing else None,
            "notes": self.notes,
        }

    def __str__(self) -> str:
        return printed(self)

    __repr__ = __str__

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        numbers = ("error", "eager's\nerror", "kernels", "calls", "fall-\nbacks")
        columns = ("mode", "compared\nwith eager", *numbers)
        table = Rows(f"zefuse check: {self.name}", columns, key="mode", numeric=numbers, least=72)
        for result in self.modes:
            known = result.verdict in (SAME, DIFFERENT, UNCLEAR)
            counts = [str(result.kernels), str(result.calls), str(result.fallbacks)] if known else ["", "", ""]
            eagers = "" if result.eager_error is None or not known else f"{result.eager_error:.1e}"
            table.add_row(
                result.mode.replace(",", ", "), result.verdict, f"{result.error:.1e}" if known else "", eagers, *counts
            )
        yield table
        for text in self.lines():
            yield _plain(text)

    def lines(self) -> Iterator[str]:
        """What stands below the table."""
        # The same can be said of many modes: once, with the modes.
        said: dict[str, list[str]] = {}
        for result in self.modes:
            texts = [*([result.message] if result.message else []), *map(str, result.differences[:3]), *result.notes]
            if len(result.differences) > 3:
                texts.append(f"and {counted(len(result.differences) - 3, 'difference')} more")
            for text in texts:
                said.setdefault(text, []).append(result.mode)
        for text, modes in said.items():
            yield f"{'; '.join(modes)}: {text}"
        if self.culprit:
            yield str(self.culprit)
        elif self.culprit_message:
            yield self.culprit_message
        yield from self.notes
        yield self.sentence()
        if self.timing:
            for name, reason in self.timing.left_out.items():
                yield f"{name} was not timed: {reason}"
            yield self.timing.sentence()


def _plain(text: str) -> Any:
    """Brackets in it are no markup."""
    from rich.text import Text

    return Text(text)
