"""``zefuse toolchain install``: a current Intel compiler beside the distribution's, in a folder of the user's.

The packages of ocloc and its compiler from Debian's or Ubuntu's newest suite are unpacked with what they need (their own libc
too), nothing is installed into the system, and no root is needed. apt's own sources name the mirror; apt verifies what comes
from there with the distribution's keyring.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from zefuse.errors import DeadlineError, DeviceError, NotFoundError
from zefuse.installing.apt_sources import Mirror, find_mirror

PACKAGES = ("intel-ocloc", "libigc2")
_SECONDS = 600.0  # of each step


def folder() -> Path:
    """Where toolchains are; one folder each, found by ``zefuse targets`` and ``zefuse compile``."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "zefuse" / "toolchains"


def install(say: Callable[[str], object] = print) -> Path:
    """Unpacks the compiler and returns its command. About 0.5 GB; replaces an earlier one when it has worked."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise NotFoundError(
                f"toolchain install: no {tool} here; it unpacks Debian packages. Get ocloc from your distribution or from "
                "Intel and name it in ZEFUSE_OCLOC"
            )
    try:
        mirror = find_mirror()
    except NotFoundError as error:
        raise NotFoundError(f"toolchain install: {error}; or name an ocloc in ZEFUSE_OCLOC") from None
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place) as name:
        fresh = Path(name) / "intel"
        fresh.mkdir()
        say(f"downloading {', '.join(PACKAGES)} from {mirror.distribution.name} {mirror.distribution.newest}")
        _download(fresh, mirror)
        say("unpacking")
        for package in sorted((fresh / "apt" / "archives").glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(fresh / "root")])
        shutil.rmtree(fresh / "apt")
        final = place / "intel"
        _write_wrapper(fresh, final)
        if final.exists():
            final.rename(Path(name) / "old")
        fresh.rename(final)
    command = final / "ocloc"
    say(f"{command}: {_run([str(command), '--version']).strip()}")
    return command


def _download(fresh: Path, mirror: Mirror) -> None:
    apt = fresh / "apt"
    for part in ("lists/partial", "archives/partial"):
        (apt / part).mkdir(parents=True)
    (apt / "sources.list").write_text(mirror.source())
    (apt / "status").write_text("")
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": 0,
        "Acquire::Languages": "none",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    _run(["apt-get", *options, "-q", "update"])
    _run(["apt-get", *options, "-qy", "--download-only", "install", *PACKAGES])


def _write_wrapper(fresh: Path, final: Path) -> None:
    """Runs the unpacked program with its own loader and libraries."""
    root = fresh / "root"

    def find(*patterns: str) -> list[Path]:
        found = sorted(file for pattern in patterns for file in root.rglob(pattern) if file.is_file())
        if not found:
            raise NotFoundError(f"toolchain install: the packages hold no {patterns[0]}: the distribution has moved it")
        return found

    def moved(file: Path) -> Path:
        return final / file.relative_to(fresh)

    libraries = {moved(file.parent) for file in find("libocloc.so*", "libigc.so*", "libc.so.6", "libstdc++.so.6")}
    loader = moved(find("ld-linux-x86-64.so.2")[0])
    programs = [file for file in find("ocloc", "ocloc-[0-9]*") if os.access(file, os.X_OK)]
    path = ":".join(sorted(map(str, libraries)))
    wrapper = fresh / "ocloc"
    wrapper.write_text(f'#!/bin/sh\nexec "{loader}" --library-path "{path}" "{moved(programs[-1])}" "$@"\n')
    wrapper.chmod(0o755)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise DeadlineError(f"toolchain install: {command[0]} did not end in {_SECONDS:.0f} s") from error
    if done.returncode != 0:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise DeviceError(
            f"toolchain install: {command[0]} ended with {how}\n  to repeat: {' '.join(command)}\n{done.stdout}{done.stderr}"
        )
    return done.stdout
