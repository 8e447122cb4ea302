"""Sizes at which eager raises, met by a graph that was traced at sizes at which it does not: the compiled function raises as well,
whether tracing guarded those sizes or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[[Tensor], Any]

ONES = torch.ones(8, 8)
# Of a tensor (rows, 5): what is computed, and numbers of rows at which eager refuses it, but not 6 and 7.
REFUSED: dict[str, tuple[Function, list[int]]] = {
    "select": (lambda x: x.select(0, 3) * 2, [3, 2, 0]),
    "select from the end": (lambda x: x.select(0, -4) * 2, [3, 0]),
    "select of a part": (lambda x: x[3:].select(0, 0) * 2, [3, 2]),
    "select of a result": (lambda x: (x + 1).select(0, 3), [2, 0]),
    "select_scatter": (lambda x: x.select_scatter(ONES[0, :5], 0, 4), [3]),
    "select_scatter from the end": (lambda x: x.select_scatter(ONES[0, :5], 0, -4), [3]),
    "slice_scatter": (lambda x: x.slice_scatter(ONES[:3, :5], 0, 2, 5), [4, 0]),
    "slice_scatter with steps": (lambda x: x.slice_scatter(ONES[:2, :5], 0, 1, 5, 2), [3, 0]),
    "narrow": (lambda x: x.narrow(0, 1, 4) * 2, [4, 0]),
    "unfold": (lambda x: x.unfold(0, 4, 1) * 2, [3, 0]),
    "as_strided": (lambda x: (x + 1).as_strided((4, 5), (5, 1), 3) * 2, [3, 0]),
    "as_strided of an input": (lambda x: x.as_strided((4, 5), (5, 1), 3) * 2, [3, 0]),
    "gather": (lambda x: x.gather(0, torch.full((2, 5), 4)), [3, 0]),
    "index": (lambda x: x[torch.tensor([4, 0])] * 2, [3, 0]),
    "index_select": (lambda x: x.index_select(0, torch.tensor([4, 0])), [3, 0]),
    "index_select of no columns": (lambda x: x[:, :0].index_select(0, torch.tensor([4, 0])) + 1, [0]),
    "embedding": (lambda x: F.embedding(torch.tensor([4]), x), [3, 0]),
    "scatter": (lambda x: x.scatter(0, torch.full((1, 5), 4), 1.0), [3, 0]),
    "scatter_add": (lambda x: x.scatter_add(0, torch.zeros(2, 5, dtype=torch.int64), ONES[:2, :5]), [0]),
    "index_put": (lambda x: x.index_put((torch.tensor([0]),), torch.tensor(1.0)), [0]),
    "argmax": (lambda x: x.argmax(0), [0]),
    "amin": (lambda x: x.amin(0), [0]),
    "max": (lambda x: x.max(0), [0]),
    "median": (lambda x: x.median(0), [0]),
    "topk": (lambda x: x.topk(4, 0), [3, 0]),
    "kthvalue": (lambda x: x.kthvalue(4, 0), [3, 0]),
    "max_pool": (lambda x: F.max_pool2d(x[None, None], (4, 2)), [3, 0]),
    "avg_pool": (lambda x: F.avg_pool1d(x.T[None], 4), [3, 0]),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x[None, None], 2), [0]),
    "convolution": (lambda x: F.conv1d(x.T[None], ONES[:2, :5, None].expand(2, 5, 4)), [3, 0]),
    "less than no padding": (lambda x: F.pad(x, (0, 0, -2, -3)), [4, 0]),
    "reflection": (lambda x: F.pad(x.T[None], (4, 1), mode="reflect"), [4, 0]),
    "expand": (lambda x: x[4:].expand(2, 5) * 2, [9, 4]),
    "a sum with another": (lambda x: x[:6] + ONES[:6, :5], [3, 0]),
}


def outcome(function: Function, x: Tensor) -> Any:
    try:
        return function(x)
    except Exception as error:
        return error


def _is_torchs(error: Exception) -> bool:
    """Tracing itself refused the sizes, or a guard made of unbacked ones fails where it is made; with every back end."""
    return (
        type(error).__name__ == "TorchRuntimeError" or "Guard failed" in str(error) or "Runtime assertion" in str(error)
    )


@pytest.mark.parametrize("form", ["dynamic", "grown", "unbacked"])
@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_eager_refuses(name: str, form: str) -> None:
    function, refused = REFUSED[name]
    compiled = torch.compile(function, backend="zefuse", dynamic=None if form == "grown" else True)
    computed = 0
    for rows in (6, 7, *refused):
        x = torch.randn(rows, 5)
        if form == "unbacked":
            torch._dynamo.decorators.mark_unbacked(x, 0)
        eager, ours = outcome(function, x), outcome(compiled, x)
        if isinstance(eager, Exception):
            assert isinstance(ours, Exception), f"eager raises {eager!r} for {rows} rows, ours gives {ours}"
            assert isinstance(ours, type(eager)) or _is_torchs(ours), ours
            continue
        computed += 1
        assert not isinstance(ours, Exception), ours
        torch.testing.assert_close(ours, eager)
    assert computed >= 1


def test_the_message_is_eagers() -> None:
    compiled = torch.compile(lambda x: x.select(1, 3) * 2, backend="zefuse", fullgraph=True)
    for columns in (6, 2, 0):
        x = torch.randn(5, columns)
        torch._dynamo.decorators.mark_unbacked(x, 1)
        if columns < 4:
            text = rf"select\(\): index 3 out of range for tensor of size \[5, {columns}\] at dimension 1\n.*test_size_checks"
            with pytest.raises(IndexError, match=text):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), x.select(1, 3) * 2)


def test_what_tracing_asserts_is_checked() -> None:
    """An assertion of the user's about sizes that has no guard: eager's error, at each call."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        torch._check((x.shape[0] == 2 * y.shape[0]) | (x.shape[0] == 3), lambda: "rows do not fit")
        return x.sum() + y

    compiled = torch.compile(function, backend="zefuse", fullgraph=True)
    for rows, others in ((4, 2), (3, 7), (5, 2), (0, 0), (2, 2)):
        x, y = torch.ones(rows, 2), torch.ones(others)
        for tensor in (x, y):
            torch._dynamo.decorators.mark_unbacked(tensor, 0)
        if rows == 2 * others or rows == 3:
            torch.testing.assert_close(compiled(x, y), function(x, y))
        else:
            with pytest.raises(RuntimeError, match=r"Runtime assertion failed|rows do not fit"):
                compiled(x, y)


@pytest.fixture
def select_without_bounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch 2.11's shape rule, for fixed sizes neither."""
    from torch._subclasses import fake_impls
    from torch._subclasses.fake_tensor import FakeTensorMode

    def without_bounds(mode: Any, operator: Any, self: Tensor, dim: int, index: int) -> Tensor:
        sizes, strides = list(self.shape), list(self.stride())
        offset = self.storage_offset() + index * strides[dim]
        del sizes[dim], strides[dim]
        return self.as_strided(sizes, strides, offset)

    monkeypatch.setitem(fake_impls.op_implementations_dict, torch.ops.aten.select.int, without_bounds)
    FakeTensorMode.cache_clear()
    yield
    FakeTensorMode.cache_clear()


@pytest.mark.usefixtures("select_without_bounds")
@pytest.mark.parametrize("index", [0, 3])
def test_an_index_that_no_shape_rule_looks_at(index: int) -> None:
    compiled = torch.compile(lambda x: (x + 1).select(-1, index), backend="zefuse")
    for columns in (64, 8, 2, 0):
        x = torch.randn(1, columns)
        if columns > 3:
            torch.testing.assert_close(compiled(x), (x + 1).select(-1, index))
        elif columns <= index:
            with pytest.raises(IndexError, match=rf"index {index} out of range for tensor of size \[1, {columns}\]"):
                compiled(x)


@pytest.mark.usefixtures("select_without_bounds")
@pytest.mark.parametrize("dynamic", [False, True])
def test_such_an_index_of_what_nothing_reads(dynamic: bool) -> None:
    """A sort of no elements reads none, so that neither a step nor a call through ATen is left to raise."""
    compiled = torch.compile(
        lambda x: (x + 1).select_scatter(x.select(0, 0), 0, -1).sort(1)[0], backend="zefuse", dynamic=dynamic
    )
    with pytest.raises(IndexError, match=r"index 0 out of range for tensor of size \[0, 5\] at dimension 0"):
        compiled(torch.ones(0, 5))
