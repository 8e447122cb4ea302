"""Jagged nested tensors: the symbol of their lengths has no value, and goes through a graph as it came."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.schemas import SubclassCreationMeta
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor

from zefuse.backend import observe

LINEAR, NORM = nn.Linear(8, 8), nn.LayerNorm(8)


def jagged(*lengths: int, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randn(length, 8, generator=generator) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=grad)


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)


CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": lambda x: torch.relu(x) + 1,
    "linear": lambda x: LINEAR(x),
    "layer_norm": lambda x: NORM(x * 2),
    "softmax": lambda x: x.softmax(-1),
    "sum over the lengths": lambda x: (x * 2).sum(1),
    "mean over the lengths": lambda x: (x * 2).mean(1),
    "sum": lambda x: (x * 2).sum(-1),
    "padded": lambda x: torch.nested.to_padded_tensor(x * 2, 0.0),
    "values": lambda x: x.values() * 2,
    "two of one length": lambda x: x + (x * 2).sin(),
    "two results": lambda x: (x * 2, x.cos() + 1)[1],
    "attention": attention,
}


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.is_nested == expected.is_nested
    if actual.is_nested:
        assert torch.equal(actual.offsets(), expected.offsets())
        actual, expected = actual.values(), expected.values()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, dynamic: bool | None) -> None:
    function = CASES[name]
    graphs = []
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    with torch.no_grad(), observe(lambda _, graph: graphs.append(graph)):
        for lengths in ((2, 3, 5), (4, 1, 6), (7, 7)):
            x = jagged(*lengths)
            same(compiled(x), function(x))
    assert any(graph.report()["kernels"] or graph.report()["calls"] for graph in graphs) or name == "attention"


def test_a_result_has_its_arguments_lengths() -> None:
    """The lengths' symbol comes back as it went in: results and arguments can be added."""
    x = jagged(2, 3, 5)
    with torch.no_grad():
        y = torch.compile(lambda x: torch.relu(x) + 1, backend="zefuse")(x)
    assert y.shape == x.shape
    same(y + x, torch.relu(x) + 1 + x)


@pytest.mark.parametrize("name", ["linear", "layer_norm", "softmax", "padded"])
def test_gradients(name: str) -> None:
    function = CASES[name]
    gradients = []
    for run in (function, torch.compile(function, backend="zefuse")):
        x = jagged(2, 3, 5, grad=True)
        y = run(x)
        (y.values() if y.is_nested else y).square().sum().backward()
        gradients.append(x.grad)
    same(gradients[1], gradients[0])


@pytest.mark.parametrize("power", [lambda x: 2.0**x, lambda x: 1 ** (x > 0)], ids=["number", "bool"])
def test_a_power_of_a_number_between_other_results(power: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Contiguous, as in eager, it would have one symbol more among its strides than AOTAutograd has noted."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = x.unsqueeze(-1).transpose(1, 3) * 2
        return power(turned), turned.abs(), x + 1

    x = jagged(1, 2)
    with torch.no_grad():
        for actual, expected in zip(torch.compile(function, backend="zefuse")(x), function(x), strict=True):
            same(actual, expected)


def test_a_subclass_of_symbolic_sizes_lies_as_was_noted() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.logical_or(x.t(), x[:, 0]), 2.0 ** x.t(), x.t() + 1, x * 2

    compiled = torch.compile(function, backend="zefuse", dynamic=True)
    for length in (3, 5):
        x = TwoTensor(torch.rand(length, 4), torch.rand(length, 4))
        actual, expected = compiled(x), function(x)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one.a, other.a)
            torch.testing.assert_close(one.b, other.b)
            assert one.stride() == one.a.stride() == one.b.stride()


def test_what_a_jagged_tensor_remembers_later_is_not_handed_over() -> None:
    """Its longest row, as a tensor: what stood behind it in a call went to the wrong places, or was one too many (torch 2.11)."""
    x = torch.nested.nested_tensor_from_jagged(torch.randn(5, 8), torch.tensor([0, 2, 5]))
    noted = object.__new__(SubclassCreationMeta)
    noted.attrs = dict.fromkeys(x.__tensor_flatten__()[0])
    compiled = torch.compile(lambda x, y: (x * 3, y * 2), backend="zefuse")
    for _ in range(2):
        first, second = compiled(x, torch.arange(3))
        torch.testing.assert_close(first.values(), x.values() * 3)
        assert second.tolist() == [0, 2, 4]
        F.softmax(x, 1)
    assert "_max_seqlen_tensor" in x.__tensor_flatten__()[0]
    handed = runtime_wrappers.runtime_unwrap_tensor_subclasses([x, 1], append_symints=False, subclass_metas=[noted, 1])
    assert [id(each) for each in handed] == [id(x._values), id(x._offsets), id(1)]
