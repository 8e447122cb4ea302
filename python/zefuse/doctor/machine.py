"""Everything that ``zefuse doctor`` reads of the machine goes through one object, so that a test can put recorded facts in
its place: files of a WSL2, the answer of a driver that hangs. Nothing here raises for what is not there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a child process ended, and what it had printed by then."""

    output: str = ""
    error: str = ""
    code: int | None = 0
    """Its exit code, negative for a signal; None: it was killed at its deadline, or could not be started."""
    started: bool = True
    seconds: float = 0.0

    @property
    def late(self) -> bool:
        return self.started and self.code is None

    def how(self) -> str:
        """``exit code 1``, ``SIGSEGV``, ``no answer within 10 s``."""
        if not self.started:
            return f"could not be started ({self.error})"
        if self.code is None:
            return f"no answer within {self.seconds:.0f} s"
        if self.code < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-self.code).name
            return f"signal {-self.code}"
        return f"exit code {self.code}"


@dataclass(frozen=True)
class Status:
    """What is asked of a file or device node."""

    mode: int
    uid: int
    gid: int
    size: int = 0


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    groups: frozenset[int]  # the effective one and the supplementary ones


class Machine:
    """This machine and this process' environment. Tests derive from it, or give another ``root``. Thread-safe."""

    def __init__(
        self, root: str = "/", environment: Mapping[str, str] | None = None, package: Path | None = None
    ) -> None:
        self.root = root
        self.environment: Mapping[str, str] = dict(os.environ) if environment is None else environment
        self.package = package or Path(__file__).resolve().parents[1]  # the folder of the Python package zefuse
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[str]] = set()  # guarded; that run now

    # --- files -----------------------------------------------------------------------------------

    def place(self, path: str) -> str:
        """Where an absolute path of the examined machine is."""
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))

    def read(self, path: str) -> str | None:
        """The text of a small file; None without one that can be read."""
        try:
            with open(self.place(path), errors="replace") as file:
                return file.read(1 << 20)
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """What a folder holds, sorted; empty without one."""
        try:
            return sorted(os.listdir(self.place(path)))
        except OSError:
            return []

    def link(self, path: str) -> str:
        """The last part of what a symbolic link names; empty without one."""
        try:
            return os.path.basename(os.readlink(self.place(path)))
        except OSError:
            return ""

    def status(self, path: str) -> Status | None:
        try:
            found = os.stat(self.place(path))
        except OSError:
            return None
        return Status(found.st_mode, found.st_uid, found.st_gid, found.st_size)

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def writable(self, path: str) -> bool:
        """Whether a file can be made in this folder: by making one."""
        try:
            with tempfile.TemporaryFile(dir=self.place(path)):
                return True
        except OSError:
            return False

    def free_bytes(self, path: str) -> int | None:
        try:
            found = os.statvfs(self.place(path))
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def folder_size(self, path: str, seconds: float = 1.0) -> tuple[int, int, bool]:
        """Files below a folder, their bytes, and whether all were seen in the time given."""
        files, size, end = 0, 0, time.monotonic() + seconds
        for folder, _, names in os.walk(self.place(path)):
            for name in names:
                with contextlib.suppress(OSError):
                    size += os.lstat(os.path.join(folder, name)).st_size
                    files += 1
            if time.monotonic() > end:
                return files, size, False
        return files, size, True

    # --- this process ----------------------------------------------------------------------------

    def user(self) -> User:
        uid = os.geteuid()
        try:
            import pwd

            name = pwd.getpwuid(uid).pw_name
        except (ImportError, KeyError):
            name = self.environment.get("USER", str(uid))
        return User(name, uid, frozenset({os.getegid(), *os.getgroups()}))

    def group_name(self, gid: int) -> str:
        """Empty where the number has no name here, as in a container that knows not the host's groups."""
        try:
            import grp

            return grp.getgrgid(gid).gr_name
        except (ImportError, KeyError):
            return ""

    def home(self) -> str:
        """The user's home folder; empty without one."""
        if (home := self.environment.get("HOME")) is not None:
            return home
        try:
            import pwd

            return pwd.getpwuid(os.geteuid()).pw_dir
        except (ImportError, KeyError):
            return ""

    def affinity(self) -> list[int]:
        """The processors that this process may use."""
        try:
            return sorted(os.sched_getaffinity(0))
        except OSError:
            return list(range(os.cpu_count() or 1))

    def machine_name(self) -> str:
        return os.uname().machine

    def kernel(self) -> str:
        return os.uname().release

    def libc(self) -> str:
        """``glibc 2.36``; empty for another C library."""
        try:
            return os.confstr("CS_GNU_LIBC_VERSION") or ""
        except (OSError, ValueError):
            return ""

    def python(self) -> tuple[str, str, str]:
        """Implementation, version and program."""
        version = sys.version_info
        suffix = "" if version.releaselevel == "final" else f"{version.releaselevel[0]}{version.serial}"
        name = {"cpython": "CPython"}.get(sys.implementation.name, sys.implementation.name)
        return name, f"{version.major}.{version.minor}.{version.micro}{suffix}", sys.executable

    def patience(self) -> float:
        """How much longer than its deadline a child may take here: more where more processes run than processors are."""
        try:
            load = float((self.read("/proc/loadavg") or "0").split()[0])
        except (ValueError, IndexError):
            return 1.0
        return max(1.0, min(4.0, load / len(self.affinity())))

    # --- children --------------------------------------------------------------------------------

    def program(self, name: str) -> str | None:
        """Where the shell would find it."""
        return shutil.which(name, path=self.environment.get("PATH", os.defpath))

    def run(
        self, command: Sequence[str], seconds: float, more: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Ended:
        """Runs a child in a session of its own and kills that at the deadline, ``seconds`` on a machine with nothing else to
        do. ``more``: environment beside ours."""
        seconds *= self.patience()
        start = time.monotonic()
        try:
            child = subprocess.Popen(
                list(command),
                env={**self.environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                cwd=cwd,
            )
        except OSError as error:
            return Ended(error=error.strerror or str(error), code=None, started=False)
        with self._lock:
            self._children.add(child)
        try:
            output, printed = child.communicate(timeout=seconds)
            return Ended(output, printed, child.returncode, seconds=time.monotonic() - start)
        except subprocess.TimeoutExpired:
            _kill_session(child)
            try:
                output, printed = child.communicate(timeout=2.0)
            except subprocess.TimeoutExpired as late:  # it sleeps in the kernel, or another session holds the pipe
                output, printed = _text(late.output), _text(late.stderr)
            return Ended(output, printed, None, seconds=seconds)
        finally:
            with self._lock:
                self._children.discard(child)

    def end_children(self) -> None:
        """What other threads wait for ends now: at Ctrl-C, which children in sessions of their own do not get."""
        with self._lock:
            for child in self._children:
                _kill_session(child)


def _kill_session(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _text(partial: str | bytes | None) -> str:
    return partial.decode(errors="replace") if isinstance(partial, bytes) else partial or ""
