"""Writes at computed places."""

from __future__ import annotations

import torch
from op_case import BOTH, FLOATS, SMALL_INTEGERS, Case, indices, mask

S = (6, 8)
_ALL = (*BOTH, *SMALL_INTEGERS, torch.float64, torch.float16)


def _distinct(*values: int):  # type: ignore[no-untyped-def]
    return lambda: torch.tensor(values)


SCATTER = [
    Case("index_put", lambda x, i, y: (x.index_put((i,), y), x.index_put((i,), y[0])), [S, _distinct(4, 0, -2), (3, 8)], _ALL),
    Case("index_put_accumulate", lambda x, i, y: x.index_put((i,), y, accumulate=True), [S, indices(6, 9, low=-6), (9, 8)], _ALL),
    Case("index_put_two", lambda x, i, j, y: x.index_put((i, j), y, accumulate=True), [S, indices(6, 4, 1), indices(8, 3), (4, 3)], BOTH),
    Case("index_put_apart", lambda x, i, j, y: torch.ops.aten.index_put(x, [i, None, j], y, True), [(4, 3, 5), indices(4, 6), indices(5, 6), (6, 3)], BOTH),
    Case("index_put_middle", lambda x, i, y: torch.ops.aten.index_put(x, [None, i], y, True), [(4, 5, 3), indices(5, 7), (4, 7, 3)], BOTH),
    Case("index_put_wide", lambda x, i, y: x.index_put((i,), y * 2, accumulate=True) + 1, [(9, 40), indices(9, 20), (20, 40)]),
    Case("index_put_mask", lambda x, m, y: (x.index_put((m,), y), x.index_put((m,), y, accumulate=True)), [S, mask(*S), ()], BOTH),
    Case("index_put_row_mask", lambda x, m: torch.index_put(x, (m,), x.new_tensor(3)), [S, mask(6)]),
    Case("index_put_one_dim", lambda x, i, y: x.index_put((i,), y, accumulate=True), [(50,), indices(50, 300), (300,)], BOTH),
    Case("index_put_transposed", lambda x, i, y: x.t().index_put((i,), y, accumulate=True), [S, indices(8, 5), (5, 6)]),
    Case("index_add", lambda x, i, y: (x.index_add(0, i, y), x.index_add(1, i, y.t().repeat(1, 1)[:6], alpha=2)), [S, indices(6, 8), (8, 8)], BOTH, bf16_atol=2e-2),
    Case("index_copy", lambda x, i, y: x.index_copy(1, i, y), [S, _distinct(1, 7, 4), (6, 3)], BOTH),
    Case("index_fill", lambda x, i: x.index_fill(0, i, 2), [S, indices(6, 3)], BOTH),
    Case("scatter", lambda x, y: x.scatter(1, torch.tensor([[3, 1, 0], [7, 2, 5]]), y), [S, (2, 3)], _ALL),
    Case("scatter_dim0", lambda x, y: x.scatter(0, torch.arange(6).view(6, 1).flip(0).expand(6, 8), y), [S, S], BOTH),
    Case("scatter_value", lambda x, i: (x.scatter(1, i, 3), x.scatter(1, i, 2, reduce="add")), [S, indices(8, 6, 3)], BOTH),
    Case("scatter_one", lambda x, i: (torch.zeros_like(x).scatter(1, i, -1) * x).sum(-1), [S, indices(8, 6, 1)], FLOATS),
    Case("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), [S, indices(8, 6, 20), (6, 20)], _ALL),
    Case("scatter_add_dim0", lambda x, i, y: x.scatter_add(0, i, y.exp()), [S, indices(6, 9, 8), (9, 8)]),
    Case("scatter_add_one", lambda x, i, y: x.scatter_add(1, i, y), [S, indices(8, 6, 1), (6, 1)], BOTH),
    Case("scatter_smaller", lambda x, i, y: x.scatter_add(0, i, y), [S, indices(6, 3, 5), (4, 7)], BOTH),
    *(
        Case(f"scatter_reduce_{r}_{include}", lambda x, i, y, r=r, include=include: x.scatter_reduce(1, i, y, r, include_self=include), [S, indices(8, 6, 11), (6, 11)])
        for r in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    ),
    Case("scatter_reduce_integers", lambda x, i, y: (x.scatter_reduce(0, i, y, "amax"), x.scatter_reduce(0, i, y, "prod")), [S, indices(6, 6, 8), S], (torch.int64, torch.int32, torch.int8)),
    # Of symbolic sizes nobody knows whether the source fits: test_refused_calls.py.
    Case("slice_scatter_ones", lambda x: torch.ones_like(x).new_zeros(6, 20).slice_scatter(torch.ones_like(x), 0, 1, 4), [(3, 20)], BOTH, dynamic=False),
    Case("slice_scatter_step", lambda x, y: x.slice_scatter(y, 1, 1, 7, 2), [S, (6, 3)], BOTH, dynamic=False),
    Case("slice_scatter", lambda x, y: x.slice_scatter(y, 0, 1, 4) + 1, [S, (3, 8)], BOTH, dynamic=False),
    Case("select_scatter", lambda x, y: x.select_scatter(y, 1, -2), [S, (6,)], BOTH),
    Case("diagonal_scatter", lambda x, y: x.diagonal_scatter(y, 1), [S, (6,)], BOTH, dynamic=False),
    Case("as_strided_scatter", lambda x, y: x.as_strided_scatter(y, (3, 2), (8, 1), 1), [S, (3, 2)], BOTH, dynamic=False),
    Case("embedding_backward", lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 10, 3, False), [(4, 5, 6), indices(10, 4, 5)]),
    Case("embedding_backward_wide", lambda g, i: torch.ops.aten.embedding_dense_backward(g * 2, i, 10, -1, False), [(40, 37), indices(10, 40)]),
    Case("scatter_empty", lambda x: x.index_put((torch.zeros(0, dtype=torch.int64),), x[:0]), [S], dynamic=False),
]  # fmt: skip
