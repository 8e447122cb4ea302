"""A stand-in for Intel's ocloc: it covers dg2-g10 and dg2-g11 and writes a line per compilation; what it makes no driver takes."""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """#!/bin/sh
case "$1" in
  query) printf {version} > "$2"; exit 0;;
esac
case "$*" in
  *--help*) echo "  <device_type> can be: dg2-g10, dg2-g11, version"; exit 1;;
esac
file=$(echo "$*" | sed 's/.*-file \\([^ ]*\\).*/\\1/')
sha256sum < "$file" >> {log}
while [ "$1" != -out_dir ]; do shift; done
mkdir "$2"; printf stub > "$2/kernel.bin"
{afterwards}
"""


def install(path: Path, log: Path, afterwards: str = "", version: str = "99.1") -> Path:
    """Writes the stand-in to ``path``, for ZEFUSE_OCLOC, and returns that. ``log``: the file of lines, each the hash of the
    SPIR-V; it begins empty. ``afterwards``: shell that runs at the end of a compilation."""
    path.write_text(_SCRIPT.format(log=log, afterwards=afterwards, version=version))
    path.chmod(0o755)
    log.touch()
    return path
