"""Backward graphs of the families whose gradients are kernels of their own, against eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from op_case import Case, indices, name
from op_cases_composites import WITH_GRADIENT
from op_cases_windows import PADDING, POOLING
from op_check import check_gradients, check_gradients_together, groups, names

_NO_GRADIENT = ("gradient", "integers", "nan", "infinity", "bool", "u8", "empty", "sum_empty")
WINDOWS = [c for c in (*POOLING, *PADDING) if not any(word in c.name for word in _NO_GRADIENT)]

SCATTER = [
    Case("index", lambda x, i: x[i] * 2, [(6, 8), indices(6, 4, 3)]),
    Case("index_two", lambda x, i, j: x[i, j], [(6, 8, 3), indices(6, 4, 1), indices(8, 3)]),
    Case("gather", lambda x, i: x.gather(1, i), [(6, 8), indices(8, 6, 11)]),
    Case("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), [(6, 8), indices(8, 6, 11), (6, 11)]),
    Case("index_add", lambda x, i, y: x.index_add(0, i, y), [(6, 8), indices(6, 9), (9, 8)]),
    Case("embedding", torch.nn.functional.embedding, [indices(10, 4, 5), (10, 6)]),
    Case("cumsum", lambda x: x.cumsum(-1) * 2, [(6, 8)]),
    Case("cumprod", lambda x: x.cumprod(0), [(6, 8)], low=0.5),
    Case("cummax", lambda x: x.cummax(-1).values, [(6, 8)]),
    Case("prod", lambda x: (x.prod(), x.prod(-1)), [(3, 4)], low=0.5),
    Case("embedding_bag", lambda i, w: F.embedding_bag(i, w, mode="sum"), [indices(10, 4, 5), (10, 6)]),
    Case("embedding_bag_mean", lambda i, w: F.embedding_bag(i, w, mode="mean"), [indices(10, 4, 5), (10, 6)]),
    Case(
        "embedding_bag_offsets",
        lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"),
        [indices(10, 9), (10, 6), lambda: torch.tensor([0, 3, 3, 9])],
    ),
    Case("max_dim", lambda x: x.max(-1).values, [(6, 8)]),
    Case("cross_entropy", torch.nn.functional.cross_entropy, [(6, 8), indices(8, 6)]),
    Case("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), [(5, 3, 4), (5, 1, 1)], low=0.5),
    Case("weight_norm_last", lambda v, g: torch._weight_norm(v, g, 1), [(5, 4), (1, 4)], low=0.5),
    Case("slice_step", lambda x: x[1:, ::2] * 2, [(6, 8)]),
    Case("interpolate", lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), [(2, 3, 5, 6)]),
]


def _cross_entropy(case: str, sizes: tuple[int, ...], weighted: bool = False, **options: object) -> Case:
    """``sizes``: batch, classes, then the target's further dimensions. One of the targets is ignored."""
    target = indices(sizes[1], sizes[0], *sizes[2:])
    loss = torch.nn.functional.cross_entropy
    if weighted:
        return Case(
            case,
            lambda x, t, w: loss(x, t, w.detach(), ignore_index=1, **options),
            [sizes, target, (sizes[1],)],
            low=0.5,
        )
    return Case(case, lambda x, t: loss(x, t, ignore_index=1, **options), [sizes, target])


CROSS_ENTROPY = [
    _cross_entropy(f"cross_entropy_{form}_{reduction}{'_weighted' if weighted else ''}{'_smooth' if smooth else ''}", sizes,
                   weighted, reduction=reduction, label_smoothing=smooth)
    for form, sizes in (("row", (6, 8)), ("one", (6, 3, 1)), ("line", (6, 8, 5)), ("plane", (2, 5, 3, 4)))
    for reduction, weighted, smooth in (
        ("mean", False, 0.0), ("mean", True, 0.1), ("sum", True, 0.1), ("sum", False, 0.0), ("none", True, 0.0))
]  # fmt: skip
SCATTER += CROSS_ENTROPY
SCATTER += WITH_GRADIENT


# Corners that are aligned differ by a constant; where a place is reflected, by more.
CASES = [
    case
    for case in (*WINDOWS, *SCATTER)
    if not ("aligned" in case.name and case.name.startswith(("grid_sample_bilinear", "grid_sample_nearest")))
    or "reflection" in case.name
]
# Forms of a target, whose sizes are the symbols, with two of the reductions; and what takes seconds to compile.
STATIC = [case.name for case in CROSS_ENTROPY if not case.name.endswith(("mean_weighted_smooth", "none_weighted"))]
STATIC += ["grid_sample_3d", "grid_sample_bilinear_reflection_aligned", "grid_sample_nearest_reflection_aligned"]


@pytest.mark.parametrize("cases", groups(CASES), ids=names)
def test_static(cases: list[Case]) -> None:
    check_gradients_together(cases, torch.float32)


@pytest.mark.parametrize("case", [case for case in CASES if case.dynamic and case.name not in STATIC], ids=name)
def test_dynamic(case: Case) -> None:
    check_gradients(case, torch.float32, dynamic=True)
