"""Pages that list something are compared with the sources."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_environment_variable_is_documented() -> None:
    """The two sets are closed: what the sources name and what the page lists is the same."""
    sources = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "compiler", "lowering", "runtime", "python"],
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
    packages = (ROOT / "scripts" / "debian-packages.txt").read_text().replace("@LLVM@", "22")
    for package in re.findall(r"^\??([a-z0-9+.-]+)$", packages, re.MULTILINE):
        assert f"`{package}`" in page, package


def test_every_option_is_documented() -> None:
    from zefuse.options import Options

    page = (ROOT / "README.md").read_text()
    for name in Options.__dataclass_fields__:
        assert f"`{name}`" in page, name
