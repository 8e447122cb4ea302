"""Full collections of Python's cyclic garbage are put off while a graph is traced, and only then."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import posing_programs
import pytest
import torch
from posing_programs import needs_posing_cuda

from zefuse import backend
from zefuse.graphs.garbage import no_full_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.freeze()  # a full collection comes due when a quarter of what the last one saw is new
    gc.collect()
    gc.set_threshold(50, 2, 2)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def full_collections(action: Any) -> int:
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        action()
    finally:
        gc.callbacks.remove(note)
    assert 1 in seen, "young objects are collected"
    return seen.count(2)


def many_objects() -> list[list[int]]:
    return [[i] for i in range(5_000)]


def test_none_within_and_as_before_afterwards() -> None:
    def within() -> None:
        with no_full_collections(), no_full_collections():
            many_objects()

    assert full_collections(many_objects) > 0
    assert full_collections(within) == 0
    assert gc.get_threshold() == (50, 2, 2)
    assert full_collections(many_objects) > 0


def test_also_after_an_error() -> None:
    with pytest.raises(KeyError), no_full_collections():
        raise KeyError
    assert gc.get_threshold() == (50, 2, 2)


def test_what_somebody_else_chose_meanwhile_stays() -> None:
    with no_full_collections():
        gc.set_threshold(60, 3, 3)
    assert gc.get_threshold() == (60, 3, 3)


def test_a_child_of_a_fork_while_another_thread_traces_has_its_own_again() -> None:
    with no_full_collections():
        if (child := os.fork()) == 0:
            right = gc.get_threshold() == (50, 2, 2)
            with no_full_collections():
                right &= gc.get_threshold()[2] > 1000
            os._exit(0 if right else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_tracing_has_none() -> None:
    within: list[tuple[int, ...]] = []
    with backend.observe(lambda *_: within.append(gc.get_threshold())), torch.no_grad():
        torch.compile(lambda x: x.sin() + 1, backend="zefuse")(torch.rand(3))
    assert within[0][:2] == (50, 2)
    assert within[0][2] > 1000
    assert gc.get_threshold() == (50, 2, 2)


WAITS = """
import gc, torch
from zefuse import _native
from zefuse.graphs import garbage

gc.collect()
gc.set_threshold(50, 2, 2)
where = []
gc.callbacks.append(lambda phase, info: where.append(garbage._users) if info["generation"] == 2 and phase == "start" else None)

garbage._use_waits()

def layers(x, count):
    for _ in range(count):
        x = torch.sin(x * 2).softmax(-1)
    return x

def compiled(x, count):
    torch._dynamo.reset()
    return torch.compile(layers, backend="zefuse")(x, count)

x = torch.randn(8, 16).cuda()
"""


@needs_posing_cuda
def test_the_one_that_is_due_comes_in_a_wait_for_the_compiler(tmp_path: Path) -> None:
    posing_programs.run(
        WAITS
        + """
compiled(x, 3)
assert where.count(1) == 1, where  # within, once
gc.disable()
where.clear()
compiled(x, 4)
assert not where, "whoever has none wants none"
""",
        ZEFUSE_CACHE_DIR=str(tmp_path),
    )


@needs_posing_cuda
def test_an_error_in_a_wait_ends_the_compilation(tmp_path: Path) -> None:
    posing_programs.run(
        WAITS
        + """
def interrupted():
    raise KeyboardInterrupt("now")
_native.load().set_meanwhile(interrupted)
try:
    compiled(x, 3)
except KeyboardInterrupt as error:
    assert str(error) == "now"
else:
    raise AssertionError("it was not told")
_native.load().set_meanwhile(garbage._in_a_wait)
assert torch.allclose(compiled(x, 3).cpu(), layers(x.cpu(), 3), atol=1e-6)
""",
        ZEFUSE_CACHE_DIR=str(tmp_path),
    )
