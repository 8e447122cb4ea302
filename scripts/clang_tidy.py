"""clang-tidy over every C++ source of a build; a file that passed before is not looked at again.

    python scripts/clang_tidy.py BUILD_FOLDER [FILE...]

What it finds in headers of libraries and in generated code, on the way through ours, is not ours to mend and does not count.
Files that the build compiles together (a unity build) are looked at one by one, each with the command of its unit.
A file's result holds for its compile command, .clang-tidy, the versions of the tool and of all that set-up installs, and the
contents of every header of the project that it includes. What passed is kept in .cache/clang-tidy; findings never are.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / ".cache" / "clang-tidy"


@cache
def content_hash(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return b"absent"


def single_files(entry: dict[str, str]) -> list[dict[str, str]]:
    """The entry of a compile database, or one for each source file where it is a unit that includes them."""
    unit = Path(entry["file"])
    if unit.parent.name != "Unity":
        return [entry]
    files = re.findall(r'^#include "(/.*)"$', unit.read_text(), re.MULTILINE)
    return [
        {**entry, "file": file, "command": entry["command"].replace(f" -c {unit}", f" -c {file}")} for file in files
    ]


@cache
def includes_of(file: Path, build: Path) -> tuple[Path, ...]:
    """The project's headers, generated ones too, that a file names."""
    text = file.read_text(errors="replace")
    names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE)
    places = ([folder / name for folder in (ROOT, build, file.parent)] for name in names)
    return tuple(found.resolve() for paths in places if (found := next(filter(Path.is_file, paths), None)))


def project_headers(file: Path, build: Path) -> list[Path]:
    """All that a file includes, directly and not."""
    seen: set[Path] = set()
    todo = [file]
    while todo:
        fresh = [h for h in includes_of(todo.pop(), build) if h not in seen and h.is_relative_to(ROOT)]
        seen.update(fresh)
        todo += fresh
    return sorted(seen)


class Source:
    def __init__(self, build: Path, entry: dict[str, str], tools: str) -> None:
        self.file = Path(entry["file"])
        key = hashlib.sha256(tools.encode())
        # Where the object goes is no matter.
        key.update(re.sub(r" -o \S+", "", entry["command"]).replace(str(ROOT), "").encode())
        precompiled = [Path(name) for name in re.findall(r"-include (?:-Xclang )?(\S+)", entry["command"])]
        for file in [self.file, *precompiled]:
            for path in [file, *project_headers(file, build)]:
                key.update(str(path).replace(str(ROOT), "").encode() + b"\0" + content_hash(path))
        self.mark = PASSED / key.hexdigest()


def findings_of_ours(output: str, build: Path) -> str:
    """The findings, each with the notes below it, whose place is a file of the project that nothing generated."""
    kept, ours = [], False
    for line in output.splitlines(keepends=True):
        if place := re.match(r"(/[^:]+):\d+:\d+: (?:error|warning): ", line):
            file = Path(place[1]).resolve()
            ours = file.is_relative_to(ROOT) and not file.is_relative_to(build)
        if ours:
            kept.append(line)
    return "".join(kept)


def main() -> int:
    build = Path(sys.argv[1]).resolve()
    wanted = {Path(name).resolve() for name in sys.argv[2:]}
    program = f"clang-tidy-{os.environ['LLVM_VERSION']}"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    settings = (
        ".clang-tidy",
        "scripts/versions.env",
        "requirements.lock",
    )  # other libraries' headers are these versions'
    tools = version + "".join((ROOT / name).read_text() for name in settings)
    entries = [e for unit in json.loads((build / "compile_commands.json").read_text()) for e in single_files(unit)]
    database = build / "clang-tidy"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(entries))
    # A file that two targets compile is looked at once.
    entries = {entry["file"]: entry for entry in entries if entry["file"].endswith(".cpp")}.values()
    entries = [e for e in entries if not Path(e["file"]).is_relative_to(build)]  # generated
    sources = [Source(build, e, tools) for e in entries if not wanted or Path(e["file"]) in wanted]
    todo = [source for source in sources if not source.mark.exists()]
    PASSED.mkdir(parents=True, exist_ok=True)
    lock, failed, done = threading.Lock(), 0, 0

    def look(source: Source) -> None:
        nonlocal failed, done
        result = subprocess.run([program, "--quiet", "-p", database, source.file], capture_output=True, text=True)
        with lock:
            done += 1
            findings = findings_of_ours(result.stdout, build)
            looked = " error: " in result.stdout and "clang-diagnostic-error" not in result.stdout
            if result.returncode == 0 or (looked and not findings):
                source.mark.touch()
            else:
                failed += 1
                print(findings or result.stdout, result.stderr, sep="", flush=True)
            if done % 25 == 0 or done == len(todo):
                print(f"{done} of {len(todo)} files, {failed} with findings", flush=True)

    print(f"{len(sources)} files, {len(sources) - len(todo)} of them passed before", flush=True)
    with ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        list(pool.map(look, todo))
    keep = sorted(PASSED.iterdir(), key=lambda mark: mark.stat().st_mtime, reverse=True)[:5000]
    for mark in set(PASSED.iterdir()) - set(keep):
        mark.unlink(missing_ok=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
