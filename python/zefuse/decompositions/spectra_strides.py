"""The strides of Fourier transforms on the CPU in eager (``mkl/SpectralOps.cpp``): dimensions that are not transformed come first, in the
order of the input's strides. Shape rules of torch up to 2.11 leave that out for real inputs, and raise where several dimensions of a
complex one are not named in order; all leave out how ``std::partition`` orders dimensions whose strides are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from zefuse.decompositions.iterator_strides import Strides, Undecided, has_zero, in_order, sure
from zefuse.installing import torch_versions


def strides_of_spectrum(call: Any) -> Strides:
    """Of ``_fft_r2c``, ``_fft_c2c`` and ``_fft_c2r``."""
    x, dims = call.args[0], [dim % call.args[0].dim() for dim in call.args[1]]
    if x.device.type != "cpu" or not torch.backends.mkl.is_available() or not dims or has_zero(call.sizes):  # type: ignore[no-untyped-call]
        raise Undecided
    strides: Strides = tuple(x.stride())
    *others, last = dims
    if call.func is torch.ops.aten._fft_c2r.default:
        if others:
            strides = _transformed(x.shape, strides, _outermost_first(others, strides))
        return _transformed(call.sizes, strides, [last])
    if call.func is torch.ops.aten._fft_r2c.default:
        return _transformed(call.sizes, strides, [*_outermost_first(others, strides), last])
    return _transformed(call.sizes, strides, _outermost_first(dims, strides))


def _transformed(sizes: Sequence[Any], strides: Sequence[Any], dims: Sequence[int]) -> Strides:
    """``_exec_fft``'s result of these sizes, from an input with these strides."""
    batch = _outermost_first(_those_first(range(len(sizes)), dims), strides)
    return in_order(sizes, [*batch, *dims])


def _those_first(all_dims: Sequence[int], dims: Sequence[int]) -> list[int]:
    """The dimensions that are not among ``dims``, as ``std::partition`` leaves them: the last for the first of the others."""
    order, first, last = list(all_dims), 0, len(all_dims)
    while True:
        while first < last and order[first] not in dims:
            first += 1
        last -= 1
        while first < last and order[last] in dims:
            last -= 1
        if first >= last:
            return order[:first]
        order[first], order[last] = order[last], order[first]
        first += 1


def _outermost_first(dims: Sequence[int], strides: Sequence[Any]) -> list[int]:
    """As ``std::sort`` does it for as few as there are: by insertion, equal ones in order."""
    found: list[int] = []
    for dim in dims:
        at = len(found)
        while at > 0 and sure(strides[dim] > strides[found[at - 1]]):
            at -= 1
        found.insert(at, dim)
    return found


def let_rules_take_dimensions_in_any_order() -> None:
    """For the whole process: ``fftn(x, dim=(1, 0))`` of a complex tensor compiles (torch 2.11's shape rule raises, for every back end). How
    the result lies is ``strides_of_spectrum``'s to say."""
    from torch import _meta_registrations

    rules: Any = _meta_registrations

    if tuple(map(int, torch_versions.minor(torch.__version__).split("."))) >= (2, 13):
        return
    original = rules._exec_fft

    def of_any_order(out: Any, x: Any, sizes: Any, dims: Any, *, forward: bool) -> Any:
        on_cpu = rules.device_hint(x) == "cpu"
        return out if on_cpu else original(out, x, sizes, dims, forward=forward)

    rules._exec_fft = of_any_order
    FakeTensorMode.cache_clear()
