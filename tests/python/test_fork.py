"""``os.fork``: a child goes on with what its parent compiled, and compiles more (DataLoader workers, preloading servers)."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import zefuse
from zefuse.packages.aot import compile_package

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12's, in a process with threads

seconds = 120  # a child that hangs; on a busy machine compiling takes its time


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_child(body: Callable[[], Any]) -> None:
    """Runs ``body`` in a fork. What it raises, and a hang, fail the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(status)
    end = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail(f"the child did not end within {seconds} s")
        time.sleep(0.01)


def same(f: Callable[..., Any], eager: Callable[..., Any], *inputs: torch.Tensor, **tolerance: float) -> None:
    with torch.no_grad():
        torch.testing.assert_close(f(*inputs), eager(*inputs), **tolerance)


def test_a_child_calls_what_was_called_with_more_before() -> None:
    def eager(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2 + x.cos()).sum(-1).softmax(0)

    f = torch.compile(eager, backend="zefuse")
    small, large = torch.randn(8, 64), torch.randn(4096, 512)
    same(f, eager, small)
    same(f, eager, large)

    def child() -> None:
        same(f, eager, small)
        same(f, eager, large)
        same(f, eager, torch.randn(33, 48))  # a shape of its own
        in_child(lambda: same(f, eager, small))
        same(f, eager, large)

    for _ in range(4):
        in_child(child)
    same(f, eager, large)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_and_their_packed_weights(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.LayerNorm(64)
    )
    model = model.eval().to(dtype)
    f = torch.compile(model, backend="zefuse", dynamic=True)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    for rows in (16, 512, 16, 512):
        same(f, model, torch.randn(rows, 64, dtype=dtype), **tolerance)

    def child() -> None:
        for rows in (16, 512, 100):
            same(f, model, torch.randn(rows, 64, dtype=dtype), **tolerance)
        with torch.no_grad():
            model[0].weight.mul_(0.5)
        same(f, model, torch.randn(16, 64, dtype=dtype), **tolerance)

    in_child(child)
    same(f, model, torch.randn(16, 64, dtype=dtype), **tolerance)


def test_during_another_threads_calls(tmp_path: Any) -> None:
    """Calls of a loaded package and of eager torch. Dynamo stays out: it holds the mutex of a compiled function's guards
    while it waits for the GIL, and a child then waits for that mutex, whichever backend compiled (aot_eager hangs too).
    """
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
    x = torch.randn(256, 64)
    path = str(tmp_path / "model.zefuse")
    rows = {0: torch.export.Dim("rows", min=2, max=256)}
    compile_package(torch.export.export(model, (x,), dynamic_shapes=(rows,)), path)
    f = zefuse.load(path)
    stop, failed, calls = threading.Event(), [], [0, 0]

    def call_on(number: int) -> None:
        torch.set_num_threads(2)
        try:
            while not stop.is_set():
                same(f, model, x[: calls[number] % 200 + 2], rtol=1e-4, atol=1e-4)
                calls[number] += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call_on, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for rows in range(210, 240):
            before = list(calls)
            in_child(lambda rows=rows: same(f, model, x[:rows], rtol=1e-4, atol=1e-4))
            end = time.monotonic() + seconds
            while any(now == then for now, then in zip(calls, before, strict=True)):  # they go on in the parent
                assert not failed and time.monotonic() < end
                time.sleep(0.001)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed


def test_a_child_compiles() -> None:
    def eager(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu().sum(-1)

    same(torch.compile(lambda x: x.exp() + 1, backend="zefuse"), lambda x: x.exp() + 1, torch.randn(40, 40))

    def child() -> None:
        torch._dynamo.reset()
        same(torch.compile(eager, backend="zefuse"), eager, torch.randn(64, 32), torch.randn(32, 16))
        other = torch.compile(lambda x: (x * 3).tanh().cumsum(0), backend="zefuse", options={"cache_dir": ""})
        same(other, lambda x: (x * 3).tanh().cumsum(0), torch.randn(50, 7))

    in_child(child)
    in_child(lambda: in_child(child))


def test_while_another_thread_loads_and_calls_packages(tmp_path: Any) -> None:
    """Packages have no Dynamo in them, whose own lock a child would find taken for ever."""
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh()).eval()
    x = torch.randn(8, 32)
    path = str(tmp_path / "model.zefuse")
    compile_package(torch.export.export(model, (x,)), path)
    loaded = zefuse.load(path)
    stop = threading.Event()

    def loads() -> None:
        while not stop.is_set():
            same(zefuse.load(path), model, x, rtol=1e-4, atol=1e-4)

    thread = threading.Thread(target=loads)
    thread.start()
    try:
        for _ in range(15):
            in_child(lambda: (same(loaded, model, x), same(zefuse.load(path), model, x)))
    finally:
        stop.set()
        thread.join()


def test_a_gpu_of_the_parents_is_refused_in_a_child() -> None:
    f = torch.compile(lambda x: x * 2 + 1, backend="zefuse", options={"device": "gpu:0"})
    x = torch.randn(64)
    same(f, lambda x: x * 2 + 1, x)

    def child() -> None:
        with pytest.raises(Exception, match="before this process was forked"), torch.no_grad():
            f(x)

    in_child(child)
    same(f, lambda x: x * 2 + 1, x)


def test_data_loader_workers() -> None:
    f = torch.compile(lambda x: (x.sin() + 1).sum(-1), backend="zefuse")
    f(torch.randn(512, 512))

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            return f(torch.full((512, 512), float(index)))

    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=2, num_workers=2, timeout=seconds, multiprocessing_context="fork"
    )
    got = torch.cat(list(loader))
    for index in range(8):
        torch.testing.assert_close(got[index], (torch.full((512, 512), float(index)).sin() + 1).sum(-1))
