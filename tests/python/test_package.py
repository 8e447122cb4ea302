"""`zefuse compile` and `zefuse.load`: the same bits, and a damaged file is refused. The C interface: tests/unit/capi."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import children
import pytest
import torch
from torch import nn

import zefuse
from zefuse import _native, reports
from zefuse.cli import main
from zefuse.errors import (
    DamagedError,
    FallbackError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    ZefuseError,
)

PACKAGES = Path(__file__).resolve().parents[1] / "packages"


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
    done = children.zefuse("compile", str(tmp_path / "model.pt2"), "-o", str(tmp_path / "model.zefuse"))
    assert done.returncode == 0, done.stderr
    progress = re.findall(r"^\[(\d+)/(\d+)\] avx(?:2|512) \w+: (?:\d+ ms|cached)$", done.stdout, re.M)
    assert len(progress) > 2 and progress[-1] == (str(len(progress)),) * 2
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
    package: tuple[nn.Module, Path],
    tmp_path: Path,
    inputs: tuple[torch.Tensor, dict[str, torch.Tensor]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the header, the table, every section and the padding between them: an error that names the file and where, from
    load (of the weights: the first call) and from ``zefuse inspect``. Every byte of a small one: tests/unit/cache."""
    _, path = package
    good = path.read_bytes()
    sections = {name: size for name, size, _ in reports.ask("package", str(path))["sections"]}
    assert {"manifest", "plan/cpu", "weights"} < sections.keys() and len(sections) > 5
    positions = dict.fromkeys(range(8, 64), "") | {64: "table", 200: "table"}
    end = 64 + int.from_bytes(good[16:24], "little")
    paddings = 0
    for name, size in sections.items():  # in the order of the file, each at a multiple of 64
        begin = (end + 63) // 64 * 64
        if begin > end:
            positions |= {
                end: f"the padding before section '{name}'",
                begin - 1: f"the padding before section '{name}'",
            }
            paddings += 1
        generator = random.Random(name)
        for place in (begin, begin + size - 1, *(begin + generator.randrange(size) for _ in range(3))):
            positions[place] = f"the hash of section '{name}'"
        if name == "weights":  # their directory is read before their hash is compared, and may be refused sooner
            directory = range(begin, begin + 8 + int.from_bytes(good[begin : begin + 8], "little"))
            positions |= dict.fromkeys(directory, "")
        end = begin + size
    assert end == len(good) and paddings > 3
    damaged = tmp_path / "damaged.zefuse"
    for position, words in positions.items():
        data = bytearray(good)
        data[position] ^= 1 << position % 8
        damaged.write_bytes(data)
        with pytest.raises(ZefuseError, match=r"damaged\.zefuse") as caught:
            zefuse.load(damaged)(*inputs)
        assert words in str(caught.value).splitlines()[0], (position, str(caught.value))
        assert isinstance(caught.value, UnsupportedError if position in (10, 11) else DamagedError)
        assert main(["inspect", str(damaged)]) == 1
        assert words in capsys.readouterr().err


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


def test_from_memory(package: tuple[nn.Module, Path], inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> None:
    data = package[1].read_bytes()
    expected = zefuse.load(package[1])(*inputs)
    odd = memoryview(b"x" + data)[1:]  # at an address of no alignment
    for given in (data, bytearray(data), odd):
        loaded = zefuse.load(given)
        if isinstance(given, bytearray):
            given[:] = bytes(len(given))  # what was given is not needed any more
        assert all(torch.equal(value, expected[name]) for name, value in loaded(*inputs).items())
    with pytest.raises(DamagedError, match="package in memory"):
        zefuse.load(data[:-1])
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        zefuse.load(memoryview(data)[::2])
    with pytest.raises(NotFoundError, match="'cpu'"):
        zefuse.load(data, options={"device": "gpu:0"})


def test_weights_are_mapped_and_stored_as_safetensors(package: tuple[nn.Module, Path], tmp_path: Path) -> None:
    """Where they lie in the file, once: no memory is taken for them, and any program reads them."""
    from safetensors.torch import load as read

    model, path = package
    loaded = zefuse.load(path)
    regions = [
        [int(bound, 16) for bound in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(path))
    ]
    data = path.read_bytes()
    weights = {name: tensor for name, tensor in loaded._weights.items() if name in model.state_dict()}
    assert weights.keys() == model.state_dict().keys()
    for tensor in weights.values():
        assert any(begin <= tensor.data_ptr() < end for begin, end in regions)
        assert tensor.numpy().tobytes() in data
    at = len(data) - {name: size for name, size, _ in reports.ask("package", str(path))["sections"]}["weights"]
    stored = read(data[at:])
    assert all(torch.equal(stored[name], value) for name, value in model.state_dict().items())


def test_wrong_arguments(package: tuple[nn.Module, Path], inputs: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> None:
    loaded = zefuse.load(package[1])
    with pytest.raises(InvalidArgumentError, match="another structure"):
        loaded(inputs[0])
    with pytest.raises(ZefuseError, match="input"):
        loaded(torch.zeros(5, 5, dtype=torch.int64), inputs[1])


def test_integers_alone(tmp_path: Path) -> None:
    """No number with a point in it: tokens, counts, bits, positions."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(40, dtype=torch.int32).reshape(8, 5))

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rows = self.table[tokens] * 3 - 7
            product = rows.to(torch.int64) @ rows.to(torch.int64).t()
            return rows.sum(1), product, (tokens << 2) ^ 5, mask & (tokens > 2), rows.argmax(1), rows.cumsum(0) // 4

    model = Counts()
    tokens, mask = torch.tensor([1, 7, 3, 3]), torch.tensor([True, False, True, True])
    program = torch.export.export(model, (tokens, mask))
    zefuse.compile_package(program, tmp_path / "counts.zefuse")
    packed = zefuse.load(tmp_path / "counts.zefuse")
    for ours, theirs in zip(packed(tokens, mask), model(tokens, mask), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    with pytest.raises(IndexError, match="out of bounds"):
        packed(torch.tensor([1, 8, 3, 3]), mask)


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
    torch.export.save(torch.export.export(nn.GELU(), (torch.ones(3),)), tmp_path / "yes.pt2")
    for arguments, message in [
        (["compile", str(tmp_path / "yes.pt2"), "-o", str(tmp_path / "no" / "x")], "no folder"),
        (["compile", "missing.pt2", "-o", "x"], "no file 'missing.pt2'"),
        (["compile", str(tmp_path / "no.pt2"), "-o", "x"], "no program of torch.export.save"),
        (["compile", "missing.pt2", "-o", "x", "--option", "strct=true"], "did you mean 'strict'?"),
        (["compile", str(tmp_path / "yes.pt2"), "-o", str(tmp_path / "x"), "--targets", " , "], "no target; `zefuse"),
        (
            ["compile", "models/m.py:make", "-o", "x"],
            "a factory is named by its module, as m:make in the module's folder",
        ),
        (["explain", "missing.zefuse"], "no file 'missing.zefuse'"),
    ]:
        done = children.zefuse(*arguments)
        assert done.returncode == 1
        assert message in done.stderr.strip().splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written
    try:
        done = subprocess.run(
            [sys.executable, "-m", "zefuse", "targets"], stdout=writer, stderr=subprocess.PIPE, timeout=300
        )
    finally:
        os.close(writer)
    assert done.stderr == b"" and done.returncode == 1


@pytest.mark.parametrize("number", [1, 2])
def test_packages_of_every_format_load(number: int) -> None:
    from safetensors.torch import load_file

    io = load_file(PACKAGES / f"format_{number}.safetensors")
    results = zefuse.load(PACKAGES / f"format_{number}.zefuse")(io["ids"], {"bias": io["bias"]})
    assert results.keys() == {"probabilities", "sum"}
    assert all(torch.allclose(value, io[name], rtol=1e-5, atol=1e-5) for name, value in results.items())


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    data = bytearray((PACKAGES / "format_2.zefuse").read_bytes())
    data[8] = data[10] = 3  # the format, and what a reader must know
    (tmp_path / "newer.zefuse").write_bytes(data)
    with pytest.raises(UnsupportedError, match=r"needs a runtime that reads format 3; this one reads 1 to 2"):
        zefuse.load(tmp_path / "newer.zefuse")


def test_several_shapes(tmp_path: Path) -> None:
    model = nn.Linear(6, 3).eval()
    programs = [torch.export.export(model, (torch.randn(rows, 6),)) for rows in (1, 8)]
    zefuse.compile_package(programs, tmp_path / "m")
    loaded = zefuse.load(tmp_path / "m")
    for rows in (8, 1, 8):
        x = torch.randn(rows, 6)
        assert torch.allclose(loaded(x), model(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArgumentError, match="input"):
        loaded(torch.randn(3, 6))
    other = torch.export.export(nn.Bilinear(2, 2, 2), (torch.ones(2), torch.ones(2)))
    with pytest.raises(InvalidArgumentError, match="different structure"):
        zefuse.compile_package([programs[0], other], tmp_path / "n")


def test_buffers_keep_their_changes(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += x
            return self.count * 2

    zefuse.compile_package(torch.export.export(Counter(), (torch.ones(3),)), tmp_path / "m")
    for _ in range(2):  # each load begins anew
        loaded = zefuse.load(tmp_path / "m")
        assert torch.equal(loaded(torch.ones(3)), torch.full((3,), 2.0))
        assert torch.equal(loaded(torch.ones(3)), torch.full((3,), 4.0))


class Fallback(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x, 4, 0.0, 1.0) + 1


def test_standalone_refuses_aten(tmp_path: Path) -> None:
    program = torch.export.export(Fallback(), (torch.eye(3),))
    with pytest.raises(FallbackError, match=r"(?s)standalone.*histc.*test_package\.py"):
        zefuse.compile_package(program, tmp_path / "m", standalone=True)
    assert not (tmp_path / "m").exists()
    zefuse.compile_package(program, tmp_path / "m")
    assert torch.equal(zefuse.load(tmp_path / "m")(torch.eye(3)), torch.tensor([7.0, 1.0, 1.0, 4.0]))
    # Without torch: refused at load, the operator named.
    code = f"""
import ctypes
library = ctypes.CDLL({str(_native.library_dir() / "libzefuse_runtime.so.1")!r})
model = ctypes.c_void_p()
status = library.zefuse_model_load_file({str(tmp_path / "m")!r}.encode(), None, ctypes.byref(model))
library.zefuse_error_message.restype = ctypes.c_char_p
print(status, library.zefuse_error_message().decode())
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("5 "), done.stdout + done.stderr  # ZEFUSE_UNSUPPORTED
    assert "aten::histc" in done.stdout and "--standalone" in done.stdout


def test_command_line_targets_and_inspect(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import torch\n\n\ndef both():\n    model = torch.nn.Linear(8, 2).eval()\n"
        "    return [torch.export.export(model, (torch.randn(rows, 8),)) for rows in (1, 16)]\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return children.zefuse(*arguments, cwd=tmp_path)

    done = run("compile", "models:both", "--targets", "x86-64-v3", "-o", "m.zefuse")
    assert done.returncode == 0, done.stderr
    done = run("inspect", "m.zefuse")
    assert done.returncode == 0, done.stderr
    assert "format 2, for runtimes that read format 2, by zefuse" in done.stdout
    assert "every hash is right" in done.stdout and "f32[16, 8]" in done.stdout and "weight: f32[2, 8]" in done.stdout
    done = run("compile", "models:both", "--targets", "dg2-g99", "-o", "m.zefuse")
    assert done.returncode == 1 and "did you mean 'dg2-g" in done.stderr
    done = run("compile", "models:nothing", "-o", "m.zefuse")
    assert done.returncode == 1 and "no factory 'models:nothing'" in done.stderr
    data = bytearray((tmp_path / "m.zefuse").read_bytes())
    data[-1] ^= 1  # in the weights
    (tmp_path / "m.zefuse").write_bytes(data)
    done = run("inspect", "m.zefuse")
    assert done.returncode == 1 and "the hash of section 'weights' is wrong" in done.stderr


def test_progress_can_cancel(tmp_path: Path) -> None:
    program = torch.export.export(nn.Sequential(nn.GELU()), (torch.randn(4, 6),))
    seen = []

    def stop(kernel: str, target: str, seconds: float, done: int, every: int) -> bool:
        seen.append((target, done, every))
        return False

    with pytest.raises(ZefuseError, match="cancelled after 1 of 2"):
        zefuse.compile_package(program, tmp_path / "m", progress=stop, options={"build_threads": 1})
    assert seen == [("avx2", 1, 2)]

    def fail(*_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        zefuse.compile_package(program, tmp_path / "m", progress=fail)
    assert not (tmp_path / "m").exists()
