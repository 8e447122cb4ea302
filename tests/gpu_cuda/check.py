"""On a machine with an NVIDIA GPU, in the folder that scripts/cuda_check made: everything that is checked there, and one table.

    check.py [PART ...]     api placed programs package doctor selftest families zoo sanitizers training; without names all of them

The tests of CUDA tensors run first, alone, and the API's last, since some of them use up the GPU's memory; the others side by side.
All of it ends within CHECK_S seconds (530), a third of which is the API's (a process for each of its tests): a part that does not
end is stopped, and its row says how far it came. A part that did not run says why.

Where zefuse's wheel lies beside this, or zefuse is installed: placed, package, doctor, selftest, families, zoo, sanitizers and
training (steps under the sanitizers).

Writes the table (check.md) after each part, and what a part printed (PART.txt), to $OUT, or beside this. The last lines of the
output are the table. Status 1 where something failed, or where a part did not run to its end.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = Path(os.environ.get("OUT", HERE))
DEVICE = os.environ.get("ZEFUSE_CHECK_DEVICE", "gpu:0")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
TRAINING = (
    "training_bf16_autocast",
    "training_llama_bf16",
    "compiled_optimizer",
    "grad_scaler_f16_and_accumulation",
    "batch_norm_and_convolutions",
)  # tests of placed.py
# initcheck does not see what bulk copies (TMA) write, as cuBLAS's 16-bit products do: f32, and our own products.
TRAINING_F32 = ("training_f32", "compiled_optimizer", "batch_norm_and_convolutions")
ROWS = (
    "api tests",
    "loader programs",
    "package",
    "doctor",
    "selftest",
    "CUDA tensors",
    "families",
    "families, CUDA tensors",
    "zoo forward",
    "zoo backward",
    *TOOLS,
    *(f"training, {tool}" for tool in TOOLS),
)
TOGETHER = 12  # of the API's tests in a process
SECONDS = float(os.environ.get("CHECK_S", "530"))
END = time.monotonic() + SECONDS
DEADLINE = END  # of what runs now


@dataclass
class Row:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""
    ended: bool = True  # False: it did not run, or not to its end

    def cells(self) -> str:
        if not self.ended and not self.seconds:
            return f"- | - | - | - | {self.note}"
        return f"{self.passed} | {self.failed} | {self.skipped} | {self.seconds:.0f} | {self.note}"


class Table:
    """Rows by name, written out whenever one comes. Any thread may add one."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._lock = threading.Lock()

    def add(self, name: str, row: Row) -> None:
        with self._lock:
            self.rows[name] = row
            (OUT / "check.md").write_text(self.text())
            print(f"{name}: {row.cells()}", flush=True)

    def text(self) -> str:
        lines = ["| part | passed | failed | skipped | seconds | remarks |", "|---|---|---|---|---|---|"]
        lines += [f"| {name} | {self.rows[name].cells()} |" for name in ROWS if name in self.rows]
        return "\n".join(lines) + "\n"

    def good(self) -> bool:
        return all(row.ended and not row.failed for row in self.rows.values())


@dataclass
class Run:
    status: int | None  # None: stopped at its deadline
    seconds: float
    text: str

    def row(self, passed: int, failed: int, skipped: int = 0, note: str = "") -> Row:
        """A row of it; where it was stopped or ended by itself with nothing seen to fail, the remark says so."""
        if self.status is None:
            note = f"stopped after {self.seconds:.0f} s{'; ' if note else ''}{note}"
        elif self.status and not failed:
            last = (self.text.strip().splitlines() or [""])[-1]
            failed, note = 1, f"exit status {self.status}: {last[:160]}"
        return Row(passed, failed, skipped, self.seconds, note, self.status is not None)


def run(name: str, command: list[str], limit: float = 1e9, **environment: str | None) -> Run:
    """Runs it with its output in NAME.txt, until `limit` seconds or everybody's deadline; then all it started is killed."""
    log = OUT / f"{name}.txt"
    variables = {**os.environ, **{key: value for key, value in environment.items() if value is not None}}
    for key in (key for key, value in environment.items() if value is None):
        variables.pop(key, None)
    start = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=HERE, env=variables, start_new_session=True
        )
        try:
            status: int | None = process.wait(max(min(limit, DEADLINE - start), 0.1))
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Run(status, time.monotonic() - start, log.read_text(errors="replace"))


def counted(text: str, kind: str = "") -> tuple[int, int, int]:
    """Of lines "NAME [KIND] ok|FAIL|SKIP ...": how many of each."""
    words = re.findall(rf"^\S+ +{kind + ' +' if kind else ''}(ok|FAIL|SKIP)\b", text, re.MULTILINE)
    return words.count("ok"), words.count("FAIL"), words.count("SKIP")


def api(table: Table) -> None:
    """Several tests to a process, since a context takes seconds to make; what did not pass there runs once more in a process
    of its own: one that hangs or loses the device harms no other."""
    start = time.monotonic()
    listed = subprocess.run(
        ["./driver_api_tests", "--gtest_list_tests"], capture_output=True, text=True, cwd=HERE, check=True
    )
    tests, suite = [], ""
    for line in listed.stdout.splitlines():
        if line.startswith(" "):
            tests.append(suite + line.split()[0])
        elif line.endswith("."):
            suite = line.strip()

    def together(group: list[str]) -> dict[str, str]:
        """Those that passed or were skipped, with their lines."""
        limit = min(60, DEADLINE - time.monotonic())
        if limit <= 0:
            return {}
        command = ["./driver_api_tests", f"--gtest_filter={':'.join(group)}"]
        try:
            output = subprocess.run(
                command, capture_output=True, text=True, cwd=HERE, timeout=limit, check=False
            ).stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace")
        words = {"      OK": "ok", " SKIPPED": "SKIP"}
        ended = re.findall(r"^\[ (      OK| SKIPPED) \] (\S+?)(?: \(|,|$)", output, re.MULTILINE)
        return {test: f"{test} {words[word]}" for word, test in ended if test in group}

    def one(test: str) -> str:
        limit = min(20, DEADLINE - time.monotonic())
        if limit <= 0:
            return f"{test} LATE"
        try:
            command = ["./driver_api_tests", f"--gtest_filter={test}"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return f"{test} FAIL not ended after {limit:.0f} s"
        if done.returncode:
            told = [line for line in (done.stdout + done.stderr).splitlines() if not re.match(r"\[|Running|Note", line)]
            return "\n    ".join([f"{test} FAIL exit status {done.returncode}", *told[:12]])
        return f"{test} {'SKIP' if '[  SKIPPED' in done.stdout else 'ok'}"

    alone = [test for test in tests if test.startswith("Hardware.")]  # they fill the memory, or count what is free
    others = [test for test in tests if test not in alone]
    with ThreadPoolExecutor(8) as several:
        known: dict[str, str] = {}
        for group in several.map(together, [others[i : i + TOGETHER] for i in range(0, len(others), TOGETHER)]):
            known |= group
        results = list(several.map(lambda test: known.get(test) or one(test), others))
    results += [one(test) for test in alone]
    text = "\n".join(results) + "\n"
    (OUT / "api.txt").write_text(text)
    passed, failed, skipped = counted(text)
    late = len(re.findall(r"^\S+ LATE", text, re.MULTILINE))
    note = ", ".join(line.split()[0] for line in results if " FAIL" in line)[:300]
    if late:
        note = f"{late} were not begun in time; {note}"
    table.add("api tests", Row(passed, failed, skipped, time.monotonic() - start, note, not late))


def put_kernels() -> None:
    """Where the programs look for them, several at the same time."""
    folder = Path((HERE / "kernel-folder").read_text().strip())
    folder.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "kernels").glob("*.spv"):
        shutil.copy(file, folder)


def programs(table: Table) -> None:
    """Programs linked to the loader alone: math against the host, the loader's four ways to call a driver, an overhead."""
    kernels = (HERE / "kernel-folder").read_text().strip()
    layer = {"ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1", "ZE_ENABLE_HANDLE_LIFETIME": "1"}
    wrapped = {"ZE_ENABLE_LOADER_INTERCEPT": "1"}
    kinds: list[tuple[str, list[str], float, dict[str, str]]] = [
        ("math", ["./math_check", "math_check.spv"], 90, {}),
        ("direct", ["./driver_loader_program", kernels], 40, {}),
        ("intercepted", ["./driver_loader_program", kernels], 40, wrapped),
        ("validated", ["./driver_loader_program", kernels], 40, layer),
        ("intercepted and validated", ["./driver_loader_program", kernels], 40, {**wrapped, **layer}),
        ("launch overhead", ["./launch_overhead", kernels], 40, {}),
    ]
    row, text = Row(), ""
    for name, command, limit, environment in kinds:
        done = run("programs", command, limit, **environment)
        text += f"== {name}: exit status {done.status}, {done.seconds:.1f} s\n{done.text}"
        row.seconds += done.seconds
        row.passed += done.status == 0
        row.failed += done.status != 0
        if done.status != 0:
            row.note += f"{name} failed; "
    (OUT / "programs.txt").write_text(text)
    table.add("loader programs", row)


def package(table: Table) -> None:
    """Its libraries alone: run_package fails where a compiler, Python or torch is loaded."""
    environment = {"ZE_ENABLE_ALT_DRIVERS": None, "LD_LIBRARY_PATH": os.environ["ZEFUSE_CHECK_LIBRARIES"]}
    done = run("package", ["./run_package", "package", DEVICE], 60, **environment)
    table.add("package", done.row(int(done.status == 0), 0))


def doctor(table: Table) -> None:
    done = run("doctor", [sys.executable, "-m", "zefuse", "doctor"], 90)
    table.add("doctor", done.row(int(done.status == 0), 0))


def selftest(table: Table) -> None:
    done = run("selftest", [sys.executable, "-m", "zefuse", "selftest", "--device", DEVICE], 300)
    found = re.search(r"(\d+) of (\d+)", done.text)
    passed, every = (int(found[1]), int(found[2])) if found else (0, 0)
    table.add("selftest", done.row(passed, every - passed))


def placed(table: Table) -> None:
    done = run("placed", [sys.executable, "placed.py"], 120)
    table.add("CUDA tensors", done.row(*counted(done.text), note=told_of(done.text, "time_of_the_host")))


def told_of(text: str, test: str) -> str:
    found = re.search(rf"^{test} +ok +\S+ s +(.*)", text, re.MULTILINE)
    return found[1] if found else ""


def families(table: Table) -> None:
    done = run("families", [sys.executable, "families.py"])
    table.add("families", done.row(*counted(done.text)))


def placed_families(table: Table) -> None:
    done = run("placed_families", [sys.executable, "families.py", "--placed", "--small"])
    table.add("families, CUDA tensors", done.row(*counted(done.text)))


def zoo(table: Table) -> None:
    done = run("zoo", [sys.executable, "models.py"])
    table.add("zoo forward", done.row(*counted(done.text, "forward")))
    table.add("zoo backward", done.row(*counted(done.text, "backward")))


def sanitizer(tool: str, table: Table) -> None:
    """The kernels of the families."""
    sanitized(tool, tool, ["families.py", "--small"], table)


def training_sanitizer(tool: str, table: Table) -> None:
    """Training steps of CUDA tensors, optimizer and scaler among them. Each of torch's tensors is an allocation of CUDA's then:
    what lies behind one is nobody's, and what a kernel has not written is not what an earlier tensor left."""
    more = {"ZEFUSE_CUBLASLT": "off"} if tool == "initcheck" else {}
    tests = TRAINING_F32 if tool == "initcheck" else TRAINING
    sanitized(f"training, {tool}", tool, ["placed.py", *tests], table, PYTORCH_NO_CUDA_MEMORY_CACHING="1", **more)


def sanitized(name: str, tool: str, program: list[str], table: Table, **environment: str) -> None:
    checker = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not checker:
        table.add(name, Row(note="no compute-sanitizer on this machine", ended=False))
        return
    options = ["--tool", tool, "--target-processes", "application-only", "--error-exitcode", "9", "--print-limit", "20"]
    done = run(name.replace(", ", "-"), [checker, *options, sys.executable, *program], **environment)
    passed, failed, skipped = counted(done.text)
    found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.text)
    errors = sum(int(number) for line in found for number in re.findall(r"^(\d+)", line))
    table.add(name, done.row(passed, failed + errors, skipped, "; ".join(found)))


def use_wheel(folder: str) -> str:
    """Installs the wheel beside this into `folder`, if there is one. What keeps zefuse from being used; "": nothing."""
    wheels = list(HERE.glob("*.whl"))
    if wheels:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder]
        done = subprocess.run([*command, str(wheels[0])], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{wheels[0].name} cannot be installed: {done.stderr.strip()[-200:]}"
        os.environ["PYTHONPATH"] = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
    code = "import os, zefuse; print(os.path.dirname(zefuse.__file__) + '/lib')"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"zefuse is not there: {(tried.stderr.strip().splitlines() or [''])[-1][:200]}"
    os.environ["ZEFUSE_CHECK_LIBRARIES"] = tried.stdout.strip()
    return ""


def use_driver() -> None:
    """The driver beside this, or zefuse's, unless ZE_ENABLE_ALT_DRIVERS names one."""
    name = "libze_zefuse_cuda.so.1"
    folder = HERE / "lib" if (HERE / "lib" / name).exists() else Path(os.environ.get("ZEFUSE_CHECK_LIBRARIES", "lib"))
    os.environ.setdefault("ZE_ENABLE_ALT_DRIVERS", str(folder / name))
    os.environ.setdefault("ZEFUSE_CUDA_DRIVER_LOG", "1")


def guarded(part: Callable[[Table], None], rows: tuple[str, ...], table: Table, absent: str) -> None:
    """A part that cannot run is a row with the reason, and harms no other."""
    try:
        if absent:
            raise RuntimeError(absent)
        if time.monotonic() > DEADLINE:
            raise RuntimeError("no time left")
        part(table)
    except Exception as error:
        for name in rows:
            if name not in table.rows:
                table.add(name, Row(note=str(error)[:300], ended=False))


def main(names: list[str]) -> int:
    global DEADLINE
    table = Table()
    parts: dict[str, list[tuple[Callable[[Table], None], tuple[str, ...]]]] = {
        "api": [(api, ("api tests",))],
        "programs": [(programs, ("loader programs",))],
        "package": [(package, ("package",))],
        "doctor": [(doctor, ("doctor",))],
        "selftest": [(selftest, ("selftest",))],
        "placed": [(placed, ("CUDA tensors",))],
        "families": [(families, ("families",)), (placed_families, ("families, CUDA tensors",))],
        "zoo": [(zoo, ("zoo forward", "zoo backward"))],
        "sanitizers": [(partial(sanitizer, tool), (tool,)) for tool in TOOLS],
        "training": [(partial(training_sanitizer, tool), (f"training, {tool}",)) for tool in TOOLS],
    }
    if unknown := set(names) - set(parts):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    wanted = names or list(parts)
    with tempfile.TemporaryDirectory() as folder:
        absent = use_wheel(folder)
        use_driver()
        put_kernels()
        # Many processes side by side, and each would have a thread for every core.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 8)))
        DEADLINE = END - (SECONDS / 3 if "api" in wanted else 0)
        if "placed" in wanted:
            guarded(*parts["placed"][0], table, absent)
        with ThreadPoolExecutor(len(parts) + 2 * len(TOOLS)) as several:
            for name in wanted:
                for part, rows in parts[name] if name not in ("api", "placed") else []:
                    several.submit(guarded, part, rows, table, absent if name != "programs" else "")
        DEADLINE = END
        if "api" in wanted:
            guarded(*parts["api"][0], table, "")
    print(f"\n{table.text()}", end="")
    return 0 if table.good() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
