"""An explanation as one page of HTML that needs no network: the graphs drawn, their steps as tables, each kernel's code.

Tables and texts are HTML, so that a browser without scripts shows them; page.js draws the graphs from the data beside them.
"""

from __future__ import annotations

import html as escaping
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zefuse.explaining.report_words import in_bytes, operators, places
from zefuse.wording import counted

if TYPE_CHECKING:
    from zefuse.explaining.explanation import Drawn, Explanation

_HERE = Path(__file__).parent
_CODE = (("MLIR", "scheduled.mlir"), ("SPIR-V", "kernel.spvasm"), ("assembly", "kernel.s"))
_MOST_CODE = 200_000  # characters of one file; what is longer is cut
_KINDS = {"Launch": "kernel", "AtenCall": "fallback", "Copy": "copy"}


def html(explanation: Explanation, code: bool = True) -> str:
    """The page. With ``code`` the graphs are compiled again, into a folder that is removed."""
    graphs = [
        _graph(number, graph["kind"], drawn, _codes(drawn) if code else {})
        for number, (graph, drawn) in enumerate(zip(explanation.graphs, explanation.drawn, strict=True))
    ]
    data = json.dumps(graphs).replace("<", "\\u003c")  # no end of the script inside of it
    parts = {
        "style": (_HERE / "page.css").read_text(),
        "script": (_HERE / "page.js").read_text(),
        "data": data,
        "summary": _text(explanation.summary()),
        "facts": "".join(_facts(explanation)),
        "graphs": "".join(_section(graph) for graph in graphs),
    }
    page = (_HERE / "page.html").read_text()
    for name, text in parts.items():  # the data last would be searched for the others' places
        page = page.replace(f"<!--{name}-->", text, 1)
    return page


def frame(explanation: Explanation) -> str:
    """For a notebook: the page without code in a frame of its own, whose styles are not the notebook's."""
    return (
        f'<iframe title="zefuse" srcdoc="{escaping.escape(html(explanation, code=False), quote=True)}" '
        'style="width:100%;height:640px;border:1px solid #8888"></iframe>'
    )


def _graph(number: int, kind: str, drawn: Drawn, codes: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Nodes and edges, numbered over the parts of a graph."""
    nodes: list[dict[str, Any]] = []
    edges: list[list[Any]] = []
    first = 0  # step
    for plan in drawn.plans:
        place: dict[int, int] = {}
        found = list(plan.edges())
        for input_number in sorted({-1 - source for source, _, _ in found if source < 0}):
            given = plan.inputs[input_number] if input_number < len(plan.inputs) else {}
            if given.get("kind", "user") == "user":  # parameters would hide the graph; their shapes are in the details
                place[-1 - input_number] = len(nodes)
                nodes.append({"kind": "input", "name": given.get("name", ""), "shape": plan.shape(given)})
        for step_number, step in enumerate(plan.steps):
            place[step_number] = len(nodes)
            entry = drawn.entries.get(first + step_number, {})
            shapes = [plan.shape(plan.values[value]) for value in step.writes]
            node = {
                "kind": _KINDS.get(step.kind, "call"),
                "name": entry.get("name") or entry.get("op") or entry.get("kind") or step.kind.lower(),
                "ops": operators(entry.get("ops", [])),
                "places": places(entry) if entry else "",
                "shape": ", ".join(shapes),
                "reads": [plan.shape(plan.values[value]) for value in step.reads],
                "bytes": in_bytes(entry["bytes"]) if "bytes" in entry else "",
                "flops": entry.get("flops"),
                "schedule": entry.get("schedule", ""),
                "reason": entry.get("reason", "") or entry.get("left_out", ""),
                "seconds": entry.get("seconds"),
                "code": codes.get(entry.get("name", ""), {}),
            }
            nodes.append({key: value for key, value in node.items() if value not in (None, "", [], {})})
        for source, to, value in found:
            if source in place:
                edges.append([place[source], place[to], plan.shape(plan.values[value])])
        first += len(plan.steps)
        for result in plan.outputs():
            buffer = result.get("buffer", 0)
            writers = [
                at
                for at, step in enumerate(plan.steps)
                for written in step.writes
                if plan.values[written].get("buffer", 0) == buffer
            ]
            if writers:
                edges.append([place[writers[-1]], len(nodes), plan.shape(result)])
                nodes.append({"kind": "output", "name": "output", "shape": plan.shape(result)})
    return {"number": number, "kind": kind, "nodes": nodes, "edges": edges}


def _codes(drawn: Drawn) -> dict[str, dict[str, str]]:
    """Kernel -> stage -> text. Empty for what cannot be compiled again, as what a package gave."""
    from zefuse import _native, tuning
    from zefuse.errors import ZefuseError
    from zefuse.options import Options

    found: dict[str, dict[str, str]] = {}
    for graph_module, parameters in drawn.parts:
        with tempfile.TemporaryDirectory() as folder:
            # Without the cache, which would leave out the stages.
            options = tuning.applied((drawn.options or Options.make(None)).to_dict())
            try:
                _native.load().compile(graph_module, list(parameters), options | {"dump_dir": folder, "cache_dir": ""})
            except ZefuseError:
                continue
            for kernel in Path(folder).glob("*/*/"):
                texts = {name: _read(kernel / file) for name, file in _CODE if (kernel / file).exists()}
                found.setdefault(kernel.name, texts)
    return found


def _read(file: Path) -> str:
    text = file.read_text(errors="replace")
    return text if len(text) <= _MOST_CODE else text[:_MOST_CODE] + "\n... (cut)"


def _facts(explanation: Explanation) -> Iterator[str]:
    """What stands above the graphs."""
    if explanation.nothing_compiled:
        yield f"<p class=warn>Nothing was compiled: {_text(explanation.nothing_compiled)}</p>"
    if shares := explanation.arithmetic():
        yield "<p>Arithmetic: " + ", ".join(f"{share:.0%} in {name}" for name, share in shares.items()) + "</p>"
    lines = [
        f"graph break at {': '.join(filter(None, (entry['source'], entry['line'])))}: {entry['reason']}"
        for entry in explanation.breaks
    ]
    lines += [f"compiled again: {entry['function']}: {entry['reason']}" for entry in explanation.recompiles]
    lines += [f"skipped by Dynamo: {function}: {reason}" for function, reason in explanation.skipped.items()]
    lines += [f"fallback: {entry['op']}: {entry['reason']}" for entry in explanation.fallbacks]
    if lines:
        yield "<ul>" + "".join(f"<li class=warn>{_text(line)}</li>" for line in dict.fromkeys(lines)) + "</ul>"
    if explanation.stages:
        stages = ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in explanation.stages.items())
        yield f"<p class=quiet>Compiled in: {_text(stages)}</p>"


def _section(graph: dict[str, Any]) -> str:
    steps = [node for node in graph["nodes"] if node["kind"] not in ("input", "output")]
    number = graph["number"]
    title = f"Graph {number}: {_text(graph['kind'])}, {counted(len(steps), 'step')}"
    rows = "".join(
        _row(number, at, node) for at, node in enumerate(graph["nodes"]) if node["kind"] not in ("input", "output")
    )
    columns = "".join(
        f"<th>{name}</th>" for name in ("step", "kind", "operators", "where", "result", "bytes", "schedule or reason")
    )
    return (
        f'<section id="graph{number}"><h2>{title}</h2><div class=canvas data-graph="{number}"></div>'
        f"<details open><summary>Steps</summary><div class=scroll><table><thead><tr>{columns}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></details></section>"
    )


def _row(graph: int, at: int, node: dict[str, Any]) -> str:
    texts = [node["name"], node["kind"], *(node.get(key, "") for key in ("ops", "places", "shape", "bytes"))]
    texts.append(node.get("schedule") or node.get("reason", ""))
    cells = "".join(f"<td>{_text(str(text))}</td>" for text in texts)
    return f'<tr data-graph="{graph}" data-node="{at}" class="{node["kind"]}">{cells}</tr>'


def _text(text: str) -> str:
    return escaping.escape(text)


__all__: Sequence[str] = ("frame", "html")
