"""Eager by other ways that are as right as its own: what they give otherwise, a program does not determine.

Each is a mode under which operators of a program compute what they are defined as in another order, in double precision or by another of
eager's kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from conversions_otherwise import CONVERSIONS
from convolutions_otherwise import CONVOLUTIONS
from norms_as_defined import as_defined
from reductions_otherwise import REDUCTIONS, REDUCTIONS_OF_GPUS
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

# What moves, or sets by definition, the sign of a NaN: of every other operation IEEE 754 leaves it open.
_MOVES = """neg negative abs absolute copysign copysign_ neg_ abs_ clone contiguous cat stack where flip roll index_select gather
take_along_dim repeat pad reshape detach copy_ expand to""".split()


class _Mode(TorchFunctionMode):
    """Calls that have another way in ``ways`` go it; the way itself is called outside the mode."""

    def __init__(self, ways: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._ways = ways

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._ways.get(func, func)(*args, **(kwargs or {}))


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class _NansOf(TorchFunctionMode):
    """NaN of this sign; ``ones``: of the bits that a sort of integers gives, which are all ones."""

    def __init__(self, sign: float, ones: bool = False) -> None:
        super().__init__()
        self._sign = sign
        self._ones = ones

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name not in _MOVES:
            written = name.endswith("_") and not name.endswith("__")
            for each in result if isinstance(result, tuple) else (result,):
                self._put_into(each, written)
        return result

    def _put_into(self, result: Any, written: bool) -> None:
        jagged = isinstance(result, Tensor) and result.is_nested
        if (type(result) is not Tensor and not jagged) or not result.is_floating_point():
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            values = result._values if jagged else result
            if 0 in values.stride() or values.is_neg() or (values._is_view() and not written):
                return
            data = values.data
            bits = _BITS[data.element_size()]
            nan = torch.full((), torch.iinfo(bits).max, dtype=bits).view(data.dtype)
            nan = nan if self._ones else torch.full_like(nan, torch.nan)
            data.copy_(torch.where(data.isnan(), nan.copysign(data.new_tensor(self._sign)), data))


def _mean_by_itself(of: Callable[..., Any]) -> Callable[..., Any]:
    """``std_mean`` and ``var_mean``: their mean is a running one, NaN of infinities."""

    def way(input: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        spread, mean = of(input, dim, *args, **kwargs)
        return spread, input.mean(dim, keepdim=True).reshape(mean.shape)

    return way


def _norm_in(dtype: torch.dtype, of: Callable[..., Any]) -> Callable[..., Any]:
    """In double precision of equal elements nothing is left of the difference from their mean. In single precision squares beyond its
    range divide by infinity, where eager's sums of 16 bits give NaN."""

    def way(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = of(input, *args, **kwargs)
        if not input.is_floating_point():
            return result

        def wide(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        # Running statistics are written by the first call.
        exact = of(wide(input), *map(wide, args), **{name: wide(value) for name, value in kwargs.items()})
        return torch.empty_like(result).copy_(exact)

    return way


def _of_deviations(of: Callable[..., Any]) -> Callable[..., Any]:
    """``layer_norm`` and ``group_norm`` of differences from an exact mean, which equal elements and a group of one have none of: eager
    multiplies the value and the mean by the deviation's inverse first, and subtracts what may be infinite or a last bit."""

    def way(
        input: Tensor, sizes: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        result = of(input, sizes, weight, bias, eps)
        if type(input) is not Tensor or not input.is_floating_point() or not input.numel():
            return result
        groups = of is F.group_norm
        rows = input.double().reshape((*input.shape[:1], sizes, -1)) if groups else input.double().flatten(-len(sizes))
        off = rows - rows.mean(-1, keepdim=True)
        exact = (off / (off.square().mean(-1, keepdim=True) + eps).sqrt()).reshape(input.shape)
        shape = (-1, *[1] * (input.dim() - 2)) if groups else tuple(sizes)
        exact = exact if weight is None else exact * weight.double().reshape(shape)
        return torch.empty_like(result).copy_(exact if bias is None else exact + bias.double().reshape(shape))

    return way


def _scan_in_single(of: Callable[..., Any], step: Callable[..., Tensor]) -> Callable[..., Any]:
    """``cumsum`` and ``cumprod`` of f32 as on a GPU, in f32. Eager's on the CPU are in double precision, and so come back from what is
    beyond f32's range."""

    def way(input: Tensor, dim: int, **kwargs: Any) -> Tensor:
        result: Tensor = of(input, dim, **kwargs)
        if type(input) is not Tensor or result.dtype != torch.float32 or not result.dim() or not result.numel():
            return result
        steps = itertools.accumulate(input.to(torch.float32).unbind(dim), step)
        return torch.empty_like(result).copy_(torch.stack(list(steps), dim))

    return way


def _on_parts(of: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrent layer of a ``TwoTensor`` on each of its parts: what eager writes in place into a plain tensor that depends on no
    ``TwoTensor`` yet (``plain.add_(two)``) is written by each part in turn, so added twice."""

    def way(*args: Any) -> Any:
        if not any(isinstance(leaf, TwoTensor) for leaf in tree_leaves(args)):
            return of(*args)
        parts = [of(*tree_map_only(TwoTensor, lambda two, name=name: getattr(two, name), args)) for name in "ab"]
        return tree_map(TwoTensor, *parts)

    return way


def _without_subnormal(of: Callable[..., Any]) -> Callable[..., Any]:
    """A product of bf16 as the processor's instructions multiply: a subnormal number is zero, which times infinity is NaN. oneDNN's
    products of 32 and more rows, and so eager's, do that; smaller ones are multiplied in single precision."""

    def flushed(value: Tensor) -> Tensor:
        if type(value) is not Tensor or value.dtype != torch.bfloat16:
            return value
        return torch.where(value.abs() < torch.finfo(torch.bfloat16).tiny, 0 * value, value)

    return lambda *args, **kwargs: of(*tree_map_only(Tensor, flushed, args), **kwargs)


def _logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """Exact where eager's is a last bit off: of two -1 it is 0, and not -1e-8."""
    result = torch.logaddexp2(input, other)
    if not result.is_floating_point():
        return result
    one, two = input.detach().double(), other.detach().double()
    more = torch.log1p(torch.exp2(-(one - two).abs())) / math.log(2)
    exact = torch.where(one == two, one + 1, torch.maximum(one, two) + more)
    return result + torch.where(exact.isfinite(), exact - result.detach(), 0.0).to(result.dtype)


def _tanhshrink(off: float | None) -> Callable[..., Any]:
    """Of a small number little is left of the difference from its tanh, of whose last bit it depends what that is: the tanh ``off`` by so
    many of its last bits, or the difference exact."""

    def way(input: Tensor) -> Tensor:
        if not input.is_floating_point():
            return F.tanhshrink(input)
        if off is None:
            return (input.double() - input.double().tanh()).to(input.dtype)
        return input - input.tanh() * (1 + off * torch.finfo(input.dtype).eps)

    return way


def _by_halves(of: Callable[..., Any]) -> Callable[..., Any]:
    """A sum or an average as the sum of those of every second element and of the others: where numbers cancel, what is left of a smaller
    one depends on when it is added."""

    def way(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = of(input, *args, **kwargs)
        if type(input) is not Tensor or not input.is_floating_point() or not input.dim():
            return result
        wide = input.to(torch.promote_types(torch.float32, input.dtype))
        ranges = [
            torch.arange(size).reshape(-1, *[1] * (input.dim() - 1 - dim)) for dim, size in enumerate(input.shape)
        ]
        second = sum(ranges) % 2 == 1  # type: ignore[arg-type]
        halves = (of(torch.where(mask, wide, -0.0), *args, **kwargs) for mask in (second, ~second))
        return torch.empty_like(result).copy_(next(halves) + next(halves))

    return way


def _with_zeros_between(of: Callable[..., Any], convolution: Callable[..., Any]) -> Callable[..., Any]:
    """A transposed convolution as one of its input with zeros between the elements and around them, which NaN and infinities are
    multiplied by. So computes a GPU."""

    def way(
        input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        result = of(input, weight, bias, stride, padding, output_padding, groups, dilation)
        rank = weight.dim() - 2
        each = [
            [value] * rank if isinstance(value, int) else list(value)
            for value in (stride, padding, output_padding, dilation)
        ]
        for dim, step in enumerate(each[0], input.dim() - rank):
            apart = torch.stack([input, *[torch.zeros_like(input)] * (step - 1)], dim + 1).flatten(dim, dim + 1)
            input = apart.narrow(dim, 0, (input.shape[dim] - 1) * step + 1)
        sizes = []
        for size, pad, more, wide in zip(weight.shape[2:], *each[1:], strict=True):
            sizes = [wide * (size - 1) - pad, wide * (size - 1) - pad + more, *sizes]
        turned = weight.flip(list(range(2, rank + 2))).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        made = convolution(F.pad(input, sizes), turned, bias, dilation=tuple(each[3]), groups=groups)
        return torch.empty_like(result).copy_(made)

    return way


def _linspace(start: float, end: float, steps: int, **kwargs: Any) -> Tensor:
    """Each half counted from its end, every step rounded by itself: eager's vectors count from where they begin, so that its middle is zero
    or its last bit with the place in a vector."""
    result = torch.linspace(start, end, steps, **kwargs)
    if not result.is_floating_point() or steps < 2:
        return result
    first, last, place = result.new_tensor(start), result.new_tensor(end), torch.arange(steps)
    step = (last - first) / (steps - 1)
    return torch.where(place < steps // 2, first + step * place, last - step * (steps - 1 - place)).to(result.dtype)


def _gradient_at_nan(of: Callable[..., Any], passes: bool) -> Callable[..., Any]:
    """``hardtanh`` and ``relu6``, whose gradient at NaN is zero in eager's vectors and the incoming one in the elements after the last of
    them."""

    def way(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return torch.where(input.isnan(), input if passes else input.detach(), of(input, *args, **kwargs))

    return way


def _in_order(of: Callable[..., Any], reverse: bool) -> Callable[..., Any]:
    """``sort`` and ``msort``: equal elements in the order in which they stand, or in the opposite one."""

    def way(input: Tensor, dim: int = -1, descending: bool = False, **kwargs: Any) -> Any:
        dim = 0 if of is torch.msort else dim
        if not input.dim():
            return of(input, **kwargs)
        values, indices = _sorted(input, dim, descending or kwargs.get("descending", False), reverse)
        return values if of is torch.msort else torch.return_types.sort((values, indices))

    return way


def _sorted(input: Tensor, dim: int, descending: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    given = input.flip(dim) if reverse else input
    values, indices = torch.sort(given, dim=dim, descending=descending, stable=True)
    return values, input.shape[dim] - 1 - indices if reverse else indices


def _first_in_order(reverse: bool) -> Callable[..., Any]:
    """``topk``, likewise."""

    def way(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        if not input.dim():
            return torch.topk(input, k, dim, largest, sorted)
        values, indices = _sorted(input, dim, largest, reverse)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    return way


def _kth_in_order(reverse: bool, input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not input.dim():
        return torch.kthvalue(input, k, dim, keepdim)
    values, indices = (each.narrow(dim, k - 1, 1) for each in _sorted(input, dim, False, reverse))
    if not keepdim:
        values, indices = values.squeeze(dim), indices.squeeze(dim)
    return torch.return_types.kthvalue((values, indices))


def _as_an_image(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """``conv1d`` of images of one row, with their channels innermost: as ``_channels_last``."""
    result = F.conv1d(input, weight, bias, stride, padding, dilation, groups)
    if input.dim() != 3 or type(input) is not Tensor or isinstance(padding, str):
        return result
    pair = [each[0] if isinstance(each, list | tuple) else each for each in (stride, padding, dilation)]
    image = input.unsqueeze(2).contiguous(memory_format=torch.channels_last)
    other = F.conv2d(image, weight.unsqueeze(2), bias, (1, pair[0]), (0, pair[1]), (1, pair[2]), groups)
    return torch.empty_like(result).copy_(other.squeeze(2))


def _channels_last(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Of convolutions oneDNN has kernels that multiply padding by NaN and kernels that leave it out."""
    result = F.conv2d(input, *args, **kwargs)
    if input.dim() != 4:
        return result
    other = F.conv2d(input.contiguous(memory_format=torch.channels_last), *args, **kwargs)
    return torch.empty_like(result).copy_(other)


def _zeros_of_sign(of: Callable[..., Any], sign: float) -> Callable[..., Any]:
    """A pool whose largest numbers are zeros of both signs, which are equal: it gives one of this sign."""

    def way(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = of(input, *args, **kwargs)
        if type(input) is not Tensor or type(result) is not Tensor or not input.is_floating_point():
            return result
        zero = torch.tensor(sign * 0.0, dtype=input.dtype)
        with torch.no_grad():
            least = torch.finfo(input.dtype).tiny
            of_sign = of(torch.where((input == 0) & (input.signbit() == zero.signbit()), least, input), *args, **kwargs)
            result.data.copy_(torch.where((result == 0) & (of_sign == least), zero, result))
        return result

    return way


def _zeros_of_two(of: Callable[..., Any], sign: float) -> Callable[..., Any]:
    """The larger or smaller of two zeros of unlike sign, which are equal: the one of this sign."""

    def way(one: Any, other: Any) -> Any:
        result = of(one, other)
        if type(result) is not Tensor or not result.is_floating_point():
            return result
        zero = torch.tensor(sign * 0.0, dtype=result.dtype)
        unlike = (one == 0) & (other == 0) & (one.signbit() != other.signbit())
        with torch.no_grad():
            result.data.copy_(torch.where(unlike, zero, result))
        return result

    return way


class _LastBitOfGradient(torch.autograd.Function):
    """Nothing, whose gradient is that of what it is added to times ``factor``."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return torch.full_like(input, -0.0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return gradients[0] * factor, None


def _of_single_elements(sign: float) -> Callable[..., Any]:
    """``group_norm`` of groups of one element: their gradient is a difference of equal numbers, of which eager's formula leaves nothing
    and another a last bit."""

    def way(input: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
        result = F.group_norm(input, groups, weight, bias, eps)
        if not _is_trained(input) or input[0].numel() != groups:
            return result
        bit = sign * torch.finfo(torch.promote_types(input.dtype, torch.float32)).eps * eps**-0.5
        scale = torch.ones(input.shape[1]) if weight is None else weight.detach()
        factor = (bit * scale).to(input.dtype).reshape(-1, *[1] * (input.dim() - 2))
        return result + cast("Tensor", _LastBitOfGradient.apply(input, factor))

    return way


def _is_trained(input: Tensor) -> bool:
    return type(input) is Tensor and input.requires_grad and input.is_floating_point() and input.numel() > 0


def _pools(sign: float) -> dict[Any, Callable[..., Any]]:
    """Pools, with the zeros of an activation before them."""
    ways = {of: _zeros_of_sign(of, sign) for of in (F.max_pool1d, F.max_pool2d)}
    return ways | {F.softshrink: _one_by_one(F.softshrink)}


def _one_by_one(of: Callable[..., Any]) -> Callable[..., Any]:
    """An activation of which eager's vectors give one thing and the elements after the last whole one another: the derivative at NaN, the
    sign of a zero (``softshrink``), the value at infinity (``gelu``). Of an input with gaps all are computed as the latter."""

    def way(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if type(input) is not Tensor or input.is_nested:
            return of(input, *args, **kwargs)
        result = of(torch.stack([input, input], -1)[..., 0], *args, **kwargs)
        return torch.empty_like(result, memory_format=torch.contiguous_format).copy_(result)

    return way


def _from_the_last(of: Callable[..., Any]) -> Callable[..., Any]:
    """A product whose sums begin at the other end: where a product of two numbers is beyond the type's range, a fused multiply-add keeps
    it in a sum that is infinite already and makes it infinite in a sum that becomes so later."""

    def way(one: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if of is torch.einsum:
            equation, operands = one, [other, *args]
            terms, _, kept = equation.replace(" ", "").partition("->")
            letters = terms.split(",")
            turned = [
                operand.flip([at for at, letter in enumerate(term) if letter not in kept])
                for term, operand in zip(letters, operands, strict=True)
            ]
            return of(equation, *turned)
        first, second = (other, one) if of is Tensor.__rmatmul__ else (one, other)
        if not first.dim() or not second.dim():
            return of(one, other, *args, **kwargs)
        first = first.flip(-1)
        second = second.flip(-1 if of is F.linear or second.dim() == 1 else -2)
        return torch.matmul(first, second) if of is Tensor.__rmatmul__ else of(first, second, *args, **kwargs)

    return way


def _from_zero(of: Callable[..., Any]) -> Callable[..., Any]:
    """Sums of products, and those of their gradients, that begin with a zero, which is positive: -0 comes of those alone that begin with
    a product."""

    def begun(value: Tensor) -> Tensor:
        if type(value) is not Tensor or not value.requires_grad:
            return value
        value = value.view_as(value)
        value.register_hook(lambda gradient: gradient + 0.0)
        return value

    def way(*args: Any, **kwargs: Any) -> Any:
        result = of(*tree_map_only(Tensor, begun, args), **kwargs)
        return tree_map_only(Tensor, lambda value: value + 0.0 if _begins(value) else value, result)

    return way


def _begins(value: Tensor) -> bool:
    return type(value) is Tensor and value.is_floating_point()


class _RowsOfAttention(torch.autograd.Function):
    """The derivative of scores is a difference of two sums over the values' columns, which are equal where a row has one weight: with one
    key, or one score that is far above the others. Eager's kernel takes one as a product of matrices and the other as a sum of products,
    and what is left may be a last bit of their terms. Here the first is that much too large, or too small."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, sign: float) -> Tensor:
        weights = torch.ops.aten._safe_softmax(scores, -1)
        out = weights @ value
        ctx.save_for_backward(weights, value, out)
        ctx.bit = sign * torch.finfo(value.dtype).eps
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        weights, value, out = ctx.saved_tensors
        exact, terms = gradient.double() @ value.mT.double(), gradient.abs() @ value.mT.abs()
        of_weights = (exact + ctx.bit * terms).to(gradient.dtype)
        return weights * (of_weights - (gradient * out).sum(-1, keepdim=True)), weights.mT @ gradient, None


def _attention_by_rows(
    sign: float, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if dropout_p:
        return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype is torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if boolean else scores + attn_mask
    return cast("Tensor", _RowsOfAttention.apply(scores, value, sign))


def _ordered(reverse: bool) -> dict[Any, Callable[..., Any]]:
    ways = {torch.sort: _in_order(torch.sort, reverse), torch.msort: _in_order(torch.msort, reverse)}
    ways |= {torch.topk: _first_in_order(reverse), torch.kthvalue: partial(_kth_in_order, reverse)}
    return ways | {getattr(Tensor, of.__name__): way for of, way in ways.items()}


_HARD = (F.hardtanh, F.relu6)
_RECURRENT = (torch.gru, torch.lstm, torch.rnn_tanh)
_PRODUCTS = (torch.matmul, torch.mm, torch.bmm, torch.einsum, torch.addmm, torch.baddbmm, F.linear)
_PRODUCTS += (Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm)
_SUMS_OF_TWO = tuple(of for of in _PRODUCTS if of not in (torch.addmm, torch.baddbmm))
_SUMS_FROM_ZERO = (*_PRODUCTS, F.conv1d, F.conv2d, F.conv_transpose1d, F.conv_transpose2d, torch.conv1d, torch.conv2d)
_ACTIVATIONS = (F.elu, F.selu, F.celu, F.hardtanh, F.relu6, F.hardswish, F.softshrink, F.gelu)
_NORMS = (F.layer_norm, F.group_norm, F.instance_norm, F.batch_norm, F.rms_norm)
_SUMS = (Tensor.sum, Tensor.mean, torch.sum, torch.mean)
_SUMS += (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.avg_pool1d, F.avg_pool2d)
_OF_TWO = (torch.minimum, torch.maximum, torch.fmin, torch.fmax)
_TRANSPOSED = {
    F.conv_transpose1d: _with_zeros_between(F.conv_transpose1d, F.conv1d),
    F.conv_transpose2d: _with_zeros_between(F.conv_transpose2d, F.conv2d),
}
_SCANS = {of: _scan_in_single(of, torch.mul) for of in (torch.cumprod, Tensor.cumprod)}
_SCANS |= {of: _scan_in_single(of, torch.add) for of in (torch.cumsum, Tensor.cumsum)}
# By the text of the steps for which each is worth running: an expression.
OTHER_WAYS: list[tuple[str, Callable[[], TorchFunctionMode]]] = [
    (r"(std|var)_mean\(", lambda: _Mode({of: _mean_by_itself(of) for of in (torch.std_mean, torch.var_mean)})),
    (r"_norm\(", lambda: _Mode({of: _norm_in(torch.float64, of) for of in _NORMS})),
    (r"_norm\(", lambda: _Mode({of: _norm_in(torch.float32, of) for of in _NORMS})),
    *(
        (r"_norm\(", lambda dtype=dtype, off=off: _Mode({of: as_defined(of, dtype, off) for of in _NORMS}))
        for dtype, off in ((torch.float64, 0.0), (torch.float32, 0.0), (torch.float64, 1.0), (torch.float64, -1.0))
    ),
    (r"(layer|group)_norm\(", lambda: _Mode({of: _of_deviations(of) for of in (F.layer_norm, F.group_norm)})),
    (r"torch\.(gru|lstm|rnn_tanh)\(", lambda: _Mode({of: _on_parts(of) for of in _RECURRENT})),
    (r" @ |matmul\(|mm\(|linear\(|einsum\(", lambda: _Mode({of: _without_subnormal(of) for of in _PRODUCTS})),
    (r"logaddexp2\(", lambda: _Mode({torch.logaddexp2: _logaddexp2})),
    *(
        (r"tanhshrink\(", lambda off=off: _Mode({F.tanhshrink: _tanhshrink(off)}))
        for off in (None, 1.0, -1.0, 0.5, -0.5)
    ),
    (r"\b(sum|mean)\(|avg_pool", lambda: _Mode({of: _by_halves(of) for of in _SUMS})),
    (r"linspace\(", lambda: _Mode({torch.linspace: _linspace})),
    (r"(hardtanh|relu6)\(", lambda: _Mode({of: _gradient_at_nan(of, passes=True) for of in _HARD})),
    (r"(hardtanh|relu6)\(", lambda: _Mode({of: _gradient_at_nan(of, passes=False) for of in _HARD})),
    (r" @ |matmul\(|mm\(|linear\(|einsum\(", lambda: _Mode({of: _from_the_last(of) for of in _SUMS_OF_TWO})),
    (r" @ |matmul\(|mm\(|linear\(|einsum\(|F\.conv", lambda: _Mode({of: _from_zero(of) for of in _SUMS_FROM_ZERO})),
    (r"scaled_dot_product", lambda: _Mode({F.scaled_dot_product_attention: partial(_attention_by_rows, 1.0)})),
    (r"scaled_dot_product", lambda: _Mode({F.scaled_dot_product_attention: partial(_attention_by_rows, -1.0)})),
    (r"max_pool[12]d\(", lambda: _Mode(_pools(1.0))),
    (r"max_pool[12]d\(", lambda: _Mode(_pools(-1.0))),
    (
        r"\b(elu|selu|celu|hardtanh|relu6|hardswish|softshrink|gelu)\(",
        lambda: _Mode({of: _one_by_one(of) for of in _ACTIVATIONS}),
    ),
    *(
        (r"\b(minimum|maximum|fmin|fmax)\(", lambda sign=sign: _Mode({of: _zeros_of_two(of, sign) for of in _OF_TWO}))
        for sign in (1.0, -1.0)
    ),
    *((r"group_norm\(", lambda sign=sign: _Mode({F.group_norm: _of_single_elements(sign)})) for sign in (1.0, -1.0)),
    (r"F\.conv1d\(", lambda: _Mode({F.conv1d: _as_an_image, torch.conv1d: _as_an_image})),
    *((r"(sort|topk|kthvalue)\(", lambda reverse=reverse: _Mode(_ordered(reverse))) for reverse in (False, True)),
    (r"torch\.(gru|lstm|rnn_tanh)\(", lambda: _Mode({of: _from_zero(of) for of in _RECURRENT})),
    *((text, lambda ways=ways: _Mode(ways)) for text, ways in (*REDUCTIONS, *CONVERSIONS, *CONVOLUTIONS)),
    (r"F\.conv2d\(", lambda: _Mode({F.conv2d: _channels_last, torch.conv2d: _channels_last})),
    *((r"\.view\(torch\.|signbit\(|copysign", lambda nan=nan: _NansOf(*nan)) for nan in ((1.0,), (-1.0,), (1.0, True))),
]
# On a GPU alone.
OTHER_WAYS_OF_GPUS: list[tuple[str, Callable[[], TorchFunctionMode]]] = [
    (r"conv_transpose", lambda: _Mode(_TRANSPOSED)),
    (r"cum(sum|prod)\(", lambda: _Mode(_SCANS)),
    *((text, lambda ways=ways: _Mode(ways)) for text, ways in REDUCTIONS_OF_GPUS),
]
