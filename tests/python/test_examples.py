"""The examples run. (examples/test_graph_regression.py is collected by itself.)"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_minilm_in_cpp(tmp_path: Path) -> None:
    """Installed, exported, compiled at build time by zefuse_add_model, run without Python's environment."""
    installed, built = tmp_path / "zefuse", tmp_path / "build"
    folder = ROOT / "examples" / "minilm_cpp"

    def run(*command: str | Path, **options: Any) -> str:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("cmake", "--install", ROOT / "build" / "release", "--component", "runtime", "--prefix", installed)
    run(sys.executable, folder / "export.py", built)
    command = f"{sys.executable};-m;zefuse"
    run("cmake", "-S", folder, "-B", built, f"-DCMAKE_PREFIX_PATH={installed}", f"-DZEFUSE_COMMAND={command}")
    run("cmake", "--build", built)
    arguments = [built / "minilm.zefuse", built / "tokens.txt", built / "expected.txt"]
    output = run(built / "search", *arguments, env={"PATH": "/usr/bin:/bin"})
    assert "input ids [s0, 32]" in re.sub(r"\bs\d+\b", "s0", output)
    assert "baking bread at home -> She kneaded the dough" in output
    assert "largest difference from Python" in output
    libraries = run("ldd", built / "search")
    assert "libzefuse_runtime" in libraries
    assert "torch" not in libraries and "python" not in libraries

    # A file that is no package.
    done = subprocess.run(
        [built / "search", folder / "README.md", *arguments[1:]], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "it does not begin as a package does" in done.stderr
