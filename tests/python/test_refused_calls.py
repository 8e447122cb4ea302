"""Calls that eager's kernels refuse and torch's shape rules let pass: compiled they raise what eager raises, and where eager computes
they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Any]


def _as_in_eager(function: Function, *tensors: Tensor, dynamic: bool = False) -> bool:
    """Whether eager computes; the compiled function does the same, with the same error where there is one."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    refused: Exception | None = None
    try:
        expected = function(*(t.clone() for t in tensors))
    except (RuntimeError, IndexError) as error:
        refused = error
    if refused is None:
        torch.testing.assert_close(compiled(*tensors), expected, equal_nan=True)
        return True
    with pytest.raises(type(refused)) as ours:
        compiled(*tensors)
    assert str(refused).splitlines()[0] in str(ours.value)
    return False


# Compiled these wrote outside of the result: (20, 20) in eager, and a source of (20, 20) or (20,).
PARTS: dict[str, Function] = {
    "a shorter slice": lambda x, s: torch.slice_scatter(x, s, 0, 5, 20),
    "a shorter slice with steps": lambda x, s: torch.slice_scatter(x, s, 0, 0, 20, 3),
    "a longer slice": lambda x, s: torch.slice_scatter(x, s[:3], 0),
    "a step back": lambda x, s: torch.slice_scatter(x, s, 0, 0, 20, -1),
    "a dimension more": lambda x, s: torch.select_scatter(x, s, 0, 0),
    "an index too large": lambda x, s: torch.select_scatter(x, s[0], 0, 30),
    "an index too small": lambda x, s: torch.select_scatter(x, s[0], 0, -30),
    "a shorter row": lambda x, s: torch.select_scatter(x, s[0, :3], 0, 1),
    "an empty diagonal": lambda x, s: torch.diagonal_scatter(x, s[0], 25),
    "a shorter diagonal": lambda x, s: torch.diagonal_scatter(x, s[0], -5),
    "one dimension twice": lambda x, s: torch.diagonal_scatter(x, s[0], 0, 0, 0),
    "no such dimension": lambda x, s: torch.diagonal_scatter(x, s[0], 0, 300),
}
# The same operators where sizes agree.
PARTS_THAT_FIT: dict[str, Function] = {
    "a slice": lambda x, s: torch.slice_scatter(x, s[:15], 0, -15),
    "with steps": lambda x, s: torch.slice_scatter(x, s[:, :6], 1, 1, 18, 3),
    "an empty slice": lambda x, s: torch.slice_scatter(x, s[:0], 0, 5, 2),
    "a row": lambda x, s: torch.select_scatter(x, s[0], 0, -20),
    "a diagonal": lambda x, s: torch.diagonal_scatter(x, s[0, :15], -5),
    "another diagonal": lambda x, s: torch.diagonal_scatter(x[None, :7], s[None, 0, :5], 15, -2, 2),
}


# Of a symbolic size it is not known to be too large.
_STATIC = {"an index too large"}


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [(name, dynamic) for name in PARTS for dynamic in (False, True) if name not in _STATIC or not dynamic],
)
def test_a_part_of_other_sizes(name: str, dynamic: bool) -> None:
    assert not _as_in_eager(PARTS[name], torch.zeros(20, 20), torch.ones(20, 20), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PARTS_THAT_FIT)
def test_a_part_of_its_sizes(name: str, dynamic: bool) -> None:
    assert _as_in_eager(PARTS_THAT_FIT[name], torch.zeros(20, 20), torch.ones(20, 20), dynamic=dynamic)


# Of a tensor of 6 x 5 and another one of 9 x 7.
SYMBOLIC_PARTS: dict[str, Function] = {
    "all rows": lambda x, y: torch.slice_scatter(x, y[:, : x.shape[1]], 0),
    "all columns": lambda x, y: torch.slice_scatter(x, y[: x.shape[0]], 0),
    "rows to a symbol": lambda x, y: torch.slice_scatter(x, y[:, : x.shape[1]], 0, 0, x.shape[0] - 2),
    "a row": lambda x, y: torch.select_scatter(x, y[0], 0, 1),
    "a diagonal": lambda x, y: torch.diagonal_scatter(x, y[0]),
}
SYMBOLIC_PARTS_THAT_FIT: dict[str, Function] = {
    "all rows": lambda x, y: torch.slice_scatter(x, y[: x.shape[0], : x.shape[1]], 0),
    "rows to a symbol": lambda x, y: torch.slice_scatter(x, y[: x.shape[0] - 2, : x.shape[1]], 0, 0, x.shape[0] - 2),
    "rows from a symbol": lambda x, y: torch.slice_scatter(x, y[:2, : x.shape[1]], 0, x.shape[0] - 2),
    "a row": lambda x, y: torch.select_scatter(x, y[0, : x.shape[1]], 0, 1),
    "strided": lambda x, y: torch.as_strided_scatter(x, y[: x.shape[0], 0], (x.shape[0],), (2,)),
    "written into": lambda x, y: x[1:].copy_(y[: x.shape[0] - 1, : x.shape[1]]) + x[1:] * 2,
}


@pytest.mark.parametrize("name", SYMBOLIC_PARTS)
def test_a_part_of_other_symbolic_sizes(name: str) -> None:
    """Nothing is written outside of the result where sizes are symbols that may differ."""
    assert not _as_in_eager(SYMBOLIC_PARTS[name], torch.zeros(6, 5), torch.ones(9, 7), dynamic=True)


@pytest.mark.parametrize("name", SYMBOLIC_PARTS_THAT_FIT)
def test_a_part_of_its_symbolic_sizes(name: str) -> None:
    assert _as_in_eager(SYMBOLIC_PARTS_THAT_FIT[name], torch.zeros(6, 5), torch.ones(9, 7), dynamic=True)


def _square(x: Tensor) -> Tensor:
    return x.reshape(2, 2)


# Of four elements and a number that their dtype does not hold.
NUMBERS: dict[str, Function] = {
    "add": lambda x, v: torch.add(x, x, alpha=v),
    "add to a number": lambda x, v: torch.add(x, 1, alpha=v),
    "sub": lambda x, v: torch.sub(x, x, alpha=v),
    "rsub": lambda x, v: torch.rsub(x, x, alpha=v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "clamp": lambda x, v: torch.clamp(x, 0, v),
    "clamp from": lambda x, v: torch.clamp(x, min=v),
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "hardtanh": lambda x, v: F.hardtanh(x, 0, v),
    "threshold": lambda x, v: F.threshold(x, v, 1),
    "threshold's value": lambda x, v: F.threshold(x, 1, v),
    "pow": torch.pow,
    "pow of a number": lambda x, v: torch.pow(2, x * 0 + 1) * v,
    "addmm": lambda x, v: torch.addmm(_square(x), _square(x), _square(x), beta=v),
    "baddbmm": lambda x, v: torch.baddbmm(*[_square(x)[None]] * 3, alpha=v),
    "index_add": lambda x, v: x.index_add(0, torch.arange(4), x, alpha=v),
    "index_fill": lambda x, v: x.index_fill(0, torch.arange(2), v),
    "scatter": lambda x, v: x.scatter(0, torch.arange(4), v),
    "masked_fill": lambda x, v: x.masked_fill(x > 2, v),
    "where": lambda x, v: torch.where(x > 2, x, v),
    "pad": lambda x, v: F.pad(x, (1, 1), value=v),
    "full": lambda x, v: torch.full((2,), v, dtype=x.dtype),
    "arange": lambda x, v: torch.arange(0, v, v / 3, dtype=x.dtype),
    "plus": lambda x, v: x + v,
    "times": lambda x, v: x * v,
    "maximum": lambda x, v: torch.maximum(x, torch.tensor(v)),
    "greater": lambda x, v: x > v,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "floor_divide": lambda x, v: x // v,
    "div": lambda x, v: torch.div(x, v, rounding_mode="trunc"),
}
OF_FLOATS: dict[str, Function] = {
    "addcdiv": lambda x, v: torch.ops.aten.addcdiv(
        x, x, x, value=v
    ),  # torch.addcdiv with a value: Dynamo takes it apart
    "lerp": lambda x, v: torch.lerp(x, x, v),
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "softplus": lambda x, v: F.softplus(x, 1, v),
}
TOO_LARGE = {torch.uint8: 300, torch.int32: 2**40, torch.float16: 1e6, torch.float32: 1e300}
ROWS = [(name, dtype) for name in NUMBERS for dtype in TOO_LARGE]
ROWS += [(name, dtype) for name in OF_FLOATS for dtype in (torch.float16, torch.float32)]


@pytest.mark.parametrize(("name", "dtype"), ROWS, ids=lambda value: str(value).removeprefix("torch."))
def test_numbers_that_the_dtype_does_not_hold(name: str, dtype: torch.dtype) -> None:
    number, function = TOO_LARGE[dtype], (NUMBERS | OF_FLOATS)[name]
    _as_in_eager(lambda x: function(x, number), torch.tensor([1, 2, 3, 4], dtype=dtype))


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide", "div"])
@pytest.mark.parametrize("divisor", [256, 2**40, -512, 300, -3], ids=str)
def test_divisors_that_are_zero_as_elements(name: str, divisor: int) -> None:
    computes = _as_in_eager(lambda x: NUMBERS[name](x, divisor), torch.tensor([1, 200, 3, 45], dtype=torch.uint8))
    assert computes == (divisor % 256 != 0)


PLACES = torch.arange(4)
NOWHERE = torch.zeros(1, dtype=torch.int64)


def _image(x: Tensor, dims: int) -> Tensor:
    """Of four elements, or fewer: N, C and ``dims`` sizes."""
    last = (2, 2) if x.numel() == 4 and dims > 1 else (x.numel(),)
    return x.reshape(1, 1, *[1] * (dims - len(last)), *last)


def _resized(mode: str, dims: int) -> Function:
    return lambda x: F.interpolate(_image(x, dims), scale_factor=2.0, mode=mode)


WHOLE, HALVES = (torch.bool, torch.int64), (torch.float16, torch.bfloat16)
# Types that eager has no kernel for.
OF_TYPES: list[tuple[str, tuple[torch.dtype, ...], Function]] = [
    ("_softmax_backward_data", WHOLE, lambda x: torch.ops.aten._softmax_backward_data(x, x, 0, x.dtype)),
    ("_log_softmax_backward_data", WHOLE, lambda x: torch.ops.aten._log_softmax_backward_data(x, x, 0, x.dtype)),
    ("cdist", HALVES, lambda x: torch.cdist(_square(x), _square(x), p=1.0)),
    ("pdist", HALVES, lambda x: F.pdist(_square(x))),
    ("cumprod", WHOLE, lambda x: torch.cumprod(x, 0, dtype=x.dtype)),
    ("cumsum", WHOLE, lambda x: torch.cumsum(x, 0, dtype=x.dtype)),
    ("grid_sampler_2d", WHOLE, lambda x: F.grid_sample(_image(x, 2), x.reshape(1, 1, 2, 2))),
    ("grid_sampler_3d", WHOLE, lambda x: F.grid_sample(_image(x, 3), x[:3].reshape(1, 1, 1, 1, 3))),
    (
        "index_reduce",
        (torch.bool, torch.complex64),
        lambda x: x.index_reduce(0, PLACES, x, "prod", include_self=False),
    ),
    (
        "max_pool2d_with_indices_backward",
        WHOLE,
        lambda x: torch.ops.aten.max_pool2d_with_indices_backward(
            _image(x[:1], 2), _image(x, 2), [2, 2], [2, 2], [0, 0], [1, 1], False, _image(NOWHERE, 2)
        ),
    ),
    ("mv", WHOLE, lambda x: torch.mv(_square(x), x[:2])),
    ("mvlgamma", (torch.bool,), lambda x: torch.mvlgamma(x, 1)),
    ("nansum", (torch.complex64,), torch.nansum),
    ("aminmax", (torch.complex64,), lambda x: tuple(torch.aminmax(x))),
    ("bilinear", WHOLE, lambda x: F.bilinear(_square(x), _square(x), x.reshape(1, 2, 2))),
    ("glu", (torch.complex64,), lambda x: F.glu(x, 0)),
    ("huber_loss", (torch.complex64,), lambda x: F.huber_loss(x, x)),
    ("mse_loss", (torch.complex64,), lambda x: F.mse_loss(x, x)),
    ("nll_loss", (torch.complex64,), lambda x: F.nll_loss(_square(x), PLACES[:2])),
    ("smooth_l1_loss", (torch.complex64,), lambda x: F.smooth_l1_loss(x, x)),
    ("soft_margin_loss", (torch.int64,), lambda x: F.soft_margin_loss(x, x)),
    ("max_unpool2d", WHOLE, lambda x: F.max_unpool2d(_image(x[:1], 2), _image(NOWHERE, 2), 2)),
    ("max_unpool3d", WHOLE, lambda x: F.max_unpool3d(_image(x[:1], 3), _image(NOWHERE, 3), 2)),
    ("reflection_pad1d", WHOLE, lambda x: F.pad(_image(x, 1), (1, 1), mode="reflect")),
    ("reflection_pad2d", WHOLE, lambda x: F.pad(_image(x, 2), (1, 1, 1, 1), mode="reflect")),
    ("trace", WHOLE, lambda x: torch.trace(_square(x))),
    ("xlogy", (torch.complex64,), lambda x: torch.xlogy(x, x)),
    ("xlog1py", (torch.complex64,), lambda x: torch.special.xlog1py(x, x)),
    ("hardshrink", (*WHOLE, torch.complex64), F.hardshrink),
    ("multi_margin_loss", (*WHOLE, *HALVES), lambda x: F.multi_margin_loss(_square(x), PLACES[:2])),
    ("multilabel_margin_loss", (*WHOLE, *HALVES), lambda x: F.multilabel_margin_loss(x, PLACES - 1)),
    ("complex", HALVES, lambda x: torch.complex(x, x)),
    ("nearest1d", (*WHOLE, torch.uint8), _resized("nearest", 1)),
    ("nearest2d", (*WHOLE, torch.uint8, torch.complex64), _resized("nearest", 2)),
    ("nearest3d", (*WHOLE, torch.uint8), _resized("nearest", 3)),
    ("nearest-exact", (*WHOLE, torch.uint8), _resized("nearest-exact", 2)),
    ("linear", (*WHOLE, torch.uint8), _resized("linear", 1)),
    ("bilinear resizing", WHOLE, _resized("bilinear", 2)),
    ("bicubic", (*WHOLE, torch.uint8), _resized("bicubic", 2)),
    ("trilinear", (*WHOLE, torch.uint8), _resized("trilinear", 3)),
    ("linspace", HALVES, lambda x: torch.linspace(0, 3.5e38 if x.dtype == HALVES[1] else 1e6, 4, dtype=x.dtype)),
    ("hardshrink by too much", (*HALVES, torch.float32), lambda x: F.hardshrink(x, 1e300)),
    (
        "multi_margin_loss beyond",
        (torch.float32, torch.float64),
        lambda x: F.multi_margin_loss(_square(x), PLACES[:2], margin=1e300),
    ),
    ("addmv of bool", (torch.bool,), lambda x: torch.addmv(x[:2], _square(x), x[:2])),
    ("cross", (torch.bool,), lambda x: torch.linalg.cross(x[:3], x[:3])),
    ("kthvalue", (torch.bool, torch.complex64), lambda x: torch.kthvalue(x, 2)[0]),
    ("median", (torch.complex64,), torch.median),
    ("mode", (torch.complex64,), lambda x: torch.mode(x)[0]),
    ("binary_cross_entropy", (torch.complex64,), lambda x: F.binary_cross_entropy(x, x)),
    ("logit", HALVES, lambda x: torch.logit(x, 1e6)),
    ("celu of too much", (torch.float32,), lambda x: F.celu(x, 1e300)),
    ("addmv", (torch.uint8, torch.float32), lambda x: torch.addmv(x[:2], _square(x), x[:2], beta=2**62)),
    ("addr", (torch.uint8, torch.float32), lambda x: torch.addr(_square(x), x[:2], x[:2], alpha=2**62)),
    ("addbmm", (torch.uint8, torch.float32), lambda x: torch.addbmm(_square(x), *[_square(x)[None]] * 2, beta=2**62)),
]
TYPES = [(name, dtype, function) for name, dtypes, function in OF_TYPES for dtype in dtypes]


@pytest.mark.parametrize(
    ("name", "dtype", "function"), TYPES, ids=[f"{name}-{str(dtype)[6:]}" for name, dtype, _ in TYPES]
)
def test_types_that_eager_has_no_kernel_for(name: str, dtype: torch.dtype, function: Function) -> None:
    _as_in_eager(function, torch.tensor([0, 1, 2, 1]).to(dtype))


# Of a tensor and one of another type.
OF_TWO_TYPES: dict[str, Function] = {
    "grid_sample": lambda x, y: F.grid_sample(_image(x, 2), y.reshape(1, 1, 2, 2)),
    "cdist": lambda x, y: torch.cdist(_square(x), _square(y), p=1.0),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x / 9, y / 9),
    "index_copy": lambda x, y: x.index_copy(0, PLACES, y),
    "index_add": lambda x, y: x.index_add(0, PLACES, y),
    "index_put": lambda x, y: x.index_put((PLACES,), y),
    "index_reduce": lambda x, y: x.index_reduce(0, PLACES, y, "amax"),
    "put": lambda x, y: x.put(PLACES, y),
    "cross": lambda x, y: torch.linalg.cross(x[:3], y[:3]),
    "heaviside": torch.heaviside,
    "mv": lambda x, y: torch.mv(_square(x), y[:2]),
    "_softmax_backward_data": lambda x, y: torch.ops.aten._softmax_backward_data(x, y, 0, x.dtype),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y, y),
    "group_norm": lambda x, y: F.group_norm(x.reshape(1, 4), 2, y, y),
    "batch_norm": lambda x, y: F.batch_norm(x.reshape(1, 4), y, y, y, y),
    "batch_norm in training": lambda x, y: F.batch_norm(
        _square(x), y[:2].clone(), y[2:].clone(), y[:2], y[2:], training=True
    ),
    "complex": torch.complex,
    "polar": torch.polar,
}
TWO_TYPES = {
    "f32 and f64": (torch.float32, torch.float64),
    "f64 and f32": (torch.float64, torch.float32),
    "bf16 and f32": (torch.bfloat16, torch.float32),
    "f32 and bf16": (torch.float32, torch.bfloat16),
}


@pytest.mark.parametrize("types", TWO_TYPES)
@pytest.mark.parametrize("name", OF_TWO_TYPES)
def test_two_types(name: str, types: str) -> None:
    one, other = (torch.tensor([1, 2, 3, 4], dtype=dtype) for dtype in TWO_TYPES[types])
    _as_in_eager(OF_TWO_TYPES[name], one, other)


def test_weights_of_another_type() -> None:
    """Which of its types' names eager writes differs from path to path."""

    def summed(x: Tensor, y: Tensor) -> Tensor:
        return F.embedding_bag(PLACES[:2], x, PLACES[:2], mode="sum", per_sample_weights=y)

    for function in (summed, torch.compile(summed, backend="zefuse")):
        with pytest.raises(RuntimeError, match="to have the same type"):
            function(torch.ones(4, 1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("take", [lambda x, at: x.index_select(0, at), lambda x, at: F.embedding(at, x)])
def test_an_index_out_of_bounds_where_nothing_is_read(take: Function) -> None:
    """Of rows without elements."""
    for function in (take, torch.compile(take, backend="zefuse")):
        with pytest.raises(RuntimeError, match="out of DATA bounds"):
            function(torch.empty(3, 0), torch.tensor([5]))


def test_an_index_out_of_bounds_where_nothing_is_written() -> None:
    def reduced(x: Tensor, at: Tensor) -> Tensor:
        return x.index_reduce(0, at, torch.empty(1, 0), "prod")

    for function in (reduced, torch.compile(reduced, backend="zefuse")):
        with pytest.raises(IndexError, match="index out of range in self"):
            function(torch.empty(3, 0), torch.tensor([5]))


def test_other_back_ends_find_torch_as_it_was() -> None:
    """``interpolate`` of integers, which torch takes apart before it asks a back end."""
    resized = _resized("nearest", 2)
    assert not _as_in_eager(resized, PLACES)
    torch._dynamo.reset()
    assert torch.compile(resized, backend="aot_eager")(PLACES).numel() == 16


@pytest.mark.parametrize("dynamic", [False, True])
def test_pools_of_volumes(dynamic: bool) -> None:
    """Means of 16 bits have no kernel on a CPU, and a volume without a batch may lie as an image with channels last does."""
    volume = torch.rand(3, 4, 4, 4)
    image = volume.contiguous(memory_format=torch.channels_last)
    for given in (volume.half(), volume[None].bfloat16()):
        assert not _as_in_eager(lambda x: F.avg_pool3d(x * 2, 2), given, dynamic=dynamic)
    assert _as_in_eager(lambda x: F.avg_pool3d(x * 2, 2), volume, dynamic=dynamic)
    for one in (image, image[:1]):
        assert not _as_in_eager(lambda x: F.max_pool3d(x * 2, 2), one, dynamic=dynamic)
    last = volume[None].contiguous(memory_format=torch.channels_last_3d)
    for one in (volume[:1], last[0], image[None]):
        assert _as_in_eager(lambda x: F.max_pool3d(x * 2, 2), one, dynamic=dynamic)
