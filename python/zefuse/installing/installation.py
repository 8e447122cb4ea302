"""What is installed, found without importing torch: for ``zefuse --version``."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from zefuse import __version__, _native
from zefuse.errors import InstallationError
from zefuse.installing import torch_versions


def torch_found() -> str | None:
    """The version of the torch that ``import torch`` would take; None without one. torch is not imported."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def require(package: str, user: str) -> None:
    """Raises InstallationError where a package that ``user`` needs is missing."""
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise InstallationError(f"{user} needs {package}: pip install {package}")


def build_id() -> str | None:
    """The GNU build id of the compiled part (``libzefuse_core.so.1``), as hexadecimal digits; None where it is missing."""
    try:
        return _build_id_of(_native.library_dir() / "libzefuse_core.so.1")
    except (OSError, struct.error):
        return None


def _build_id_of(library: Path) -> str | None:
    """See elf(5): the note NT_GNU_BUILD_ID among the program headers of type PT_NOTE."""
    pt_note, nt_gnu_build_id = 4, 3
    with library.open("rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return None
        at, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        file.seek(at)
        table = file.read(size * count)
        for number in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", table, number * size)
            if kind != pt_note or length > 1 << 16:
                continue
            file.seek(offset)
            notes = file.read(length)
            while len(notes) >= 12:
                name_bytes, body_bytes, note = struct.unpack_from("<III", notes)
                body = 12 + (name_bytes + 3) // 4 * 4
                if note == nt_gnu_build_id and notes[12:16] == b"GNU\0":
                    return notes[body : body + body_bytes].hex()
                notes = notes[body + (body_bytes + 3) // 4 * 4 :]
    return None


def versions() -> str:
    """``zefuse --version``: a line each for zefuse, Python, torch and the compiled part."""
    torch = torch_found()
    served = torch_versions.compiled_for(_native.library_dir())
    fits = "" if torch is None or torch_versions.minor(torch) in served else ", which this zefuse is not compiled for"
    compiled = build_id()
    lines = [
        f"zefuse {__version__}",
        f"Python {'.'.join(map(str, sys.version_info[:3]))}",
        f"torch {torch}{fits}" if torch else "torch is not installed",
        f"build {compiled[:16]} for torch {torch_versions.listed(served) or 'none'}"
        if compiled
        else f"build: there is none in {_native.library_dir()}",
    ]
    return "\n".join(lines)
