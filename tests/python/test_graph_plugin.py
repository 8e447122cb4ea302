"""The pytest plug-in: its snapshots, and that each of five planted regressions is caught and told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from zefuse.errors import DamagedError
from zefuse.pytest_plugin.changes import changes
from zefuse.pytest_plugin.snapshot import Graph, Snapshot, Step
from zefuse.pytest_plugin.summary import markdown

pytest_plugins = ["pytester"]

TEST = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 32)
        self.calls = 0

    def forward(self, x, mask):
        BEFORE
        scores = self.project(x)
        weights = torch.softmax(scores * 0.5 + mask, -1)
        RESULT

@torch.no_grad()
def test_attention(zefuse_graph):
    torch.manual_seed(0)
    zefuse_graph.check(Attention().eval(), (torch.randn(64, 32), torch.randn(64, 32)), max_kernels=MOSTMORE)
"""


def source(before: str = "pass", result: str = "return weights + 1", most: int = 1, more: str = "") -> str:
    return TEST.replace("BEFORE", before).replace("RESULT", result).replace("MOST", str(most)).replace("MORE", more)


@pytest.fixture(scope="module", autouse=True)
def everything_imported() -> None:
    """A run of pytest inside this one forgets what it imported, and torch cannot be imported twice."""
    import torch

    import zefuse
    import zefuse.pytest_plugin.graph

    str(zefuse.check(torch.nn.Linear(3, 3), torch.ones(2, 3), modes=["grad", "no_grad"], timed=False))
    str(zefuse.explain(torch.nn.Linear(3, 3), torch.ones(2, 3)))
    torch.linalg.matrix_exp(torch.eye(2))


def run(pytester: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    pytester.makepyfile(test_graphs=text)
    sys.modules.pop("test_graphs", None)
    return pytester.runpytest_inprocess("-p", "zefuse.pytest_plugin", "-p", "no:randomly", *words)


@pytest.fixture
def kept(pytester: pytest.Pytester) -> Path:
    """A model's snapshot as it was."""
    run(pytester, source(), "--zefuse-update").assert_outcomes(passed=1)
    return pytester.path / "zefuse_graphs" / "test_graphs" / "test_attention.txt"


def failure(result: pytest.RunResult) -> str:
    result.assert_outcomes(failed=1)
    return "\n".join(line.removeprefix("E").strip() for line in result.outlines if line.startswith("E "))


# --- the snapshot -----------------------------------------------------------------------------------------------------


def test_a_missing_snapshot_is_asked_for_written_and_kept(pytester: pytest.Pytester) -> None:
    said = failure(run(pytester, source()))
    assert (
        "there is no snapshot yet: pytest --zefuse-update writes zefuse_graphs/test_graphs/test_attention.txt" in said
    )
    written = run(pytester, source(), "--zefuse-update")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["*zefuse: snapshots written*", "zefuse_graphs/test_graphs/test_attention.txt"])
    run(pytester, source()).assert_outcomes(passed=1)
    again = run(pytester, source(), "--zefuse-update")
    assert "snapshots written" not in again.stdout.str()


def test_the_text_names_no_machine_and_reads_back(kept: Path) -> None:
    text = kept.read_text()
    assert "graph 1: inference | kernel 1, call 1, fallback 0" in text
    assert re.search(r"kernel +\| mul, add, _softmax, add \| f32\[64, 32\] \| \d+ bytes", text), text
    assert re.search(r"call +\| matmul: addmm \| f32\[64, 32\] \| \d+ bytes", text), text
    assert "output   | f32[64, 32]" in text and ".py" not in text and "avx" not in text
    assert Snapshot.read(text, "x").text() == text


def test_a_damaged_snapshot_is_named_with_its_line(kept: Path, pytester: pytest.Pytester) -> None:
    kept.write_text("graph breaks: 0\n<<<<<<< ours\n")
    result = run(pytester, source())
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_attention.txt:2: this is no line of a snapshot: '<<<<<<< ours'*"])
    with pytest.raises(DamagedError, match="x:1"):
        Snapshot.read("  kernel | mul", "x")


def test_a_snapshot_that_no_test_makes_is_told(kept: Path, pytester: pytest.Pytester) -> None:
    renamed = source().replace("def test_attention", "def test_renamed") + "\n\ndef test_other():\n    pass\n"
    result = run(pytester, renamed, "--zefuse-update", "--zefuse-summary=summary.md")
    line = "zefuse_graphs/test_graphs/test_attention.txt: no test makes this snapshot any more; delete it"
    result.stdout.fnmatch_lines(["*zefuse: stale snapshots*", line])
    assert "test_attention.txt" in (pytester.path / "summary.md").read_text()
    assert "stale snapshots" not in run(pytester, renamed, "-k", "renamed").stdout.str()
    assert "stale snapshots" not in run(pytester, renamed, "test_graphs.py::test_renamed").stdout.str()
    assert "stale snapshots" not in run(pytester, renamed.replace("pass\n", "assert False\n")).stdout.str()
    assert "stale snapshots" in run(pytester, renamed).stdout.str()
    kept.unlink()
    assert "stale snapshots" not in run(pytester, renamed).stdout.str()


def test_a_snapshot_of_a_removed_file_is_told(kept: Path, pytester: pytest.Pytester) -> None:
    (pytester.path / "test_graphs.py").unlink()
    pytester.makepyfile(test_more="def test_more():\n    pass\n")
    result = pytester.runpytest_inprocess("-p", "zefuse.pytest_plugin")
    result.stdout.fnmatch_lines(["zefuse_graphs/test_graphs/test_attention.txt: no test makes this snapshot*"])


def test_stale_snapshots_with_workers(kept: Path, pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    text = "import pytest\n@pytest.mark.parametrize('number', range(3))\ndef test_more(number):\n    pass\n"
    pytester.makepyfile(test_graphs=text)
    words = ["-p", "zefuse.pytest_plugin", "-n", "2"]
    pytester.runpytest_subprocess(*words).stdout.fnmatch_lines(["*stale snapshots*", "*test_attention.txt: no test*"])
    deselecting = """
        def pytest_collection_modifyitems(config, items):
            config.hook.pytest_deselected(items=items[1:])
            del items[1:]
    """
    pytester.makeconftest(deselecting)
    assert "stale snapshots" not in pytester.runpytest_subprocess(*words).stdout.str()


# --- five planted regressions -----------------------------------------------------------------------------------------


def test_a_lost_fusion(kept: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler fuses nothing any more."""
    from zefuse.options import Options

    make = Options.make.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Options, "make", classmethod(lambda cls, given=None: make(cls, {**dict(given or {}), "fuse": False}))
    )
    said = failure(run(pytester, source(most=9)))
    assert re.search(r"softmax is no longer fused with mul, add|(mul|add|softmax).* no longer fused with", said), said
    assert re.search(r"\+\d kernels?, \+[\d.]+ KB", said), said
    assert "If this is meant: pytest --zefuse-update writes" in said


def test_a_new_fallback(kept: Path, pytester: pytest.Pytester) -> None:
    said = failure(run(pytester, source(before="x = x + torch.linalg.matrix_exp(x[:32])[:1]")))
    assert "1 fallback, at most 0 allowed" in said
    assert "matrix_exp: no lowering for aten::linalg_matrix_exp" in said
    assert "matrix_exp runs through ATen" in said


def test_a_recompile(kept: Path, pytester: pytest.Pytester) -> None:
    said = failure(run(pytester, source(before="self.calls += 1; mask = mask + self.calls", more=", max_recompiles=0")))
    assert "1 recompile, at most 0 allowed" in said
    assert "self.calls" in said or "calls" in said.split("at most 0 allowed")[1].split("\n")[1]
    assert "_explained" not in said


def test_numeric_drift(kept: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_check import planted, scaled

    planted(monkeypatch, scaled, operator="softmax")
    said = failure(run(pytester, source()))
    assert said.count("numbers differ from eager: output, element [") == 1 and "off by" in said


def test_a_layout_change(kept: Path, pytester: pytest.Pytester) -> None:
    said = failure(run(pytester, source(result="return (weights + 1).t().contiguous().t()")))
    assert "the layout of output 0 changed: f32[64, 32] before, f32[64, 32] strides [1, 64] now" in said


# --- limits -----------------------------------------------------------------------------------------------------------


def test_limits_without_a_snapshot(pytester: pytest.Pytester) -> None:
    broken = "torch._dynamo.graph_break()"
    said = failure(run(pytester, source(before=f"x = x + 1; {broken}", most=0, more=", snapshot=False")))
    assert "2 kernels, at most 0 allowed" in said and "1 graph break, at most 0 allowed" in said
    assert not (pytester.path / "zefuse_graphs").exists()


def test_other_sizes_are_counted_as_recompiles(pytester: pytest.Pytester) -> None:
    sizes = ", snapshot=False, max_recompiles=0, more_inputs=[(torch.randn(5, 32), torch.randn(5, 32))]"
    said = failure(run(pytester, source(more=sizes)))
    assert "1 recompile, at most 0 allowed" in said and "64" in said and "5" in said


def test_gradients_are_part_of_it(pytester: pytest.Pytester) -> None:
    text = source(most=9).replace("@torch.no_grad()", "")
    run(pytester, text, "--zefuse-update").assert_outcomes(passed=1)
    kept = (pytester.path / "zefuse_graphs" / "test_graphs" / "test_attention.txt").read_text()
    assert "graph 1: forward" in kept and "graph 2: backward" in kept


# --- reports ----------------------------------------------------------------------------------------------------------


def test_junit_and_summary(kept: Path, pytester: pytest.Pytester) -> None:
    words = ["--junitxml=report.xml", "--zefuse-summary=summary.md"]
    result = run(pytester, source(result="return (weights + 1).t().contiguous().t()"), *words)
    result.assert_outcomes(failed=1)
    found = {p.get("name"): p.get("value") for p in ElementTree.parse(pytester.path / "report.xml").iter("property")}
    assert found["zefuse_kernels"] == "1" and found["zefuse_fallbacks"] == "0" and int(found["zefuse_bytes"] or 0) > 0
    text = (pytester.path / "summary.md").read_text()
    assert "### Compiled graphs: 1 test, 1 failed" in text and "**failed** | 1 | 1 | 0 | 0 | 0 |" in text
    assert "the layout of output 0 changed" in text


def test_workers_report_to_one_summary(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    text = source().replace("def test_attention(zefuse_graph):", "def test_attention(zefuse_graph, number):")
    text = text.replace(
        "@torch.no_grad()", "import pytest\n\n@torch.no_grad()\n@pytest.mark.parametrize('number', [1, 2])"
    )
    pytester.makepyfile(test_graphs=text)
    words = ["-p", "zefuse.pytest_plugin", "-n", "2", "--zefuse-update", "--zefuse-summary=summary.md"]
    pytester.runpytest_subprocess(*words).assert_outcomes(passed=2)
    assert "2 tests, 0 failed" in (pytester.path / "summary.md").read_text()
    names = {file.name for file in (pytester.path / "zefuse_graphs" / "test_graphs").iterdir()}
    assert names == {"test_attention_1.txt", "test_attention_2.txt"}


def test_the_plug_in_imports_no_torch() -> None:
    program = "import sys, zefuse.pytest_plugin; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_summary_without_changes() -> None:
    text = markdown([("a|b", "passed", {"kernels": 1, "bytes": 2_000_000})])
    assert "1 test, 0 failed" in text and "a\\|b" in text and "2.00" in text and "What changed" not in text


# --- changes in words -------------------------------------------------------------------------------------------------


def snapshot(*steps: Step, outputs: tuple[str, ...] = ("f32[8]",), breaks: int = 0) -> Snapshot:
    return Snapshot([Graph("inference", ["f32[8]"], list(steps), list(outputs))], breaks)


def kernel(*operators: str, size: int = 100, shape: str = "f32[8]") -> Step:
    return Step("kernel", operators, (shape,), str(size))


def test_what_is_said_of_changes() -> None:
    whole = snapshot(kernel("mul", "add", "_softmax", size=6_000_000))
    split = snapshot(kernel("mul", "add", size=8_600_000), kernel("_softmax", size=10_000_000))
    assert changes(whole, whole) == []
    assert changes(whole, split) == ["softmax is no longer fused with mul, add: +1 kernel, +12.6 MB"]
    assert changes(split, whole) == ["softmax is now fused with mul, add: -1 kernel, -12.6 MB"]
    epilogue = snapshot(Step("call", ("addmm", "gelu"), ("f32[8]",), "100", "matmul + gelu_erf"))
    lost = snapshot(Step("call", ("addmm",), ("f32[8]",), "100", "matmul"), kernel("gelu", size=64))
    assert changes(epilogue, lost) == ["gelu is no longer fused with addmm: +1 kernel, +64 B"]
    fell = snapshot(Step("fallback", ("histc",), ("f32[4]",), "100"))
    assert changes(snapshot(kernel("histc")), fell) == ["histc now runs through ATen: -1 kernel, +1 fallback"]
    assert changes(fell, snapshot(kernel("histc"))) == ["histc no longer runs through ATen: +1 kernel, -1 fallback"]
    assert changes(snapshot(kernel("mul")), snapshot(kernel("mul"), kernel("exp"))) == ["exp is new: +1 kernel, +100 B"]
    assert changes(snapshot(kernel("mul"), kernel("exp")), snapshot(kernel("mul"))) == [
        "exp is gone: -1 kernel, -100 B"
    ]
    larger = snapshot(kernel("mul", shape="f32[16]", size=200))
    assert changes(snapshot(kernel("mul")), larger) == ["mul gives another shape: f32[16], f32[8] before: +100 B"]
    assert changes(snapshot(breaks=0), snapshot(breaks=2)) == ["graph breaks: 0 before, 2 now"]
    one, other = (
        Snapshot([Graph("inference", inputs, [], ["f32[8]"])])
        for inputs in (["f32[8]", "f32[4]"], ["f32[4]", "f32[8]"])
    )
    assert changes(one, other) == [], "inputs in another order"
    assert changes(snapshot(), Snapshot([], 0)) == ["0 graphs, 1 before"]
