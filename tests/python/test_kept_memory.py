"""Memory of large results is kept for later calls, and never more than was in use at one time (python/csrc/kept_memory.h)."""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Callable, Iterator

import children
import pytest
import torch

from zefuse import _native

MB = 1 << 20
PAGES = 40 * MB // 4096  # of a result that the C library always gives back to the system


def figures() -> dict[str, int]:
    return _native.load().kept_memory()


@pytest.fixture
def double() -> Iterator[Callable[..., torch.Tensor]]:
    """``x + x`` compiled, for any number of rows; nothing is kept before."""
    torch._dynamo.reset()
    gc.collect()

    def run(x: torch.Tensor) -> torch.Tensor:
        return x + x

    yield torch.compile(run, backend="zefuse", dynamic=True)
    torch._dynamo.reset()


def rows(megabytes: int) -> torch.Tensor:
    return torch.ones(megabytes * MB // 4096, 1024)


def test_steady_calls_fault_no_pages(double: Callable[..., torch.Tensor]) -> None:
    x = rows(40)
    double(x), double(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        assert double(x)[-1, -1] == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < PAGES


def test_kept_memory_is_taken_again_for_nearly_as_much(double: Callable[..., torch.Tensor]) -> None:
    address = double(rows(8)).data_ptr()
    again = figures()["taken_again"]
    y = double(rows(8)[:-100])  # 0.4 MB less
    assert (y.data_ptr(), figures()["taken_again"]) == (address, again + 1)
    assert y.untyped_storage().nbytes() == y.numel() * 4
    assert double(rows(8)).data_ptr() != address  # which is in use
    small = double(rows(4))
    assert figures()["taken_again"] == again + 1
    assert bool((y == 2).all() and (small == 2).all())


def test_never_more_than_was_in_use_at_one_time(double: Callable[..., torch.Tensor]) -> None:
    start = figures()
    assert start["kept"] == 0
    results: list[torch.Tensor] = []
    most = 0
    for megabytes in (8, 3, 5, 12, 1, 7):
        results.append(double(rows(megabytes)))
        now = figures()
        most = max(most, now["in_use"])
        assert now["in_use"] + now["kept"] <= most
        del results[:-1]
    results.clear()
    now = figures()
    assert now["in_use"] == start["in_use"]
    assert 7 * MB <= now["kept"] <= most


def test_small_results_are_torchs(double: Callable[..., torch.Tensor]) -> None:
    before = figures()
    double(torch.ones(4, 1024))
    assert figures() == before


def test_a_graph_that_dies_takes_what_is_kept_with_it(double: Callable[..., torch.Tensor]) -> None:
    double(rows(8))
    assert figures()["kept"] >= 8 * MB
    torch._dynamo.reset()
    gc.collect()
    assert figures()["kept"] == 0


def test_unused_memory_goes_after_a_thousand_calls(double: Callable[..., torch.Tensor]) -> None:
    both = double(rows(8)), double(rows(8))
    del both
    x = rows(1)
    for _ in range(990):
        double(x)
    assert figures()["kept"] >= 8 * MB
    for _ in range(20):
        double(x)
    assert figures()["kept"] < 8 * MB


def test_results_are_resized_and_outlive_their_graph(double: Callable[..., torch.Tensor]) -> None:
    y = double(rows(1))
    torch._dynamo.reset()
    gc.collect()
    y.resize_(2 * y.numel())
    assert bool((y[: rows(1).numel()] == 2).all())


def test_threads_take_different_memory(double: Callable[..., torch.Tensor]) -> None:
    inputs = [torch.full((512, 1024), float(n)) for n in range(4)]
    for x in inputs:
        double(x)
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(20):
            if not bool((double(inputs[n]) == 2 * n).all()):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_is_kept_where_nobody_wants_it() -> None:
    code = (
        "import torch, zefuse\nfrom zefuse import _native\n"
        "f = torch.compile(lambda x: x + x, backend='zefuse')\n"
        "f(torch.ones(1024, 1024)), f(torch.ones(1024, 1024))\n"
        "print(_native.load().kept_memory())"
    )
    done = children.run(code, env={**os.environ, "ZEFUSE_KEPT_MEMORY_MB": "0"})
    assert done.stdout.strip() == "{'in_use': 0, 'kept': 0, 'taken_again': 0}", done.stderr
