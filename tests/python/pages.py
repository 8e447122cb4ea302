"""The code blocks of a page, executed one after the other in one folder, as a reader would.

The words after a block's language say how (CONTRIBUTING.md has them for authors):

    ```python                    a program of its own
    ```python continues          goes on with the program before it
    ```python file=model.py      a file, for the blocks after it
    ```sh                        commands; the first that fails fails the test
    ```sh fails                  the last command must fail: the page shows an error
    ```sh may-fail               what it finds depends on the machine
    ```sh not-run="needs a GPU"  only its syntax is checked, and its zefuse commands' arguments
    ```text                      what the block before it printed, with … for what may differ and ... for lines left out
    ```text of=FILE              what a file has
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import children

ROOT = Path(__file__).resolve().parents[2]
_LANGUAGES = {"python", "sh", "c", "cpp", "cmake", "text"}
_SECONDS = 600


@dataclass
class Block:
    language: str
    words: dict[str, str]
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page. Those of directives (```{toctree}) are no code."""
    found: list[Block] = []
    text = page.read_text()
    for match in re.finditer(r"^```([\w-]*)([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        if match[2].startswith("{"):
            continue
        if not match[1]:
            raise AssertionError(f"{page.name}: a block without a language: {match[3][:60]!r}")
        words = dict(word.partition("=")[::2] for word in shlex.split(match[2]))
        found.append(Block(match[1], words, match[3], text.count("\n", 0, match.start()) + 1))
    return found


def problems(page: Path) -> list[str]:
    """What is wrong with a page's blocks as they stand: languages and words that do not exist, commands that zefuse lacks."""
    said = []
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    if match := re.search(r"^(?![-*|\d ]).*\n\n    \S.*", prose, re.M):
        said.append(f"{page.name}: an indented block, which nobody runs: {match[0].splitlines()[-1].strip()!r}")
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language not in _LANGUAGES:
            said.append(f"{where}: the language {block.language!r}")
        if unknown := set(block.words) - {"file", "continues", "fails", "may-fail", "not-run", "of"}:
            said.append(f"{where}: {unknown}")
        if "not-run" in block.words and len(block.words["not-run"].split()) < 2:
            said.append(f"{where}: no reason why it is not run")
        if block.language == "sh":
            done = subprocess.run(["sh", "-n"], input=block.text, capture_output=True, text=True, timeout=60)
            said += [f"{where}: {done.stderr}"] if done.returncode else []
            said += [f"{where}: {text}" for text in _wrong_commands(block.text)]
        elif block.language == "python":
            compile(block.text, where, "exec")
    return said


def _wrong_commands(text: str) -> list[str]:
    """Of the lines that call zefuse, those whose arguments its parser refuses."""
    from zefuse import cli

    said = []
    for line in text.replace("\\\n", " ").splitlines():
        if not re.match(r"zefuse (?!--help|--version)", line):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(itertools.takewhile(lambda word: not set(word) <= set("();<>|&"), lexer))
        command = next((each for each in cli.COMMANDS if each.name in words[1:2]), None)
        try:
            if command is None:
                raise SystemExit(2)
            cli.parser_of(command).parse_args(words[2:])
        except SystemExit:
            said.append(f"zefuse does not take: {line}")
    return said


def run(page: Path, folder: Path) -> None:
    """Fails with the block and what it printed."""
    found = blocks(page)
    imports = children.LANGUAGE if any("llm" in block.text for block in found) else ()
    environment = _environment(folder, imports, installed=any("cmake_dir" in block.text for block in found))
    if any("$ZEFUSE_PREFIX" in block.text for block in found):
        environment["ZEFUSE_PREFIX"] = str(_installed(folder))
    work = folder / "work"
    work.mkdir()
    executed = [block for block in found if "not-run" not in block.words]
    printed = ""
    while executed:
        block = executed.pop(0)
        if block.language == "text":
            shown = (work / block.words["of"]).read_text() if "of" in block.words else printed
            assert _missing(block.text, shown) == [], f"{page.name}:{block.line}: this is not in\n{shown}"
            continue
        assert "continues" not in block.words, f"{page.name}:{block.line}: there is no program before it"
        if file := block.words.get("file"):
            (work / file).write_text(block.text)
            continue
        text = block.text
        if block.language == "python":
            while executed and "continues" in executed[0].words:
                text += executed.pop(0).text
            done = children.run(text, cwd=work, env=environment, timeout=_SECONDS, imports=imports)
        else:
            assert block.language == "sh", f"{page.name}:{block.line}: nobody runs {block.language}"
            command = ["sh", "-e", "-c", text]
            done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=_SECONDS)
        if "may-fail" in block.words:
            continue
        printed = done.stdout + done.stderr
        said = f"{page.name}:{block.line}\n{text}\n{done.stdout}{done.stderr}"
        assert (done.returncode != 0) == ("fails" in block.words), said


def _missing(text: str, shown: str) -> list[str]:
    """The lines that a page shows and that are not there, however lines are broken."""
    whole = " ".join(re.sub(r"^E +", "", shown, flags=re.M).split())
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip() not in ("", "...")]
    return [line for line in lines if not re.search(".*?".join(map(re.escape, line.split("…"))), whole)]


def _environment(folder: Path, imports: tuple[str, ...], *, installed: bool) -> dict[str, str]:
    """Commands by their names, and where a page asks for the C interface, an installed one."""
    programs = folder / "programs"
    programs.mkdir()
    for name, words in {"zefuse": "-m zefuse", "pytest": "-m pytest -p zefuse.pytest_plugin", "python": ""}.items():
        children.command(programs / name, *words.split(), imports=imports)
    environment = {**os.environ, "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = "."  # python FILE has the file's folder there, these programs are no files
    if installed:
        place = _installed(folder) / "c_interface.py"
        (programs / "sitecustomize.py").write_text(
            f"import zefuse.packages.c_interface\nzefuse.packages.c_interface.__file__ = {str(place)!r}\n"
        )
        environment["PYTHONPATH"] += f":{programs}"
    return environment


def _installed(folder: Path) -> Path:
    """The C interface as a wheel has it."""
    prefix = folder / "zefuse"
    if not prefix.exists():
        install = ["cmake", "--install", ROOT / "build" / "release", "--component", "runtime", "--prefix", prefix]
        subprocess.run(install, check=True, capture_output=True, timeout=300)
    return prefix
