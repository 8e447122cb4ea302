"""Reductions of no elements: eager's identity where there is one, else eager's refusal; nothing is made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

Function = Callable[[Tensor], Any]

ALL = """max min amax amin argmax argmin mean median nanmedian sum prod any all var std nansum nanmean aminmax norm
    count_nonzero std_mean var_mean quantile""".split()
ALONG = """max min amax amin argmax argmin mean median nanmedian sum prod any all var std nansum nanmean aminmax norm
    logsumexp softmax log_softmax cumsum cumprod cummax cummin logcumsumexp mode sort argsort count_nonzero""".split()
NORMS = (0, 1, 2, 3, torch.inf, -torch.inf)


def _all(name: str) -> Function:
    return lambda x: torch.quantile(x, 0.5) if name == "quantile" else getattr(torch, name)(x)


def _along(name: str, dim: int) -> Function:
    return lambda x: getattr(torch, name)(x, dim=dim)


FUNCTIONS: dict[str, Function] = {
    **{name: _all(name) for name in ALL},
    **{f"{name}({dim})": _along(name, dim) for name in ALONG for dim in (0, 1)},
    **{f"norm {p}": lambda x, p=p: torch.linalg.vector_norm(x, p) for p in NORMS},
    **{f"norm {p} (0)": lambda x, p=p: torch.linalg.vector_norm(x, p, dim=0) for p in NORMS},
    "topk": lambda x: torch.topk(x, 1, dim=0),
    "topk of none": lambda x: torch.topk(x, 0, dim=0),
    "kthvalue": lambda x: torch.kthvalue(x, 1, dim=0),
    "quantile": lambda x: torch.quantile(x, 0.5, dim=0),
    "amax of both": lambda x: torch.amax(x, (0, 1)),
    "amax kept": lambda x: torch.amax(x, 0, keepdim=True),
    "integers' max": lambda x: x.to(torch.int64).max(),
    "bytes' min": lambda x: x.to(torch.uint8).min(),
    "bools' max": lambda x: (x > 0).max(0),
    "only the places": lambda x: x.max(0).indices + 1,
}


def outcome(function: Function, x: Tensor) -> Any:
    try:
        return function(x)
    except Exception as error:
        return error


def agrees(ours: Any, eager: Any) -> None:
    if isinstance(eager, Exception):
        assert isinstance(ours, Exception), f"eager raises {eager!r}, ours is {ours}"
        if "fake tensor" not in str(ours):  # torch's own tracing found it, as a class of its own
            assert isinstance(ours, type(eager))
            assert "non-zero size" in str(ours) or "numel() == 0" in str(ours)
        return
    assert not isinstance(ours, Exception), ours
    torch.testing.assert_close(ours, eager, equal_nan=True)


SIZES = [(0, 3), (3, 0), (0, 0)]
IN_EAGER = {(name, sizes): outcome(FUNCTIONS[name], torch.randn(sizes)) for name in FUNCTIONS for sizes in SIZES}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_known_sizes(sizes: tuple[int, int]) -> None:
    """Of all in one graph that eager does not refuse."""
    names = [name for name in FUNCTIONS if not isinstance(IN_EAGER[name, sizes], Exception)]
    functions = [FUNCTIONS[name] for name in names]
    compiled = torch.compile(
        lambda inputs: [function(x) for function, x in zip(functions, inputs, strict=True)],
        backend="zefuse", dynamic=False,
    )  # fmt: skip
    for name, ours in zip(names, compiled([torch.randn(sizes) for _ in names]), strict=True):
        try:
            agrees(ours, IN_EAGER[name, sizes])
        except AssertionError as error:
            error.add_note(name)
            raise


@pytest.mark.parametrize(("name", "sizes"), [key for key, eager in IN_EAGER.items() if isinstance(eager, Exception)])
def test_refusals(name: str, sizes: tuple[int, int]) -> None:
    compiled = torch.compile(FUNCTIONS[name], backend="zefuse", dynamic=False)
    agrees(outcome(compiled, torch.randn(sizes)), IN_EAGER[name, sizes])


# What torch's tracing leaves unguarded: one compilation serves any number of rows, none among them.
@pytest.mark.parametrize(
    "name",
    ["max", "min", "max(0)", "min(0)", "median(0)", "nanmedian(0)", "mean", "sum(0)", "prod", "var", "any(0)", "all",
     "integers' max", "bytes' min", "bools' max", "only the places", "softmax(0)"],
)  # fmt: skip
def test_sizes_that_become_zero(name: str) -> None:
    compiled = torch.compile(FUNCTIONS[name], backend="zefuse", fullgraph=True)
    for rows in (4, 1, 0):
        x = torch.randn(rows, 5)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        eager, ours = outcome(FUNCTIONS[name], x), outcome(compiled, x)
        if isinstance(eager, Exception) and "median" in name:
            assert "out of bounds" in str(ours)  # a median's place in the sorted row is an index
        elif isinstance(eager, Exception):
            assert isinstance(ours, IndexError if isinstance(eager, IndexError) else RuntimeError), ours
            assert str(eager) in str(ours)
        else:
            agrees(ours, eager)


INDEXED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, x.shape[1])),
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "computed": lambda x, i: (x + 1)[i] * 2,
}


@pytest.mark.parametrize("form", ["static", "dynamic", "unbacked"])
@pytest.mark.parametrize("name", INDEXED)
def test_reading_what_has_no_elements(name: str, form: str) -> None:
    """There is no element to read in place of the one that is not there."""
    compiled = torch.compile(INDEXED[name], backend="zefuse", dynamic=form != "static")
    for rows, places in ((4, 3), (0, 3), (0, 0), (7, 2)):
        x, index = torch.randn(rows, 5), torch.zeros(places, dtype=torch.int64)
        if form == "unbacked":
            torch._dynamo.decorators.mark_unbacked(x, 0)
        if rows == 0 and places > 0:
            with pytest.raises((IndexError, RuntimeError), match=r"index|range|empty"):
                compiled(x, index)
        else:
            torch.testing.assert_close(compiled(x, index), INDEXED[name](x, index))


SCATTERED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_add": lambda x, i, y: x.index_add(0, i, y),
    "index_copy": lambda x, i, y: x.index_copy(0, i, y),
    "index_put": lambda x, i, y: x.index_put((i,), y, accumulate=True),
    "scatter": lambda x, i, y: x.scatter(0, i[:, None].expand(-1, x.shape[1]), y),
    "scatter_reduce": lambda x, i, y: x.scatter_reduce(0, i[:, None].expand(-1, x.shape[1]), y, "amax"),
}


@pytest.mark.parametrize("form", ["static", "dynamic", "unbacked"])
@pytest.mark.parametrize("name", SCATTERED)
def test_writing_what_has_no_elements(name: str, form: str) -> None:
    compiled = torch.compile(SCATTERED[name], backend="zefuse", dynamic=form != "static")
    for rows, places in ((4, 3), (0, 3), (0, 0), (7, 2)):
        x, index, y = torch.randn(rows, 5), torch.zeros(places, dtype=torch.int64), torch.randn(places, 5)
        if form == "unbacked":
            torch._dynamo.decorators.mark_unbacked(x, 0)
        if rows == 0 and places > 0 and name != "index_add":  # eager adds nothing
            ours = outcome(lambda x: compiled(x, index, y), x)  # noqa: B023
            assert isinstance(ours, IndexError | RuntimeError), ours
        elif name != "index_copy":  # the last of equal places wins in eager by chance
            torch.testing.assert_close(compiled(x, index, y), SCATTERED[name](x, index, y))
