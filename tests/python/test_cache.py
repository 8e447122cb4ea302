"""The cache of plans and native code: found by other processes, explained, moved, and never in the way."""

from __future__ import annotations

import json
import os
from pathlib import Path

import children
import pytest
import torch

import zefuse
from zefuse import _native, cache
from zefuse.cli import main

SCRIPT = """
import json, torch, zefuse
def f(x, y):
    return torch.softmax(x * y + 1, -1).cumsum(0) @ y.t().sigmoid()
x, y = torch.ones(64, 48), torch.arange(48.0).expand(64, 48) / 48
explanation = zefuse.explain(f, x, y)
torch.testing.assert_close(explanation.result, f(x, y))
graph = explanation.graphs[0]
print(json.dumps({**graph["counters"], "stages": list(graph["stages"]), "kernels": len(explanation.kernels)}))
"""


def start(folder: Path, **environment: str) -> children.Child:
    return children.start(SCRIPT, env=os.environ | {"ZEFUSE_CACHE_DIR": str(folder)} | environment)


def answer(process: children.Child) -> dict[str, object]:
    code = process.wait(300)
    out, errors = process.output()
    assert code == 0, errors
    return json.loads(out.splitlines()[-1])


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first = answer(start(tmp_path))
    assert first["native_cache_misses"] > 0 and "lower" in first["stages"]
    second = answer(start(tmp_path))
    assert second["native_cache_misses"] == 0
    assert second["native_cache_hits"] == first["native_cache_misses"]
    assert second["stages"] == ["import", "cached plan", "native"]
    assert second["kernels"] == first["kernels"]


def test_processes_that_start_together_build_each_kernel_once(tmp_path: Path) -> None:
    answers = [answer(process) for process in [start(tmp_path) for _ in range(8)]]
    modules = len([entry for entry in cache.entries(str(tmp_path)) if entry["key"]["kind"] == "native"])
    assert sum(a["native_cache_misses"] for a in answers) == modules > 0


def twice_tanh(x: torch.Tensor) -> torch.Tensor:
    return x.tanh() * 2


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A cache folder that two compilations have used."""
    folder = tmp_path / "cache"
    for fuse in (True, False):
        torch._dynamo.reset()
        f = torch.compile(twice_tanh, backend="zefuse", options={"cache_dir": str(folder), "fuse": fuse})
        f(torch.ones(5))
    return folder


def test_why_names_the_field(used: Path) -> None:
    lines = cache.why(str(used))
    plans = [line for line in lines if "  plan (" in line]
    assert len(plans) == 2
    assert "the first of its kind" in plans[1]
    assert "fuse was yes, is no" in plans[0]


def test_keys_hold_no_path_and_no_device_index(used: Path) -> None:
    for entry in cache.entries(str(used)):
        assert not [value for value in entry["key"].values() if "/" in value or "gpu:" in value], entry


def test_commands(used: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> str:
        assert main(["cache", "--dir", str(used), *words]) == 0
        return capsys.readouterr().out

    count = len(cache.entries(str(used)))
    assert f"{count} entries" in run("stat") and "plan: 2 entries" in run("stat")
    assert "first of its kind" in run("why")
    assert f"wrote {count} entries" in run("export", str(tmp_path / "moved"))
    assert json.loads(run("export", str(tmp_path / "again"), "--json")) == {"folder": str(used), "entries": count}
    assert f"removed {count} entries" in run("clear")
    assert cache.entries(str(used)) == []
    assert f"took {count} entries" in run("import", str(tmp_path / "moved"))
    assert len(cache.entries(str(used))) == count
    (tmp_path / "moved").write_bytes(b"something else")
    assert main(["cache", "--dir", str(used), "import", str(tmp_path / "moved")]) == 1
    assert "not an exported cache" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["why"], ["clear"], ["export", "moved"], ["import", "moved"]])
def test_without_a_folder_commands_say_so(
    action: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", "")
    assert main(["cache", *action]) == 1
    assert "no cache: ZEFUSE_CACHE_DIR is empty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_survived_and_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    explanation = zefuse.explain(
        lambda x: x.exp() + 1, torch.ones(3), options={"cache_dir": str(tmp_path / "file" / "below")}
    )
    assert "cannot write the cache entry" in explanation.graphs[0]["counters"]["cache_failure"]


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZEFUSE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")  # which expanduser takes for the root folder
    assert cache.directory() == ""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does without HOME and a password entry
    monkeypatch.delenv("HOME")
    assert cache.directory() == ""
    assert "no cache" in cache.stat()


@pytest.mark.parametrize("home", ["", "a file", "nowhere to be made"])
def test_a_process_without_a_usable_home_compiles(tmp_path: Path, home: str) -> None:
    (tmp_path / "a file").write_text("")
    places = {"": "", "a file": str(tmp_path / "a file"), "nowhere to be made": "/proc/nowhere"}
    variables = {
        name: value for name, value in os.environ.items() if name not in ("ZEFUSE_CACHE_DIR", "XDG_CACHE_HOME")
    }
    code = """
import torch
from zefuse import cache
torch.testing.assert_close(torch.compile(lambda x: x.exp() * 2, backend="zefuse")(torch.ones(3)), torch.ones(3).exp() * 2)
print("cache", repr(cache.directory()))
"""
    done = children.run(code, env={**variables, "HOME": places[home]}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = home and f"{places[home]}/.cache/zefuse"
    assert done.stdout.splitlines()[-1] == f"cache {expected!r}"


def test_damaged_entries_are_made_again(used: Path) -> None:
    def run(fuse: bool) -> None:
        torch._dynamo.reset()
        options = {"cache_dir": str(used), "fuse": fuse}
        f = torch.compile(twice_tanh, backend="zefuse", options=options)
        torch.testing.assert_close(f(torch.ones(5)), twice_tanh(torch.ones(5)))

    whole = {entry["file"] for entry in cache.entries(str(used))}
    for name in whole:
        data = bytearray((used / name).read_bytes())
        data[len(data) // 2] ^= 4
        (used / name).write_bytes(data)
    assert whole and not cache.entries(str(used))
    for fuse in (True, False):
        run(fuse)
    assert {entry["file"] for entry in cache.entries(str(used))} == whole


def test_a_damaged_folder_is_listed(used: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is in an entry's head: what is sound is listed, exported and explained, and no command fails."""
    damaged, *sound = [used / entry["file"] for entry in cache.entries(str(used))]
    good = damaged.read_bytes()
    for position in range(0, 400, 3):
        data = bytearray(good)
        data[position] ^= 0xFF
        damaged.write_bytes(data)
        assert {entry["file"] for entry in cache.entries(str(used))} == {path.name for path in sound}
        assert f"{len(sound)} entries" in cache.stat(str(used)) and len(cache.why(str(used))) == len(sound)
    assert main(["cache", "--dir", str(used), "export", str(tmp_path / "moved")]) == 0
    assert f"wrote {len(sound)} entries" in capsys.readouterr().out


def test_the_limit_is_kept(tmp_path: Path) -> None:
    native = _native.load()
    for number in range(3):
        native.cache_store(str(tmp_path), 1 << 30, "native", [("number", str(number))], "old", b"x" * 700_000)
    explanation = answer(start(tmp_path, ZEFUSE_CACHE_LIMIT_MB="1"))
    found = cache.entries(str(tmp_path))
    assert sum(entry["bytes"] for entry in found) <= 1 << 20
    made = [entry for entry in found if entry["key"]["kind"] == "native" and entry["note"] != "old"]
    assert len(made) == explanation["native_cache_misses"] and len(found) - len(made) <= 2


THREADS = """
import sys, threading
import torch, zefuse

x = torch.linspace(-1, 1, 24).reshape(4, 6)
wrong, misses, kernels = [], [], []
start = threading.Barrier(8)

def work():
    start.wait()
    package = zefuse.load(sys.argv[1])
    if not torch.allclose(package(x), torch.softmax(torch.nn.functional.gelu(x).cumsum(0), -1), atol=1e-5):
        wrong.append(1)
    counters = package.explain().graphs[0]["counters"]
    misses.append(counters["native_cache_misses"])
    kernels.append(counters["native_cache_misses"] + counters["native_cache_hits"])

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(wrong), sum(misses), *sorted(set(kernels)), len(kernels))
"""


def test_threads_that_start_together_build_each_kernel_once(tmp_path: Path) -> None:
    """Each loads a package that has no code for this level."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(torch.nn.functional.gelu(x).cumsum(0), -1)

    program = torch.export.export(Model(), (torch.ones(4, 6),))
    zefuse.compile_package(program, tmp_path / "m", targets=["amx"], options={"cache_dir": ""})
    environment = {**os.environ, "ZEFUSE_CPU_ISA": "avx2", "ZEFUSE_CACHE_DIR": str(tmp_path / "cache")}
    done = children.run(THREADS, str(tmp_path / "m"), env=environment)
    assert done.returncode == 0, done.stderr
    wrong, misses, kernels, loads = map(int, done.stdout.split())
    assert (wrong, loads) == (0, 8) and misses == kernels == len(cache.entries(str(tmp_path / "cache"))) > 0


@pytest.mark.parametrize("value", ["-1", "many", "0"])
def test_a_wrong_limit_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEFUSE_CACHE_LIMIT_MB", value)
    with pytest.raises(Exception, match="ZEFUSE_CACHE_LIMIT_MB"):
        torch.compile(lambda x: x + 1, backend="zefuse")(torch.ones(3))
