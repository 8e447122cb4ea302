"""What entries are found by: every field of a key is explained, and none holds a place, a device's index or a hash's seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import children
import pytest
import stub_compiler

from zefuse import _native, cache

MODEL = """
import torch


def f(x, y):
    return torch.softmax(x * y, -1).cumsum(0) @ y.t().sigmoid()
"""

SCRIPT = """
import sys
import torch, model, zefuse

zefuse.enable_precompile()
x, y = torch.ones(6, 4), torch.ones(6, 4) / 2
with torch.no_grad():
    for device in ("cpu", "gpu:0"):
        torch._dynamo.reset()
        options = {"device": device, "jit": "allow"}
        torch.testing.assert_close(torch.compile(model.f, backend="zefuse", options=options)(x, y), model.f(x, y))
"""


def fill(folder: Path, **environment: str) -> Path:
    """A folder of entries of every kind, made by processes that live in ``folder``; new ones where a hash's seed is given."""
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "home").mkdir()
    stub = stub_compiler.install(folder / "ocloc", folder / "log")
    variables = {
        **os.environ,
        "HOME": str(folder / "home"),
        "ZEFUSE_CACHE_DIR": str(folder / "cache"),
        "ZEFUSE_CPU_DRIVER_AS": "gpu",
        "ZEFUSE_OCLOC": str(stub),
        **environment,
    }

    def run(script: str, variables: dict[str, str]) -> None:
        if "PYTHONHASHSEED" in variables:
            command = [sys.executable, "-c", script]
            done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
        else:
            done = children.run(script, cwd=folder, env=variables)
        assert done.returncode == 0, done.stderr

    run(SCRIPT, variables)
    # What compiling ahead of need adds: native code by ocloc.
    run(SCRIPT.replace('("cpu", "gpu:0")', '("cpu",)'), {**variables, "ZEFUSE_TARGETS": "cpu,dg2-g11"})
    return folder / "cache"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("filled") / "one")


def keys(folder: Path) -> dict[str, dict[str, str]]:
    return {entry["file"]: entry["key"] for entry in cache.entries(str(folder))}


def test_another_folder_home_and_seed_give_the_same_keys(filled: Path, tmp_path: Path) -> None:
    other = fill(tmp_path / "two", PYTHONHASHSEED="77", ZEFUSE_CPU_DRIVER_THREADS="1")
    ours, theirs = keys(filled), keys(other)
    assert {key["kind"] for key in ours.values()} >= {"plan", "native", "precompile", "spills"}
    differing = [key for file, key in {**ours, **theirs}.items() if (file in ours) != (file in theirs)]
    assert not differing, differing


def test_no_field_is_a_path_or_an_index(filled: Path) -> None:
    for key in keys(filled).values():
        for name, value in key.items():
            assert not re.search(r"gpu:\d|^/|" + re.escape(str(filled.parent)), value), (name, value)
    devices = {key.get("device") for key in keys(filled).values() if key["kind"] == "plan"}
    assert devices == {"cpu", "gpu"}


def test_why_names_each_field_of_each_kind(filled: Path, tmp_path: Path) -> None:
    """A later entry that differs in one field alone: that one is named, with both values, and no other."""
    native = _native.load()
    seen = set()
    for entry in cache.entries(str(filled)):
        fields = dict(entry["key"])
        kind = fields.pop("kind")
        form = (kind, tuple(fields))
        if form in seen:
            continue
        seen.add(form)
        for name, value in fields.items():
            folder = str(tmp_path / f"{len(seen)}.{name.replace(' ', '_')}")
            changed = {**fields, name: "changed"}
            far = dict.fromkeys(fields, "far")
            for each in (far, fields, far | {name: "farther"}, changed):
                assert native.cache_store(folder, 1 << 30, kind, list(each.items()), "note", b"body") == ""
            newest = cache.why(folder)[0]
            assert newest.count(" was ") == 1, newest
            shown = value if len(value) <= 48 else value[:12]
            assert f"differs in {name} was {shown}" in newest and newest.endswith(", is changed"), newest
    # Plans; code of the CPU driver's, of a device's own compiler and of ocloc's; spills; precompiled functions.
    assert len(seen) >= 5, seen
