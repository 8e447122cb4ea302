"""Operators whose results torch's shape rules or decompositions lay out otherwise than eager's kernels: with eager's strides."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from zefuse.decompositions.index_strides import strides_of_index
from zefuse.decompositions.iterator_strides import Undecided, equal, in_order

_of_subclasses = contextvars.ContextVar("zefuse_of_subclasses", default=False)
_tracing = contextvars.ContextVar("zefuse_tracing", default=False)


@contextlib.contextmanager
def as_noted_for_subclasses(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Iterator[None]:
    """While AOTAutograd traces a graph of Dynamo's. Of tensor subclasses (jagged tensors) it has noted by torch's shape rules, before it
    asks for decompositions, which sizes and strides of each result are symbols. The graph returns those beside it, and in other
    places it would return others: so parts of subclasses whose sizes are symbols lie as torch's shape rules say."""
    _let_pools_lie_as_eagers()
    values = [*example_inputs, *(node.meta.get("example_value") for node in gm.graph.nodes)]
    token = _of_subclasses.set(any(map(is_traceable_wrapper_subclass, tree_leaves(values))))
    tracing = _tracing.set(True)
    try:
        yield
    finally:
        _tracing.reset(tracing)
        _of_subclasses.reset(token)


@functools.cache
def _let_pools_lie_as_eagers() -> None:
    """Once for the process; back ends beside this one find torch as it was. ``max_pool1d`` is taken apart before AOTAutograd asks for
    decompositions, into one of images, channels last where the input is; without gradients eager has a kernel of its own on the CPU,
    whose result is contiguous."""
    op, composite = torch.ops.aten.max_pool1d.default, torch._C.DispatchKey.CompositeImplicitAutograd

    def kernel(input: torch.Tensor, *rest: Any) -> torch.Tensor:
        pooled: torch.Tensor = op._op_dk(composite, input, *rest)
        with_gradient = input.requires_grad and torch.is_grad_enabled()
        if not _tracing.get() or _of_subclasses.get() or with_gradient or input.device.type != "cpu":
            return pooled
        with contextlib.suppress(Undecided):
            if equal(pooled.stride(), in_order(pooled.shape, range(pooled.dim()))):
                return pooled
        return pooled.clone(memory_format=torch.contiguous_format)

    op.py_kernels[composite] = kernel
    op._dispatch_cache.clear()


def _unless_noted(way: Callable[..., Any]) -> Callable[..., Any]:
    def either(*args: Any, **named: Any) -> Any:
        if _of_subclasses.get() and any(isinstance(each, torch.Tensor) and _has_symbols(each) for each in args):
            return NotImplemented
        return way(*args, **named)

    return either


def _has_symbols(tensor: torch.Tensor) -> bool:
    return any(isinstance(number, torch.SymInt) for number in (*tensor.shape, *tensor.stride()))


def max_unpool2d(self: torch.Tensor, indices: torch.Tensor, output_size: list[int]) -> torch.Tensor:
    """torch's own, in channels last where the input is, as eager's kernel gives it."""
    from torch._decomp.decompositions import max_unpool2d as torchs

    whole: torch.Tensor = torchs(self, indices, output_size)
    return whole.contiguous(memory_format=torch._prims_common.suggest_memory_format(self))


def div_mode(self: Any, other: Any, *, rounding_mode: str | None) -> Any:
    """With the strides of eager, whose kernel takes its first operand's; torch's shape rule of a floor takes the second's, which may be
    repeated to the first's sizes. Either may be a number."""
    if (
        rounding_mode != "floor" or not (isinstance(self, torch.Tensor) and isinstance(other, torch.Tensor))
        or 0 in self.stride() or not torch.result_type(self, other).is_floating_point
        or not _fits(other, self.shape) or self.stride() == other.stride()
    ):  # fmt: skip
        return NotImplemented
    # As it decides: `other`'s dtype counts for less where that has no dimensions.
    laid = torch.empty_like(self, dtype=torch.result_type(self, other))
    by_the_rule = other.stride() if other.dim() == self.dim() and other.shape == self.shape else _in_order(laid)
    if laid.stride() == by_the_rule:  # so lies what this makes; of a tensor with gaps, as no dense one does
        return NotImplemented
    return torch.ops.aten.div(self, torch.ops.aten.copy(laid, other), rounding_mode=rounding_mode)


def _fits(tensor: torch.Tensor, sizes: torch.Size) -> bool:
    """Whether it has these sizes, or is repeated to them."""
    return tensor.dim() <= len(sizes) and all(
        mine == 1 or mine == size for mine, size in zip(reversed(tensor.shape), reversed(sizes), strict=False)
    )


def _in_order(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The strides of a contiguous tensor of its sizes."""
    return tuple(torch._prims_common.make_contiguous_strides_for(tensor.shape))


def index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """Of a tensor in another order than its dimensions': in the order of memory, so that its strides are kept. torch's puts the result
    into memory of those strides, which a plan or a functional graph has not."""
    aten = torch.ops.aten
    if self.dim() == 0:
        return aten.index_fill(self.unsqueeze(0), 0, index, value).squeeze(0).clone()
    if self.is_contiguous():
        if not self.is_complex() or isinstance(value, torch.Tensor):
            return NotImplemented
        number = torch.full([], value, dtype=self.dtype, device=self.device)  # of which complex_rules.py has both parts
        return aten.index_fill(self, dim, index, number)
    if not torch._prims_common.is_non_overlapping_and_dense_or_false(self):
        return aten.index_fill(self.clone(), dim, index, value)
    order = sorted(range(self.dim()), key=lambda each: (self.stride(each), bool(self.shape[each] != 1)), reverse=True)
    back = sorted(range(self.dim()), key=order.__getitem__)
    return aten.index_fill(self.permute(order), order.index(dim % self.dim()), index, value).permute(back)


def batch_norm(of: torch._ops.OpOverload) -> Callable[..., Any]:
    """``of`` with the strides of eager on a CPU: contiguous or channels last. torch's shape rule keeps the input's."""

    def norm(input: torch.Tensor, *rest: Any) -> Any:
        if input.device.type != "cpu" or _lies_in(input, format := _order_without_gaps(input)):
            return NotImplemented
        return of(input.clone(memory_format=format), *rest)

    return norm


def native_batch_norm_backward(grad_out: torch.Tensor, input: torch.Tensor, *rest: Any) -> Any:
    """Likewise, in an order of ``input``, where torch's rule keeps ``grad_out``'s."""
    suggested = torch._prims_common.suggest_memory_format
    dense = all(each.is_contiguous(memory_format=_order_without_gaps(each)) for each in (grad_out, input))
    alike = dense and suggested(grad_out) == suggested(input)
    format = _order_without_gaps(input) if alike else suggested(input)
    if input.device.type != "cpu" or _lies_in(grad_out, format):
        return NotImplemented
    both = (each.clone(memory_format=format) for each in (grad_out, input))
    return torch.ops.aten.native_batch_norm_backward(*both, *rest)


def _order_without_gaps(image: torch.Tensor) -> torch.memory_format:
    """By elements alone, where there are no gaps: what ``suggest_memory_format`` says depends on strides of sizes of 1 too."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(image.dim())
    if image.is_contiguous():
        return torch.contiguous_format
    if last is not None and image.is_contiguous(memory_format=last):
        return last
    return torch._prims_common.suggest_memory_format(image)


def _lies_in(image: torch.Tensor, format: torch.memory_format) -> bool:
    """Also to an operator that looks at strides of sizes of 1."""
    return image.is_contiguous(memory_format=format) and (
        format == torch.contiguous_format or torch._prims_common.suggest_memory_format(image) == format
    )


def written_view(of: torch._ops.OpOverload) -> Callable[..., Any]:
    """``of`` of what repeats elements (an expanded tensor): as in eager, of a copy that repeats none. By torch 2.11's shape rule the
    result repeats elements as well, and so could not hold what is written into one of them."""

    def scatter(self: torch.Tensor, *rest: Any, **named: Any) -> Any:
        repeats = any(stride == 0 and size > 1 for size, stride in zip(self.shape, self.stride(), strict=True))
        if not repeats or 0 in self.shape:  # strides of nothing may be 0, those of its copy too
            return NotImplemented
        return of(self.clone(), *rest, **named)

    return scatter


def log_sigmoid(self: torch.Tensor) -> Any:
    """On the CPU eager's result is contiguous, whatever its input is."""
    if self.device.type != "cpu" or torch._prims_common.is_contiguous_or_false(self):
        return NotImplemented
    return torch.ops.aten.log_sigmoid(self.contiguous())


def log_sigmoid_forward(self: torch.Tensor) -> Any:
    if not self.is_floating_point():  # eager has no kernel
        return NotImplemented
    on_cpu = self.device.type == "cpu"
    return torch._decomp.decompositions.log_sigmoid_forward(self.contiguous() if on_cpu else self)


def pow_scalar(self: Any, exponent: torch.Tensor) -> Any:
    """Of a number to the power of a tensor: contiguous in eager, where torch's shape rule keeps the exponent's strides."""
    if exponent.is_nested or torch._prims_common.is_contiguous_or_false(exponent):
        return NotImplemented
    return torch.ops.aten.pow.Scalar(self, exponent.contiguous())


def roll(self: torch.Tensor, shifts: list[int], dims: list[int] | None = None) -> Any:
    """On the CPU eager joins the two parts of one dimension: channels last stay so, where torch's shape rule says contiguous."""
    if self.device.type != "cpu" or not dims or torch._prims_common.is_contiguous_or_false(self):
        return NotImplemented
    order = torch._prims_common.suggest_memory_format(self)
    if order == torch.contiguous_format:
        return NotImplemented
    if len(dims) > 1:
        return torch.ops.aten.roll(torch.ops.aten.roll(self, shifts[:1], dims[:1]), shifts[1:], dims[1:])
    if (size := self.shape[dims[0]]) == 0 or shifts[0] % size == 0:
        return NotImplemented
    return torch.ops.aten.roll(self.contiguous(), shifts, dims).contiguous(memory_format=order)


def index(self: torch.Tensor, indices: list[torch.Tensor | None]) -> Any:
    """Where symbolic sizes do not say how eager's result lies (``index_strides.py``): in the order of the tensor's and the indices'
    dimensions, but for those of size 1."""
    utils = torch._prims_common
    given = [each for each in indices if each is not None]
    if any(each.dtype in (torch.bool, torch.int8, torch.uint8) for each in given) or all(
        utils.is_contiguous_or_false(each) for each in given
    ):
        return NotImplemented
    with contextlib.suppress(Undecided):
        strides_of_index(self, indices)
        return NotImplemented  # the shape rule says it
    dims = [dim for dim, each in enumerate(indices) if each is not None]
    source = self
    if dims[-1] - dims[0] >= len(dims):  # apart: their dimensions come first
        source = self.permute([*dims, *(dim for dim in range(self.dim()) if dim not in dims)])
        dims = list(range(len(dims)))
    broad = torch._refs._broadcast_shapes(*(each.shape for each in given))  # type: ignore[no-untyped-call]
    given = [each.expand(broad) for each in given]
    before, after, rank = dims[0], source.dim() - dims[-1] - 1, given[0].dim()
    shape = [*source.shape[:before], *given[0].shape, *source.shape[source.dim() - after :]]
    if any(size == 0 for size in shape):
        return NotImplemented
    strides = [*source.stride()[:before], *[0] * rank, *source.stride()[source.dim() - after :]]
    places = [source.as_strided(shape, strides)]
    places += [each.as_strided(shape, [*[0] * before, *each.stride(), *[0] * after]) for each in given]
    order = utils.compute_elementwise_output_logical_to_physical_perm(*places)[0]
    result = torch.ops.aten.index(self, [each if each is None else each.contiguous() for each in indices])
    return result.permute(order).contiguous().permute([order.index(dim) for dim in range(len(order))])


def pointwise(of: torch._ops.OpOverload, leads: int) -> Callable[..., Any]:
    """``of`` of two tensors as eager lays it: in the order of memory of both, repeated to the result's sizes. torch's shape rules make
    these operators of others, of which the first sees operand ``leads`` alone, and not repeated."""
    utils = torch._prims_common

    def way(*operands: Any) -> Any:
        if not all(isinstance(each, torch.Tensor) for each in operands):
            return NotImplemented
        one, other = operands
        alike = one.shape == other.shape
        if (
            (alike and (leads == 0 or one.stride() == other.stride()))
            or (one.dtype != other.dtype and 0 in (one.dim(), other.dim()))  # whose dtype counts for less, but not repeated
            or all(utils.is_contiguous_or_false(each) for each in operands)
        ):  # fmt: skip
            return NotImplemented
        sizes = torch._refs._broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        repeated = [each.expand(sizes) for each in operands]
        order = utils.compute_elementwise_output_logical_to_physical_perm(*repeated)[0]
        laid = [each.permute(order).contiguous() for each in repeated]
        return of(*laid).permute([order.index(dim) for dim in range(len(order))])

    return way


def taken_apart(of: torch._ops.OpOverload, way: Callable[..., Any]) -> Callable[..., Any]:
    """``way``, and torch's own decomposition of ``of`` where that has nothing to do: an entry in a table takes the place of torch's."""
    torchs = torch._decomp.decomposition_table[of]

    wanted = _unless_noted(way)

    def either(*args: Any, **named: Any) -> Any:
        made = wanted(*args, **named)
        return torchs(*args, **named) if made is NotImplemented else made

    return either


def floor_divide(self: Any, other: Any) -> Any:
    """As ``pointwise`` lays it, else the quotient that ``div_mode`` looks at."""
    made = _unless_noted(pointwise(torch.ops.aten.floor_divide.default, leads=1))(self, other)
    return torch.ops.aten.div(self, other, rounding_mode="floor") if made is NotImplemented else made


def channel_shuffle(self: torch.Tensor, groups: int) -> Any:
    """In channels last where the input is, and always memory of its own: with one channel in each group, too."""
    if self.dim() < 3 or groups <= 0 or self.shape[1] % groups:
        return NotImplemented  # eager's error
    order = torch._prims_common.suggest_memory_format(self)
    parted = self.reshape(self.shape[0], groups, self.shape[1] // groups, *self.shape[2:])
    return parted.transpose(1, 2).reshape(self.shape).clone(memory_format=order)


def nll_loss2d_forward(self: torch.Tensor, target: torch.Tensor, *rest: Any) -> Any:
    """The losses of each place are contiguous; taken apart they lie as ``target``."""
    if torch._prims_common.is_contiguous_or_false(target):
        return NotImplemented
    return torch.ops.aten.nll_loss2d_forward(self, target.contiguous(), *rest)


def unbind(self: torch.Tensor, dim: int = 0) -> Any:
    """Where the number of parts was a symbol, torch's shape rule says where a part begins by a quotient, which is 1, and so hides that it
    lies in another view."""
    if self.dim() == 0 or isinstance(count := self.shape[dim], int):
        return NotImplemented
    return [torch.ops.aten.select.int(self, dim, part) for part in range(int(count))]


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    whole: dict[Any, Callable[..., Any]] = {  # where they have nothing to do, the operator stays
        aten.div.Tensor_mode: div_mode,
        aten.index.Tensor: index,
        aten.log_sigmoid.default: log_sigmoid,
        aten.native_batch_norm_backward.default: native_batch_norm_backward,
        aten.pow.Scalar: pow_scalar,
        aten.roll.default: roll,
        aten.unbind.int: unbind,
    }
    for norm in (
        aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit_no_training.default,
    ):  # fmt: skip
        whole[norm] = batch_norm(norm)
    for operator in (aten.logical_or, aten.logical_and, aten.logical_xor, aten.heaviside, aten.lcm):
        whole[operator.default] = pointwise(operator.default, leads=0)
    whole[aten.copysign.Tensor] = pointwise(aten.copysign.Tensor, leads=1)
    table: dict[Any, Callable[..., Any]] = {operator: _unless_noted(way) for operator, way in whole.items()}
    table |= {
        aten.floor_divide.default: floor_divide,
        aten.index_fill.int_Scalar: index_fill,
        aten.index_fill.int_Tensor: index_fill,
        aten.log_sigmoid_forward.default: log_sigmoid_forward,
        aten.max_unpool2d.default: max_unpool2d,
    }
    for operator in (aten.logaddexp, aten.logaddexp2):
        table[operator.default] = taken_apart(operator.default, pointwise(operator.default, leads=0))
    for overload in (aten.xlogy.Tensor, aten.special_xlog1py.default):
        table[overload] = taken_apart(overload, pointwise(overload, leads=1))
    for overload, way in (
        (aten.nll_loss2d_forward.default, nll_loss2d_forward),
        (aten.channel_shuffle.default, channel_shuffle),
    ):
        table[overload] = taken_apart(overload, way)
    for scatter in (aten.diagonal_scatter.default, aten.select_scatter.default, aten.slice_scatter.default):
        table[scatter] = written_view(scatter)
    return table
