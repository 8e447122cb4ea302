"""Dockerfiles as data: enough of the format for those of containers/, strict about the rest."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTIONS = ("ARG", "FROM", "RUN", "ENV", "VOLUME", "WORKDIR", "USER", "COPY", "CMD")


@dataclass
class Instruction:
    name: str
    value: str
    flags: list[str] = field(default_factory=list)


def parse(path: Path) -> list[Instruction]:
    """The instructions in order; ValueError for what is none, or is malformed."""
    instructions: list[Instruction] = []
    text = re.sub(r"(?m)^[ \t]*#.*\n", "", path.read_text())  # within continued lines too
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line.strip():
            continue
        name, _, value = line.strip().partition(" ")
        if name not in INSTRUCTIONS:
            raise ValueError(f"{path.name}: no instruction of ours: {line!r}")
        flags = []
        while found := re.match(r"\s*(--[a-z]+=\S+)\s+", value):
            flags.append(found[1])
            value = value[found.end() :]
        value = " ".join(value.split())
        if not value or value.endswith("\\"):
            raise ValueError(f"{path.name}: {name} with nothing, or that goes on into nothing")
        if name == "CMD" and not all(isinstance(word, str) for word in json.loads(value)):
            raise ValueError(f"{path.name}: CMD is a list of words: {value!r}")
        if name == "ENV" and not re.fullmatch(r"[A-Z_]+=\S+", value):
            raise ValueError(f"{path.name}: ENV is NAME=value: {value!r}")
        if name == "ARG" and not re.fullmatch(r"[A-Z_]+(=\S*)?", value):
            raise ValueError(f"{path.name}: ARG is NAME or NAME=value: {value!r}")
        instructions.append(Instruction(name, value, flags))
    if [step.name for step in instructions if step.name != "ARG"][:1] != ["FROM"]:
        raise ValueError(f"{path.name}: FROM must be first, but for ARG")
    return instructions


def commands(instruction: Instruction) -> list[list[str]]:
    """The commands of a RUN, as words; operators between them must be &&, so that each failure ends the build."""
    if re.search(r"[;|&]", instruction.value.replace("&&", "")):
        raise ValueError(f"a failure would be lost: {instruction.value!r}")
    return [shlex.split(part) for part in instruction.value.split("&&")]
