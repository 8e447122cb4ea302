"""Pages that list something are compared with the sources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import children
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_environment_variable_is_documented() -> None:
    """The two sets are closed: what the sources name and what the page lists is the same."""
    sources = subprocess.run(
        [
            "git",
            "ls-files",
            "-co",
            "--exclude-standard",
            "common",
            "drivers",
            "compiler",
            "lowering",
            "runtime",
            "python",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    used: set[str] = set()
    for name in sources:
        if name.endswith((".cpp", ".h", ".c", ".py")) and (ROOT / name).exists():
            used |= set(re.findall(r'"(ZEFUSE_[A-Z0-9_]+)"', (ROOT / name).read_text()))
    listed = set(re.findall(r"^\| `(ZEFUSE_[A-Z0-9_]+)`", (ROOT / "docs" / "environment.md").read_text(), re.MULTILINE))
    assert used == listed


def test_every_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    packages = (ROOT / "scripts" / "debian-packages.txt").read_text().replace("@LLVM@", "22").replace("@PYTHON@", "3")
    found = re.findall(r"^\??([a-z0-9+.-]+)(?: [0-9.]+)?$", packages, re.MULTILINE)
    assert "cmake" in found and "python3-dev" in found
    for package in found:
        assert f"`{package}`" in page, package


def test_every_option_is_documented() -> None:
    from zefuse.options import Options

    page = (ROOT / "README.md").read_text()
    for name in Options.__dataclass_fields__:
        assert f"`{name}`" in page, name


def test_the_page_on_targets_is_current() -> None:
    """docs/targets.md is what common/toolchain/targets.cpp makes (python -m zefuse targets --markdown > docs/targets.md)."""
    from zefuse import targets

    assert (ROOT / "docs" / "targets.md").read_text() == targets.markdown()


def test_the_page_on_packages_runs(tmp_path: Path) -> None:
    """docs/aot.md, block by block in one folder: Python, shell, and files that the others use."""
    installed = tmp_path / "zefuse"
    install = ["cmake", "--install", ROOT / "build" / "release", "--component", "runtime", "--prefix", installed]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ZEFUSE_PREFIX": str(installed),
    }
    blocks = re.findall(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", (ROOT / "docs" / "aot.md").read_text(), re.M | re.S)
    assert {language for language, _, _ in blocks} == {"python", "sh", "c"}
    for language, file, text in blocks:
        if file:
            (tmp_path / file).write_text(text)
            continue
        if language == "python":
            done = children.run(text, cwd=tmp_path, env=environment)
        else:
            command = ["sh", "-e", "-c", text]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def test_the_page_on_language_models_runs(tmp_path: Path) -> None:
    """docs/llm.md, its blocks one after the other in one program."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "llm.md").read_text(), re.M | re.S)
    assert len(blocks) >= 2
    done = children.run("\n".join(blocks), cwd=tmp_path)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", ["check.md", "graph_tests.md"])
def test_the_pages_on_checking_run(page: str, tmp_path: Path) -> None:
    """Block by block in one folder: Python, shell, and files that the others use."""
    blocks = re.findall(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.M | re.S)
    assert len(blocks) >= 2
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in {"zefuse": "-m zefuse", "pytest": "-m pytest -p zefuse.pytest_plugin"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for language, file, text in blocks:
        if file:
            (tmp_path / file).write_text(text)
        elif language == "python":
            done = children.run(text, cwd=tmp_path, env=environment)
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        else:
            command = ["sh", "-e", "-c", text]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
