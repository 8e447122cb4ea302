"""pytest's plug-in: the fixture ``zefuse_graph`` holds a model to what it compiles to. docs/graph_tests.md shows it.

pytest loads this module in every run of an environment that has zefuse: torch is imported when the fixture is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from zefuse.pytest_plugin.graph import GraphFixture

_PROPERTY = "zefuse_"  # JUnit's properties begin so


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("zefuse", "graphs compiled by zefuse")
    group.addoption("--zefuse-update", action="store_true", help="write the snapshots of graphs anew")
    group.addoption(
        "--zefuse-summary", metavar="FILE", help="write a table of all graph tests in Markdown, for a change request"
    )


@pytest.fixture
def zefuse_graph(request: pytest.FixtureRequest, record_property: Any) -> GraphFixture:
    """``zefuse_graph.check(model, inputs, max_kernels=40)``: compiles, compares with eager, with the limits and with the snapshot."""
    from zefuse.pytest_plugin.graph import GraphFixture

    return GraphFixture(
        test=request.node.name,
        file=Path(request.node.path),
        update=request.config.getoption("--zefuse-update"),
        record=lambda name, value: record_property(_PROPERTY + name, value),
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Of all workers: properties travel with the reports."""
    rows = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call" and (found := _properties(report)):
                rows.append((report.nodeid, report.outcome, found))
    if not rows:
        return
    rows.sort(key=lambda row: row[0])
    written = [path for _, _, found in rows for path in found.get("snapshot_written", "").split("; ") if path]
    if written:
        terminalreporter.section("zefuse: snapshots written")
        for path in written:
            terminalreporter.line(path)
    if path := config.getoption("--zefuse-summary"):
        from zefuse.pytest_plugin.summary import markdown

        try:
            Path(path).write_text(markdown(rows))
        except OSError as error:
            terminalreporter.line(f"zefuse: no summary: {path}: {error.strerror}", yellow=True)


def _properties(report: Any) -> dict[str, str]:
    """By name without the prefix. A test with several checks has each property several times: numbers are added up."""
    found: dict[str, Any] = {}
    for name, value in getattr(report, "user_properties", ()):
        if isinstance(name, str) and name.startswith(_PROPERTY):
            key = name.removeprefix(_PROPERTY)
            if key not in found:
                found[key] = value
            elif isinstance(value, int) and isinstance(found[key], int):
                found[key] += value
            else:
                found[key] = f"{found[key]}; {value}"
    return found
