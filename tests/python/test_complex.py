"""Complex numbers in a plan, as pairs of real ones: values, gradients, strides and what shares memory are eager's, and nothing but what
has no rule runs in eager."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from zefuse.backend import observe

GENERATOR = torch.Generator().manual_seed(0)


def real(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype, generator=GENERATOR)


def number(*sizes: int) -> torch.Tensor:
    return real(*sizes, dtype=torch.complex64)


def rotated(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotary positions as Llama's first program has them."""
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns).flatten(-2)


def views(x: torch.Tensor) -> Any:
    y = x * 2
    return y, y[0], y.t(), y.real, y[1:].imag


def spectra_in_time(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 8, window=torch.ones(8), return_complex=True).abs().log1p()


# name -> function, inputs
CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "rotary positions": (rotated, [real(2, 3, 4, 8), torch.polar(torch.ones(3, 1, 4), real(3, 1, 4))]),
    "product, sum": (lambda a, b: a * b + 1j - b, [number(3, 4), number(4)]),
    "product with real numbers": (lambda a, b: a * b * 2 - 1, [number(3, 4), real(3, 4)]),
    "sum with more real numbers": (lambda a, b: a + b, [number(4), real(3, 4)]),
    "quotient": (lambda a, b: (a / b) / 2, [number(3, 4), number(3, 4)]),
    "quotient by real numbers": (lambda a, b: a / b, [number(3, 4), real(3, 4).abs() + 1]),
    "size, angle and parts": (lambda a: a.conj().abs() + a.angle() + a.imag + a.real, [number(3, 4)]),
    "conjugate": (lambda a: (a.conj() * a).sum(0), [number(3, 4)]),
    "a conjugated input": (lambda a: a * 2 + 1, [number(3, 4).conj()]),
    "a conjugated result": (lambda a: (a * 2).conj(), [number(3, 4)]),
    "a conjugated result beside what it views": (
        lambda a: (lambda v: (v, v.conj(), v.mH, v.conj().conj()[1:], v.mH.split(2)[1]))(a * 2),
        [number(3, 4)],
    ),
    "imaginary parts of a conjugate beside it": (
        lambda a: (lambda v: (v, v.conj().imag, v.conj()[1:].imag.t(), v.mH.imag.split(2)[1], v.conj().imag * 2))(a * 2),
        [number(3, 4)],
    ),
    "imaginary parts of an input's conjugate": (
        lambda a: (a.conj().imag, a.mH.imag[1:], a.conj().imag * 2, a * 2),
        [number(3, 4)],
    ),
    "imaginary parts of a conjugate alone": (
        lambda x, y: (lambda v: (v.conj()[1:].imag, v.conj().imag[0], v.real))(torch.complex(x, y + 1)),
        [real(3, 4), real(3, 4)],
    ),
    "exponential": (lambda x: torch.exp(1j * x), [real(3, 8)]),
    "polar": (lambda a, b: torch.polar(a, b) * 2, [real(3, 4).abs(), real(3, 4)]),
    "complex": (lambda a, b: torch.complex(a, b + 1) * 1j, [real(3, 4), real(3, 4)]),
    "parts of an input": (lambda a: (*a.chunk(2), a.flatten(), a.flatten() * 2), [number(4, 3)]),
    "matrix product": (lambda a, b: a @ b, [number(3, 4), number(4, 5)]),
    "batched product": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), [number(2, 3, 4), number(2, 4, 5)]),
    "views of an input": (lambda a: (a.t()[1:].reshape(-1) * 2, a.view(-1), a.real), [number(3, 4)]),
    "views of a result": (views, [number(3, 4)]),
    "parts": (lambda a: [x * 2 for x in a.split(2, 1)] + list(a.unbind(0)), [number(3, 4)]),
    "written": (lambda a: (a.detach().mul_(2).add_(1j), a.detach()[0]), [number(3, 4)]),
    "cat, flip, roll": (lambda a, b: torch.cat([a, b * 2]).flip(0).roll(1, 0), [number(3, 4), number(2, 4)]),
    "stack": (lambda a, b: torch.stack([a, b], -1) * 2, [number(3, 4), number(3, 4)]),
    "where": (lambda a, b: torch.where(b.real > 0, a, b), [number(3, 4), number(3, 4)]),
    "where of equal ones": (lambda a, b: torch.where(a == b, a * 2, b) + (a != b), [number(3, 4), number(3, 4)]),
    "rows": (lambda a: a[torch.tensor([0, 2])] * 2, [number(3, 4)]),
    "mean": (lambda a: a.mean(-1).abs().square().sum(), [number(3, 4)]),
    "permuted": (lambda a: a * 2, [number(3, 4, 5).permute(2, 0, 1)]),
    "wider": (lambda a, b: a * b, [number(3, 4), real(3, 4, dtype=torch.float64)]),
    "a constant": (lambda a: a * torch.tensor([1 + 2j, 3, 1j, 0]), [number(3, 4)]),
    "infinite constants": (lambda x: torch.where(x > 0, x * 2 + 0j, complex(math.inf, 1)).abs(), [real(3, 4)]),
    "nothing": (lambda a: a * 2, [number(0, 4)]),
    "one": (lambda a: a.sum() * 2, [number(3, 4)]),
    "padded": (lambda a: torch.nn.functional.pad(a * 2, (1, 0, 0, 2), value=3.0) * 1j, [number(3, 4)]),
    "filled as another": (
        lambda a: [a + torch.full_like(a, 1 + 2j), a * torch.ones_like(a), a.new_ones(4) * a, a.new_full((4,), 2j) + a],
        [number(3, 4)],
    ),
    "written into what is not initialised": (lambda a: torch.empty_like(a).copy_(a * 2) + 1, [number(3, 4)]),
}  # fmt: skip

# Without gradients: of whole numbers, or torch has none.
CASES_WITHOUT_GRADIENTS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "a choice beside whole numbers": (
        lambda a, b: (torch.where(a.real > 0, a, b), torch.where(b > 0, b > 0, a)),
        [number(3, 4), torch.arange(4)],
    ),
    "a choice beside real numbers": (lambda a, b: torch.where(b > 0, a, b), [number(3, 4), real(3, 4)]),
    "joined with truth values": (lambda a, b: torch.cat([a, b]), [number(3, 4), torch.ones(2, 4, dtype=torch.bool)]),
    "overwritten by whole numbers": (lambda a, b: (a * 2).copy_(b), [number(3, 4), torch.arange(4)]),
    "rows of real numbers": (lambda a, b: torch.slice_scatter(a, b, 0, 1, 2), [number(3, 4), number(1, 4).real]),
    "a number of elements": (lambda a, b: torch._chunk_cat([a, b], 1, 3), [number(2, 3, 5), number(2, 2, 3).mT]),
    "written into zeros": (lambda a: torch.zeros_like(a).slice_scatter(a * 2, 1) + a, [number(3, 4)]),
    "read before it is written": (lambda a: (a * a * a, a[:2].add_(2)), [number(3, 4)]),
    "two read before both are written": (
        lambda a, b: (a * b, a.copy_(b * 2), b.copy_(b * 3 + 1))[0],
        [number(3), number(3)],
    ),
}

# What has no rule runs in eager, and only that.
OUTSIDE: dict[str, tuple[Callable[..., Any], list[torch.Tensor], str]] = {
    "sine": (lambda a: torch.sin(a * 2) * 3, [number(3, 4)], "aten::sin"),
    "spectrum": (lambda x: torch.fft.fft(x * 2).abs(), [real(3, 8)], "aten::_fft_r2c"),
    "filtered": (lambda x: torch.fft.irfft(torch.fft.rfft(x * 2) * (1 + 2j)), [real(3, 8)], "aten::_fft_c2r"),
    "spectra in time": (spectra_in_time, [real(3, 64)], "aten::_fft_r2c"),
    "eigenvalues": (lambda a: torch.linalg.eigvals(a * 2).abs().sort()[0], [real(3, 3)], "aten::linalg_eig"),
}  # fmt: skip


def _copy(x: torch.Tensor, grad: bool) -> torch.Tensor:
    copy = x.resolve_conj().clone().conj() if x.is_conj() else x.clone()
    return copy.requires_grad_() if grad else copy


def _shared(inputs: list[torch.Tensor], results: Any) -> list[int]:
    places = [each.untyped_storage().data_ptr() for each in (*inputs, *tree_leaves(results)) if each.numel()]
    return [places.index(place) for place in places]


def _agree(function: Callable[..., Any], inputs: list[torch.Tensor], grad: bool, dynamic: bool) -> set[str]:
    """The operators that ran in eager."""
    torch._dynamo.reset()
    theirs, ours = ([_copy(x, grad) for x in inputs] for _ in range(2))
    graphs: list[Any] = []
    with torch.set_grad_enabled(grad), observe(lambda _, graph: graphs.append(graph)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = function(*theirs)
        actual = torch.compile(function, backend="zefuse", fullgraph=True, dynamic=dynamic)(*ours)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
        assert [each.stride() for each in tree_leaves(actual)] == [each.stride() for each in tree_leaves(expected)]
        assert _shared(ours, actual) == _shared(theirs, expected)
        assert [each.is_neg() for each in tree_leaves(actual)] == [each.is_neg() for each in tree_leaves(expected)]
        if grad:
            for results in (actual, expected):
                leaves = [each for each in tree_leaves(results) if each.requires_grad]
                ones = [torch.ones_like(each) * (1 + 1j if each.is_complex() else 1) for each in leaves]
                if leaves:
                    torch.autograd.backward(leaves, ones)
            torch.testing.assert_close([x.grad for x in ours], [x.grad for x in theirs], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours, theirs)
    assert graphs
    return {entry["op"] for graph in graphs for entry in graph.report()["fallbacks"]}


@pytest.mark.parametrize("name", [*CASES, *CASES_WITHOUT_GRADIENTS])
def test_in_the_plan(name: str) -> None:
    function, inputs = (CASES | CASES_WITHOUT_GRADIENTS)[name]
    assert _agree(function, inputs, False, True) == set()


def _together(cases: Iterable[tuple[Callable[..., Any], list[torch.Tensor]]]) -> tuple[Callable[..., Any], list[Any]]:
    functions, counts, together = [], [], []
    for function, inputs in cases:
        functions.append(function)
        counts.append(len(inputs))
        together += inputs

    def all_of_them(*inputs: torch.Tensor) -> list[Any]:
        results, at = [], 0
        for function, count in zip(functions, counts, strict=True):
            results.append(function(*inputs[at : at + count]))
            at += count
        return results

    return all_of_them, together


def test_known_sizes_in_the_plan() -> None:
    assert _agree(*_together((CASES | CASES_WITHOUT_GRADIENTS).values()), False, False) == set()


def test_gradients_in_the_plan() -> None:
    # Whose result has no gradient AOTAutograd gives zeros for, beside others that have.
    together = [case for name, case in CASES.items() if name != "written"]
    assert _agree(*_together(together), True, False) == set()
    assert _agree(*CASES["written"], True, False) == set()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_beside_the_plan(name: str, grad: bool) -> None:
    function, inputs, outside = OUTSIDE[name]
    around = {"aten::view_as_real", "aten::view_as_complex"}
    ran = _agree(function, inputs, grad, True) - around
    assert outside in ran
    if not grad:
        assert ran <= {"aten::_fft_r2c", "aten::_fft_c2r", outside}


def test_what_eager_reads_is_read_before_it_is_written() -> None:
    ran = _agree(lambda a: (torch.sin(a) * a, a.add_(2))[0], [number(3)], False, False)
    assert ran >= {"aten::sin", "aten::copy_"}


def test_strict_takes_complex_numbers() -> None:
    a, b = number(3, 4), number(3, 4)
    compiled = torch.compile(lambda a, b: a * b.conj(), backend="zefuse", options={"strict": True})
    torch.testing.assert_close(compiled(a, b), a * b.conj())


class SpectralBlock(torch.nn.Module):
    """Of a Fourier neural operator: the low modes of both signs are multiplied, the others are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.low = torch.nn.Parameter(number(3, 3, 2, 2))
        self.high = torch.nn.Parameter(number(3, 3, 2, 2))
        self.beside = torch.nn.Conv2d(3, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x)
        kept = torch.zeros_like(spectrum)
        kept[:, :, :2, :2] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :2, :2], self.low)
        kept[:, :, -2:, :2] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -2:, :2], self.high)
        return torch.nn.functional.gelu(torch.fft.irfft2(kept, s=x.shape[-2:]) + self.beside(x))


def test_a_trained_spectrum_is_in_eager_and_nothing_else() -> None:
    """Forward two eager parts, backward two, and no kernel that only fills memory for a later part."""
    block, x = SpectralBlock(), real(2, 3, 8, 8)
    graphs: dict[str, Any] = {}
    results = []
    for run in (block, torch.compile(block, backend="zefuse")):
        block.zero_grad()
        inputs = x.clone().requires_grad_()
        with observe(graphs.__setitem__), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = run(inputs)
            made.square().sum().backward()
        results.append([made, inputs.grad, *(parameter.grad for parameter in block.parameters())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
    around = {"aten::view_as_real", "aten::view_as_complex"}
    for kind in ("forward", "backward"):
        report = graphs[kind].report()
        ran = [entry["op"] for entry in report["fallbacks"]]
        assert set(ran) - around == {"aten::_fft_r2c", "aten::_fft_c2r"}, kind
        assert len(ran) == 4, kind  # each is viewed once on its way in or out
        assert not [kernel["name"] for kernel in report["kernels"] if set(kernel["ops"]) <= {"aten.full.default"}]


@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize("sizes", [(3, 8), (3, 9), (4, 5, 6), (2, 6, 5)])
def test_a_half_spectrums_derivative_is_a_real_transform(sizes: tuple[int, ...], norm: str) -> None:
    """Half of the work of eager's, a complex one with zeros; of even and odd lengths, and spectra that no real tensor has."""
    weight = number(*sizes[:-1], sizes[-1] // 2 + 1)
    dims = (-1,) if len(sizes) == 2 else (-2, -1)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.fft.rfftn(x * 2, dim=dims, norm=norm) * weight).real.sin()

    x, graphs, gradients = real(*sizes), {}, []
    for run in (function, torch.compile(function, backend="zefuse", dynamic=False)):
        torch._dynamo.reset()
        inputs = x.clone().requires_grad_()
        with observe(graphs.__setitem__), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(inputs).sum().backward()
        gradients.append(inputs.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-5)
    ran = {entry["op"] for entry in graphs["backward"].report()["fallbacks"]}
    assert "aten::_fft_c2r" in ran
    assert "aten::_fft_c2c" not in ran


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="another library reads any order")
@pytest.mark.parametrize("dims", [(-2, -1), (-1, -2), (-3, -2, -1)])
def test_a_spectrum_lies_as_its_transform_reads_it(dims: tuple[int, ...]) -> None:
    """Of the two copies that ATen makes in a transform of several dimensions the kernel before it saves one."""
    sizes = [6, 8, 10]
    sizes[dims[-1]] = sizes[dims[-1]] // 2 + 1
    weight, x = number(*sizes), real(2, 6, 8, 10)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfftn(torch.fft.rfftn(x, dim=dims) * weight, dim=dims)

    torch._dynamo.reset()
    results, copies = [], []
    for run in (function, torch.compile(function, backend="zefuse")):
        run(x)
        with torch.profiler.profile() as profile:
            results.append(run(x))
        copied = (event.cpu_parent for event in profile.events() if event.name == "aten::clone")
        copies.append(sum(_is_inside(parent, "aten::_fft_c2r") for parent in copied))
    assert results[1].stride() == results[0].stride()
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
    assert copies[1] == copies[0] - 1


def _is_inside(event: Any, name: str) -> bool:
    return event is not None and (event.name == name or _is_inside(event.cpu_parent, name))


def test_what_is_filled_as_another_tensor_lies_as_it() -> None:
    function = lambda a: torch.full_like(a, 3).abs()  # noqa: E731
    transposed = number(2, 4, 3).mT
    assert torch.compile(function, backend="zefuse")(transposed).stride() == function(transposed).stride()


def _parts_of_a_constant(x: torch.Tensor) -> torch.Tensor:
    filled = torch.full_like(x, 3)
    return filled[..., 0].fill_(2).unfold(-1, 2, 2)


@pytest.mark.parametrize("x", [number(9, 9).unfold(0, 2, 1), number(4, 3, 5).mT], ids=["windows", "columns"])
def test_a_constant_lies_as_in_eager(x: torch.Tensor) -> None:
    actual, expected = torch.compile(_parts_of_a_constant, backend="zefuse")(x), _parts_of_a_constant(x)
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_quotients_of_infinities_and_zeros(dynamic: bool) -> None:
    inf = float("inf")
    numbers = [complex(a, b) for a in (0.0, -0.0, 1.0, inf, -2.0) for b in (0.0, 1.0, -inf, -0.0)]
    one, other = (torch.tensor(numbers, dtype=torch.complex64).view(shape) for shape in ((-1, 1), (1, -1)))

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x / y, x / y.real, x.imag / y, x.real[:, 0] / y[0], x / 2.0]

    actual = torch.compile(function, backend="zefuse", dynamic=dynamic, fullgraph=True)(one, other)
    for mine, theirs in zip(actual, function(one, other), strict=True):
        torch.testing.assert_close(torch.view_as_real(mine), torch.view_as_real(theirs), equal_nan=True)
