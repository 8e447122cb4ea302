"""A slice of fixed random graphs against eager: what `make fuzz` runs by the ten thousand (tests/fuzz)."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from columns import COLUMNS
from run import Run
from summary import summary

from zefuse import cache


def _names(poses_as: str) -> list[str]:
    return [column.name for column in COLUMNS if column.poses_as == poses_as]


@pytest.mark.parametrize(
    ("poses_as", "first", "graphs"),
    [("gpu", 0, 65), ("gpu", 65, 65), ("integrated-gpu", 0, 10), ("integrated-gpu-usm", 0, 10)],
)
def test_random_graphs(poses_as: str, first: int, graphs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The graphs are always the same: what an unchanged compiler made of them is in the cache.
    monkeypatch.setenv("ZEFUSE_CACHE_DIR", cache.directory())
    arguments = argparse.Namespace(
        seed="slice", first=first, graphs=graphs, jobs=1, deadline=30.0, shrink=20.0, out=tmp_path
    )
    run = Run(arguments, _names(poses_as))
    run.go()
    assert len(run.answers) == graphs
    programs = "\n".join(Path(finding["file"]).read_text() for finding in run.findings if "file" in finding)
    assert not run.findings, summary(run.answers, run.seconds) + "\n" + programs
