"""The files for people who join: they can be read, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_workflows_and_templates_are_read_and_call_what_there_is() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"setup", "test", "wheel"} <= set(targets)
    called = set()
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            chosen = job.get("strategy", {}).get("matrix", {}).get("target", [""])
            for step in job["steps"]:
                assert {"run", "uses"} & step.keys(), step
                for target in chosen:
                    text = step.get("run", "").replace("${{ matrix.target }}", target)
                    called |= set(re.findall(r"^make ([\w-]+)", text, re.MULTILINE))
    assert called <= set(targets) and {"setup", "test", "wheel"} <= called
    templates = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert [file.stem for file in templates] == ["bug", "config", "performance", "wrong_result"]
    for file in templates:
        form = yaml.safe_load(file.read_text())
        if file.stem != "config":
            assert form["name"] and form["description"]
            assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "dropdown"}
            assert any("zefuse doctor" in str(part) for part in form["body"])


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_pages_name_what_there_is(page: str) -> None:
    text = (ROOT / page).read_text()
    for place in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / place).exists(), place
    for target in re.findall(r"`?make ([a-z-]+)", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) or page == "CHANGELOG.md"
