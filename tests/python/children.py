"""Programs in processes of their own that begin with torch imported: of the three seconds of a small one, nine tenths are that.

A server (this file as a program) imports, then forks one child per program. It has started no thread and compiled nothing with
zefuse, so a child is what a new process is after its imports: no driver is loaded, nothing is in any table, and the environment
is the one that it is given. Not for tests of importing itself, of PYTHONHASHSEED, or of what a library reads from the environment
while it is loaded (OMP_NUM_THREADS).
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class Child:
    """One running program. Its output is whole once it has ended."""

    def __init__(
        self, program: str | Path, arguments: tuple[str, ...], cwd: str | Path, env: Mapping[str, str]
    ) -> None:
        # Gone when they are closed, which is when it has ended.
        self._files = [tempfile.NamedTemporaryFile(prefix="zefuse-child-") for _ in range(2)]  # noqa: SIM115
        self.returncode: int | None = None
        places = [file.name for file in self._files]
        what = {"file": str(program)} if isinstance(program, Path) else {"text": program}
        request = {**what, "arguments": arguments, "cwd": str(cwd), "env": dict(env), "output": places}
        self.pid: int = _ask({"start": request})

    def poll(self) -> int | None:
        if self.returncode is None and (code := _ask({"poll": self.pid})) is not None:
            self._whole = self.output()
            for file in self._files:
                file.close()
            self.returncode = code
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, *self.output())
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Returns when it has ended."""
        self.send_signal(signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.005)

    def output(self) -> tuple[str, str]:
        """Standard output and error so far."""
        if self.returncode is not None:
            return self._whole
        texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in self._files]
        return texts[0], texts[1]


def start(program: str | Path, *arguments: str, cwd: str | Path = ".", env: Mapping[str, str] | None = None) -> Child:
    """``program``: text, as after python -c, or the path of a file."""
    return Child(program, arguments, Path(cwd).absolute(), os.environ if env is None else env)


def run(
    program: str | Path,
    *arguments: str,
    timeout: float = 300,
    cwd: str | Path = ".",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run(..., capture_output=True, text=True)."""
    child = start(program, *arguments, cwd=cwd, env=env)
    code = child.wait(timeout)
    return subprocess.CompletedProcess([str(program), *arguments], code, *child.output())


def zefuse(*arguments: str, cwd: str | Path = ".") -> subprocess.CompletedProcess[str]:
    """The command, as python -m zefuse."""
    return run("import sys\nfrom zefuse.cli import main\nsys.exit(main())", *arguments, cwd=cwd)


_server: subprocess.Popen[str] | None = None


def _ask(question: dict[str, Any]) -> Any:
    global _server
    if _server is None:
        _server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's: it starts the others at once
            start_new_session=True,  # Ctrl-C ends it by the end of its input
        )
    assert _server.stdin is not None and _server.stdout is not None
    _server.stdin.write(json.dumps(question) + "\n")
    _server.stdin.flush()
    answer = _server.stdout.readline()
    if not answer:
        raise RuntimeError(f"the server of children ended with {_server.wait()}")
    return json.loads(answer)


def _become(request: dict[str, Any]) -> None:
    """The forked child: returns when the program has, so that the interpreter ends as ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open("/dev/null", os.O_RDONLY)
    outputs = [os.open(place, os.O_WRONLY | os.O_APPEND) for place in request["output"]]
    for number, file in enumerate((null, *outputs)):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    file = request.get("file")
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    if file:
        module.__file__ = file
    sys.modules["__main__"] = module
    sys.argv = [file or "-c", *request["arguments"]]
    sys.path[0] = str(Path(file).parent) if file else ""
    # What was frozen is not freed at the exit, which Triton (its nanobind) reports as leaks. Freeing all takes as long as most
    # programs here.
    if "triton" in sys.modules:
        atexit.register(gc.unfreeze)
    code = compile(Path(file).read_text() if file else request["text"], file or "<string>", "exec")
    exec(code, module.__dict__)


def _serve(questions: IO[str], answers: int) -> None:
    """Returns in each child, and at the end of the questions."""
    while line := questions.readline():
        question, answer = json.loads(line), None
        if "start" in question:
            answer = os.fork()
            if answer == 0:
                os.close(answers)
                return _become(question["start"])
        else:
            pid, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        os.write(answers, (json.dumps(answer) + "\n").encode())


def _main() -> None:
    import torch

    # What torch imports only when it compiles, but for the thread of its progress bars.
    import tqdm
    from torch._dynamo.utils import counters

    import zefuse  # noqa: F401
    from zefuse import backend, precompile  # noqa: F401

    tqdm.tqdm.monitor_interval = 0
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
    torch._dynamo.reset()
    counters.clear()
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    gc.collect()
    gc.freeze()  # a child's collections leave alone what it shares with this process
    questions, answers = os.fdopen(os.dup(0)), os.dup(1)
    os.dup2(2, 1)
    _serve(questions, answers)


if __name__ == "__main__":
    _main()
