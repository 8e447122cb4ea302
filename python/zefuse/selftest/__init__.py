"""``zefuse selftest --device cpu|gpu:0``: compiles ten kernels and two models, compares them with eager, and writes a report
that the owner of a device can send.

All parts run in one child, since importing torch takes longer than most of them; it is killed where a part takes longer than
its deadline, and a part that hangs, crashes or fails costs the others a new child.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from zefuse.doctor.machine import Ended, Machine
from zefuse.errors import InvalidArgumentError
from zefuse.selftest.worker import PREFIX

# The parts of parts.py, which only a process with torch can import.
NAMES = (
    "pointwise",
    "reduction",
    "softmax",
    "layer norm",
    "matmul",
    "transpose",
    "gather, scatter",
    "scan",
    "sort",
    "convolution",
    "CNN",
    "transformer",
)
DEADLINE_S = 60.0  # of one part
START_S = 60.0  # of a child's first line, which imports torch
_SECONDS_TO_END = 5.0  # of a child that has said all: the kernel writes a core file meanwhile
_CHILD = "import sys; from zefuse.selftest.worker import main; main(sys.argv[1], sys.argv[3:], int(sys.argv[2]))"


@dataclass
class Result:
    """What the selftest found. ``parts``: name, result (pass, wrong, error, hangs, crashes), message, and of those that ran
    compile_ms, run_ms, error, kernels, calls, fallbacks."""

    asked: str
    torch: str = ""
    device: dict[str, Any] | None = None
    """As `zefuse.devices` has it; None: there is no such device, or no child came as far as to look."""
    parts: list[dict[str, Any]] = field(default_factory=list)
    message: str = ""
    """Why no part ran."""
    seconds: float = 0.0

    def passed(self) -> int:
        return sum(part["result"] == "pass" for part in self.parts)

    def good(self) -> bool:
        return not self.message and self.passed() == len(self.parts) > 0

    def to_dict(self) -> dict[str, Any]:
        from zefuse import __version__

        return {
            "format": 1,
            "zefuse": __version__,
            "torch": self.torch,
            "asked": self.asked,
            "device": self.device,
            "verdict": "pass" if self.good() else "fail",
            "message": self.message,
            "seconds": round(self.seconds, 1),
            "parts": self.parts,
        }


class _Child:
    """One worker and the lines that it says."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile() if _has_temporary_folder() else None  # noqa: SIM115
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors or subprocess.DEVNULL,
            start_new_session=True,
        )
        self._how: str | None = None
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            if line.startswith(PREFIX.encode()):
                with contextlib.suppress(ValueError):
                    self._lines.put(json.loads(line[len(PREFIX) :]))
        self._lines.put(None)

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Its next line; None when there comes none any more. Raises queue.Empty after the time."""
        return self._lines.get(timeout=seconds)

    def end(self, seconds: float = 0.0) -> str:
        """Waits so long for its end, kills what is left of it, and says how it ended."""
        if self._how is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
            self._reader.join(1.0)
            if not self._reader.is_alive() and self._process.stdout is not None:
                self._process.stdout.close()
            printed = self._printed()
            if code < 0:
                self._how = Ended(code=code).how()
            else:
                self._how = f"exit code {code}" + (f": {printed}" if printed else "")
        return self._how

    def _printed(self) -> str:
        """The last line of its standard error."""
        if self._errors is None:
            return ""
        with self._errors as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def _has_temporary_folder() -> bool:
    try:
        tempfile.gettempdir()
    except OSError:
        return False
    return True


def run(
    device: str,
    deadline_s: float = DEADLINE_S,
    progress: Callable[[dict[str, Any]], None] = lambda part: None,
    names: Sequence[str] = NAMES,
    child: Sequence[str] = (sys.executable, "-c", _CHILD),
    start_s: float = START_S,
) -> Result:
    """Runs the parts on ``device`` (``cpu``, ``gpu:0``); ``progress`` is told of each as it ends. ``child``: the command of
    the worker. Deadlines are those of a machine with nothing else to do."""
    if re.fullmatch(r"cpu|gpu(:\d+)?", device) is None:
        raise InvalidArgumentError(f'selftest: device {device!r}: use "cpu", or "gpu:N" for an Intel GPU')
    start = time.monotonic()
    patience = Machine().patience()
    deadline_s, start_s = deadline_s * patience, start_s * patience
    result = Result(device)
    left = list(names)
    while left and not result.message:
        before = len(left)
        _one_child(result, left, deadline_s, start_s, progress, child)
        if len(left) == before:  # it did not even come to a part: neither would the next child
            result.message = result.message or "the child ended before its first part"
    result.seconds = time.monotonic() - start
    return result


def _one_child(
    result: Result,
    left: list[str],
    deadline_s: float,
    start_s: float,
    progress: Callable[[dict[str, Any]], None],
    command: Sequence[str],
) -> None:
    """Takes the parts that it came to from ``left``."""
    timeout_s = max(1, int(deadline_s / 3))  # zefuse's own deadline of a step comes before ours
    child = _Child([*command, result.asked, str(timeout_s), *left])
    running, started = "", False

    def ended(part: dict[str, Any]) -> None:
        left.remove(part["name"])
        result.parts.append(part)
        progress(part)

    try:
        while True:
            seconds = deadline_s if started else start_s
            try:
                said = child.next(seconds)
            except queue.Empty:
                message = f"no answer within {seconds:.0f} s"
                if running:
                    ended({"name": running, "result": "hangs", "message": message})
                else:
                    result.message = f"the child that imports torch and zefuse gave {message}"
                return
            if said is None:
                break
            started = True
            if "torch" in said:
                result.torch, result.device = said["torch"], said["device"]
            if said.get("no_device"):
                result.message = f"this machine has no device {result.asked}"
            if "begin" in said:
                running = said["begin"]
            if "end" in said:
                ended({"name": said.pop("end"), **said})
                running = ""
        how = child.end(_SECONDS_TO_END)
        if running:
            ended({"name": running, "result": "crashes", "message": how})
        elif left and not result.message and not result.parts:
            result.message = f"the child that imports torch and zefuse ended with {how}"
    finally:
        child.end()


# --- for people -------------------------------------------------------------------------------------------------------

_HEADER = f"{'part':<16} {'result':<7} {'compile ms':>10} {'run ms':>8} {'error':>8}"


def row(part: dict[str, Any], width: int) -> str:
    """One line of the table, a message below it."""
    line = f"{part['name']:<16} {part['result']}"
    if "run_ms" in part:
        line = f"{line:<24} {part['compile_ms']:>10.0f} {part['run_ms']:>8.3f} {part['error']:>8.0e}"
    if part.get("message"):
        line += "\n" + textwrap.fill(
            part["message"], max(40, min(width, 110)), initial_indent="    ", subsequent_indent="    "
        )
    return line


def main(device: str, report: str | None, deadline_s: float) -> int:
    """Prints the table and writes the report; 0 where all parts passed."""
    import shutil

    from zefuse import __version__

    width = shutil.get_terminal_size((100, 24)).columns
    print(f"zefuse {__version__} on {device}: {len(NAMES)} parts against eager")
    print(_HEADER, flush=True)
    result = run(device, deadline_s, lambda part: print(row(part, width), flush=True))
    if result.message:
        print(textwrap.fill(f"No part was tested: {result.message}", min(width, 110)))
        if device.startswith("gpu") and result.device is None:
            from zefuse import doctor

            print(doctor.no_gpu_lines(width))
    name = f", {result.device['name']}" if result.device else ""
    print(
        textwrap.fill(
            f"{result.passed()} of {len(NAMES)} parts passed in {result.seconds:.1f} s{name}", max(40, min(width, 110))
        )
    )
    print(_write(result, report, width))
    return 0 if result.good() else 1


def as_json(device: str, report: str | None, deadline_s: float) -> int:
    """Prints what the report has, and writes it where one is asked for; 0 where all parts passed."""
    result = run(device, deadline_s)
    text = _report(result)
    if report is not None:
        with open(report, "w") as file:
            file.write(text + "\n")
    print(text)
    return 0 if result.good() else 1


def _report(result: Result) -> str:
    """JSON, with what doctor finds."""
    from zefuse import doctor

    text = json.dumps({**result.to_dict(), "doctor": doctor.examine().to_dict()}, indent=1)
    home = os.path.expanduser("~")
    # Whose machine it is is nobody's business.
    return text.replace(json.dumps(home)[1:-1], "~") if len(home) > 1 else text


def _write(result: Result, wanted: str | None, width: int) -> str:
    """Writes the report and says where it is."""
    path = wanted or f"zefuse-selftest-{result.asked.replace(':', '')}.json"
    text = _report(result)
    try:
        with open(path, "w") as file:
            file.write(text + "\n")
    except OSError as error:
        line = f"No report: {path} cannot be written ({error.strerror}); --report FILE names another"
    else:
        line = f"Report, with what zefuse doctor finds, to look through and send: {path}"
    return textwrap.fill(line, max(40, min(width, 110)), break_on_hyphens=False)
