"""Snapshots that no test makes any more: their test was renamed or removed, or makes fewer checks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = "zefuse_graphs"  # beside the test's file


def whole_run(config: Any) -> bool:
    """Whether each file that was collected is run whole, as far as the command line says."""
    option = config.option
    chosen = (
        getattr(option, name, None) for name in ("keyword", "markexpr", "deselect", "lf", "last_failed", "stepwise")
    )
    return not any(chosen) and not any("::" in str(argument) for argument in config.args)


def stale(root: Path, reports: Iterable[Any], made: Iterable[str]) -> list[Path]:
    """The snapshots beside the files of these reports that are not among ``made``, the paths that checks named.

    Of a file of which a test failed or was skipped nothing is said: such a test may have stopped before its check.
    """
    complete: dict[Path, bool] = {}
    for report in reports:
        nodeid = getattr(report, "nodeid", "")
        if "::" in nodeid and hasattr(report, "when"):  # warnings have a report too
            file = root / nodeid.split("::")[0]
            complete[file] = complete.get(file, True) and report.outcome == "passed"
    known = {Path(path).resolve() for path in made}
    found = set()
    for file, passed in complete.items():
        if passed:
            found |= {path for path in (file.parent / FOLDER / file.stem).glob("*.txt") if path.resolve() not in known}
    for folder in {file.parent for file in complete}:
        for path in (folder / FOLDER).glob("*/*.txt"):
            if not (folder / f"{path.parent.name}.py").exists():
                found.add(path)
    return sorted(found)
