"""Numbers in sentences, and tables as text."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from typing import Any


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 kernel``, ``2 kernels``; ``plural`` where it is more than an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """``12 us``, ``3.45 ms``, ``6.78 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def printed(table: Any) -> str:
    """What rich prints of it, without colours, 100 columns wide."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=100, no_color=True).print(table)
    return stream.getvalue().rstrip()


class Rows:
    """A table for rich. In a terminal narrower than ``least`` columns, whose cells would be cut into pieces, each row is a
    paragraph instead, which begins with what its column ``key`` has."""

    def __init__(
        self, title: str, columns: Sequence[str], key: str, numeric: Collection[str] = (), least: int = 80
    ) -> None:
        self.title, self.columns, self.key, self.numeric, self.least = title, tuple(columns), key, numeric, least
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        self.rows.append(cells)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield self._table() if options.max_width >= self.least else self._paragraphs()

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=self.title or None, title_justify="left")
        for column in self.columns:
            table.add_column(column, justify="right" if column in self.numeric else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def _paragraphs(self) -> Any:
        from rich.console import Group
        from rich.padding import Padding
        from rich.text import Text

        lines: list[Any] = [Text(self.title, style="bold")] if self.title else []
        for row in self.rows:
            cells = {
                " ".join(name.replace("-\n", "").split()): cell for name, cell in zip(self.columns, row, strict=True)
            }
            first = cells.pop(self.key)
            rest = "; ".join(f"{name}: {cell}" for name, cell in cells.items() if cell)
            lines += [Padding(Text(first), (0, 0, 0, 2), expand=False), Padding(Text(rest), (0, 0, 0, 4), expand=False)]
        return Group(*lines)
