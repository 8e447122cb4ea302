"""Pages that list something are compared with the sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pages
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


def test_the_tests_of_the_page_on_semantics_exist() -> None:
    page = (ROOT / "docs" / "semantics.md").read_text()
    rows = re.findall(r"^\| (?!what \||---)(.*) \| (.*) \|$", page, re.M)
    assert len(rows) > 25
    for what, tests in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", tests)
        assert named, what
        for file, test in named:
            assert f"\ndef {test}(" in (ROOT / "tests" / "python" / file).read_text(), f"{file}::{test}"


# --- the pages for users ----------------------------------------------------------------------------------------------


def navigation() -> dict[str, list[str]]:
    """The site's pages by the captions of docs/index.md."""
    text = (ROOT / "docs" / "index.md").read_text()
    found = re.findall(r"^```\{toctree\}\n:caption: (.*?)\n:hidden:\n\n(.*?)^```$", text, re.M | re.S)
    return {caption: re.findall(r"(\w+)>?$", names, re.M) for caption, names in found}


USERS = [ROOT / "README.md", ROOT / "docs" / "index.md"] + [
    ROOT / "docs" / f"{name}.md"
    for caption, names in navigation().items()
    if caption != "For developers"
    for name in names
]
RUN = [page for page in USERS if any(block.language in ("python", "sh") for block in pages.blocks(page))]


def test_every_page_is_in_the_navigation() -> None:
    listed = [name for names in navigation().values() for name in names]
    assert len(set(listed)) == len(listed)
    assert set(listed) | {"index"} == {file.stem for file in (ROOT / "docs").glob("*.md")}
    assert len(RUN) > 12


@pytest.mark.parametrize("page", USERS, ids=lambda page: page.stem)
def test_code_of_users_pages_is_marked_and_its_commands_exist(page: Path) -> None:
    assert pages.problems(page) == []


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_users_pages_run(page: Path, tmp_path: Path) -> None:
    """Block by block in one folder: Python, shell, and files that the others use."""
    pages.run(page, tmp_path)


def test_a_page_that_does_not_run_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python continues\nassert x == 2\n```\n")
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError, match=r"page.md:1"):
        pages.run(page, tmp_path)
    page.write_text("```python\nprint('3 kernels')\n```\n\n```text\n4 kernels\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:5: this is not in"):
        pages.run(page, tmp_path / "other")
    page.write_text('Text.\n\n    indented\n\n```sh not-run="why"\nzefuse chekc model.py:make\n```\n')
    said = "\n".join(pages.problems(page))
    assert "nobody runs: 'indented'" in said and "no reason" in said and "zefuse does not take: zefuse chekc" in said


def test_the_messages_of_troubleshooting_exist() -> None:
    """Each quoted message is in the sources, between the ellipses; every class of error is of some use there."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "python", "runtime", "compiler", "common", "lowering", "core"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    sources = "\n".join(
        (ROOT / name).read_text() for name in names if name.endswith((".py", ".cpp", ".h")) and (ROOT / name).exists()
    )
    sources = re.sub(r"""["']\s*\n\s*(?:\+ )?f?["']""", "", sources).replace('\\"', '"').replace("`", "")
    missing, messages = [], 0
    tables = re.findall(
        r"^\| message \|.*\n\|---.*\n((?:\|.*\n)*)", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M
    )
    for row in "".join(tables).splitlines():
        first = row.split(" | ")[0]
        for message in [] if "(of " in first else re.findall(r"`([^`]+)`", first):
            messages += 1
            missing += [part for part in message.split("…") if part.strip() and part.strip() not in sources]
    assert missing == []
    assert messages > 60


# --- links ------------------------------------------------------------------------------------------------------------

PAGES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    if (ROOT / name).exists()
]


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.*?\)", "", heading).lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings; the network is not asked."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://[\w.-]+", target):
            continue
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            wrong.append(target)
    assert wrong == []


GENERATED = {"gpu_speed", "operators", "status", "targets"}


@pytest.mark.parametrize("page", [page for page in USERS if page.stem not in GENERATED], ids=lambda page: page.stem)
def test_users_pages_have_lines_of_120_columns(page: Path) -> None:
    """Tables have a line for each row."""
    text = re.sub(r"^\|[^\n]*$|^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    assert [line for line in text.splitlines() if len(line) > 120] == []


def test_the_site_is_built(tmp_path: Path) -> None:
    """Strictly: any warning fails."""
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-W", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "commands.html").read_text()
    from zefuse import cli

    for command in cli.COMMANDS:
        assert f"zefuse {command.name}" in commands
    api = (tmp_path / "api.html").read_text()
    import zefuse

    for name in zefuse.__all__:
        if name not in ("errors", "llm", "testing", "__version__"):
            assert f'id="zefuse.{name}"' in api or f'id="zefuse.errors.{name}"' in api, name
    for name in zefuse.llm.__all__:
        assert name == "Report" or f'id="zefuse.llm.{name}"' in api, name
