"""Operators that torch has no decomposition for, or none that fits, in terms of operators that the importer lowers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from zefuse.decompositions import recurrent


def replication_pad_backward(grad: torch.Tensor, self: torch.Tensor, padding: list[int]) -> torch.Tensor:
    """Each padded position adds to the element it repeats."""
    indices: list[torch.Tensor | None] = [None] * self.dim()
    spatial = len(padding) // 2
    for axis in range(spatial):
        dim, before = self.dim() - 1 - axis, padding[2 * axis]
        places = torch.arange(grad.shape[dim], device=grad.device) - before
        shape = [1] * spatial
        shape[spatial - 1 - axis] = -1
        indices[dim] = places.clamp(0, self.shape[dim] - 1).view(shape)
    return torch.ops.aten.index_put(torch.zeros_like(self), indices, grad, True)


def lstm_layer(input: torch.Tensor, *rest: Any) -> Any:
    """The layer that tracing makes of nn.LSTM in inference, step by step, as it comes in training. One of too many steps stays a call
    of ATen."""
    w_ih, w_hh, b_ih, b_hh, hx, cx, reverse, batch_sizes, mode, _, layers, biases, bidirectional, batch_first, train = (
        rest
    )
    steps = input.shape[0]
    lstm = 2
    if (
        mode != lstm or layers != 1 or bidirectional or batch_first or train or batch_sizes
        or not isinstance(steps, int) or steps > recurrent.UNROLLED_STEPS
    ):  # fmt: skip
        return NotImplemented
    from torch._decomp.decompositions import one_layer_lstm

    weights = [w_ih, w_hh, b_ih, b_hh] if biases else [w_ih, w_hh]
    out, (hy, cy) = one_layer_lstm(input, (hx[0], cx[0]), weights, biases, reverse)  # type: ignore[no-untyped-call]
    return out, hy[None], cy[None], input.new_empty((0,), dtype=torch.uint8)


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """What torch makes of a CUDA device's addcdiv and lerp, whose kernels there round once; kernels here round each."""
    return a * b + c


def fused_rms_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None, eps: float | None
) -> Any:
    """Of f32 and f64, where torch leaves out what it adds: their own epsilon."""
    if eps is not None or input.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return torch.ops.aten._fused_rms_norm(input, normalized_shape, weight, torch.finfo(input.dtype).eps)


def masked_scatter(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
    """Where ``mask`` is set, the elements of ``source`` in order."""
    if isinstance(source.numel(), int) and source.numel() == 0:
        return NotImplemented
    self, mask = torch.ops.aten.broadcast_tensors([self, mask])
    number = mask.reshape(-1).cumsum(0).view(mask.shape)
    # Contiguous, as eager makes it whatever its inputs' strides.
    return torch.where(mask, source.reshape(-1)[torch.where(mask, number - 1, 0)], self).contiguous()


def masked_scatter_backward(grad: torch.Tensor, mask: torch.Tensor, sizes: list[int]) -> Any:
    """The masked elements of ``grad``, one behind the other, then zeros."""
    count: Any = 1
    for size in sizes:
        count = count * size
    mask = mask.expand(grad.shape).reshape(-1)
    number = torch.where(mask, mask.cumsum(0) - 1, count)  # the others behind what is returned
    made = torch.zeros(count + 1, dtype=grad.dtype, device=grad.device).scatter(0, number, grad.reshape(-1))
    return made[:count].view(sizes)


def index_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, include_self: bool = True
) -> Any:
    if self.dim() == 0 or any(isinstance(size, int) and size == 0 for size in source.shape):
        return NotImplemented  # ATen looks at the index where nothing is written, too
    shape = [1] * self.dim()
    shape[dim] = -1
    return self.scatter_reduce(
        dim, index.long().view(shape).expand(source.shape), source, reduce, include_self=include_self
    )


def put(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    flat = torch.ops.aten.index_put(self.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.view(self.shape)


def addbmm(
    self: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    """The products of a batch summed are one product, of the matrices side by side."""
    batch, rows, inner = batch1.shape
    left = batch1.permute(1, 0, 2).reshape(rows, batch * inner)
    return torch.ops.aten.addmm(self, left, batch2.reshape(batch * inner, batch2.shape[2]), beta=beta, alpha=alpha)


def addmv(self: torch.Tensor, mat: torch.Tensor, vec: torch.Tensor, beta: Any = 1, alpha: Any = 1) -> torch.Tensor:
    return torch.ops.aten.addmm(self.expand(mat.shape[0])[:, None], mat, vec[:, None], beta=beta, alpha=alpha).squeeze(
        1
    )


def trilinear(
    i1: torch.Tensor, i2: torch.Tensor, i3: torch.Tensor, expand1: list[int], expand2: list[int], expand3: list[int],
    sumdim: list[int], unroll_dim: int = 1,
) -> torch.Tensor:  # fmt: skip
    """The product of three tensors that broadcast, summed over some dimensions."""

    def widened(t: torch.Tensor, dims: list[int]) -> torch.Tensor:
        for dim in dims:
            t = t.unsqueeze(dim)
        return t

    product = widened(i1, expand1) * widened(i2, expand2) * widened(i3, expand3)
    return product.sum(sumdim, dtype=product.dtype) if sumdim else product


def hardshrink_backward(grad: torch.Tensor, self: torch.Tensor, lambd: float) -> torch.Tensor:
    """Also softshrink's: nothing comes through between -lambd and lambd."""
    return torch.where((self >= -lambd) & (self <= lambd), 0.0, grad)


def angle(self: torch.Tensor) -> Any:
    if self.is_complex():
        return NotImplemented
    x = self if self.is_floating_point() else self.to(torch.get_default_dtype())
    return torch.where(torch.isnan(x), x, torch.where(x < 0, math.pi, 0.0).to(x.dtype))


def ldexp(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return self * torch.pow(2.0, other)


def round_decimals(self: torch.Tensor, *, decimals: int = 0) -> Any:
    """Eager's formula, in f32 for f16 and bf16."""
    if not self.is_floating_point():
        return NotImplemented
    scale = 10.0 ** abs(decimals)
    x = self if self.dtype == torch.float64 else self.float()
    return ((x / scale).round() * scale if decimals < 0 else (x * scale).round() / scale).to(self.dtype)


def nan_to_num(
    self: torch.Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """torch's own, which refuses the complex numbers that eager takes."""
    if self.is_complex():
        return NotImplemented
    return torch._refs.nan_to_num(self, nan, posinf, neginf)


def power(self: torch.Tensor, exponent: Any) -> Any:
    """Of bools to a bool: bools, of which torch's shape rule makes integers."""
    if self.dtype != torch.bool or not isinstance(exponent, bool):
        return NotImplemented
    return self.clone() if exponent else torch.ones_like(self)


def vector_norm(
    self: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """torch 2.11 forgets to leave out a dimension of one element that is counted from the end."""
    dims = None if dim is None or not self.dim() else [each % self.dim() for each in dim]
    return torch._refs.linalg.vector_norm(self, ord, dims, keepdim, dtype=dtype)


def batch_norm_with_update(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """On a CPU, where nothing is reserved for the backward. torch's shape rule says f32 for the new statistics of 16 bits; its kernel
    keeps their dtype."""
    if input.device.type != "cpu":
        return NotImplemented
    out, mean, rstd, new_mean, new_var = torch.ops.aten._native_batch_norm_legit_functional(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    reserved = input.new_empty((0,), dtype=torch.uint8)
    return out, mean, rstd, reserved, new_mean.to(running_mean.dtype), new_var.to(running_var.dtype)


def batch_norm_backward(grad_out: torch.Tensor, input: torch.Tensor, *rest: Any) -> Any:
    """Likewise: ``rest`` ends with what was reserved."""
    if input.device.type != "cpu":
        return NotImplemented
    return torch.ops.aten.native_batch_norm_backward(grad_out, input, *rest[:-1])


def weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of ``v / norms * g``, the norms being over all dimensions but ``dim``, which is the first or the last."""
    sums = (grad * v).sum([each for each in range(v.dim()) if each != dim % v.dim()], keepdim=True)
    return g / norms * (grad - v * (sums / (norms * norms))), sums / norms


def unfold_backward(grad: torch.Tensor, input_sizes: list[Any], dim: int, size: int, step: int) -> Any:
    """Of windows that do not overlap: each element where it came from, zeros between, as eager copies them. torch's adds to zeros, which
    makes 0.0 of -0.0. A write into windows goes back into what they are a view of by this operator."""
    whole = len(input_sizes)
    if whole == 0 or step < size:
        return torch._decomp.decompositions.unfold_backward(grad, input_sizes, dim, size, step)
    pad, dim = torch.nn.functional.pad, dim % whole
    rows = pad(grad.movedim(-1, dim + 1), [0, 0] * (whole - 1 - dim) + [0, step - size])
    rows = rows.flatten(dim, dim + 1)
    beyond = input_sizes[dim] - rows.shape[dim]  # less than none: the last window ends before its step does
    return pad(rows, [0, 0] * (whole - 1 - dim) + [0, beyond]).contiguous()


def unbind_copy(self: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [piece.clone() for piece in self.unbind(dim)]


def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **placed: Any) -> torch.Tensor:
    """torch's own, but for whole numbers: eager cuts the ends to them first, and steps in f64 (its vectors round the middle of some dtypes
    otherwise than its loop, whose formula this is)."""
    if dtype is None or dtype.is_floating_point or dtype.is_complex or steps < 2:
        return torch._refs.linspace(start, end, steps, dtype=dtype, **placed)

    def whole(number: Any) -> Any:
        return number.to(dtype).double() if isinstance(number, torch.Tensor) else float(int(number))

    first, last = whole(start), whole(end)
    step = (last - first) / (steps - 1)
    place = torch.arange(steps, dtype=torch.float64, **placed)
    return torch.where(place < steps // 2, first + step * place, last - step * (steps - 1 - place)).to(dtype)


def nll_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
    ignore_index: int, total_weight: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """torch's own multiplies one-hot rows: it makes -0.0 of what is ignored, and NaN of the other classes where a gradient or a weight is
    infinite. Eager writes the target's element of zeros."""
    ones = torch._decomp.decompositions._nll_loss_backward
    factor = torch.ones_like(grad_output)
    hit = ones(factor, self, target, None, 2, ignore_index, total_weight) != 0
    channel = 0 if self.dim() < 2 else 1
    gradient = -(grad_output / total_weight if reduction == 1 else grad_output)
    if self.dim() > gradient.dim() > 0:
        gradient = gradient.unsqueeze(channel)
    if weight is not None:
        gradient = gradient * weight.reshape([-1 if dim == channel else 1 for dim in range(self.dim())])
    return torch.where(hit, gradient, 0.0).to(self.dtype)


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    table: dict[Any, Callable[..., Any]] = {
        aten.addbmm.default: addbmm,
        aten.addmv.default: addmv,
        aten.angle.default: angle,
        aten.hardshrink_backward.default: hardshrink_backward,
        aten.index_reduce.default: index_reduce,
        aten.ldexp.Tensor: ldexp,
        aten.linalg_vector_norm.default: vector_norm,
        aten.linspace.default: linspace,
        aten.linspace.Scalar_Tensor: linspace,
        aten.linspace.Tensor_Scalar: linspace,
        aten.linspace.Tensor_Tensor: linspace,
        aten.masked_scatter.default: masked_scatter,
        aten.nll_loss_backward.default: nll_loss_backward,
        aten.nll_loss2d_backward.default: nll_loss_backward,
        aten.masked_scatter_backward.default: masked_scatter_backward,
        aten.mkldnn_rnn_layer.default: lstm_layer,
        aten.nan_to_num.default: nan_to_num,
        aten.pow.Tensor_Scalar: power,
        aten.put.default: put,
        aten.replication_pad1d_backward.default: replication_pad_backward,
        aten.replication_pad2d_backward.default: replication_pad_backward,
        aten.replication_pad3d_backward.default: replication_pad_backward,
        aten.softshrink_backward.default: hardshrink_backward,
        aten.round.decimals: round_decimals,
        aten.unbind_copy.int: unbind_copy,
        aten.unfold_backward.default: unfold_backward,
        aten._batch_norm_with_update_functional.default: batch_norm_with_update,
        aten._trilinear.default: trilinear,
        aten.batch_norm_backward.default: batch_norm_backward,
        aten._weight_norm_interface_backward.default: weight_norm_backward,
    }
    if (packet := getattr(torch.ops.prims, "fma", None)) is not None:  # torch 2.11 has none
        table[packet.default] = fma
    if (packet := getattr(torch.ops.aten, "_fused_rms_norm", None)) is not None:
        table[packet.default] = fused_rms_norm
    return table
