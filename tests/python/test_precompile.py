"""The precompile cache: a second process traces nothing, and whatever changed is traced again and gives right numbers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from zefuse import precompile
from zefuse.facts import Facts, NotExpressible

PROGRAM = Path(__file__).with_name("precompiled.py")


def run(folder: Path, change: str = "none") -> str:
    """One process; it fails where the result is not eager's."""
    environment = {**os.environ, "ZEFUSE_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), change], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    first = run(folder)
    assert first.startswith("1 frames") and first.endswith("Model.forward: kept"), first
    return folder


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize("change", ["none", "weights"])
def test_a_second_process_traces_nothing(folder: Path, change: str) -> None:
    second = run(folder, change)
    assert second.startswith("0 frames") and "taken from the cache" in second and "again" not in second, second


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("global", "SCALE: was 'float 2.0'"),
        ("inlined function", "helper"),
        ("torch function", "relu"),
        ("function inside torch", "linear"),
        ("option", ""),
        ("dtype", ""),
        ("shape", ""),
        ("strides", "strides [16, 1]"),
        ("argument", ""),
        ("grad", ""),
        ("inference mode", ""),
        ("autocast", ""),
        ("subclass", "Block"),
        ("method", "forward"),
        ("instance method", "forward"),
        ("attribute", "int 3"),
        ("hook", "_forward_hooks"),
        ("training", "training"),
        ("parameter", "bias"),
        ("tied", "weight"),
    ],
)
def test_a_change_is_traced_again(folder: Path, change: str, why: str) -> None:
    """The program compares with eager under the same change."""
    line = run(folder, change)
    assert not line.startswith("0 frames"), line
    if why:
        assert "compiled again: " in line and why.partition(": was")[0] in line, line
    else:
        assert "taken" not in line, line


def test_a_damaged_entry_is_not_used(folder: Path) -> None:
    (entry,) = folder.glob("*.precompile")
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    assert run(folder).startswith("1 frames")


def test_an_entry_that_others_can_write_is_not_used(folder: Path) -> None:
    (entry,) = folder.glob("*.precompile")
    entry.chmod(0o666)
    assert run(folder).startswith("1 frames")


COUNT = [0]


def counts(x: torch.Tensor) -> torch.Tensor:
    COUNT[0] += 1
    return x + 1


def writes(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


def views(x: torch.Tensor) -> torch.Tensor:
    return x[1:]


def breaks(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def imports(x: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.relu(x)


def by_name(x: torch.Tensor) -> torch.Tensor:
    return getattr(nn.functional, "relu")(x)  # noqa: B009


@pytest.fixture
def enabled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "compile", torch.compile)  # put back at the end
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", str(tmp_path))
    precompile._events.clear()
    precompile.enable_precompile()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (counts, "it changes an object"),
        (writes, "it changes a tensor"),
        (views, "a view of an input"),
        (breaks, "it is more than one graph"),
        (imports, "it imports while it runs"),
        (by_name, "it looks things up by name"),
    ],
)
def test_what_is_not_covered_is_not_kept(
    enabled: None, tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor], why: str
) -> None:
    x = torch.arange(6.0)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(function, backend="zefuse")(x.clone()), function(x.clone()))
    assert not list(tmp_path.glob("*.precompile"))
    assert any("not kept" in event and why in event for event in precompile.events()), precompile.events()


def test_training_is_as_before(enabled: None, tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    torch.compile(model, backend="zefuse")(torch.ones(2, 4)).sum().backward()
    assert model.weight.grad is not None and not list(tmp_path.glob("*.precompile"))
    assert any("it needs gradients" in event for event in precompile.events())


def test_one_tensor_twice_is_not_two_tensors() -> None:
    x, y = torch.ones(3), torch.ones(3)

    def lines(*args: Any) -> list[str]:
        return Facts(counts, args, ()).lines

    assert lines(x, x) != lines(x, y) == lines(y, x)
    with pytest.raises(NotExpressible, match="an object of type"):
        lines(x, iter([1]))
