"""What operators on complex numbers are in real ones: the rules of ``complex_pairs.py``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

_aten: Any = torch.ops.aten
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}


class NoRule(Exception):
    """The operator, with these arguments, takes complex tensors as before."""


class Complex:
    """A complex value of the old graph, or several: what stands for it in the new one, made when it is asked for.

    ``stored``: where eager conjugates it only when it is read, what lies in memory, as a pair."""

    def __init__(
        self,
        pair: Callable[[], Node],
        halves: Callable[[], tuple[Node, Node]],
        stored: Callable[[], Node] | None = None,
    ) -> None:
        self._make_pair = pair
        self._make_halves = halves
        self.stored = stored
        self._pair: Node | None = None
        self._halves: tuple[Node, Node] | None = None

    @property
    def pair(self) -> Node:
        if self._pair is None:
            self._pair = self._make_pair()
        return self._pair

    @property
    def either(self) -> Node:
        """Whatever there is already."""
        return self._pair if self._pair is not None else self.halves[0]

    @property
    def halves(self) -> tuple[Node, Node]:
        if self._halves is None:
            self._halves = self._make_halves()
        return self._halves


class Writer(Protocol):
    """Who writes the new graph."""

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node: ...

    def of_halves(self, node: Node, halves: Callable[[], tuple[Node, Node]]) -> Complex: ...

    def of_pair(self, pair: Node) -> Complex: ...


# Views: what their arguments after the first become for a pair, of one dimension more at the end.
def _dim(rank: int, dim: int = 0, *rest: Any) -> tuple[Any, ...]:
    return (dim % max(rank, 1), *rest)


VIEWS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    _aten.view.default: lambda rank, sizes: ([*sizes, 2],),
    _aten._unsafe_view.default: lambda rank, sizes: ([*sizes, 2],),
    _aten.reshape.default: lambda rank, sizes: ([*sizes, 2],),
    _aten.expand.default: lambda rank, sizes: ([*sizes, 2],),
    _aten.permute.default: lambda rank, dims: ([*(dim % rank for dim in dims), rank],),
    _aten.transpose.int: lambda rank, one, other: (one % max(rank, 1), other % max(rank, 1)),
    _aten.t.default: lambda rank: (0, rank - 1),
    _aten.unsqueeze.default: lambda rank, dim: (dim % (rank + 1),),
    _aten.squeeze.dim: _dim,
    _aten.squeeze.dims: lambda rank, dims: ([dim % max(rank, 1) for dim in dims],),
    _aten.select.int: _dim,
    _aten.slice.Tensor: _dim,
    _aten.split.Tensor: lambda rank, size, dim=0: (size, dim % max(rank, 1)),
    _aten.split_with_sizes.default: lambda rank, sizes, dim=0: (sizes, dim % max(rank, 1)),
    _aten.unbind.int: _dim,
    _aten.alias.default: lambda rank: (),
    _aten.detach.default: lambda rank: (),
}
OF_PAIRS = {_aten.t.default: _aten.transpose.int}

# Operators that do the same to both parts, and copy.
EACH = {
    _aten.clone.default, _aten.flip.default, _aten.roll.default, _aten.index.Tensor, _aten.index_select.default, _aten.gather.default,
    _aten.cat.default, _aten.repeat.default, _aten.neg.default, _aten.sum.default, _aten.sum.dim_IntList, _aten.mean.default,
    _aten.mean.dim, _aten.cumsum.default, _aten.where.self, _aten.tril.default, _aten.triu.default, _aten.slice_scatter.default,
    _aten.select_scatter.default, _aten.index_put.default, _aten.index_copy.default, _aten.index_fill.int_Tensor, _aten.copy.default,
}  # fmt: skip
# Which arguments of theirs are values, and no masks or indices, where that is not the first alone: a real one has an imaginary part of 0.
OF_VALUES = {
    _aten.where.self: (1, 2), _aten.slice_scatter.default: (0, 1), _aten.select_scatter.default: (0, 1),
    _aten.index_put.default: (0, 2), _aten.index_copy.default: (0, 3), _aten.index_fill.int_Tensor: (0, 3), _aten.copy.default: (0, 1),
}  # fmt: skip


def _parts_of(writer: Writer, operand: Any, real: torch.dtype) -> tuple[Any, Any]:
    """Real and imaginary part in the result's precision, as eager promotes both operands."""
    if isinstance(operand, Complex):
        return tuple(cast(writer, half, real) for half in operand.halves)  # type: ignore[return-value]
    if isinstance(operand, Node):
        if not isinstance(operand.meta.get("val"), torch.Tensor):
            raise NoRule
        return cast(writer, operand, real), 0.0
    number = complex(operand)
    return number.real, number.imag


def cast(writer: Writer, value: Node, dtype: torch.dtype) -> Node:
    return value if value.meta["val"].dtype == dtype else writer.call(_aten._to_copy.default, value, dtype=dtype)


def real_of(node: Node) -> torch.dtype:
    dtype = node.meta["val"].dtype
    if dtype not in REAL:
        raise NoRule
    return REAL[dtype]


def _binary(writer: Writer, target: Any, one: Any, other: Any) -> Any:
    """Of numbers, too: tensor operators take one as their second operand."""
    if isinstance(one, Node):
        return writer.call(target, one, other)
    if isinstance(other, Node):
        if target is _aten.sub.Tensor:
            return writer.call(_aten.add.Tensor, writer.call(_aten.neg.default, other), one)
        if target is _aten.div.Tensor:
            return writer.call(_aten.mul.Tensor, writer.call(_aten.reciprocal.default, other), one)
        return writer.call(target, other, one)
    python = {_aten.add.Tensor: operator.add, _aten.sub.Tensor: operator.sub, _aten.mul.Tensor: operator.mul}
    return python[target](one, other)


def _sum(target: Any) -> Callable[..., Complex]:
    def rule(writer: Writer, node: Node, one: Any, other: Any, alpha: Any = 1) -> Complex:
        if alpha != 1:
            raise NoRule
        real = real_of(node)
        (a, b), (c, d) = (_parts_of(writer, each, real) for each in (one, other))
        made = _whole(writer, node, _binary(writer, target, a, c), _binary(writer, target, b, d))
        return writer.of_halves(node, lambda: made)

    return rule


def _whole(writer: Writer, node: Node, one: Any, other: Any) -> tuple[Node, Node]:
    """Both parts in the result's sizes: one may have come of one operand alone."""
    if not isinstance(one, Node):
        raise NoRule
    if not isinstance(other, Node):  # the imaginary part of a number
        other = writer.call(_aten.add.Tensor, writer.call(_aten.zeros_like.default, one), other)
    wanted = node.meta["val"].shape

    def is_whole(half: Node) -> bool:
        mine = half.meta["val"].shape
        return len(mine) == len(wanted) and all(
            statically_known_true(size == whole) for size, whole in zip(mine, wanted, strict=True)
        )

    def widened(half: Node, like: Node) -> Node:
        return (
            half if is_whole(half) else writer.call(_aten.add.Tensor, half, writer.call(_aten.zeros_like.default, like))
        )

    made = widened(one, other), widened(other, one)
    if not all(map(is_whole, made)):
        raise NoRule
    return made


def _product(target: Any) -> Callable[..., Complex]:
    """(a + bi)(c + di), as eager writes it out: with a real operand too, whose imaginary part is zero there."""

    def rule(writer: Writer, node: Node, one: Any, other: Any) -> Complex:
        if target is not _aten.mul.Tensor and not (isinstance(one, Complex) and isinstance(other, Complex)):
            raise NoRule
        real = real_of(node)
        (a, b), (c, d) = (_parts_of(writer, each, real) for each in (one, other))
        times: Callable[..., Any] = lambda x, y: _binary(writer, target, x, y)  # noqa: E731
        made = _whole(
            writer,
            node,
            _binary(writer, _aten.sub.Tensor, times(a, c), times(b, d)),
            _binary(writer, _aten.add.Tensor, times(a, d), times(b, c)),
        )
        return writer.of_halves(node, lambda: made)

    return rule


def _quotient(writer: Writer, node: Node, one: Any, other: Any) -> Complex:
    """c10::complex's: both are divided by the larger part of the divisor first (R. L. Smith, Algorithm 116, CACM 5, 1962)."""
    real = real_of(node)
    (a, b), (c, d) = (_parts_of(writer, each, real) for each in (one, other))
    call = writer.call
    multiply: Callable[[Any, Any], Any] = lambda x, y: _binary(writer, _aten.mul.Tensor, x, y)  # noqa: E731
    if not isinstance(a, Node):
        raise NoRule
    b = b if isinstance(b, Node) else call(_aten.zeros_like.default, a)
    if not isinstance(c, Node):
        if d != 0.0 or c == 0.0:
            raise NoRule
        # A part that is infinite makes the other NaN, as eager's product with the number's imaginary part does.
        real_part, other_part = (
            call(_aten.add.Tensor, a, multiply(b, d / c)),
            call(_aten.sub.Tensor, b, multiply(a, d / c)),
        )
        made = multiply(real_part, 1 / c), multiply(other_part, 1 / c)
        return writer.of_halves(node, lambda: made)
    d = d if isinstance(d, Node) else call(_aten.zeros_like.default, c)
    sizes = [call(_aten.abs.default, part) for part in (c, d)]
    by_real = call(_aten.ge.Tensor, *sizes)

    def ordered(of_real: Node, other: Node) -> tuple[Node, Node]:
        return call(_aten.where.self, by_real, of_real, other), call(_aten.where.self, by_real, other, of_real)

    (large, small), (first, second) = ordered(c, d), ordered(a, b)
    ratio = call(_aten.div.Tensor, small, large)
    scale = call(_aten.reciprocal.default, call(_aten.add.Tensor, large, multiply(small, ratio)))
    real_part = multiply(call(_aten.add.Tensor, first, multiply(second, ratio)), scale)
    other_part = multiply(call(_aten.sub.Tensor, second, multiply(first, ratio)), scale)
    other_part = call(_aten.where.self, by_real, other_part, call(_aten.neg.default, other_part))
    none = call(_aten.logical_and.default, *(call(_aten.eq.Scalar, size, 0) for size in sizes))

    def quotient(part: Node, size: Node, made: Node) -> Node:
        return call(_aten.where.self, none, call(_aten.div.Tensor, part, size), made)

    divided = quotient(a, sizes[0], real_part), quotient(b, sizes[1], other_part)
    return writer.of_halves(node, lambda: divided)


def _conjugate(writer: Writer, node: Node, value: Any) -> Complex:
    if isinstance(value, complex):  # a number of the user's, in its derivative
        return _filled(writer, node, [], value.conjugate(), device=node.meta["val"].device)
    made = value.halves[0], writer.call(_aten.neg.default, value.halves[1])
    return writer.of_halves(node, lambda: made)


def _conjugate_view(writer: Writer, node: Node, value: Any) -> Complex:
    """What eager marks as conjugated; of what is marked, the value that lies in memory."""
    if isinstance(value, Complex) and value.stored is not None:
        return writer.of_pair(value.stored())
    made = _conjugate(writer, node, value)
    if isinstance(value, Complex) and node.meta["val"].is_conj():
        made.stored = lambda: value.pair
    return made


def _size(writer: Writer, node: Node, value: Complex) -> Node:
    return writer.call(_aten.hypot.default, *value.halves)


def _angle(writer: Writer, node: Node, value: Complex) -> Node:
    return writer.call(_aten.atan2.default, value.halves[1], value.halves[0])


def _one_size(writer: Writer, node: Node, value: Complex, dim: int) -> Node:
    return writer.call(_aten.sym_size.int, value.either, dim % node.args[0].meta["val"].dim())  # type: ignore[union-attr]


def _count(writer: Writer, node: Node, value: Complex) -> Node:
    return writer.call(_aten.sym_numel.default, value.halves[0])


def _pair(writer: Writer, node: Node, value: Complex) -> Node:
    return value.pair


def _sign(writer: Writer, node: Node, value: Complex) -> Complex:
    size = writer.call(_aten.hypot.default, *value.halves)
    none = writer.call(_aten.eq.Scalar, size, 0)
    zero = writer.call(_aten.full.default, [], 0.0, dtype=size.meta["val"].dtype, device=size.meta["val"].device)
    made = tuple(
        writer.call(_aten.where.self, none, zero, writer.call(_aten.div.Tensor, half, size)) for half in value.halves
    )
    return writer.of_halves(node, lambda: made)  # type: ignore[arg-type, return-value]


def _require_halves(one: Node, other: Node) -> None:
    """Eager refuses halves of two types, and polar and complex those of 16 bits."""
    types = {half.meta["val"].dtype for half in (one, other)}
    if len(types) > 1 or not types <= set(REAL.values()):
        raise NoRule


def _complex(writer: Writer, node: Node, one: Node, other: Node) -> Complex:
    _require_halves(one, other)
    made = _whole(writer, node, one, other)
    return writer.of_halves(node, lambda: made)


def _polar(writer: Writer, node: Node, size: Node, angle: Node) -> Complex:
    _require_halves(size, angle)
    directions = writer.call(_aten.cos.default, angle), writer.call(_aten.sin.default, angle)
    made = _whole(writer, node, *(writer.call(_aten.mul.Tensor, size, direction) for direction in directions))
    return writer.of_halves(node, lambda: made)


def _exponential(writer: Writer, node: Node, value: Complex) -> Complex:
    return _polar(writer, node, writer.call(_aten.exp.default, value.halves[0]), value.halves[1])


def _converted(writer: Writer, node: Node, value: Node | Complex, **options: Any) -> Node | Complex:
    made = node.meta["val"]
    if not made.is_complex():
        return writer.call(_aten._to_copy.default, value.halves[0], **options)  # type: ignore[union-attr]
    options["dtype"] = real_of(node)
    if isinstance(value, Complex):
        halves = tuple(writer.call(_aten._to_copy.default, half, **options) for half in value.halves)
    else:
        first = writer.call(_aten._to_copy.default, value, **options)
        halves = first, writer.call(_aten.zeros_like.default, first)
    return writer.of_halves(node, lambda: halves)  # type: ignore[arg-type, return-value]


def _filled_like(number: Any) -> Callable[..., Complex]:
    """Of sizes of its own. None: the number that is given."""

    def rule(writer: Writer, node: Node, value: Any, sizes: Any, *given: Any, **options: Any) -> Complex:
        like = value.halves[0] if isinstance(value, Complex) else value
        filling = given[0] if number is None else number
        return _filled(writer, node, sizes, filling, **{"device": like.meta["val"].device, **options})

    return rule


def _filled_as(number: Any) -> Callable[..., Complex]:
    """Of another tensor's sizes. None: the number that is given; what is not initialised is zero as well as anything."""

    def rule(writer: Writer, node: Node, like: Any, *given: Any, **options: Any) -> Complex:
        half = like.halves[0] if isinstance(like, Complex) else like
        options = {"dtype": real_of(node), "device": half.meta["val"].device}
        value = complex(given[0] if number is None else number)
        sizes = node.meta["val"].shape
        if all(isinstance(size, int) for size in sizes):  # which reads nothing
            return _filled(
                writer, node, list(sizes), value, device=options["device"], strides=node.meta["val"].stride()
            )
        made = tuple(writer.call(_aten.full_like.default, half, part, **options) for part in (value.real, value.imag))
        return writer.of_halves(node, lambda: made)  # type: ignore[arg-type, return-value]

    return rule


def _padded(writer: Writer, node: Node, value: Complex, pad: Any, number: Any = 0) -> Complex:
    numbers = complex(number).real, complex(number).imag
    made = tuple(
        writer.call(_aten.constant_pad_nd.default, half, pad, part)
        for half, part in zip(value.halves, numbers, strict=True)
    )
    return writer.of_halves(node, lambda: made)  # type: ignore[arg-type, return-value]


def _equal(writer: Writer, node: Node, one: Any, other: Any) -> Node:
    real = REAL[torch.promote_types(*(_dtype(each) for each in (one, other)))]
    (a, b), (c, d) = (_parts_of(writer, each, real) for each in (one, other))
    equals = [_equal_parts(writer, x, y) for x, y in ((a, c), (b, d))]
    return writer.call(_aten.bitwise_and.Tensor, *equals)


def _unequal(writer: Writer, node: Node, one: Any, other: Any) -> Node:
    return writer.call(_aten.bitwise_not.default, _equal(writer, node, one, other))


def _equal_parts(writer: Writer, one: Any, other: Any) -> Node:
    one, other = (one, other) if isinstance(one, Node) else (other, one)
    if not isinstance(one, Node):
        raise NoRule
    return writer.call(_aten.eq.Tensor if isinstance(other, Node) else _aten.eq.Scalar, one, other)


def _dtype(operand: Any) -> torch.dtype:
    if isinstance(operand, Complex):
        return operand.halves[0].meta["val"].dtype.to_complex()
    value = operand.meta["val"] if isinstance(operand, Node) else None
    if isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_complex():
        return torch.bool  # promotes nothing of its kind
    return value.dtype if isinstance(value, torch.Tensor) else torch.bool


def _stacked(writer: Writer, node: Node, values: Sequence[Any], dim: int = 0) -> Complex:
    if not all(isinstance(value, Complex) for value in values):
        raise NoRule
    dim %= node.meta["val"].dim()
    made = tuple(
        writer.call(
            _aten.cat.default, [writer.call(_aten.unsqueeze.default, value.halves[part], dim) for value in values], dim
        )
        for part in (0, 1)
    )
    return writer.of_halves(node, lambda: made)  # type: ignore[arg-type, return-value]


def _fresh(writer: Writer, node: Node, value: Complex) -> Complex:
    made = tuple(writer.call(_aten.clone.default, half) for half in value.halves)
    return writer.of_halves(node, lambda: made)  # type: ignore[arg-type, return-value]


def _filled(
    writer: Writer, node: Node, sizes: Any, number: Any = 0.0, *, strides: Sequence[int] = (), **options: Any
) -> Complex:
    """``strides``: none for contiguous halves, else of a tensor without gaps, whose order in memory they take."""
    options["dtype"] = real_of(node)
    value = complex(number)
    order = sorted(range(len(strides)), key=lambda dim: (strides[dim], sizes[dim] != 1), reverse=True)
    ordered = [sizes[dim] for dim in order] if strides else sizes
    made = tuple(writer.call(_aten.full.default, ordered, part, **options) for part in (value.real, value.imag))
    if order != sorted(order):
        back = [order.index(dim) for dim in range(len(order))]
        made = tuple(writer.call(_aten.permute.default, half, back) for half in made)
    return writer.of_halves(node, lambda: made)  # type: ignore[arg-type, return-value]


def _not_filled(writer: Writer, node: Node, sizes: Any, order: Any = None, **options: Any) -> Complex:
    options.pop("memory_format", None)
    return _filled(writer, node, sizes, 0, **options)


def _overwritten(writer: Writer, node: Node, target: Node | Complex, source: Node | Complex) -> Node:
    """An input, at the graph's end."""
    if not isinstance(target, Complex) or not isinstance(source, Complex):
        raise NoRule
    return writer.call(_aten.copy_.default, target.pair, source.pair)


RULES: dict[Any, Callable[..., Node | Complex]] = {
    _aten.add.Tensor: _sum(_aten.add.Tensor),
    _aten.sub.Tensor: _sum(_aten.sub.Tensor),
    _aten.mul.Tensor: _product(_aten.mul.Tensor),
    _aten.add.Scalar: _sum(_aten.add.Tensor),
    _aten.sub.Scalar: _sum(_aten.sub.Tensor),
    _aten.mul.Scalar: _product(_aten.mul.Tensor),
    _aten.div.Scalar: _quotient,
    _aten.mm.default: _product(_aten.mm.default),
    _aten.bmm.default: _product(_aten.bmm.default),
    _aten.div.Tensor: _quotient,
    _aten._conj.default: _conjugate_view,
    _aten._conj_physical.default: _conjugate,
    _aten.conj_physical.default: _conjugate,
    _aten.abs.default: _size,
    _aten.angle.default: _angle,
    _aten.sgn.default: _sign,
    _aten.view_as_real.default: _pair,
    _aten.sym_size.int: _one_size,
    _aten.sym_numel.default: _count,
    _aten.view_as_complex.default: lambda writer, node, pair: writer.of_pair(pair),
    _aten.complex.default: _complex,
    _aten.polar.default: _polar,
    _aten.exp.default: _exponential,
    _aten._to_copy.default: _converted,
    _aten.full.default: _filled,
    _aten.zeros.default: _filled,
    _aten.empty.memory_format: _not_filled,
    _aten.empty_strided.default: _not_filled,
    _aten.empty_permuted.default: _not_filled,
    _aten.new_zeros.default: _filled_like(0),
    _aten.new_ones.default: _filled_like(1),
    _aten.new_full.default: _filled_like(None),
    _aten.new_empty.default: _filled_like(0),
    _aten.new_empty_strided.default: lambda writer, node, value, sizes, strides, **options: _filled_like(0)(
        writer, node, value, sizes, **options
    ),
    _aten.zeros_like.default: _filled_as(0),
    _aten.ones_like.default: _filled_as(1),
    _aten.full_like.default: _filled_as(None),
    _aten.empty_like.default: _filled_as(0),
    _aten.constant_pad_nd.default: _padded,
    _aten.eq.Tensor: _equal,
    _aten.eq.Scalar: _equal,
    _aten.ne.Tensor: _unequal,
    _aten.ne.Scalar: _unequal,
    _aten.stack.default: _stacked,
    _aten.lift_fresh_copy.default: _fresh,
    _aten.scalar_tensor.default: lambda writer, node, number, **options: _filled(writer, node, [], number, **options),
    _aten.copy_.default: _overwritten,
}
# Rules whose first argument is complex.
OF_COMPLEX = {_size, _one_size, _count, _angle, _pair, _sign, _exponential, _fresh, _padded}
