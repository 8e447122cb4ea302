"""For the tests of those who compile with zefuse: assert what a model becomes and that it computes what eager does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from zefuse.explanation import Explanation, explain
from zefuse.options import Options


def relative_error(actual: Any, expected: Any) -> float:
    """Largest difference over the largest magnitude expected, over all tensors of a nest. NaNs must match in place."""
    worst = 0.0
    ours, theirs = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}"
    for mine, reference in zip(ours, theirs, strict=True):
        if not isinstance(reference, torch.Tensor):
            assert mine == reference, f"result {mine!r}, expected {reference!r}"
            continue
        assert mine.shape == reference.shape, f"shape {tuple(mine.shape)}, expected {tuple(reference.shape)}"
        assert mine.dtype == reference.dtype, f"dtype {mine.dtype}, expected {reference.dtype}"
        if reference.numel() == 0:
            continue
        left, right = mine.detach().double(), reference.detach().double()
        if not torch.equal(left.isfinite(), right.isfinite()) or not torch.equal(
            left[~left.isfinite()].nan_to_num(nan=0.5), right[~right.isfinite()].nan_to_num(nan=0.5)
        ):
            return float("inf")
        left, right = left[left.isfinite()], right[right.isfinite()]
        if right.numel():
            scale = max(right.abs().max().item(), torch.finfo(torch.float32).tiny)
            worst = max(worst, (left - right).abs().max().item() / scale)
    return worst


def assert_compiled(
    model: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    kernels: int | None = None,
    calls: int | None = None,
    fallbacks: int | None = 0,
    graph_breaks: int | None = 0,
    rtol: float = 1e-5,
    options: Mapping[str, Any] | Options | None = None,
) -> Explanation:
    """Fails, with the explanation, unless ``model`` compiles to these counts and computes what eager does.

    A count of ``None`` is not checked. ``rtol`` bounds the largest error over the largest magnitude of each result.
    A model of which nothing is compiled fails, unless ``kernels=0`` says that it is so.
    Runs the model twice (once compiled), so it should not depend on state that it changes.
    """
    expected = model(*inputs)
    explanation = explain(model, *inputs, options=options)
    checks = {
        "kernels": (len(explanation.kernels), kernels),
        "calls": (len(explanation.calls), calls),
        "fallbacks": (len(explanation.fallbacks), fallbacks),
        "graph_breaks": (sum(explanation.graph_breaks.values()), graph_breaks),
    }
    wrong = [
        f"{found} {name}, expected {wanted}" for name, (found, wanted) in checks.items() if wanted not in (None, found)
    ]
    if explanation.nothing_compiled and kernels != 0:
        wrong.insert(0, f"nothing was compiled: {explanation.nothing_compiled}")
    assert not wrong, "; ".join(wrong) + f"\n{explanation}"
    error = relative_error(explanation.result, expected)
    assert error <= rtol, f"relative error {error:.2e}, allowed {rtol:.0e}\n{explanation}"
    return explanation
