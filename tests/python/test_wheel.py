"""What makes a wheel: the check of its files, and which of its pieces serves an installed torch (docs/install.md)."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
import warnings
import zipfile
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest
import torch

from zefuse import _native
from zefuse.errors import NotFoundError
from zefuse.installing import torch_versions
from zefuse.packages import c_interface

ROOT = Path(__file__).resolve().parents[2]


def module_of(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_wheel = module_of(ROOT / "scripts" / "check_wheel.py")
try_wheel = module_of(ROOT / "tests" / "wheel" / "try_wheel.py")


def test_the_built_wheel() -> None:
    """Building takes longer than all tests: the wheel that `make wheel` left is looked at, if it did."""
    wheels = sorted((ROOT / "build" / "wheels").glob("zefuse-*.whl"))
    if not wheels:
        pytest.skip("no wheel in build/wheels: make wheel")
    assert [problem for wheel in wheels for problem in check_wheel.check(wheel)] == []


def test_a_wheel_is_compressed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries without data too: pip's own reader and others are strict about a stored one."""
    stand_in: Any = types.ModuleType("deflate")  # the package is in build/wheel-tools alone
    stand_in.deflate_compress = lambda data, level: zlib.compress(data, 9, wbits=-15)
    monkeypatch.setitem(sys.modules, "deflate", stand_in)
    monkeypatch.setattr(zipfile, "_get_compressor", zipfile._get_compressor)  # put back afterwards
    wheel = tmp_path / "it.whl"
    given = {"zefuse/": b"", "zefuse/py.typed": b"", "zefuse/a.py": b"x = 1\n" * 1000}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name, data in given.items():
            archive.writestr(name, data)
    module_of(ROOT / "scripts" / "compress_wheel.py").compress(wheel)
    with zipfile.ZipFile(wheel) as archive:
        assert {entry.filename: archive.read(entry) for entry in archive.infolist()} == given
        assert [entry.compress_size for entry in archive.infolist()][:2] == [0, 0]
        assert archive.getinfo("zefuse/a.py").compress_size < 100


def library(path: Path, source: str, *flags: str) -> None:
    compiler = shutil.which("cc") or shutil.which("clang-22")
    if compiler is None:
        pytest.skip("no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *flags]
    subprocess.run(command, input=source, text=True, check=True)


def problems(tmp_path: Path, *flags: str, source: str = "int zefuse_it(void) { return 1; }") -> list[str]:
    lib = tmp_path / "zefuse" / "lib"
    library(lib / "libzefuse_it.so.1", source, *flags)
    return check_wheel.problems_of(lib / "libzefuse_it.so.1", lib)


def test_a_good_library_has_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, "-Wl,-rpath,$ORIGIN") == []


def test_run_paths_stay_inside(tmp_path: Path) -> None:
    assert "leads outside" in problems(tmp_path, "-Wl,-rpath,/usr/lib/llvm-22/lib")[0]
    assert "leads outside" in problems(tmp_path, "-Wl,-rpath,$ORIGIN/../..")[0]


def test_no_library_is_missing(tmp_path: Path) -> None:
    library(tmp_path / "other" / "libother.so", "int other(void) { return 1; }", "-Wl,-soname,libother.so")
    found = problems(tmp_path, "-Wl,--no-as-needed", f"-L{tmp_path}/other", "-lother")
    assert found == ["libzefuse_it.so.1: needs libother.so, which neither the wheel nor a system has"]


def test_foreign_symbols_are_hidden(tmp_path: Path) -> None:
    found = problems(tmp_path, source="int zefuse_it(void) { return 1; } int LLVMGetVersion(void) { return 1; }")
    assert found == ["libzefuse_it.so.1: shows 1 symbols that are not ours, such as LLVMGetVersion"]


def test_a_wheel_without_its_parts(tmp_path: Path) -> None:
    library(tmp_path / "libzefuse_core.so.1", "int zefuse_it(void) { return 1; }")
    with zipfile.ZipFile(tmp_path / "zefuse.whl", "w") as archive:
        archive.write(tmp_path / "libzefuse_core.so.1", "zefuse/lib/libzefuse_core.so.1")
    found = check_wheel.check(tmp_path / "zefuse.whl")
    assert "libdnnl_zefuse.so.3 is missing" in found
    assert "the licence LLVM.txt is missing" in found
    assert "the extension module _C is missing" in found
    assert "libzefuse_core.so.1 is missing" not in found


def test_a_wheel_without_a_part_for_one_of_its_pythons(tmp_path: Path) -> None:
    wheel = tmp_path / "zefuse-0.1.0-cp311.cp313-cp311.cp313-manylinux_2_35_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("zefuse/lib/torch-2.13/_C.cpython-311-x86_64-linux-gnu.so", b"")
        archive.writestr("zefuse/lib/torch-2.15/_C.cpython-313-x86_64-linux-gnu.so", b"")
    found = check_wheel.check(wheel)
    assert "zefuse/lib/torch-2.13: no extension module _C for Python 313" in found
    assert "zefuse/lib/torch-2.15: no extension module _C for Python 311" in found
    assert not any("torch-2.13" in problem and "311" in problem for problem in found)


# --- trying a wheel: its steps by stand-ins, since building one takes longer than all tests ---------------------------------


def package(folder: Path, main: str) -> Path:
    """A wheel with a command ``zefuse`` that does what ``main`` says."""
    wheel, info = folder / "zefuse-0.1.0-py3-none-any.whl", "zefuse-0.1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("zefuse/__init__.py", f"import os, sys\n\ndef main():\n    {main}\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: zefuse\nVersion: 0.1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\nzefuse = zefuse:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def test_a_wheel_is_tried_without_a_home_and_where_nothing_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "print(os.environ['PATH'], os.environ.get('HOME') or 'homeless'); sys.exit(len(sys.argv) - 1)"
    trial = try_wheel.Trial(package(tmp_path, says), Path(sys.executable))
    steps = {
        "install": try_wheel.install,
        "read": try_wheel.read_only,
        "said": lambda trial: trial.program("zefuse"),
        "breaks": lambda trial: trial.program("zefuse", "--help"),
        "after": lambda trial: "a failure stops no other step",
    }
    try:
        cells = try_wheel.tried(trial, steps)
        assert cells["install"].endswith(" s") and cells["read"].startswith("read-only"), cells
        assert not any(path.stat().st_mode & 0o222 for path in trial.packages.rglob("*") if not path.is_symlink())
    finally:
        trial.close()
    assert not trial.folder.exists()
    assert cells["said"] == f"{trial.bin} homeless\n", cells
    assert cells["breaks"] == "FAILED" and "zefuse --help ended with 1:" in capsys.readouterr().err
    assert "after" in cells
    assert try_wheel.table([{"help": "0.1 s"}, {"help": "FAILED"}]) == "| help | 0.1 s | FAILED |"


# --- which piece serves a torch -----------------------------------------------------------------------------------------


def pieces(folder: Path, *versions: str, suffix: str = EXTENSION_SUFFIXES[0]) -> Path:
    for version in versions:
        (folder / f"torch-{version}").mkdir()
        (folder / f"torch-{version}" / f"_C{suffix}").touch()
    return folder


def test_the_piece_of_the_installed_torch(tmp_path: Path) -> None:
    pieces(tmp_path, "2.9", "2.13", "2.15")
    assert torch_versions.compiled_for(tmp_path) == ["2.9", "2.13", "2.15"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch_versions.extension(tmp_path, "2.13.1+cpu")
    assert found.parent.name == "torch-2.13"


def test_a_torch_that_no_test_has_seen_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"not been tested with torch 2\.99\.0 \(tested: "):
        torch_versions.extension(pieces(tmp_path, "2.99"), "2.99.0")


def test_a_torch_without_a_piece_is_an_error(tmp_path: Path) -> None:
    pieces(tmp_path, "2.11", "2.13")
    with pytest.raises(ImportError, match=r"compiled for torch 2\.11 and 2\.13, not for the installed 2\.8\.0"):
        torch_versions.extension(tmp_path, "2.8.0")


def test_another_python_is_an_error(tmp_path: Path) -> None:
    pieces(tmp_path, "2.13", suffix=".cpython-27-x86_64-linux-gnu.so")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(ImportError, match=rf"another Python than {version} \(_C\.cpython-27"):
        torch_versions.extension(tmp_path, "2.13.0")


def test_without_a_compiled_part(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"compiled part is not there: no torch-\*/_C"):
        torch_versions.extension(tmp_path, "2.13.0")


# --- a piece of another build ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "other"),
    [(rb"[0-9a-f]{64}\0", b"0" * 64), (rb"_ZN6zefuse4core13interfaceHashEv", b"_ZN6zefuse4core13interfaceHashIv")],
    ids=["another interface", "a function that is not there"],
)
def test_an_extension_of_another_build_is_named(pattern: bytes, other: bytes, tmp_path: Path) -> None:
    """Classes of one build would be read as those of another: values that are wrong, or a crash."""
    mine = torch_versions.extension(_native.library_dir(), torch.__version__)
    for file in _native.library_dir().iterdir():
        if file.is_file():
            (tmp_path / file.name).symlink_to(file.resolve())
    copy = tmp_path / mine.parent.name / mine.name
    copy.parent.mkdir()
    changed, times = re.subn(pattern, lambda found: other + found[0][len(other) :], mine.read_bytes())
    assert times
    copy.write_bytes(changed)
    program = "from zefuse import _native, errors\ntry: _native.load()\nexcept ImportError as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "ZEFUSE_LIBRARY_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert re.search(
        rf"{re.escape(str(copy))} and \S+libzefuse_core\.so\.1 are of different builds of zefuse", done.stdout
    )


# --- what the libraries of this build show ------------------------------------------------------------------------------


def test_the_core_shows_nothing_of_llvm() -> None:
    """The glue and the core meet in what is marked ZEFUSE_API; another LLVM in the process must find none of ours."""
    core = _native.library_dir() / "libzefuse_core.so.1"
    shown = subprocess.run(["nm", "-D", "--defined-only", core], check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in shown.splitlines()]
    assert len(names) > 100
    assert [name for name in names if "zefuse" not in name] == []


def test_where_the_c_interface_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_interface, "__file__", str(tmp_path / "c_interface.py"))
    with pytest.raises(NotFoundError, match=r"zefuseConfig\.cmake: an installed wheel has it"):
        c_interface.cmake_dir()
    (tmp_path / "include" / "zefuse").mkdir(parents=True)
    (tmp_path / "include" / "zefuse" / "zefuse.h").touch()
    assert c_interface.include_dir() == str(tmp_path / "include")
