"""Programs in processes of their own that begin with torch imported: of the three seconds of a small one, nine tenths are that.

A server (this file as a program) imports, then forks one child per program. It has started no thread and compiled nothing with
zefuse, so a child is what a new process is after its imports: no driver is loaded, nothing is in any table, and the environment
is the one that it is given. For ``imports``, modules that the programs need besides, there is a server of its own: transformers
takes longer than torch, and posing_cuda and posing_xpu have to be there before torch.

Not for tests of importing itself, of PYTHONHASHSEED, or of what a library reads from the environment while it is loaded
(OMP_NUM_THREADS). Nor of how a process ends: a child joins its threads, calls the handlers, destroys its own objects and leaves the
modules and what torch's libraries hold as they are, which would take longer than most programs here; with ``whole`` it ends as ever.

It also listens on a socket, for the commands that command() writes: shell scripts and build systems run them as they would
run Python.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class Child:
    """One running program. Its output is whole once it has ended."""

    def __init__(
        self,
        program: str | Path,
        arguments: tuple[str, ...],
        cwd: str | Path,
        env: Mapping[str, str],
        whole: bool,
        imports: tuple[str, ...],
    ) -> None:
        # Gone when they are closed, which is when it has ended.
        self._files = [tempfile.NamedTemporaryFile(prefix="zefuse-child-") for _ in range(2)]  # noqa: SIM115
        self.returncode: int | None = None
        places = [file.name for file in self._files]
        words = [str(program)] if isinstance(program, Path) else ["-c", program]
        request = {"words": [*words, *arguments], "cwd": str(cwd), "env": dict(env), "output": places, "whole": whole}
        self._imports = imports
        self.pid: int = _ask({"start": request}, imports)

    def poll(self) -> int | None:
        if self.returncode is None and (code := _ask({"poll": self.pid}, self._imports)) is not None:
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


def start(
    program: str | Path,
    *arguments: str,
    cwd: str | Path = ".",
    env: Mapping[str, str] | None = None,
    whole: bool = False,
    imports: tuple[str, ...] = (),
) -> Child:
    """``program``: text, as after python -c, or the path of a file."""
    return Child(program, arguments, Path(cwd).absolute(), os.environ if env is None else env, whole, imports)


def run(
    program: str | Path,
    *arguments: str,
    timeout: float = 300,
    cwd: str | Path = ".",
    env: Mapping[str, str] | None = None,
    whole: bool = False,
    imports: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run(..., capture_output=True, text=True)."""
    child = start(program, *arguments, cwd=cwd, env=env, whole=whole, imports=imports)
    code = child.wait(timeout)
    return subprocess.CompletedProcess([str(program), *arguments], code, *child.output())


ZEFUSE = "import sys\nfrom zefuse.cli import main\nsys.exit(main())"


# Of language models, for ``imports``: what every architecture of transformers takes.
LANGUAGE = ("transformers.models.llama.modeling_llama", "zefuse.llm")


def zefuse(*arguments: str, cwd: str | Path = ".", imports: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The command, as python -m zefuse."""
    return run(ZEFUSE, *arguments, cwd=cwd, imports=imports)


# What is read while a library is loaded or Python starts: a program with others than the server's is a process of its own.
_AT_THE_START = ("TORCH", "OMP_", "MKL_", "LD_", "PYTHONHASHSEED", "PYTHONWARNINGS")
_COMMAND = """#!{python} -IS
import json, os, socket, sys
words = {words!r} + sys.argv[1:]
at_the_start = {{name: value for name, value in os.environ.items() if name.startswith({names!r})}}
if not words or words[0][0] == "-" and words[0] not in ("-c", "-m") or at_the_start != {values!r}:
    os.execv(sys.executable, [sys.executable, *words])
server = socket.socket(socket.AF_UNIX)
server.connect({place!r})
request = json.dumps({{"words": words, "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
code = server.recv(8)
sys.exit(int(code) % 256 if code else "the server of children has ended")
"""


def command(file: Path, *words: str, imports: tuple[str, ...] = ()) -> None:
    """Writes the program ``file``: what ``python words`` and its own arguments would do, in a child of the server."""
    values = {name: value for name, value in os.environ.items() if name.startswith(_AT_THE_START)}
    place = _ask({"place": True}, imports)
    file.write_text(
        _COMMAND.format(python=sys.executable, words=list(words), names=_AT_THE_START, values=values, place=place)
    )
    file.chmod(0o755)


_servers: dict[tuple[str, ...], subprocess.Popen[str]] = {}  # by their imports


def _ask(question: dict[str, Any], imports: tuple[str, ...]) -> Any:
    if (server := _servers.get(imports)) is None:
        if not _servers:
            atexit.register(_end_servers, os.getpid())
        server = _servers[imports] = subprocess.Popen(
            [sys.executable, __file__, *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy's: it starts the others at once
            start_new_session=True,  # Ctrl-C ends it by the end of its input
        )
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(question) + "\n")
    server.stdin.flush()
    answer = server.stdout.readline()
    if not answer:
        raise RuntimeError(f"the server of children ended with {server.wait()}")
    return json.loads(answer)


def _end_servers(starter: int) -> None:
    if os.getpid() != starter:  # a fork of it
        return
    for server in _servers.values():
        server.communicate()


def _become(request: dict[str, Any], files: list[int]) -> None:
    """The forked child, with these files as its standard ones: what it returns or raises from ends as ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    path = [place for place in request["env"].get("PYTHONPATH", "").split(":") if place not in ("", *sys.path)]
    sys.path[1:1] = path
    for place in path:
        if (customization := Path(place, "sitecustomize.py")).exists():
            runpy.run_path(str(customization))
            break
    kind, program, *arguments = request["words"] if request["words"][0] in ("-c", "-m") else ("", *request["words"])
    sys.argv = [program if kind == "" else kind, *arguments]
    sys.path[0] = str(Path(program).parent) if kind == "" else ""
    try:
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        elif kind == "-c":
            exec(compile(program, "<string>", "exec"), module.__dict__)
        else:
            module.__file__ = program
            exec(compile(Path(program).read_text(), program, "exec"), module.__dict__)
    except SystemExit as ended:
        if not request.get("whole") and isinstance(ended.code, int | None):
            _end(ended.code or 0)
        raise
    else:
        if not request.get("whole"):
            _end(0)
    finally:
        # What was frozen is not freed at the exit, which Triton (its nanobind) reports as leaks.
        if "triton" in sys.modules:
            atexit.register(gc.unfreeze)


def _end(code: int) -> None:
    """What the interpreter and the C library do at the end, but for taking apart what was there before the program."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    torch = sys.modules["torch"]
    torch._dynamo.reset()  # the compiled functions' code
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # the interpreter's own end says so
    os._exit(code & 0xFF)


def _serve(questions: IO[str], answers: int, listener: socket.socket) -> None:
    """Returns in each child, and at the end of the questions."""
    commands: dict[int, socket.socket] = {}  # those that run, and whom to tell how they end
    with selectors.DefaultSelector() as selector:
        selector.register(questions, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(0.005 if commands else None)]
            for pid in list(commands):
                if code := _ended(pid):
                    with commands.pop(pid) as asker:
                        asker.sendall(code.encode())
            if listener in ready:
                asker, _ = listener.accept()
                size, files, _, _ = socket.recv_fds(asker, 8, 3)
                with asker.makefile("rb") as stream:
                    request = json.loads(stream.read(int.from_bytes(size, "big")))
                if (pid := os.fork()) == 0:
                    break
                commands[pid] = asker
                for file in files:
                    os.close(file)
            if questions in ready:
                if not (line := questions.readline()):  # one at a time: none waits in the buffer
                    return
                question = json.loads(line)
                answer: Any = None
                if request := question.get("start"):
                    if (answer := os.fork()) == 0:
                        files = [os.open("/dev/null", os.O_RDONLY)]
                        files += [os.open(place, os.O_WRONLY | os.O_APPEND) for place in request["output"]]
                        break
                elif "place" in question:
                    answer = listener.getsockname()
                else:
                    code = _ended(question["poll"])
                    answer = int(code) if code else None
                os.write(answers, (json.dumps(answer) + "\n").encode())
    os.close(answers)
    listener.close()
    for asker in commands.values():
        asker.close()
    _become(request, files)


def _ended(pid: int) -> str:
    """The exit code of a child that has ended."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return str(os.waitstatus_to_exitcode(status)) if ended else ""


def _main(imports: list[str]) -> None:
    before_torch = [name for name in imports if name in ("posing_cuda", "posing_xpu")]
    for name in before_torch:
        importlib.import_module(name)
    import torch

    # What torch imports only when it compiles, but for the thread of its progress bars.
    import tqdm
    from torch._dynamo.utils import counters

    import zefuse  # noqa: F401
    from zefuse.precompile import calls as precompile  # noqa: F401

    tqdm.tqdm.monitor_interval = 0
    for name in imports:
        importlib.import_module(name)
    sys.path.remove(str(Path(__file__).parent))  # this program's; what it imported may have added others
    sys.path.insert(0, "")  # a child's own
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
    torch._dynamo.reset()
    counters.clear()
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    gc.collect()
    gc.freeze()  # a child's collections leave alone what it shares with this process
    questions, answers = os.fdopen(os.dup(0)), os.dup(1)
    os.dup2(2, 1)
    folder = tempfile.mkdtemp(prefix="zefuse-children-")  # nobody else's commands
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen()
    server = os.getpid()
    _serve(questions, answers, listener)
    if os.getpid() == server:
        shutil.rmtree(folder)
        os._exit(0)  # taking torch apart takes longer than all of this


if __name__ == "__main__":
    _main(sys.argv[1:])
