"""The examples run. (examples/test_graph_regression.py is collected by itself.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_semantic_search() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "semantic_search.py"), "--quick"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "She kneaded the dough" in done.stdout
    assert "faster than Inductor" in done.stdout
    assert (ROOT / "build" / "demo" / "speed.png").stat().st_size > 10_000
