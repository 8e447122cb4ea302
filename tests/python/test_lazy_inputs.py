"""Tensors whose memory does not hold their elements: torch marks a negative or a conjugate instead of computing it. Eager is the
oracle, and what is written must be seen through the mark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import zefuse

negative = torch._neg_view


def numbers(*shape: int) -> torch.Tensor:
    return torch.linspace(0.5, 4, int(torch.Size(shape).numel())).view(shape)


LAZY: dict[str, Callable[[], torch.Tensor]] = {
    "negative": lambda: negative(numbers(3, 4)),
    "of_a_conjugate": lambda: torch.complex(numbers(3, 4), numbers(3, 4)).conj().imag,
    "transposed": lambda: negative(numbers(4, 3)).t(),
    "slice": lambda: negative(numbers(5, 9))[1:4, 2:6],
    "few_of_many": lambda: negative(numbers(3, 4, 5))[..., 2],
    "expanded": lambda: negative(numbers(4)).expand(3, 4),
    "zeros_without_memory": lambda: torch._efficientzerotensor((3, 4)),
}
READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "kernel": lambda x: x + 1,
    "reduction": lambda x: x.sum(0),
    "product": lambda x: x @ torch.ones(4, 2),
    "library_of_aten": lambda x: torch.linalg.svdvals(x) + x.sum(),
    "itself_and_more": lambda x: (x, x * 2),
    "view_and_more": lambda x: (x[1:], x * 2),
}


def run(function: Callable[..., Any], *args: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="zefuse")(*args)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("lazy", LAZY)
def test_inputs(lazy: str, read: str) -> None:
    torch.testing.assert_close(run(READS[read], LAZY[lazy]()), READS[read](LAZY[lazy]()))


def test_the_mark_may_change_between_calls() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="zefuse")
    for make in (numbers, lambda *shape: negative(numbers(*shape)), numbers):
        torch.testing.assert_close(compiled(make(3, 4)), make(3, 4) + 1)


@pytest.mark.parametrize("lazy", ["negative", "of_a_conjugate", "transposed", "slice", "few_of_many"])
def test_writes_keep_the_sign(lazy: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).add_(1)

    given, expected = LAZY[lazy](), LAZY[lazy]()
    torch.testing.assert_close(run(function, given), function(expected))
    torch.testing.assert_close(given, expected)
    assert given.is_neg() == expected.is_neg()


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
def test_a_write_is_seen_by_the_other_side() -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        return x.add_(2)

    def both(x: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        return x.add_(base)

    for function in (one, both):
        base, other = numbers(4), numbers(4)
        args = (negative(base), base)[: function.__code__.co_argcount]
        function(*(negative(other), other)[: len(args)])
        run(function, *args)
        torch.testing.assert_close(base, other)


def pairs(*shape: int) -> torch.Tensor:
    return torch.complex(numbers(*shape), numbers(*shape).flip(0))


COMPLEX: dict[str, Callable[[], torch.Tensor]] = {
    "conjugate": lambda: pairs(3, 4).conj(),
    "transposed": lambda: pairs(4, 3).conj().t(),
    "few_of_many": lambda: pairs(3, 4, 5).conj()[..., 2],
    "negative": lambda: negative(pairs(3, 4)),
}
CHANGES: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "all": lambda z: (z.mul_(2).add_(1j),),
    "rows": lambda z: (z[1:].mul_(2), z + 1),
    "imaginary_part": lambda z: (z.imag.mul_(2),),
    "nothing": lambda z: (z[1:], z.t(), z * 2, z.as_strided((2, 2), (1, 2)) * 2),
}


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("lazy", COMPLEX)
def test_complex_numbers_in_memory_that_others_see(lazy: str, change: str) -> None:
    given, expected = COMPLEX[lazy](), COMPLEX[lazy]()
    results, right = run(CHANGES[change], given), CHANGES[change](expected)
    torch.testing.assert_close((given, *results), (expected, *right))
    for mine, eager in zip(results, right, strict=True):
        assert mine.stride() == eager.stride()
        assert (mine.is_conj(), mine.is_neg()) == (eager.is_conj(), eager.is_neg())
        shares = eager.untyped_storage().data_ptr() == expected.untyped_storage().data_ptr()
        assert (mine.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()) == shares


AROUND: dict[str, Callable[[torch.Tensor], Any]] = {
    "read": lambda x: x.as_strided((3, 2), (2, 1), 1) + 1,
    "returned": lambda x: (x.as_strided((3, 2), (2, 1), 1), x + 1),
    "of_a_row": lambda x: x[1:].as_strided((3,), (1,), 0) + 1,
    "the_mark_taken_off": lambda x: (negative(x) if x.is_neg() else x.conj()).as_strided((3,), (1,), 0) + 1,
    "written": lambda x: x.as_strided((3,), (2,), 2).mul_(3),
}


@pytest.mark.filterwarnings("ignore:zefuse. a graph runs in eager")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("lazy", ["of_a_conjugate", "slice", "conjugate", "conjugate_slice"])
def test_what_lies_around_the_elements(lazy: str, around: str) -> None:
    """``as_strided`` counts from the start of the storage, and what it finds there has the mark as well."""
    slices = {"conjugate_slice": lambda: pairs(5, 9).conj()[1:4, 2:6]}
    given, expected = ((LAZY | COMPLEX | slices)[lazy]() for _ in range(2))
    torch.testing.assert_close(run(AROUND[around], given), AROUND[around](expected))
    torch.testing.assert_close(given, expected)


def test_gradients_that_come_as_negatives() -> None:
    grads = []
    for compiled in (False, True):
        w = torch.ones(4, requires_grad=True)
        function = lambda w: w * w.sin()  # noqa: E731
        out = run(function, w) if compiled else function(w)
        out.backward(negative(numbers(4)))
        grads.append(w.grad)
    torch.testing.assert_close(*grads)


class Buffered(nn.Module):
    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("buffer", buffer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.buffer


@pytest.mark.parametrize("lazy", LAZY)
def test_buffers(lazy: str) -> None:
    model, x = Buffered(LAZY[lazy]()).eval(), numbers(2, 3)
    with torch.no_grad():
        compiled = torch.compile(model, backend="zefuse")
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))


def test_a_negative_weight_that_changes() -> None:
    base = numbers(3, 4)
    model, x = Buffered(negative(base)).eval(), numbers(2, 3)
    compiled = torch.compile(model, backend="zefuse")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
            base[1, 2] += 1


@pytest.mark.parametrize("lazy", ["negative", "of_a_conjugate", "transposed", "slice", "zeros_without_memory"])
def test_packages(lazy: str, tmp_path: Path) -> None:
    """As a weight, and as the argument of a loaded one."""
    model, x = Buffered(LAZY[lazy]()).eval(), negative(numbers(2, 3))
    zefuse.compile_package(torch.export.export(model, (numbers(2, 3),)), tmp_path / "m.zefuse")
    torch.testing.assert_close(zefuse.load(tmp_path / "m.zefuse")(x), model(x))


def test_weights_that_differ_by_their_sign_alone(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("plus", numbers(3))
            self.register_buffer("minus", negative(self.plus))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.plus + self.minus

    model = Two()
    zefuse.compile_package(torch.export.export(model, (numbers(3),)), tmp_path / "m.zefuse")
    torch.testing.assert_close(zefuse.load(tmp_path / "m.zefuse")(numbers(3)), model(numbers(3)))
