"""``zefuse completion``: a script by which bash, zsh or fish complete commands, options and their values.

Made from the parsers of all commands, so that nothing is listed twice; at a Tab no Python starts.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple


class Place(NamedTuple):
    """What can follow ``zefuse WORD ...``: actions and options, a line of help each; whether a file can; and of options that
    take a value the words for it, or None where it is a file."""

    words: tuple[str, ...]
    actions: dict[str, str]
    options: dict[str, str]
    files: bool
    values: dict[str, tuple[str, ...] | None]

    def __str__(self) -> str:
        return " ".join(self.words)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> None:
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](list(places())))


def places() -> Iterator[Place]:
    """The top, then each command and each of its actions."""
    from zefuse import cli

    top = {"--help": "list the commands", "--version": "versions of zefuse and its parts"}
    yield Place((), {command.name: command.summary for command in cli.COMMANDS}, top, False, {})
    for command in cli.COMMANDS:
        yield from _of(cli.parser_of(command), (command.name,))


def _of(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[Place]:
    place = Place(words, {}, {}, False, {})
    below: list[Place] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, its in action.choices.items():
                place.actions[name] = helps.get(name, "")
                below += _of(its, (*words, name))
        elif not action.option_strings:
            place.actions.update({str(choice): action.help or "" for choice in action.choices or ()})
            place = place._replace(files=place.files or action.choices is None)
        else:
            place.options.update({name: action.help or "" for name in action.option_strings if name.startswith("--")})
            if action.nargs != 0:
                place.values.update(dict.fromkeys(action.option_strings, _values(action)))
    yield place
    yield from below


def _values(action: argparse.Action) -> tuple[str, ...] | None:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.dest == "targets":
        from zefuse import targets

        return ("cpu", "host", *(row["name"] for rows in targets.table().values() for row in rows))
    if action.dest == "option":
        from zefuse.options import Options

        return tuple(f"{name}=" for name in Options.__dataclass_fields__)
    return () if action.type is int else None


def _first(text: str) -> str:
    """A help's first phrase, for lists beside the command line."""
    return re.split(r"[;:(]", text)[0].strip()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _walk(found: list[Place]) -> str:
    """The place, of the words before the one at the cursor: in bash and zsh."""
    names = "|".join(_quoted(str(place)) for place in found if place.words)
    return f'    case "${{place:+$place }}$word" in {names}) place="${{place:+$place }}$word" ;; esac'


def bash(found: list[Place]) -> str:
    rows = [
        f'    {_quoted(str(place))}) words="{" ".join([*place.actions, *place.options])}"; files={int(place.files)} ;;'
        for place in found
    ]
    values = [
        f'    {_quoted(f"{place} {name}")}) words="{" ".join(words or ())}"; files={int(words is None)} ;;'
        for place in found
        for name, words in place.values.items()
    ]
    return "\n".join(
        [
            "# zefuse completion bash",
            "_zefuse() {",
            "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} place='' words='' files=0 word",
            '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            _walk(found),
            "  done",
            '  case "$place" in',
            *rows,
            "  esac",
            '  case "$place $previous" in',
            *values,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "  [[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null",
            "  if ((files)) && [[ $current != -* ]]; then",
            "    compopt -o filenames 2>/dev/null",
            '    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")',
            "  fi",
            "}",
            "complete -F _zefuse zefuse",
        ]
    )


def zsh(found: list[Place]) -> str:
    """As bash's, with the helps beside the words."""

    def row(name: str, listed: dict[str, str], files: bool) -> str:
        words = " ".join(_quoted(f"{word}:{_first(text)}" if text else word) for word, text in listed.items())
        return f"    {_quoted(name)}) listed=({words}); files={int(files)} ;;"

    rows = [row(str(place), {**place.actions, **place.options}, place.files) for place in found]
    values = [
        row(f"{place} {name}", dict.fromkeys(words or (), ""), words is None)
        for place in found
        for name, words in place.values.items()
    ]
    return "\n".join(
        [
            "#compdef zefuse",
            "_zefuse() {",
            "  local place='' word files=0",
            "  local -a listed",
            '  for word in "${(@)words[2,CURRENT-1]}"; do',
            _walk(found),
            "  done",
            '  case "$place" in',
            *rows,
            "  esac",
            '  case "$place $words[CURRENT-1]" in',
            *values,
            "  esac",
            "  (($#listed)) && _describe zefuse listed",
            "  ((files)) && _files",
            "}",
            'if [[ "$funcstack[1]" == _zefuse ]]; then  # a file of fpath',
            '  _zefuse "$@"',
            "else",
            "  (($+functions[compdef])) || { autoload -Uz compinit && compinit }",
            "  compdef _zefuse zefuse",
            "fi",
        ]
    )


def fish(found: list[Place]) -> str:
    """A line for each word, on the condition that the words before it are there and no action after them."""
    lines = ["# zefuse completion fish", "complete -c zefuse -f"]
    for place in found:
        conditions = [f"__fish_seen_subcommand_from {word}" for word in place.words]
        if place.actions:
            conditions.append(f"not __fish_seen_subcommand_from {' '.join(place.actions)}")
        start = f"complete -c zefuse -n {_quoted('; and '.join(conditions))}"
        lines += [f"{start} -a {name} -d {_quoted(_first(text))}" for name, text in place.actions.items()]
        for name, text in place.options.items():
            words = place.values.get(name, ())
            value = ""
            if name in place.values:
                value = " -r -F" if words is None else f" -x -a {_quoted(' '.join(words))}"
            lines.append(f"{start} -l {name.removeprefix('--')}{value} -d {_quoted(_first(text))}")
        if place.files:
            lines.append(f"{start} -F")
    return "\n".join(lines)
