"""The command ``zefuse`` (also ``python -m zefuse``): which commands there are, and how a run of one ends.

A command is a row of COMMANDS and a module with two functions: ``arguments(parser)`` declares what it takes, ``run(args)``
does it and returns None or an exit status. Only the module of the command that is used is imported; torch, which takes
seconds, only where ``run`` needs it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zefuse.commands.command_parser import CommandParser


class Command(NamedTuple):
    """One command: its row in ``zefuse --help``, the module that has it, and an example for its own help."""

    name: str
    group: str
    summary: str
    module: str
    example: str


COMMANDS = (
    Command(
        "check",
        "Models",
        "whether a compiled model is right, and whether compiling pays",
        "zefuse.commands.check",
        "zefuse check model.py:make --inductor",
    ),
    Command(
        "bench",
        "Models",
        "measure a model in eager, Inductor and zefuse, a language model in llama.cpp too",
        "zefuse.commands.bench",
        "zefuse bench model.py:make\nzefuse bench --llm SmolLM2-135M-Instruct.gguf --threads 1",
    ),
    Command(
        "profile",
        "Models",
        "where a compiled model's time goes, and what holds it back",
        "zefuse.commands.profile",
        "zefuse profile model.py:make --picture roofline.svg",
    ),
    Command(
        "tune",
        "Models",
        "measure other schedules of a model's kernels on a device, and keep what is quicker",
        "zefuse.commands.tune",
        "zefuse tune model.py:make --device gpu:0",
    ),
    Command(
        "run",
        "Models",
        "call a package or a model and say what it returned",
        "zefuse.commands.run",
        "zefuse run model.zefuse --inputs inputs.pt --output result.pt",
    ),
    Command(
        "compile",
        "Packages",
        "compile a model to a package (.zefuse)",
        "zefuse.commands.compile",
        "zefuse compile model.pt2 -o model.zefuse --targets cpu,dg2-g11",
    ),
    Command(
        "inspect",
        "Packages",
        "check every hash of a package and list what it holds",
        "zefuse.commands.inspect",
        "zefuse inspect model.zefuse",
    ),
    Command(
        "verify",
        "Packages",
        "whether a package is whole, runs here and computes what its model does",
        "zefuse.commands.verify",
        "zefuse verify model.zefuse --against model.py:make",
    ),
    Command(
        "explain",
        "Packages",
        "list the kernels, library calls and fallbacks of a package or model",
        "zefuse.commands.explain",
        "zefuse explain model.zefuse\nzefuse explain model.py:make --html model.html",
    ),
    Command(
        "generate",
        "Language models",
        "let a model answer a prompt, and say how fast it was",
        "zefuse.commands.generate",
        'zefuse generate SmolLM2-135M-Instruct.gguf --weights int4 --prompt "Why is the sky blue?"',
    ),
    Command(
        "doctor",
        "This machine",
        "what this machine has of what zefuse needs, and what to do about the rest",
        "zefuse.commands.doctor",
        "zefuse doctor --json > machine.json",
    ),
    Command(
        "selftest",
        "This machine",
        "compile ten kernels and two models and compare them with eager: half a minute",
        "zefuse.commands.selftest",
        "zefuse selftest --device gpu:0 --report arc-a770.json",
    ),
    Command(
        "devices",
        "This machine",
        "list the devices of this machine",
        "zefuse.commands.devices",
        "zefuse devices --json",
    ),
    Command(
        "targets",
        "This machine",
        "list the devices that can be compiled for, and what covers them here",
        "zefuse.commands.targets",
        "zefuse targets",
    ),
    Command(
        "toolchain",
        "This machine",
        "install Intel's compiler for GPUs",
        "zefuse.commands.toolchain",
        "zefuse toolchain install",
    ),
    Command(
        "cache",
        "Upkeep",
        "look after the cache of plans and native code",
        "zefuse.commands.cache",
        "zefuse cache stat",
    ),
    Command(
        "completion",
        "Upkeep",
        "print what makes a shell complete commands and options: bash, zsh or fish",
        "zefuse.commands.completion",
        "zefuse completion bash > ~/.local/share/bash-completion/completions/zefuse\n"
        "zefuse completion zsh > ~/.zfunc/_zefuse    # a folder of $fpath\n"
        "zefuse completion fish > ~/.config/fish/completions/zefuse.fish",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 on success, 1 with one readable message on an error, 2 on wrong usage, 130 after Ctrl-C."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read it has seen enough, as `head`; what is still buffered must go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from zefuse.commands import messages

        messages.tell(error)
        return 1


def _run(words: list[str]) -> int:
    from zefuse.commands import command_parser

    if words and words[0] == "help":
        words = [*words[1:2], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(command_parser.overview(COMMANDS), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from zefuse.installing import installation

        print(installation.versions())
        return 0
    command = next((command for command in COMMANDS if command.name == words[0]), None)
    if command is None:
        return command_parser.unknown(words[0], [command.name for command in COMMANDS])
    parser = parser_of(command)
    try:
        args = parser.parse_args(words[1:])
    except SystemExit as end:  # argparse ends so after help and wrong usage
        return end.code if isinstance(end.code, int) else 2
    return importlib.import_module(command.module).run(args) or 0


def parser_of(command: Command) -> CommandParser:
    """What a command's arguments are read with."""
    from zefuse.commands.command_parser import CommandParser

    parser = CommandParser(prog=f"zefuse {command.name}", description=command.summary, example=command.example)
    importlib.import_module(command.module).arguments(parser)
    return parser
