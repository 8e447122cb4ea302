"""torch's shape rules of elementwise operators, with the strides that eager's kernels give.

Eager allocates an elementwise result by one rule, ATen's TensorIterator. torch's shape rules, which fake tensors follow while a graph is
traced, repeat it in Python and differ, nearly always in dimensions of size 1 alone: no element lies elsewhere, but operators behind tell
channels last from contiguous by those strides (``group_norm``, ``interpolate``, ``cat``), and ``as_strided`` reads by them.

Terms: a layout is a tensor's sizes and strides; of a number, which eager makes a tensor without dimensions, both are empty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

Layout = tuple[Sequence[Any], Sequence[Any]]
Strides = tuple[Any, ...]
Rule = Callable[["Call"], Strides]

_NUMBER: Layout = ((), ())
_CHANNELS_LAST = (0, 2, 3, 1)


class _Undecided(Exception):
    """Symbolic sizes do not say it, and no guard shall."""


def eager_strides(operands: Sequence[Layout]) -> Strides:
    """Of a new result, in eager's order of checks (``TensorIterator.cpp``: ``compute_fast_setup_type``, ``reorder_dimensions``)."""
    sizes = _broadcast([shape for shape, _ in operands])
    if all(_equal(shape, sizes) for shape, _ in operands):
        if all(_lies_in(layout, range(len(sizes))) for layout in operands):
            return _in_order(sizes, range(len(sizes)))
        if len(sizes) == 4 and all(_lies_in(layout, _CHANNELS_LAST) for layout in operands):
            return _in_order(sizes, _CHANNELS_LAST)
        first = operands[0][1]
        if all(_is_dense(layout) for layout in operands) and all(_equal(strides, first) for _, strides in operands):
            return tuple(first)
    order = _order(sizes, [_repeated(layout, sizes) for layout in operands])
    if list(order) == list(range(len(sizes))):
        return _in_order(sizes, order)
    return _in_order(sizes, order, least=0)


def _broadcast(shapes: Iterable[Sequence[Any]]) -> list[Any]:
    sizes: list[Any] = []
    for shape in shapes:
        sizes = [1] * (len(shape) - len(sizes)) + sizes
        for at in range(-len(shape), 0):
            if _is_one(sizes[at]):
                sizes[at] = shape[at]
    return sizes


def _lies_in(layout: Layout, order: Sequence[int]) -> bool:
    """Whether it has no gaps and its dimensions are in this order, outermost first; those of size 1 may have any stride."""
    sizes, strides = layout
    expected = 1
    if list(order) == list(range(len(sizes))) and _has_zero(sizes):
        return True
    for dim in reversed(order):
        if not _is_one(sizes[dim]):
            if not _sure(strides[dim] == expected):
                return False
            expected *= sizes[dim]
    return True


def _is_dense(layout: Layout) -> bool:
    """Whether it has neither gaps nor elements in one place, in whatever order."""
    sizes, strides = layout
    return _lies_in(layout, _sorted(range(len(sizes)), lambda one, other: _sure(strides[one] < strides[other])))


def _sorted(dims: Iterable[int], inner: Callable[[int, int], bool]) -> list[int]:
    """Outermost first. By insertion: with symbols, few comparisons can be decided."""
    found: list[int] = []
    for dim in dims:
        at = next((at for at, other in enumerate(found) if inner(other, dim)), len(found))
        found.insert(at, dim)
    return found


def _repeated(layout: Layout, sizes: Sequence[Any]) -> list[Any]:
    """Its strides for a result of these sizes; 0 where it is repeated."""
    shape, strides = layout
    missing = len(sizes) - len(shape)
    return [0] * missing + [
        0 if _is_one(size) and not _is_one(of) else stride
        for size, stride, of in zip(shape, strides, sizes[missing:], strict=True)
    ]


def _order(sizes: Sequence[Any], strides: Sequence[Sequence[Any]]) -> list[int]:
    """The dimensions, outermost first: as the first operand has them, and where it does not say, the next."""

    def compare(inner: int, outer: int) -> int:
        for each in strides:
            one, other = each[inner], each[outer]
            if _is_zero(one) or _is_zero(other):
                continue
            if _sure(one < other):
                return -1
            if not _sure(one == other) or _sure(sizes[inner] > sizes[outer]):
                return 1
        return 0

    order = list(reversed(range(len(sizes))))
    for place in range(1, len(order)):
        moved = place
        for at in reversed(range(place)):
            compared = compare(order[at], order[moved])
            if compared > 0:
                order[at], order[moved] = order[moved], order[at]
                moved = at
            elif compared < 0:
                break
    return order[::-1]


def _in_order(sizes: Sequence[Any], order: Sequence[int], least: int = 1) -> Strides:
    """Without gaps. ``least``: what a size of 0 counts for."""
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= least if isinstance(sizes[dim], int) and sizes[dim] == 0 else sizes[dim]
    return tuple(strides)


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(_sure(mine == its) for mine, its in zip(one, other, strict=True))


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _is_zero(stride: Any) -> bool:
    return isinstance(stride, int) and stride == 0


def _has_zero(sizes: Sequence[Any]) -> bool:
    return any(_is_zero(size) for size in sizes)


def _sure(said: Any) -> bool:
    if isinstance(said, bool):
        return said
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if statically_known_true(said):
        return True
    if statically_known_true(torch.sym_not(said)):  # type: ignore[no-untyped-call]
        return False
    raise _Undecided


@dataclasses.dataclass(frozen=True)
class Call:
    """Of an operator, and what torch's shape rule says of its result's dtype."""

    func: torch._ops.OpOverload
    args: Sequence[Any]
    dtype: torch.dtype

    def layouts(self, order: Iterable[int] | None = None) -> list[Layout]:
        """Of tensors, and of numbers that stand in a tensor's place (``x + 2``)."""
        places = list(zip(self.func._schema.arguments, self.args, strict=False))
        return [
            self.layout(each) if isinstance(each, torch.Tensor) else _NUMBER
            for place, each in (places if order is None else [places[at] for at in order])
            if isinstance(each, torch.Tensor) or (each is not None and "Tensor" in str(place.type))
        ]

    def layout(self, tensor: torch.Tensor) -> Layout:
        """As the kernel sees it: on a CPU one of another dtype is converted first, and a copy has no gaps."""
        layout = tensor.shape, tensor.stride()
        if tensor.device.type != "cpu" or tensor.dtype == self._computed_in() or _is_dense(layout):
            return layout
        if self.func is torch.ops.aten.where.self and tensor is self.args[0]:
            return layout
        return tensor.shape, _of_a_copy(layout)

    def _computed_in(self) -> torch.dtype:
        tensors = [each for each in self.args if isinstance(each, torch.Tensor)]
        if self.dtype == torch.bool and len(tensors) == 1:
            return tensors[0].dtype
        if self.dtype != torch.bool:
            return self.dtype
        kind = torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        return torch._prims_common.elementwise_dtypes(*self.args, type_promotion_kind=kind)[0]


def _of_a_copy(layout: Layout) -> Strides:
    return tuple(layout[1]) if _is_dense(layout) else eager_strides([layout, _NUMBER])


def _by_tensors(call: Call) -> Strides:
    return eager_strides(call.layouts())


def _beside_a_number(call: Call) -> Strides:
    return eager_strides([*(call.layout(each) for each in call.args if isinstance(each, torch.Tensor)), _NUMBER])


def _as_memory(call: Call) -> Strides:
    """``empty_like``'s."""
    return _of_a_copy((call.args[0].shape, call.args[0].stride()))


def _contiguous(call: Call) -> Strides:
    sizes = _broadcast([each.shape for each in call.args if isinstance(each, torch.Tensor)])
    return _in_order(sizes, range(len(sizes)))


def _second_first(call: Call) -> Strides:
    return eager_strides(call.layouts((1, 0)))


def _is_infinite(call: Call) -> Strides:
    """``abs() == inf``; of integers, as a ``full_like``."""
    if not call.args[0].is_floating_point():
        return _as_memory(call)
    return eager_strides([(call.args[0].shape, _by_tensors(call)), _NUMBER])


def _is_finite(call: Call) -> Strides:
    """``(self == self) * (abs() != inf)``"""
    if not call.args[0].is_floating_point():
        return _as_memory(call)
    sizes = call.args[0].shape
    return eager_strides([(sizes, _by_tensors(call)), (sizes, _is_infinite(call))])


@cache
def _rules() -> dict[torch._ops.OpOverload, Rule]:
    """Of operators that are no plain kernel over all their tensors."""
    aten = torch.ops.aten
    alike = (
        aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default,
        aten.rand_like.default, aten.randn_like.default, aten.nan_to_num.default, aten.hardtanh.default,
        aten.randint_like.default, aten.randint_like.low_dtype, aten.sort.default, aten.sort.stable, aten.flip.default,
        aten._prelu_kernel.default, aten.relu6.default, aten.deg2rad.default, aten.rad2deg.default, aten._conj_physical.default,
    )  # fmt: skip
    contiguous = (
        aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.tril.default, aten.triu.default, aten.pow.Scalar,
    )  # fmt: skip
    return {
        **dict.fromkeys(alike, _as_memory),
        **dict.fromkeys(contiguous, _contiguous),
        aten.pow.Tensor_Scalar: _by_tensors,
        aten.lerp.Scalar: _by_tensors,
        aten.rsub.Tensor: _second_first,
        aten.threshold_backward.default: _second_first,
        aten.isinf.default: _is_infinite,
        aten.isfinite.default: _is_finite,
    }


@cache
def _rule(func: torch._ops.OpOverload) -> Rule | None:
    """None: not elementwise, or not into one new tensor, or made of several kernels."""
    schema = func._schema
    if rule := _rules().get(func):
        return rule
    if (
        func.namespace != "aten"
        or torch.Tag.pointwise not in func.tags
        or schema.is_mutable
        or len(schema.returns) != 1
    ):
        return None
    if any(each.alias_info for each in schema.arguments):
        return None
    if func._schema.name in ("aten::ldexp", "aten::mvlgamma", "aten::_to_copy", "aten::clone"):
        return None
    return _beside_a_number if "scalar" in func._overloadname.lower() else _by_tensors


def _laid(mode: FakeTensorMode, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """``result`` of torch's shape rule, with eager's strides."""
    rule = _rule(func) if isinstance(func, torch._ops.OpOverload) else None
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if (
        rule is None or not tensors or any(each.layout != torch.strided for each in tensors)
        or kwargs.get("memory_format") not in (None, torch.preserve_format)
    ):  # fmt: skip
        return result
    if isinstance(result, tuple):  # all alike
        return type(result)([_laid(mode, func, args, kwargs, each) for each in result])
    if (
        not isinstance(result, FakeTensor) or result.dim() < 2 or result.layout != torch.strided
        or result.constant is not None or result.real_tensor is not None
    ):  # fmt: skip
        return result
    if any(map(_has_symbols, tensors)) and not any(map(_is_one, result.shape)):
        return result  # torch says the same, and many comparisons of symbols take their time
    try:
        strides = rule(Call(func, args, result.dtype))
        if len(strides) != result.dim() or _equal(strides, result.stride()):
            return result
    except _Undecided:
        return result
    with mode:
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


def _has_symbols(tensor: torch.Tensor) -> bool:
    return any(isinstance(number, torch.SymInt) for number in (*tensor.shape, *tensor.stride()))


def let_shape_rules_follow_eager() -> None:
    """For the whole process: Dynamo, AOTAutograd's notes and its trace must say the same. Fake tensors remember what a rule has said."""
    rules = FakeTensorMode._dispatch_impl

    def as_eager(self: FakeTensorMode, func: Any, types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        return _laid(self, func, args, kwargs, rules(self, func, types, args, kwargs))

    FakeTensorMode._dispatch_impl = as_eager  # type: ignore[method-assign]
    FakeTensorMode.cache_clear()
