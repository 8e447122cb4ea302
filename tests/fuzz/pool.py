"""Workers and their deadlines. The parent survives whatever a graph does to a worker."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

WORKER = Path(__file__).with_name("worker.py")
START_S = 60  # to import torch
WAITING = 5  # times the deadline, for what does not compute


class TimeIsUp(Exception):
    """Of the whole run: what was asked is not answered any more."""


class Worker:
    """One process at a time: started when there is a question, again when it ended."""

    def __init__(
        self,
        poses_as: str,
        deadline_s: float,
        most_graphs: int = 1000,
        script: Path = WORKER,
        until: float = float("inf"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``until``: the moment, as time.monotonic() says it, from which on ask() raises TimeIsUp."""
        self._environment = dict(environment or {})
        self.poses_as = poses_as
        self.deadline_s = deadline_s
        self._until = until
        self._script = script  # it calls serve()
        self.restarts = -1
        self._most_graphs = most_graphs  # torch keeps a little of each graph
        self._left = 0
        self._said_before = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = io.BytesIO()  # the process's standard error

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """A crash and a hang are answers as well: status "wrong", kind "crash" or "hang"."""
        fresh = self._process is None or self._left == 0
        if fresh:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._left -= 1
        self._said_before = self._errors.seek(0, os.SEEK_END)
        with contextlib.suppress(BrokenPipeError):  # it ended: read below
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        line = self._read_line(self.deadline_s + (START_S if fresh else 0))
        if line is not None and line.endswith(b"\n"):
            return json.loads(line)
        if line is None:
            kind, text = "hang", f"no answer within {self.deadline_s:g} s"
        else:
            code = self._process.wait()
            kind = "crash"
            text = f"the process ended: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
        answer = {"status": "wrong", "kind": kind, "text": f"{text}\n{self._said()}"}
        self.close()
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._process = None
        self._errors.close()

    def _start(self) -> None:
        self.close()
        self._left = self._most_graphs
        self.restarts += 1
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        env = {**os.environ, "ZEFUSE_CPU_DRIVER_AS": self.poses_as, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        env |= self._environment
        self._process = subprocess.Popen(
            [sys.executable, str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            bufsize=0,
        )

    def _read_line(self, seconds: float) -> bytes | None:
        """None: the deadline passed. Without a newline at its end: the process ended.

        The deadline is of processor time, so that a busy machine makes no findings; one that waits has more of real time, of which
        what it waited for a processor is none.
        """
        assert self._process is not None and self._process.stdout is not None
        end, busy_end, parts = self._waited_s() + WAITING * seconds, self._busy_s() + seconds, b""
        while not parts.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], 0.5)
            if not ready:
                if self._waited_s() > end or self._busy_s() > busy_end:
                    return None
                if time.monotonic() > self._until:
                    self.close()
                    raise TimeIsUp
                continue
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            parts += piece
        return parts

    def _waited_s(self) -> float:
        """Real time, without what the worker could have run in and did not get a processor."""
        assert self._process is not None
        try:
            for_processor = int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # a kernel that does not count it
            for_processor = 0.0
        return time.monotonic() - for_processor

    def _busy_s(self) -> float:
        """The processor time of the worker so far."""
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _said(self) -> str:
        """What it wrote to standard error since the question."""
        self._errors.seek(self._said_before)
        return self._errors.read(1500).decode(errors="replace")
