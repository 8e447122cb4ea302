"""The GPU's checks and their table (tests/gpu_cuda/check.py), with programs of the test's own in place of what they run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
API = """#!/bin/sh
case "$1" in
--gtest_list_tests)
  echo 'Running main() from somewhere'
  printf 'Memory.\\n  Small\\n  Large  # GetParam() = 1\\nHardware.\\n  Memory\\nLists.\\n  Copies\\n' ;;
*Small:*Large:*Copies) echo '[       OK ] Memory.Small (3 ms)'; touch others-ended ; exit 3 ;;
*Hardware.Memory) test -e others-ended || exit 1 ;;
*Memory.Large) echo 'the reason'; exit 1 ;;
*Lists.Copies) echo '[  SKIPPED ] 1 test' ;;
esac
"""
FAMILIES = """print("softmax                  ok     1 kernels, largest error 1.0e-07")
print("sort                     FAIL   1 kernels, largest error 1.0e+00", flush=True)
raise SystemExit(1)
"""
PLACED = """print("threads                  ok     0.1 s")
print("time_of_the_host         ok     0.6 s  zefuse 7 us")
"""
MODELS = """import time
print("gpt2             forward  ok   {}\\ngpt2             backward FAIL not ended", flush=True)
time.sleep(100)
"""
SANITIZER = """#!/bin/sh
echo '========= ERROR SUMMARY: 3 errors'
exit 9
"""


def program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    folder = tmp_path / "carried"
    program(folder / "run_package")
    for name in ("driver_loader_program", "launch_overhead"):
        program(folder / name, '#!/bin/sh\ntest -e "$1/one.spv"\n')
    (folder / "kernels").mkdir()
    (folder / "kernels" / "one.spv").touch()
    program(folder / "math_check", "#!/bin/sh\nexit 3\n")
    program(folder / "driver_api_tests", API)
    program(tmp_path / "tools" / "compute-sanitizer", SANITIZER)
    (folder / "kernel-folder").write_text(f"{tmp_path}/kernels\n")
    (folder / "families.py").write_text(FAMILIES)
    (folder / "models.py").write_text(MODELS)
    (folder / "placed.py").write_text(PLACED)
    (folder / "zefuse").mkdir()  # check.py's own folder is on its children's path
    (folder / "zefuse" / "__init__.py").touch()
    (folder / "zefuse" / "__main__.py").write_text("print('selftest: 12 of 12 passed')")
    shutil.copy(ROOT / "tests" / "gpu_cuda" / "check.py", folder)
    return folder


def checked(folder: Path, *parts: str, seconds: str = "60") -> tuple[int, list[str]]:
    environment = {
        **os.environ,
        "PATH": f"{folder.parent / 'tools'}:/usr/bin:/bin",
        "PYTHONPATH": str(folder),
        "CHECK_S": seconds,
        "OUT": str(folder),
    }
    # The base Python, which has no zefuse: an editable installation comes before any path.
    command = [f"{sys.base_prefix}/bin/python3", str(folder / "check.py"), *parts]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    table = (folder / "check.md").read_text()
    assert done.stdout.endswith(table), done.stdout + done.stderr
    return done.returncode, table.splitlines()[2:]


def cells(row: str) -> list[str]:
    """Without the seconds."""
    name, passed, failed, skipped, _, *remarks = [cell.strip() for cell in row.strip("| ").split("|")]
    return [name, passed, failed, skipped, *remarks]


def test_one_table_tells_what_passed_and_what_did_not(carried: Path) -> None:
    status, rows = checked(carried, seconds="12")
    found = {row[0]: row[1:] for row in map(cells, rows)}
    assert status == 1
    assert found["api tests"] == ["2", "1", "1", "Memory.Large"]
    assert "the reason" in (carried / "api.txt").read_text()
    assert found["loader programs"] == ["5", "1", "0", "math failed;"]
    assert found["package"] == ["1", "0", "0"]
    assert found["selftest"] == ["12", "0", "0"]
    assert found["CUDA tensors"] == ["2", "0", "0", "zefuse 7 us"]
    assert found["families"] == found["families, CUDA tensors"] == ["1", "1", "0"]
    assert found["zoo forward"][:3] == ["1", "0", "0"]
    assert found["zoo forward"][3].startswith("stopped after ")
    assert found["zoo backward"][:3] == ["0", "1", "0"]
    assert found["racecheck"] == found["training, racecheck"] == ["0", "3", "0", "3 errors"]


def test_a_part_alone_and_one_that_cannot_run(carried: Path) -> None:
    assert checked(carried, "selftest")[0] == 0
    (carried / "families.py").write_text("raise SystemExit('no such device')")
    status, rows = checked(carried, "families")
    assert status == 1
    assert cells(rows[0]) == ["families", "0", "1", "0", "exit status 1: no such device"]
    assert cells(rows[1])[:3] == ["families, CUDA tensors", "0", "1"]
    (carried / "zefuse" / "__init__.py").write_text("raise ImportError('built for another Python')")
    status, rows = checked(carried, "families", "programs")
    assert status == 1
    assert cells(rows[0])[0] == "loader programs"
    assert rows[1] == "| families | - | - | - | - | zefuse is not there: ImportError: built for another Python |"
