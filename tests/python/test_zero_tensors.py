"""Gradients that torch begins with a tensor of zeros without memory are zeros here, as in eager (``graphs/zero_tensors.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of a variance": lambda x: torch.sgn(x.var(-2)),
    "of a product": lambda x: torch.sgn(x * -x),
    "of a quotient": lambda x: torch.sgn(x.T[1:] / -3.0),
    "of windows": lambda x: torch.sgn(x.unfold(0, 2, 1) * x[1:].unsqueeze(-1)),
    "beside another": lambda x: torch.sgn(x * x) + x * 2,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_with_zeros_are_zeros(name: str, dynamic: bool) -> None:
    compiled = torch.compile(FUNCTIONS[name], backend="zefuse", dynamic=dynamic)
    for rows in (5, 4):
        gradients = []
        for function in (FUNCTIONS[name], compiled):
            x = torch.linspace(-2, 3, 3 * rows).reshape(rows, 3)
            x[0, 0] = math.inf
            x.requires_grad_()
            (gradient,) = torch.autograd.grad(function(x), x, torch.ones_like(function(x)), retain_graph=True)
            gradients.append(gradient + torch.zeros(()))  # eager's may have no memory
        torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(gradients[1].signbit(), gradients[0].signbit())
