"""The container files, as far as they can be looked at without a container engine. What their steps do was run in roots made by
debootstrap (containers/try_in_root.py; docs/install.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dockerfile import Instruction, commands, parse

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "containers").glob("*.Dockerfile"))
BASES = {
    "debian:12-slim": "debian-12",
    "debian:13-slim": "debian-13",
    "ubuntu:22.04": "ubuntu-22.04",
    "ubuntu:24.04": "ubuntu-24.04",
}


def values(steps: list[Instruction], name: str) -> list[str]:
    return [step.value for step in steps if step.name == name]


def runs(steps: list[Instruction]) -> list[list[str]]:
    return [words for step in steps if step.name == "RUN" for words in commands(step)]


def base(steps: list[Instruction]) -> str:
    (image,) = values(steps, "FROM")
    defaults = dict(value.split("=", 1) for value in values(steps, "ARG") if "=" in value)
    return defaults[image[1:]] if image.startswith("$") else image


def test_both_are_there() -> None:
    assert [file.name for file in FILES] == ["cpu.Dockerfile", "intel-gpu.Dockerfile"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_packages_are_in_the_bases_archive(file: Path) -> None:
    steps = parse(file)
    recorded = (ROOT / "tests" / "systems" / BASES[base(steps)] / "packages.txt").read_text()
    installs = [words for words in runs(steps) if words[:2] == ["apt-get", "install"]]
    assert installs
    for words in installs:
        assert {"-y", "--no-install-recommends"} <= set(words)
        for package in words[2:]:
            assert package.startswith("-") or re.search(rf"(?m)^{re.escape(package)} ", recorded), package


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_apts_lists_stay_out_of_the_layer(file: Path) -> None:
    for step in parse(file):
        if step.name == "RUN" and "apt-get" in step.value:
            words = commands(step)
            assert words[0] == ["apt-get", "update"] and words[-1] == ["rm", "-rf", "/var/lib/apt/lists/*"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_runs_as_a_user_and_shows_its_devices(file: Path) -> None:
    steps = parse(file)
    (user,) = values(steps, "USER")
    assert any(words[0] == "useradd" and words[-1] == user for words in runs(steps))
    after = steps[[step.name for step in steps].index("USER") + 1 :]
    assert [(step.name, step.value) for step in after] == [("RUN", "zefuse devices"), ("CMD", '["zefuse", "devices"]')]
    (cache,) = [value.partition("=")[2] for value in values(steps, "ENV") if value.startswith("ZEFUSE_CACHE_DIR=")]
    assert values(steps, "VOLUME") == [cache]
    assert any(words[0] == "install" and ["-o", user] == words[2:4] and cache in words for words in runs(steps))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_variable_is_declared_before_its_use(file: Path) -> None:
    declared = {"PATH"}
    for step in parse(file):
        for name in re.findall(r"\$\{?([A-Z_]+)", step.value):
            assert name in declared, f"{step.name} {step.value}"
        if step.name in ("ARG", "ENV"):
            declared.add(step.value.partition("=")[0])
        if step.name == "FROM":
            declared = {"PATH"}  # what stands before is for FROM alone


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_wheel_reaches_the_build_and_nothing_else_does(file: Path) -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert ignored == ["*", "!build/wheels/*.whl"]
    (mount,) = [flag for step in parse(file) for flag in step.flags]
    assert mount == "--mount=type=bind,source=build/wheels,target=/wheels"


def test_the_gpu_one_has_driver_compiler_and_group() -> None:
    steps = parse(ROOT / "containers" / "intel-gpu.Dockerfile")
    packages = {word for words in runs(steps) if words[:2] == ["apt-get", "install"] for word in words[2:]}
    assert {"libze1", "libze-intel-gpu1", "intel-ocloc"} <= packages
    assert any(words[0] == "groupadd" and "$RENDER_GID" in words for words in runs(steps))
    assert any(words[0] == "useradd" and "zefuse-render" in words for words in runs(steps))


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nINSTALL b\n",
        "RUN a\nFROM b\n",
        "FROM a\nCMD zefuse devices\n",
        'FROM a\nCMD ["zefuse", 1]\n',
        "FROM a\nENV A b\n",
        "FROM a\nARG a b\n",
        "FROM a\nRUN\n",
        "FROM a\nRUN b \\",
    ],
)
def test_what_is_malformed_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011
        parse(tmp_path / "Dockerfile")


@pytest.mark.parametrize("text", ["a; b", "a | b", "a & b", "a || b"])
def test_a_failure_ends_the_build(text: str) -> None:
    with pytest.raises(ValueError, match="a failure would be lost"):
        commands(Instruction("RUN", text))
