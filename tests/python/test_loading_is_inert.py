"""Loading a package or an entry executes nothing that lies in it: no pickle, no eval, no code object."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import children
import torch
from op_case import Calls

import zefuse

SOURCES = Path(zefuse.__file__).parent

# Modules that make objects or code of bytes, and calls that do.
MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "shelve", "joblib", "jsonpickle", "yaml", "runpy", "code"}
CALLS = {
    "eval",
    "exec",
    "__import__",
    "marshal.load",
    "marshal.loads",
    "torch.load",
    "torch.jit.load",
    "torch.package.PackageImporter",
    "numpy.load",
    "np.load",
    "types.CodeType",
}


def names_used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module.partition(".")[0]
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and not reads_tensors_alone(node):
            yield node.lineno, ast.unparse(node.func)


def reads_tensors_alone(call: ast.Call) -> bool:
    return any(ast.unparse(each) == "weights_only=True" for each in call.keywords)


def test_no_source_reads_code_from_data() -> None:
    found = [
        f"{path.name}:{line}: {name}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line, name in names_used(ast.parse(path.read_text()))
        if name in MODULES | CALLS
    ]
    assert not found, found
    assert list(names_used(ast.parse("import pickle.x\nmarshal.loads(b)"))) == [(1, "pickle"), (2, "marshal.loads")]


SCRIPT = """
import sys
import torch
import zefuse
from zefuse import _native; from zefuse.precompile import calls as precompile

FORBIDDEN = {
    "exec", "compile", "code.__new__", "import", "marshal.load", "marshal.loads", "pickle.find_class",
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "ctypes.dlopen",
}
watching, entered, seen = False, 0, []

def hook(event, arguments):
    if watching and event in FORBIDDEN:
        seen.append(event + str(arguments)[:200])

sys.addaudithook(hook)

def watched(function):
    def call(*arguments):
        global watching, entered
        watching, entered = True, entered + 1
        try:
            return function(*arguments)
        finally:
            watching = False
    return call

def one(x):
    return torch.softmax(x, -1) * 3

def two(x):
    return (torch.tanh(x) * 2).cumsum(0)

what, folder = sys.argv[1:]
native = _native.load()
x = torch.linspace(-1, 1, 12).reshape(3, 4)
if what == "package":
    zefuse.load(folder + "/one")(x)  # after this nothing is imported any more
    torch.testing.assert_close(watched(lambda: zefuse.load(folder + "/two")(x))(), two(x))
elif what == "compile":
    watched(eval)("1")
else:
    if what == "precompile":
        zefuse.enable_precompile()
    for function in (one, two):
        with torch.no_grad():
            call = torch.compile(function, backend="zefuse")
            if function is two and what == "cache":
                native.compile = watched(native.compile)
            if function is two and what == "precompile" and any("taken" in event for event in precompile.events()):
                call = watched(call)
            torch.testing.assert_close(call(x), function(x))
    print(sum("taken" in event for event in precompile.events()))
print(entered, seen)
"""


def run(what: str, folder: Path) -> list[str]:
    done = children.run(SCRIPT, what, str(folder), env={**os.environ, "ZEFUSE_CACHE_DIR": str(folder / "cache")})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_watch_sees_what_runs(tmp_path: Path) -> None:
    assert "exec" in run("compile", tmp_path)[-1]


def test_a_package_runs_nothing(tmp_path: Path) -> None:
    x = torch.ones(3, 4)
    for name, function in {
        "one": lambda x: torch.softmax(x, -1) * 3,
        "two": lambda x: (torch.tanh(x) * 2).cumsum(0),
    }.items():
        zefuse.compile_package(torch.export.export(Calls(function), (x,)), tmp_path / name)
    assert run("package", tmp_path)[-1] == "1 []"


def test_plans_and_native_code_run_nothing(tmp_path: Path) -> None:
    run("cache", tmp_path)
    assert run("cache", tmp_path)[-1] == "1 []"


def test_precompiled_functions_run_nothing(tmp_path: Path) -> None:
    assert run("precompile", tmp_path) == ["0", "0 []"]
    assert run("precompile", tmp_path) == ["2", "1 []"]
