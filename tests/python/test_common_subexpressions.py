"""Equal nodes of a joint graph, beside what torch's partitioner merges itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from zefuse.graphs import common_subexpressions


def ops(graph: Graph) -> Counter[str]:
    return Counter(str(node.target) for node in graph.nodes if node.op == "call_function")


def merged(function: Any, *inputs: Any) -> tuple[Counter[str], Counter[str]]:
    """What is left by us, and by torch."""
    gm: GraphModule = make_fx(function)(*inputs)
    theirs = fx_graph_cse(gm.graph)
    assert common_subexpressions.can_merge(gm.graph)
    common_subexpressions.merge(gm.graph)
    gm.graph.lint()
    return ops(gm.graph), ops(theirs)


def repeated(x: torch.Tensor) -> torch.Tensor:
    return x.sin().sum(0) + x.sin().sum(0) * x.cos().sum([0])


def numbers(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).sin() + (x + 1.0).sin() + (x + True).sin() + (x * 0.0).sin() + (x * -0.0).sin()


def random(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x) + torch.rand_like(x) + torch.bernoulli(x) * torch.bernoulli(x)


def without_contents(x: torch.Tensor) -> torch.Tensor:
    return (torch.empty_like(x) * 0).sin() + (torch.empty([2, 3]) * 0).sin() + (torch.empty([2, 3]) * 0).cos()


def returned(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.sin(), x.sin(), x.cos().view(-1), x.cos()]


def listed(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x.sin()]).cos() + torch.cat([x, x.sin()]).tan() + torch.cat([x.sin(), x]).tan()


@pytest.mark.parametrize("function", [repeated, random, without_contents, returned, listed], ids=lambda f: f.__name__)
def test_as_many_are_left_as_by_torch(function: Any) -> None:
    ours, theirs = merged(function, torch.rand(2, 3))
    assert ours == theirs


def test_numbers_of_other_types_and_signs_are_others() -> None:
    ours, _ = merged(numbers, torch.rand(2, 3))
    assert ours["aten.add.Tensor"] == 3 + 4, "three sums with numbers, four of results"
    assert ours["aten.mul.Tensor"] == 2


def test_what_writes_is_left_to_torch() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.add_(1).sin()

    assert not common_subexpressions.can_merge(make_fx(writes)(torch.rand(2, 3)).graph)


def test_results_that_are_equal_in_eager_are_tensors_of_their_own_and_right() -> None:
    gm = make_fx(returned)(torch.rand(2, 3))
    x = torch.rand(2, 3)
    common_subexpressions.merge(gm.graph)
    gm.recompile()
    got = gm(x)
    assert len({result.data_ptr() for result in got}) == 4
    for result, expected in zip(got, returned(x), strict=True):
        torch.testing.assert_close(result, expected)
