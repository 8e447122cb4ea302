"""argparse for ``zefuse``: help that is readable at any width, and a suggestion for what was mistyped."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from zefuse.suggestions import closest

if TYPE_CHECKING:
    from zefuse.cli import Command

_WIDEST = 100  # longer lines are hard to read
_NAMES = 12  # the column of names in the overview


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'targets'?``, or nothing where no name is close."""
    close = closest(word.lower(), known)
    return f"; did you mean {close!r}?" if close else ""


class CommandParser(argparse.ArgumentParser):
    """A parser of one command (or of one of its actions)."""

    def __init__(self, *, example: str = "", **settings: Any) -> None:
        if description := settings.get("description"):
            settings["description"] = description[0].upper() + description[1:] + "."
        settings.setdefault("formatter_class", _Formatter)
        super().__init__(**settings)
        if example:
            self.epilog = "example:\n" + textwrap.indent(example, "  ")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            word = rest[0].partition("=")[0]
            self.error(f"{word!r}: no such argument{suggestion(word, self._options())}")
        return found

    def _options(self) -> Iterator[str]:
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._options()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = "action" if isinstance(action, argparse._SubParsersAction) else "value"
            hint = suggestion(str(value), known)
            raise argparse.ArgumentError(action, f"{value!r}: no such {what}{hint} (known: {', '.join(known)})")

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        print(f"`{self.prog} --help` lists the arguments", file=sys.stderr)
        raise SystemExit(2)


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str, **settings: Any) -> None:
        settings.setdefault("width", _width())
        super().__init__(prog, **settings)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Examples keep their lines, to be copied."""
        return text if text.startswith("example:") else super()._fill_text(text, width, indent)


def overview(commands: Sequence[Command]) -> str:
    """``zefuse --help``: the commands by group."""
    lines = ["usage: zefuse COMMAND [ARGUMENT ...]", "", "Compile and look at models with zefuse."]
    for group in dict.fromkeys(command.group for command in commands):
        lines += ["", f"{group}:"]
        for command in commands:
            if command.group == group:
                lines += _row(command.name, command.summary)
    lines += ["", "Help:"]
    lines += _row("COMMAND -h", "a command's arguments, with an example")
    lines += _row("--version", "versions of zefuse, of the torch that it finds, and of its compiled part")
    return "\n".join(lines)


def _row(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _width(),
        initial_indent=f"  {name:{_NAMES}}",
        subsequent_indent=" " * (_NAMES + 2),
        break_on_hyphens=False,
    )


def unknown(word: str, known: Sequence[str]) -> int:
    """Says that there is no such command; the exit status."""
    print(f"zefuse: {word!r}: no such command{suggestion(word, known)}", file=sys.stderr)
    print("`zefuse --help` lists the commands", file=sys.stderr)
    return 2


def _width() -> int:
    return max(40, min(shutil.get_terminal_size().columns - 2, _WIDEST))
