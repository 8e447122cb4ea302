"""Strides of Fourier transforms on the CPU: as eager's, in the order of the input's strides."""

from __future__ import annotations

import random

import pytest
import torch
from random_layouts import drawn_layout
from torch._subclasses.fake_tensor import FakeTensorMode

import zefuse.backend  # noqa: F401  torch's shape rules are then eager's


def test_fake_results_lie_as_eagers() -> None:
    draw, aten = random.Random(0), torch.ops.aten
    for _ in range(400):
        x = drawn_layout([draw.choice([1, 2, 3, 4]) for _ in range(draw.randint(1, 5))], draw)
        dims = draw.sample(range(x.dim()), draw.randint(1, min(3, x.dim())))
        operator = draw.choice([aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default])
        last = draw.choice([True, False]) if operator is aten._fft_r2c.default else True
        if operator is aten._fft_c2r.default:
            last = 2 * x.shape[dims[-1]] - 1
        if operator is not aten._fft_r2c.default:
            x = torch.zeros(2 * x.untyped_storage().nbytes() // 4, dtype=torch.complex64).as_strided(
                x.shape, x.stride()
            )
        expected = operator(x, dims, 0, last)
        with FakeTensorMode() as mode:
            fake = operator(mode.from_tensor(x), dims, 0, last)
        assert fake.stride() == expected.stride(), (operator, x.shape, x.stride(), dims)


@pytest.mark.parametrize(("dim", "dynamic"), [((0,), False), ((1,), True), ((1, 0), False), ((2, 0, 1), False)])
def test_training_through_spectra(dim: tuple[int, ...], dynamic: bool) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.rfftn(x.sin(), dim=dim)
        return spectrum, torch.fft.fftn(spectrum * 2j, dim=dim[::-1]).abs() * x.mean()

    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    for size in (4, 6) if dynamic else (4,):
        ours = torch.randn(size, 6, 5, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        made, expected = compiled(ours), function(theirs)
        assert [each.stride() for each in made] == [each.stride() for each in expected]
        sum(each.abs().sum() for each in made).backward()
        sum(each.abs().sum() for each in expected).backward()
        torch.testing.assert_close((*made, ours.grad), (*expected, theirs.grad))
