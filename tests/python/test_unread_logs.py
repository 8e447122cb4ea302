"""torch prints graphs for its logs where somebody reads them, and only there (python/zefuse/graphs/unread_logs.py)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._logging._internal import trace_log


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names: list[str] = []
    real = torch.fx.GraphModule.print_readable

    def counted(self: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> str:
        names.append(type(self).__name__)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.fx.GraphModule, "print_readable", counted)
    monkeypatch.setattr(trace_log, "handlers", [])
    yield names
    torch._dynamo.reset()


def step(backend: str = "zefuse") -> None:
    x = torch.randn(4, requires_grad=True)
    torch.compile(lambda x: x.sin().sum(), backend=backend)(x).backward()


def test_nobody_reads_them(printed: list[str]) -> None:
    step()
    assert not printed


def test_other_backends_graphs_are_torchs_affair(printed: list[str]) -> None:
    step()
    torch._dynamo.reset()
    step("aot_eager")
    assert len(printed) == 3, "the joint graph and its parts"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_the_structured_trace_has_them(printed: list[str]) -> None:
    trace_log.handlers.append(kept := Kept())
    step()
    payloads = {name: record.payload for record in kept.records for name in record.metadata}  # type: ignore[attr-defined]
    for name in ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph"):
        assert "torch.ops.aten" in payloads[name], sorted(payloads)


def test_torchs_logs_have_them(printed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch._aot_autograd import graph_compile

    kept = Kept()
    monkeypatch.setattr(graph_compile.aot_joint_log, "level", logging.INFO)
    monkeypatch.setattr(graph_compile.aot_joint_log, "handlers", [kept])
    graph_compile.aot_joint_log._cache.clear()  # type: ignore[attr-defined]
    try:
        step()
    finally:
        graph_compile.aot_joint_log._cache.clear()  # type: ignore[attr-defined]
    assert any("Joint graph" in record.getMessage() for record in kept.records)
