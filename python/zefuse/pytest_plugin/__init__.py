"""pytest's plug-in: the fixture ``zefuse_graph`` holds a model to what it compiles to. docs/graph_tests.md shows it.

pytest loads this module in every run of an environment that has zefuse: torch is imported when the fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from zefuse.pytest_plugin.graph import GraphFixture

_PROPERTY = "zefuse_"  # JUnit's properties begin so
_DESELECTED = pytest.StashKey[bool]()  # whether a test of a collected file was left out, here or in a worker
_WORKERS = "zefuse_deselected"  # what a worker of xdist says of that


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


@pytest.hookimpl(wrapper=True)
def pytest_deselected(items: Sequence[pytest.Item]) -> Generator[None]:
    for item in items[:1]:
        item.config.stash[_DESELECTED] = True
        if hasattr(item.config, "workeroutput"):
            item.config.workeroutput[_WORKERS] = True
    yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of xdist has ended; one that crashed says nothing."""
    if error or getattr(node, "workeroutput", {}).get(_WORKERS):
        node.config.stash[_DESELECTED] = True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Of all workers: properties travel with the reports."""
    rows = []
    every = [report for reports in terminalreporter.stats.values() for report in reports]
    for report in every:
        if getattr(report, "when", "") == "call" and (found := _properties(report)):
            rows.append((report.nodeid, report.outcome, found))
    rows.sort(key=lambda row: row[0])
    unused = _stale(every, rows, config)
    if unused:
        terminalreporter.section("zefuse: stale snapshots")
        for path in unused:
            terminalreporter.line(f"{path}: no test makes this snapshot any more; delete it", yellow=True)
    if not rows:
        return
    written = _paths(rows, "snapshot_written")
    if written:
        terminalreporter.section("zefuse: snapshots written")
        for path in written:
            terminalreporter.line(path)
    if path := config.getoption("--zefuse-summary"):
        from zefuse.pytest_plugin.summary import markdown

        try:
            Path(path).write_text(markdown(rows, unused))
        except OSError as error:
            terminalreporter.line(f"zefuse: no summary: {path}: {error.strerror}", yellow=True)


def _stale(reports: Sequence[Any], rows: Sequence[tuple[str, str, dict[str, Any]]], config: pytest.Config) -> list[str]:
    from zefuse.pytest_plugin import stale

    if config.stash.get(_DESELECTED, False) or not stale.whole_run(config):
        return []
    return [os.path.relpath(path) for path in stale.stale(config.rootpath, reports, _paths(rows, "snapshot"))]


def _paths(rows: Sequence[tuple[str, str, dict[str, Any]]], name: str) -> list[str]:
    return [path for _, _, found in rows for path in found.get(name, "").split("; ") if path]


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
