"""`zefuse compile` and `zefuse.load`: the same bits, and a damaged file is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import zefuse
from zefuse.errors import DamagedError, InvalidArgumentError, NotFoundError, ZefuseError


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layer = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("scale", torch.randn(16))

    def forward(self, ids: torch.Tensor, extra: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x = self.norm(self.layer(self.embedding(ids)) * self.scale)
        return {"probabilities": torch.softmax(x + extra["bias"], -1), "sum": x.sum()}


@pytest.fixture
def inputs() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return torch.tensor([[1, 2, 3], [4, 5, 19]]), {"bias": torch.randn(16)}


@pytest.fixture
def package(tmp_path: Path, inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> tuple[nn.Module, Path]:
    model = Model().eval()
    path = tmp_path / "model.zefuse"
    with torch.no_grad():
        zefuse.compile_package(torch.export.export(model, inputs), path)
    return model, path


def test_same_bits(package: tuple[nn.Module, Path], inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> None:
    model, path = package
    with torch.no_grad():
        expected = torch.compile(model, backend="zefuse")(*inputs)
    loaded = zefuse.load(path)
    for _ in range(2):
        actual = loaded(*inputs)
        assert actual.keys() == expected.keys()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_command_line_and_another_process(tmp_path: Path, inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> None:
    model = Model().eval()
    torch.export.save(torch.export.export(model, inputs), tmp_path / "model.pt2")
    torch.save({"inputs": inputs, "expected": model(*inputs)}, tmp_path / "io.pt")
    done = subprocess.run(
        [sys.executable, "-m", "zefuse", "compile", str(tmp_path / "model.pt2"), "-o", str(tmp_path / "model.zefuse")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "kernel" in done.stdout
    code = f"""
import sys, torch, zefuse
io = torch.load({str(tmp_path / "io.pt")!r})
actual = zefuse.load({str(tmp_path / "model.zefuse")!r})(*io["inputs"])
assert all(torch.allclose(actual[name], value, rtol=1e-4, atol=1e-5) for name, value in io["expected"].items())
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_flipped_bytes(
    package: tuple[nn.Module, Path], tmp_path: Path, inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]
) -> None:
    """Any byte flipped: refused with a clear first line, or (in padding) the same result; never a crash or another result."""
    _, path = package
    good = path.read_bytes()
    expected = zefuse.load(path)(*inputs)
    generator = random.Random(0)
    positions = [0, 1, 7, len(good) - 1, *(generator.randrange(len(good)) for _ in range(60))]
    damaged = tmp_path / "damaged.zefuse"
    refused = 0
    for position in positions:
        data = bytearray(good)
        data[position] ^= 0xFF
        damaged.write_bytes(data)
        try:
            actual = zefuse.load(damaged)(*inputs)
        except ZefuseError as error:
            first = str(error).splitlines()[0]
            assert "damaged.zefuse" in first, first
            refused += 1
            continue
        assert all(torch.equal(actual[name], expected[name]) for name in expected), (
            f"byte {position} changed the result"
        )
    assert refused > len(positions) // 2


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
def test_cut_short(package: tuple[nn.Module, Path], keep: int) -> None:
    _, path = package
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedError) as caught:
        zefuse.load(path)
    assert "model.zefuse" in str(caught.value).splitlines()[0]


def test_missing_file() -> None:
    with pytest.raises(NotFoundError, match=r"no file 'nowhere\.zefuse'"):
        zefuse.load("nowhere.zefuse")


def test_wrong_arguments(package: tuple[nn.Module, Path], inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> None:
    loaded = zefuse.load(package[1])
    with pytest.raises(InvalidArgumentError, match="another structure"):
        loaded(inputs[0])
    with pytest.raises(ZefuseError, match="input"):
        loaded(torch.zeros(5, 5, dtype=torch.int64), inputs[1])


def test_dynamic_batch(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.GELU()).eval()
    program = torch.export.export(
        model, (torch.randn(4, 6),), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},)
    )
    zefuse.compile_package(program, tmp_path / "m.zefuse")
    loaded = zefuse.load(tmp_path / "m.zefuse")
    for rows in (2, 5, 33):
        x = torch.randn(rows, 6)
        assert torch.allclose(loaded(x), model(x), rtol=1e-4, atol=1e-5)


def test_command_line_errors(tmp_path: Path) -> None:
    (tmp_path / "no.pt2").write_bytes(b"nothing")
    for arguments, message in [
        (["compile", "missing.pt2", "-o", "x"], "no file 'missing.pt2'"),
        (["compile", str(tmp_path / "no.pt2"), "-o", "x"], "is no program of torch.export.save"),
        (["compile", "missing.pt2", "-o", "x", "--option", "strct=true"], "did you mean 'strict'?"),
        (["explain", "missing.zefuse"], "no file 'missing.zefuse'"),
    ]:
        done = subprocess.run([sys.executable, "-m", "zefuse", *arguments], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1
        assert message in done.stderr.strip().splitlines()[-1]
        assert "Traceback" not in done.stderr
