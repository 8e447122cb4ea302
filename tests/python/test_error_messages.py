"""Errors at run time, in forward and in backward: of eager's class, with the user's line and the user's names of what was read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

HERE = "test_error_messages.py"


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.table(batch["words"]) * 2


def loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores * 2, target)


def gathered(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return rows.gather(1, chosen) * 2


def scattered(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return (rows * 2).scatter_add(0, chosen, rows)


def inverted(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(matrix * 1) + 1


class _KeepsTheSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(kept)
        return rows * 2


class _GatheredBehind(_KeepsTheSecond):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (chosen,) = ctx.saved_tensors
        return grads[0][chosen] * 2, None


class _SolvedBehind(_KeepsTheSecond):
    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (matrix,) = ctx.saved_tensors
        return torch.linalg.inv(matrix) @ grads[0], None


def gathered_behind(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return _GatheredBehind.apply(rows, chosen)


def solved_behind(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return _SolvedBehind.apply(rows, matrix)


def rows(*places: int) -> list[torch.Tensor]:
    return [torch.randn(3, 4), torch.tensor(places)]


# name -> function, inputs, inputs that eager refuses, what the error names
CASES: dict[str, tuple[Callable[..., Any], list[Any], list[Any], list[str]]] = {
    "a module's table": (
        Table(),
        [{"words": torch.tensor([1, 2])}],
        [{"words": torch.tensor([1, 99])}],
        ["batch['words']", "self.table.weight"],
    ),
    "a class that there is not": (loss, rows(0, 1, 2), rows(0, 1, 9), ["target"]),
    "gather": (
        gathered,
        [torch.randn(3, 4), torch.tensor([[1], [2]])],
        [torch.randn(3, 4), torch.tensor([[1], [4]])],
        ["chosen"],
    ),
    "scatter": (
        scattered,
        [torch.randn(3, 4), torch.zeros(3, 4).long()],
        [torch.randn(3, 4), torch.full((3, 4), 7)],
        ["chosen"],
    ),
    "a singular matrix": (inverted, [torch.eye(3)], [torch.zeros(3, 3)], []),
    "an index in backward": (gathered_behind, rows(0, 1, 2), rows(0, 1, 9), ["chosen", "the gradient of output 0"]),
    "a singular matrix in backward": (
        solved_behind,
        [torch.randn(3, 3), torch.eye(3)],
        [torch.randn(3, 3), torch.zeros(3, 3)],
        [],
    ),
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_errors_at_run_time(name: str, dynamic: bool | None) -> None:
    function, good, bad, names = CASES[name]
    compiled = torch.compile(function, backend="zefuse", fullgraph=True, dynamic=dynamic)

    def call(run: Callable[..., Any], inputs: list[Any]) -> None:
        leaves = [
            value.clone().requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for value in inputs
        ]
        run(*leaves).sum().backward()

    call(compiled, good)
    with pytest.raises((IndexError, RuntimeError)) as eager:
        call(function, bad)
    with pytest.raises(type(eager.value)) as ours:
        call(compiled, bad)
    said = str(ours.value)
    assert re.search(rf" of (\w+\.py:\d+, )*{HERE}:\d+", said), said
    assert not re.search(r"primals|tangents|arg\d+_\d", said), said
    for wanted in names:
        assert re.search(rf"which reads .*{re.escape(wanted)}", said), said
    call(compiled, good)  # and the next call works


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_an_index_into_nothing(dynamic: bool | None) -> None:
    """An error although the result has no elements, none that an index without elements takes."""

    def indexed(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return rows[:, :, chosen] * 2

    compiled = torch.compile(indexed, backend="zefuse", fullgraph=True, dynamic=dynamic)
    compiled(torch.randn(2, 3, 4), torch.tensor([0, 3]))
    nothing = torch.randn(2, 0, 0)
    for function in (indexed, compiled):
        with pytest.raises(IndexError, match="out of bounds for dimension with size 0"):
            function(nothing, torch.tensor([0, 0]))
    assert compiled(nothing, torch.zeros(0, dtype=torch.int64)).shape == (2, 0, 0)
