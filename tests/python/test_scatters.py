"""Scatters: who updates what, and what they read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from zefuse.backend import observe
from zefuse.explaining.explanation import Explanation
from zefuse.testing import assert_compiled


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("width", [64, 73])
def test_scatters_of_long_updates_share_ranges_of_the_result(width: int, dynamic: bool) -> None:
    def scatters(table: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        two = table.view(-1, 3, width).index_put((at, at % 3), rows.cos(), accumulate=True)
        return table.index_add(0, at, rows * 2), table.index_copy(0, at, rows), two

    table, at = torch.randn(900, width), torch.randint(0, 300, (41,))
    at[7] = at[30] = 299
    inputs = table, at, torch.randn(41, width)
    if dynamic:
        torch._dynamo.maybe_mark_dynamic(table, 0)
        torch._dynamo.maybe_mark_dynamic(at, 0)
        torch._dynamo.maybe_mark_dynamic(inputs[2], 0)
    explanation = assert_compiled(scatters, inputs, kernels=None)
    reasons = "; ".join(kernel["schedule"] for kernel in explanation.kernels)
    # A symbol counts as 256, so that 900 / 3 indices are many and s0 // 3 are not.
    assert reasons.count("ranges of the result") == (2 if dynamic else 3), reasons
    compiled = torch.compile(scatters, backend="zefuse", dynamic=dynamic)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for mine, other in zip(compiled(*inputs), explanation.result, strict=True):
                assert torch.equal(mine, other), f"{threads} threads give other bits"
    finally:
        torch.set_num_threads(before)
    at[5] = 900
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        compiled(*inputs)


def test_scatters_by_the_same_index_share_its_elements() -> None:
    """Layers of a graph network: an index of one dimension is checked as such, not for each element that it moves."""
    nodes, edges, width = 600, 1500, 64

    def layers(x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.zeros_like(x).index_add(0, target, x[source]).tanh()
        return x

    inputs = torch.randn(nodes, width), torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,))
    explanation = assert_compiled(layers, inputs, kernels=None)
    scatters = [kernel for kernel in explanation.kernels if "scatter" in kernel["schedule"]]
    assert [kernel["schedule"] for kernel in scatters] == ["scatter, parallel over ranges of the result"] * 2
    rows, indices = nodes * width * 4, edges * 8
    assert all(kernel["bytes"] <= 2 * rows + 2 * indices for kernel in scatters), scatters
    inputs[2][3] = nodes
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        torch.compile(layers, backend="zefuse")(*inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=["f32", "bf16", "i64"])
@pytest.mark.parametrize(("rows", "width"), [(169, 3), (2, 96), (300, 40)])
def test_sums_into_small_tables_are_shared_by_slices_of_the_updates(rows: int, width: int, dtype: torch.dtype) -> None:
    """On a GPU: a table of position biases is as small as 169 x 3, one of token types has 2 rows. bf16 is rounded once."""
    count = 700

    def gradients(at: torch.Tensor, updates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = updates.new_zeros(rows, width)
        return zeros.index_put((at,), updates.t(), accumulate=True), zeros.index_add(0, at, updates.t())

    at = torch.randint(rows, (count,))
    at[::3] = rows - 1
    updates = torch.randn(width, count).mul(8).to(dtype)
    compiled = torch.compile(gradients, backend="zefuse", options={"device": "gpu:0"})
    explanation = assert_compiled(
        gradients, (at, updates), kernels=None, options={"device": "gpu:0"}, rtol=0.2 if dtype.itemsize == 2 else None
    )
    schedules = [kernel["schedule"] for kernel in explanation.kernels if "scatter" in kernel["schedule"]]
    assert schedules, explanation.kernels
    assert all("slices of the updates" in schedule for schedule in schedules), schedules
    results = compiled(at, updates)
    exact = torch.zeros(rows, width, dtype=torch.float64).index_add(0, at, updates.t().double())
    for result, again in zip(results, compiled(at, updates), strict=True):
        assert torch.equal(result, again), "other bits from the same inputs"
        rounded = exact.to(dtype).double()
        tolerance = 0 if dtype == torch.int64 else float(exact.abs().max()) * (2**-8 if dtype.itemsize == 2 else 1e-6)
        assert (result.double() - rounded).abs().max() <= tolerance
    at[5] = rows
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        compiled(at, updates)


@pytest.mark.parametrize("size", [28, 32], ids=["parts of vectors", "whole vectors"])
def test_each_write_into_a_part_adds_code_of_its_own_alone(size: int) -> None:
    """As attention masks of shifted windows are made: rectangles, each written into the result of the one before."""

    def masks(x: torch.Tensor, count: int) -> torch.Tensor:
        mask = x.new_zeros(size, size)
        edges = [slice(0, -7), slice(-7, -3), slice(-3, None)]
        for number in range(count):
            mask[edges[number // 3], edges[number % 3]] = x[number]
        windows = mask.view(4, size // 4, 4, size // 4).permute(0, 2, 1, 3).reshape(16, -1)
        apart = windows.unsqueeze(1) - windows.unsqueeze(2)
        return apart.masked_fill(apart != 0, -100.0)

    x, plans = torch.arange(9.0), []
    for count in (3, 9):
        torch._dynamo.reset()
        graphs: list[Any] = []
        with observe(lambda kind, graph, graphs=graphs: graphs.append(graph)):
            actual = torch.compile(masks, backend="zefuse", dynamic=False)(x, count)
        torch.testing.assert_close(actual, masks(x, count))
        plans.append(len(graphs[0].plan_bytes()))
    assert plans[1] < 4 * plans[0], plans


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_negative_zeros_on_a_gpu(dtype: torch.dtype) -> None:
    """Where nothing is added, and where -0.0 is."""
    x = torch.full((192,), -0.0, dtype=dtype)
    function = lambda x: x.index_add(0, torch.arange(192) % 3, x)  # noqa: E731
    actual = torch.compile(function, backend="zefuse", options={"device": "gpu:0"})(x)
    assert bool(function(x).signbit().all())
    assert bool(actual.signbit().all())


_WRITES: dict[str, Callable[..., torch.Tensor]] = {
    "index_fill": lambda x, at, dim, rows: x.index_fill(dim, at, 2.0),
    "index_fill of a tensor": lambda x, at, dim, rows: x.index_fill(dim, at, x.new_tensor(2.0)),
    "index_copy": lambda x, at, dim, rows: x.index_copy(dim, at, rows),
    "index_put": lambda x, at, dim, rows: x.index_put((torch.arange(x.shape[0])[:, None], at), x.new_tensor(2.0)),
    "index": lambda x, at, dim, rows: x[torch.arange(x.shape[0])[:, None], at],
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", _WRITES)
def test_an_index_into_nothing_where_nothing_is_written(name: str, dynamic: bool) -> None:
    """Eager looks at an index where it moves an element: at none where another size is 0, or another index has no elements."""
    write = _WRITES[name]
    for dim, sizes, one in itertools.product((0, 1), ((0, 0), (0, 3), (3, 0), (4, 3)), (0, -1, 5)):

        def function(x: torch.Tensor, at: torch.Tensor, rows: torch.Tensor, dim: int = dim) -> torch.Tensor:
            x = x[: x.shape[0] - 5, : x.shape[1] - 5] * 1
            return write(x, at, dim, rows)

        updates = [1 if place == dim else size for place, size in enumerate(sizes)]
        inputs = torch.randn([size + 5 for size in sizes]), torch.tensor([one]), torch.randn(updates)
        try:
            expected = function(*inputs)
        except (IndexError, RuntimeError):
            with pytest.raises((IndexError, RuntimeError)):
                torch.compile(function, backend="zefuse", dynamic=dynamic)(*inputs)
        else:
            assert torch.equal(torch.compile(function, backend="zefuse", dynamic=dynamic)(*inputs), expected)
        torch._dynamo.reset()


def test_index_copy_counts_no_index_from_the_end() -> None:
    compiled = torch.compile(lambda x, at, rows: x.index_copy(0, at, rows), backend="zefuse")
    x, rows = torch.zeros(4, 3), torch.ones(1, 3)
    assert torch.equal(compiled(x, torch.tensor([3]), rows), x.index_copy(0, torch.tensor([3]), rows))
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 4"):
        compiled(x, torch.tensor([-1]), rows)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("sizes", [(3, 9, 48), (40, 37), (2, 70, 5)], ids=str)
def test_rows_with_indices_of_their_own_are_filled_by_vectors(
    sizes: tuple[int, ...], dtype: torch.dtype, dynamic: bool
) -> None:
    """Along another dimension than the last, whose rows lie together: their updates come one by one, in order."""

    def scatters(
        to: torch.Tensor, at: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        empty = values.new_zeros(to.shape)
        return empty.scatter(-2, at, values), (to * 2).scatter_add(-2, at, values), to.scatter_add(-2, at, values * 2)

    generator = torch.Generator().manual_seed(3)
    of_updates = (*sizes[:-2], 4, sizes[-1])
    # Distinct places for what is overwritten would hide the order: the last one wins.
    at = torch.randint(sizes[-2], of_updates, generator=generator)
    to, values = (torch.randint(-9, 9, size, generator=generator).to(dtype) for size in (sizes, of_updates))
    compiled = torch.compile(scatters, backend="zefuse", dynamic=dynamic)
    explanation = Explanation()
    with observe(explanation.add):
        first = compiled(to, at, values)
    schedules = "; ".join(kernel["schedule"] for kernel in explanation.kernels)
    assert 0 < schedules.count("scatter,") == schedules.count("filled by vectors"), schedules
    for mine, eager in zip(first, scatters(to, at, values), strict=True):
        assert torch.equal(mine, eager)  # small integers: sums are exact
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert all(torch.equal(mine, other) for mine, other in zip(compiled(to, at, values), first, strict=True))
    finally:
        torch.set_num_threads(before)
