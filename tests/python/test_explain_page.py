"""The page that ``explain(...).save()`` writes, looked at in a real browser at three sizes; and rows in torch's profiler."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import zefuse
from zefuse import page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        x = torch.maximum(torch.minimum(x, x.sin()), x.cos()) * x  # a kernel whose name is longer than its box is wide
        return torch.softmax(x, -1) + torch.linalg.matrix_exp(x[:4, :4]).sum()


@pytest.fixture(scope="module")
def explained() -> zefuse.Explanation:
    torch.manual_seed(0)
    with torch.no_grad():
        return zefuse.explain(Layers().eval(), torch.randn(8, 32))


@pytest.fixture(scope="module")
def saved(explained: zefuse.Explanation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(explained.save(tmp_path_factory.mktemp("page") / "model.html"))


def data_of(text: str) -> list[dict[str, Any]]:
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_needs_nothing_else_and_has_each_kernels_code(saved: Path, explained: zefuse.Explanation) -> None:
    text = saved.read_text()
    assert not re.search(r'(src|href)="?(http|//|\w+\.(js|css))', text) and "<!--" not in text.replace("<!DOCTYPE", "")
    (graph,) = data_of(text)
    kernels = [node for node in graph["nodes"] if node["kind"] == "kernel"]
    assert len(kernels) == len(explained.kernels)
    for node in kernels:
        assert set(node["code"]) == {"MLIR", "SPIR-V", "assembly"}
        assert "func.func" in node["code"]["MLIR"] and "OpEntryPoint" in node["code"]["SPIR-V"]
    assert any("layers.1" in node.get("places", "") for node in kernels)
    # Each step but the last is read by somebody, and nobody reads what comes later.
    assert all(0 <= start < end or graph["nodes"][start]["kind"] == "input" for start, end, _ in graph["edges"])
    assert {end for _, end, _ in graph["edges"]} == {
        at for at, node in enumerate(graph["nodes"]) if node["kind"] != "input"
    }
    # Without scripts: the tables.
    assert text.count("<tr data-graph") == len([n for n in graph["nodes"] if n["kind"] not in ("input", "output")])
    assert "no lowering for aten::linalg_matrix_exp" in text and "<noscript>" in text


def test_without_scripts_the_tables_have_every_step(saved: Path, explained: zefuse.Explanation) -> None:
    text = re.sub(r"<script.*?</script>", "", saved.read_text(), flags=re.S)
    rows = re.findall(r"<tr\b.*?</tr>", text, re.S)
    names = [entry["name"] for entry in explained.kernels] + [entry["op"] for entry in explained.fallbacks]
    assert len(names) >= 2
    for name in names:
        assert any(name in row for row in rows), name
    assert "Without scripts there are no drawings; the tables have every step." in text


def test_a_users_text_does_not_end_the_script(explained: zefuse.Explanation) -> None:
    made = zefuse.Explanation()
    made.graphs, made.drawn = explained.graphs, explained.drawn
    made.skipped = {"f": "</script><script>alert(1)</script>"}
    text = page.html(made, code=False)
    assert "<script>alert" not in text and text.count("</script>") == 2
    framed = made._repr_html_()
    assert framed.startswith("<iframe") and "zefuse" in html.unescape(framed)


LOOK = """
<script>
const problems = [];
const say = (name, value) => { document.documentElement.dataset[name] = String(value); };
say("wide", document.documentElement.scrollWidth > document.documentElement.clientWidth);
say("nodes", document.querySelectorAll("svg .node").length);
const area = document.querySelector(".canvas").getBoundingClientRect();
const first = document.querySelector("svg .node rect").getBoundingClientRect();
say("inside", first.left >= area.left - 1 && first.right <= area.right + 1 && first.top >= area.top - 1);
document.querySelector("svg .node.kernel").dispatchEvent(new MouseEvent("click", {bubbles: true}));
say("code", document.querySelectorAll("#code pre").length);
say("details", !document.getElementById("details").hidden);
const panel = document.getElementById("details");
say("panel", panel.scrollWidth <= panel.clientWidth);
const right = (element) => element.getBoundingClientRect().right;
const fits = (text) => right(text) <= right(text.parentNode.querySelector("rect"));
say("labels", [...document.querySelectorAll("svg .node text")].every(fits));
const before = document.querySelector("svg").getAttribute("viewBox");
document.querySelector(".zoom button").click();
say("zoomed", before !== document.querySelector("svg").getAttribute("viewBox"));
const input = document.getElementById("search");
input.value = "matrix_exp";
input.dispatchEvent(new Event("input"));
say("found", document.getElementById("found").textContent);
const color = () => getComputedStyle(document.body).backgroundColor;
const light = color();
document.getElementById("theme").click();
say("themes", light !== color());
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome in PATH")
@pytest.mark.parametrize("size", ["1400,900", "800,1000", "390,844"])
def test_the_page_in_a_browser(size: str, saved: Path, tmp_path: Path) -> None:
    looked = tmp_path / "page.html"
    looked.write_text(saved.read_text().replace("</body>", LOOK + "</body>"))
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={size}",
        f"--user-data-dir={tmp_path}/p",
    ]
    picture = tmp_path / "page.png"
    for words in (["--dump-dom"], [f"--screenshot={picture}"]):
        done = subprocess.run([*command, *words, looked.as_uri()], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        if "--dump-dom" in words:
            said = dict(re.findall(r'data-(\w+)="([^"]*)"', done.stdout.partition(">")[2].partition(">")[0] + ">"))
    assert picture.stat().st_size > 10_000
    nodes = len(data_of(saved.read_text())[0]["nodes"])
    expected = {
        "wide": "false",
        "nodes": str(nodes),
        "inside": "true",
        "code": "3",
        "details": "true",
        "zoomed": "true",
        "panel": "true",
        "labels": "true",
    }
    assert {name: said.get(name) for name in expected} == expected, said
    assert said["found"] == "1 step" and said["themes"] == "true"


# --- torch.profiler ---------------------------------------------------------------------------------------------------


def test_each_step_is_a_row_of_the_profiler(tmp_path: Path) -> None:
    compiled = torch.compile(Layers().eval(), backend="zefuse")
    x = torch.randn(8, 32)
    with torch.no_grad():
        compiled(x)
        with torch.profiler.profile(record_shapes=True) as profiled:
            expected = compiled(x)
        assert torch.equal(compiled(x), expected)
    names = [event.key for event in profiled.key_averages() if event.key.startswith("zefuse::")]
    assert "zefuse::matmul" in names and "zefuse::aten::linalg_matrix_exp" in names
    assert any("softmax" in name for name in names)
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if "name" in event]
    matmul = next(row for row in rows if row["name"] == "zefuse::matmul")
    assert matmul["args"]["Input Dims"] == [[8, 32]] and matmul["args"]["flops"] == 2 * 8 * 32 * 32
    assert matmul["args"]["bytes"] > 0
