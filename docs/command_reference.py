"""The reference of all commands, as Markdown, from what the commands' parsers declare (docs/commands.md)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator


def markdown() -> str:
    os.environ["COLUMNS"] = "82"  # where usage lines break
    from zefuse import cli

    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in cli.COMMANDS):
        lines += ["", f"## {group}"]
        for command in cli.COMMANDS:
            if command.group == group:
                lines += _command(command, cli.parser_of(command))
    return "\n".join(lines) + "\n"


def _command(command: object, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from ("", f"### zefuse {command.name}", "", parser.description or "")  # type: ignore[attr-defined]
    yield from ("", "```text", parser.format_usage().strip(), "```", "")
    yield from _arguments(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, each in action.choices.items():
                yield from (f"**`{name}`**: {_plain(helps.get(name, ''))}", "")
                yield from _arguments(each)
    yield from ("Example:", "", "```text", command.example, "```")  # type: ignore[attr-defined]


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        if action.choices and not action.metavar:
            value = "{" + ",".join(map(str, action.choices)) + "}"
        takes = "" if action.nargs == 0 else f" {value}"
        name = f"{', '.join(action.option_strings)}{takes}" if action.option_strings else str(value)
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        rows.append(f"| `{name}` | {_plain(text)} |".replace("\n", " "))
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows, "")


def _plain(text: str) -> str:
    """No markup in it."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
