"""Compresses a wheel again, by libdeflate: ``compress_wheel.py zefuse-*.whl``. Its streams are ordinary deflate, which any pip
reads, and some 4 % smaller than zlib's smallest. Needs the package ``deflate``, which scripts/wheel installs for it.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import deflate

LEVEL = 12  # libdeflate's highest: some 20 s for a wheel


class Compressor:
    """What ``zipfile`` asks of one, for a file that is compressed in one piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def compress(self, data: bytes) -> bytes:
        self.pieces.append(data)
        return b""

    def flush(self) -> bytes:
        return bytes(deflate.deflate_compress(b"".join(self.pieces), LEVEL))


def compress(wheel: Path) -> None:
    """Replaces the file by one of the same entries in the same order; it is left alone where something fails."""
    new = wheel.with_name(wheel.name + ".new")
    zipfile_: Any = zipfile  # it has no public way to name another compressor
    zipfile_._get_compressor = lambda kind, level=None: Compressor() if kind == zipfile.ZIP_DEFLATED else None
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in old.infolist():
            data = old.read(entry)
            entry.compress_type = zipfile.ZIP_DEFLATED if data else zipfile.ZIP_STORED
            written.writestr(entry, data)
    with zipfile.ZipFile(new) as written:
        if (damaged := written.testzip()) is not None:
            sys.exit(f"{damaged} cannot be read back from {new}")
    before, after = wheel.stat().st_size, new.stat().st_size
    os.replace(new, wheel)
    print(f"{wheel.name}: {after / 1e6:.2f} MB, {before / 1e6:.2f} before")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        compress(Path(name))
