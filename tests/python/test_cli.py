"""The command line: what it says, what it does not import, how it ends."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pydoc
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import types
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import children
import pytest

import zefuse
from zefuse import _native, cli, errors
from zefuse.commands import messages

ROOT = Path(__file__).resolve().parents[2]

TORCH = metadata.version("torch")
PACKAGE = Path(__file__).resolve().parents[1] / "packages" / "format_2.zefuse"


def command(
    *words: str, program: str = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which imports nothing beforehand."""
    start = [sys.executable, "-c", program] if program else [sys.executable, "-m", "zefuse"]
    return subprocess.run(
        [*start, *words], capture_output=True, text=True, timeout=300, cwd=cwd, env={**os.environ, **variables}
    )


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command in this process."""
    code = cli.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_overview_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = said(capsys, "--help")
    assert code == 0 and err == ""
    assert max(map(len, out.splitlines())) <= min(columns, 100)
    for command in cli.COMMANDS:
        assert f"\n  {command.name} " in out
    for group in ("Packages:", "This machine:", "Upkeep:"):
        assert out.count(f"\n{group}\n") == 1


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize("name", [command.name for command in cli.COMMANDS])
def test_each_command_has_help_with_an_example(
    name: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = said(capsys, name, "--help")
    assert code == 0 and err == ""
    assert f"example:\n  zefuse {name}" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("  zefuse ")) <= min(columns, 100)
    assert said(capsys, "help", name)[1] == out


def test_without_a_command_the_overview_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys)
    assert code == 2 and out == "" and "Packages:" in err


# --- what was mistyped ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["insepct", "x"], "zefuse: 'insepct': no such command; did you mean 'inspect'?"),
        (["qqqq"], "zefuse: 'qqqq': no such command\n"),
        (["inspect", "--jsn", "x"], "zefuse inspect: '--jsn': no such argument; did you mean '--json'?"),
        (["cache", "stta"], "argument ACTION: 'stta': no such action; did you mean 'stat'?"),
        (["cache", "why", "--cuont=3"], "'--cuont': no such argument; did you mean '--count'?"),
        (["toolchain", "instal"], "'instal': no such value; did you mean 'install'?"),
        (["inspect"], "the following arguments are required: package"),
    ],
)
def test_wrong_usage_gets_a_suggestion(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, *words)
    assert code == 2 and out == ""
    assert message in err and len(err.splitlines()) == 2 and "--help` lists" in err


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files of several kinds."""
    import torch

    folder = tmp_path_factory.mktemp("files")
    module = torch.nn.GELU()
    torch.export.save(torch.export.export(module, (torch.ones(3),)), folder / "model.pt2")
    torch.save({"weight": torch.ones(2)}, folder / "weights.pt")
    torch.jit.save(torch.jit.trace(module, torch.ones(3)), folder / "traced.pt")
    (folder / "notes.txt").write_text("some text, not short")
    (folder / "empty.zefuse").touch()
    (folder / "program").write_bytes(b"\x7fELF\x02\x01\x01\0")
    (folder / "model.zefuse").write_bytes(PACKAGE.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("inspect model.pt2", "compile it first: zefuse compile model.pt2 -o model.zefuse"),
        ("explain model.pt2", "'model.pt2' is a program of torch.export.save, not a package; compile it first"),
        ("explain weights.pt", "'weights.pt' is what torch.save wrote (weights, or a pickled model), not a package"),
        ("inspect traced.pt", "'traced.pt' is a model of torch.jit.save (TorchScript), not a package"),
        ("inspect notes.txt", "'notes.txt' is text, not a package"),
        ("inspect empty.zefuse", "'empty.zefuse' is no package: it is empty"),
        ("explain program", "'program' is a program or library, not a package"),
        ("inspect .", "'.' is a folder; name a file"),
        ("inspect model.zefus", "no file 'model.zefus'; did you mean 'model.zefuse'?"),
        ("compile model.zefuse -o m", "'model.zefuse' is a package already: zefuse inspect model.zefuse"),
        ("compile weights.pt -o m", "'weights.pt' is what torch.save wrote (weights, or a pickled model), no program"),
        ("compile model.pt -o m", "no file 'model.pt'; did you mean 'model.pt2'?"),
        ("compile model.pt2 -o m --targets avx521", "target 'avx521': no such target; did you mean 'avx512'?"),
        ("compile model.pt2 -o m --targets dg2_g11", "target 'dg2_g11': no such target; did you mean 'dg2-g11'?"),
        ("compile model.pt2 -o m --option strcit=true", "'strcit': no such option; did you mean 'strict'?"),
        ("compile model.pt2 -o m --option strict=yes", "strict='yes': expected true or false"),
        ("compile model.pt2 -o m --option jit=alow", 'use "never", "warn" or "allow"; did you mean "allow"?'),
        ("compile model.pt2 -o m --option device=gpu0", 'did you mean "gpu:0"?'),
        ("compile model.pt2 -o .", "-o '.' is a folder"),
        ("compile model.pt2 -o none/m", "to write 'm' into"),
        ("compile models.py:make -o m", "as models:make in the module's folder"),
    ],
)
def test_a_wrong_file_or_value_is_named_before_torch_is_imported(words: str, message: str, files: Path) -> None:
    done = command(*words.split(), program=WITHOUT_TORCH, cwd=files)
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert done.returncode == 1 and done.stdout == ""


# --- torch is not imported where nobody needs it ----------------------------------------------------------------------

WITHOUT_TORCH = """
import sys
from zefuse.cli import main
code = main()
assert not {"torch", "numpy", "zefuse.backend"} & sys.modules.keys(), "a command that needs no torch imports it"
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "compile --help",
        f"inspect {PACKAGE}",
        f"inspect --json {PACKAGE}",
        f"explain {PACKAGE}",
        f"explain --json {PACKAGE}",
        "devices",
        "devices --json",
        "targets",
        "targets --json",
        "targets --markdown",
        "completion bash",
        "cache stat",
        "cache why",
        "cache export exported",
        "cache clear",
    ],
)
def test_commands_without_torch(words: str, tmp_path: Path) -> None:
    done = command(*words.split(), program=WITHOUT_TORCH, cwd=tmp_path, ZEFUSE_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0 and done.stderr == "" and done.stdout
    if "--json" in words:
        json.loads(done.stdout)


def test_commands_that_print_have_data_too() -> None:
    without = {each.name for each in cli.COMMANDS if "--json" not in set(cli.parser_of(each)._options())}
    assert without <= {"completion", "generate"}


# --- completion -------------------------------------------------------------------------------------------------------

# Of each shell: a program that prints what completes the words of its arguments, where the shell asks for it.
SHELLS = {
    "bash": """
eval "$(cat script)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_zefuse
printf '%s\\n' "${COMPREPLY[@]}"
""",
    # The two functions by which zsh is told what there is; it keeps what the word at the cursor begins.
    "zsh": """
compdef() { [[ "$*" == "_zefuse zefuse" ]] || exit 9 }
_describe() { for one in "${listed[@]}"; do word=${one%%:*}; [[ $word == "$words[CURRENT]"* ]] && print -r -- $word; done }
_files() { print -rl -- "$words[CURRENT]"*(N) }
words=("$@"); CURRENT=$#
eval "$(cat script)"
_zefuse
""",
    "fish": """
source script
complete -C "$argv" | string replace -r '\\t.*' ''
""",
}


@pytest.mark.parametrize("shell", list(SHELLS))
def test_completion(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    code, script, _ = said(capsys, "completion", shell)
    assert code == 0
    (tmp_path / "script").write_text(script)
    (tmp_path / "model one.pt2").touch()

    def completed(*words: str) -> set[str]:
        options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
        name = [] if shell == "fish" else ["shell"]
        done = subprocess.run(
            [shell, *options, "-c", SHELLS[shell], *name, *([" ".join(words)] if shell == "fish" else words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode in (0, 1) and done.stderr == "", done.stderr
        return set(done.stdout.split("\n")) - {""}

    assert completed("zefuse", "co") == {"compile", "completion"}
    assert {command.name for command in cli.COMMANDS} <= completed("zefuse", "")
    assert completed("zefuse", "cache", "e") == {"export"}
    assert completed("zefuse", "cache", "why", "--c") == {"--count"}
    assert completed("zefuse", "inspect", "--j") == {"--json"}
    assert completed("zefuse", "compile", "--targets", "avx512_") == {"avx512_bf16"}
    assert {name.replace("\\", "") for name in completed("zefuse", "compile", "mod")} == {"model one.pt2"}
    assert completed("zefuse", "devices", "mod") == set()


# --- what is printed besides ------------------------------------------------------------------------------------------

COMPILE = """
import sys
from zefuse.cli import main
code = main(["compile", "model.pt2", "-o", sys.argv[1] + "/m", "-q"])
from torch.utils._pytree import LeafSpec
LeafSpec()  # line 6: the user's own
sys.exit(code)
"""


def test_the_warning_of_torch_about_itself_is_hidden_and_the_users_own_is_not(files: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILE)
    done = children.run(tmp_path / "program.py", str(tmp_path), cwd=files)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "FutureWarning" in line]
    assert len(warned) == 1 and "program.py:6: FutureWarning" in warned[0]


# --- how a command ends -----------------------------------------------------------------------------------------------


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    """While it waits for a file that somebody else writes."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    running = subprocess.Popen(
        [sys.executable, "-m", "zefuse", "inspect", fifo],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What a shell starts in the background ignores the signal, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(3000):
        try:
            writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)  # possible once it reads
            break
        except OSError:
            time.sleep(0.05)
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=60) == (b"", b"") and running.returncode == 130
    os.close(writer)


@pytest.mark.parametrize("words", ["--help", "cache --help", "targets", "completion bash", f"inspect {PACKAGE}"])
def test_a_closed_pipe_is_quiet(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "zefuse", *words.split()], stdout=writer, stderr=subprocess.PIPE, timeout=300
    )
    os.close(writer)
    # 0 where argparse itself meets the pipe, which it ignores: without buffering (PYTHONUNBUFFERED).
    assert done.stderr == b"" and done.returncode in (0, 1)


def test_a_full_disk_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "zefuse", "targets"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300
        )
    assert done.stderr == "zefuse: no space is left on its disk\n" and done.returncode == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied", "/a/b"), "'/a/b': no permission; choose another place"),
        (OSError(30, "Read-only file system", "/a"), "'/a': the file system is read-only"),
        (ModuleNotFoundError("No module named 'rich.table'", name="rich.table"), "pip install rich"),
        (ValueError("first line\nsecond"), "ValueError: first line\n  This is no error that zefuse expects"),
        (errors.NotFoundError("as it is"), "as it is"),
    ],
)
def test_errors_become_sentences(error: Exception, text: str) -> None:
    assert text in messages.sentence(error) and "second" not in messages.sentence(error)


def test_a_traceback_is_shown_on_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in said(capsys, "inspect", "none.zefuse")[2]
    monkeypatch.setenv("ZEFUSE_TRACEBACK", "1")
    err = said(capsys, "inspect", "none.zefuse")[2]
    assert "Traceback (most recent call last)" in err and err.splitlines()[-1].startswith("zefuse: inspect: no file")


# --- the package's face -----------------------------------------------------------------------------------------------


def test_public_names_alone_are_listed_and_documented() -> None:
    assert dir(zefuse) == sorted(zefuse.__all__)
    text = pydoc.plain(pydoc.render_doc(zefuse))
    for name in zefuse.__all__:
        value = getattr(zefuse, name)
        if not isinstance(value, (str, types.ModuleType)):
            assert re.search(rf"^    (class )?{name}\(", text, re.MULTILINE), name
        assert inspect.getdoc(value), name
    for name in ("_PLACE", "TYPE_CHECKING", "annotations"):
        assert not re.search(rf"^    {name}\b", text, re.MULTILINE)


def test_help_begins_with_the_public_names() -> None:
    """Before pydoc's list of modules, which is all that fits on a first screen; and nothing that is not public."""
    beginning, modules, _ = pydoc.plain(pydoc.render_doc(zefuse)).partition("PACKAGE CONTENTS")
    assert modules
    items = " ".join(re.findall(r"^    (?:- |  )(.*)", beginning, re.MULTILINE))
    named = set(re.findall(r"``(\w+)(?:\([\w, ]*\))?``", items))
    assert named == set(zefuse.__all__)
    assert max(map(len, beginning.splitlines())) <= 80


def test_a_mistyped_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="no attribute 'explian'; did you mean 'explain'"):
        zefuse.explian  # noqa: B018


def test_the_version_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    header = (ROOT / "runtime" / "capi" / "zefuse.h").read_text()
    assert re.findall(r'#define ZEFUSE_VERSION "(.*)"', header) == [zefuse.__version__]
    cache = ROOT / "build" / "release" / "CMakeCache.txt"
    assert re.findall(r"CMAKE_PROJECT_VERSION:STATIC=(.*)", cache.read_text()) == [zefuse.__version__]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    provider = project["tool"]["scikit-build"]["metadata"]["version"]
    found = importlib.import_module(provider.pop("provider")).dynamic_metadata("version", provider)
    assert found == zefuse.__version__
    code, out, _ = said(capsys, "--version")
    lines = out.splitlines()
    assert code == 0 and lines[0] == f"zefuse {zefuse.__version__}" and lines[2] == f"torch {TORCH}"
    assert re.fullmatch(r"build [0-9a-f]{16} for torch .*", lines[3])


# --- an installation that is not well ---------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A package tree of its own, whose libraries can be taken away: a folder for PYTHONPATH."""
    package = tmp_path / "tree" / "zefuse"
    shutil.copytree(Path(zefuse.__file__).parent, package, ignore=shutil.ignore_patterns("lib", "__pycache__"))
    shutil.copytree(_native.library_dir(), package / "lib", copy_function=os.symlink)
    return package.parent


def failed(tree: Path, *words: str, program: str = "", **variables: str) -> str:
    """The one line that a command of that tree ends with; -S: there is nothing else to import."""
    start = ["-c", program] if program else ["-m", "zefuse"]
    done = subprocess.run(
        [sys.executable, "-S", *start, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(tree), **variables},
    )
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_whole_tree_needs_nothing_installed(copied: Path) -> None:
    for words in (["devices"], ["inspect", str(PACKAGE)], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-S", "-m", "zefuse", *words],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONPATH": str(copied)},
        )
        assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "torch is not installed" in done.stdout


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (shutil.rmtree, "there is no folder"),
        (lambda lib: (lib / "libzefuse_runtime.so.1").unlink(), "libzefuse_runtime.so.1 is missing in"),
        (lambda lib: cut(lib / "libzefuse_runtime.so.1"), "libzefuse_runtime.so.1 cannot be loaded: "),
        (lambda lib: (lib / "libze_zefuse_cpu.so.1").unlink(), "libze_zefuse_cpu.so.1"),
        (lambda lib: cut(lib / "libze_zefuse_cpu.so.1"), "libze_zefuse_cpu.so.1"),
    ],
)
def test_a_half_installed_wheel(break_it: Callable[[Path], object], message: str, copied: Path) -> None:
    break_it(copied / "zefuse" / "lib")
    said = failed(copied, "devices")
    assert message in said and "install zefuse again" in said


def cut(library: Path) -> None:
    library.unlink()
    library.write_bytes(b"\x7fELF")


LOAD_NATIVE = """
from zefuse import _native; from zefuse.commands import messages
try:
    _native.load()
except ImportError as error:
    messages.tell(error)
    raise SystemExit(1)
"""


def test_an_installation_error_has_the_message_of_an_import_error() -> None:
    error = errors.InstallationError("reinstall zefuse")
    assert error.msg == str(error) == "reinstall zefuse"


def test_another_torch(copied: Path) -> None:
    (copied / "torch").mkdir()
    (copied / "torch" / "__init__.py").write_text("__version__ = '2.99.0'\n")
    (copied / "torch-2.99.0.dist-info").mkdir()
    (copied / "torch-2.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
    said = failed(copied, program=LOAD_NATIVE)
    assert "was compiled for torch" in said and "not for the installed 2.99.0: pip install 'torch==" in said
    done = subprocess.run(
        [sys.executable, "-S", "-m", "zefuse", "--version"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(copied)},
    )
    assert "torch 2.99.0, which this zefuse is not compiled for" in done.stdout


def test_no_torch(copied: Path, tmp_path: Path, files: Path) -> None:
    said = failed(copied, "compile", str(files / "model.pt2"), "-o", str(tmp_path / "m"))
    assert "the Python package 'torch' is not installed" in said and "pip install torch" in said


def test_a_damaged_extension(copied: Path) -> None:
    (copied / "torch").mkdir()
    (copied / "torch" / "__init__.py").write_text(f"__version__ = {TORCH!r}\n")
    for file in (copied / "zefuse" / "lib").glob("torch-*/_C.*"):
        cut(file)
    said = failed(copied, program=LOAD_NATIVE)
    assert "zefuse's compiled part is not whole: " in said and "install zefuse again" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("cache --dir CLOSED clear", "cannot remove CLOSED/"),
        ("cache --dir CLOSED import EXPORTED", "cannot write CLOSED/"),
        ("cache --dir OPEN export CLOSED/file", "cannot write CLOSED/file"),
        ("compile model.pt2 -o CLOSED/m", "no permission to write into 'CLOSED'"),
    ],
)
def test_no_permission_to_write(words: str, message: str, tmp_path: Path, files: Path) -> None:
    opened, closed, exported = tmp_path / "open", tmp_path / "closed", tmp_path / "exported"
    _native.load().cache_store(str(opened), 1 << 30, "native", [("number", "1")], "one", b"x")
    _native.load().cache_store(str(closed), 1 << 30, "native", [("number", "2")], "two", b"x")
    assert cli.main(["cache", "--dir", str(opened), "export", str(exported)]) == 0
    closed.chmod(0o500)
    # Root may write everywhere unless it gives up its capabilities.
    start = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    places = {"OPEN": str(opened), "CLOSED": str(closed), "EXPORTED": str(exported)}

    def named(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    try:
        done = subprocess.run(
            [*start, sys.executable, "-m", "zefuse", *map(named, words.split())],
            cwd=files,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        closed.chmod(0o700)
    assert done.returncode == 1 and named(message) in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
