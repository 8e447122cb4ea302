"""Complex numbers as pairs of real ones, which a plan can hold.

A complex input arrives as ``view_as_real`` of it, a complex result leaves as ``view_as_complex`` of one. In between a value is its
real and its imaginary part, two tensors that fuse as any others do (``complex_rules.py``). An operator that has no rule gets complex
tensors made of the pairs, and runs in eager between compiled parts (``parts.py``).

Values that are views of one another stay so: a view of what is kept as a pair is a view of the pair. What eager conjugates only when it
is read is returned as that, and shares memory with what it is the conjugate of. So is the imaginary part of that, which eager negates
only when it is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx import Graph, GraphModule, Node
from torch.fx import node as fx_node

from zefuse.graphs import saved_strides
from zefuse.graphs.complex_rules import (
    EACH,
    OF_COMPLEX,
    OF_PAIRS,
    OF_VALUES,
    REAL,
    RULES,
    VIEWS,
    Complex,
    NoRule,
    cast,
    real_of,
)

_aten: Any = torch.ops.aten
map_arg: Any = fx_node.map_arg


class Pairs(NamedTuple):
    graph: GraphModule  # over real numbers
    taken: list[int]  # its inputs that are pairs
    given: list[int]  # its outputs that are
    conjugated: list[int]  # those of them that eager conjugates only when they are read
    negated: list[int]  # its real outputs that eager negates only when they are read

    @property
    def changes_ends(self) -> bool:
        """Callers hold other tensors than the graph over real numbers takes and gives."""
        return bool(self.taken or self.given or self.negated)


class ComplexEnds:
    """A compiled graph that takes and gives pairs, called with complex tensors. Thread-safe as the graph is."""

    _boxed_call = True

    def __init__(self, compiled: Any, pairs: Pairs) -> None:
        self._compiled = compiled
        self._taken = tuple(pairs.taken)
        self._given = tuple(pairs.given)
        self._conjugated = tuple(pairs.conjugated)
        self._negated = tuple(pairs.negated)
        for name in (
            "report",
            "counters",
            "time_steps",
            "step_times",
            "plan_json",
            "synchronize",
            "invalidate_weights",
            "free_idle_memory",
        ):
            setattr(self, name, getattr(compiled, name))

    def __call__(self, arguments: list[Any]) -> list[Any]:
        for at in self._taken:
            arguments[at] = torch.view_as_real(arguments[at].resolve_conj())
        results = list(self._compiled(arguments))
        for at in self._given:
            results[at] = _whole(results[at])
        for at in self._conjugated:
            torch._C._set_conj(results[at], True)
        for at in self._negated:
            torch._C._set_neg(results[at], True)
        return results


def _whole(pair: torch.Tensor) -> torch.Tensor:
    """``view_as_complex`` that autograd does not take for a view: AOTAutograd repeats the views behind a result on an input's memory,
    and the pair is no view that a complex input has."""
    sizes, strides = pair.shape[:-1], [stride // 2 for stride in pair.stride()[:-1]]
    made = torch.empty(0, dtype=pair.dtype.to_complex(), device=pair.device)
    return made.set_(pair.untyped_storage(), pair.storage_offset() // 2, sizes, strides)


def rewritten(gm: GraphModule) -> Pairs | None:
    """None: there are no complex numbers, or inputs that cannot be viewed as real ones."""
    inputs = gm.graph.find_nodes(op="placeholder")
    if not any(_has_complex(node.meta.get("val")) for node in gm.graph.nodes):
        return None
    mode = next(
        (value.fake_mode for node in gm.graph.nodes if isinstance(value := node.meta.get("val"), FakeTensor)), None
    )
    if mode is None:
        return None
    with mode:
        if not all(_is_viewable(value) for node in inputs if _is_complex(value := node.meta.get("val"))):
            return None
    if any(node.meta["val"].is_conj() for node in _written(gm) if _is_complex(node.meta["val"])):
        return None
    return _Rewriting(gm, mode).result()


def _written(gm: GraphModule) -> list[Node]:
    return [node.args[0] for node in gm.graph.find_nodes(op="call_function", target=_aten.copy_.default)]


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _has_complex(value: Any) -> bool:
    return any(map(_has_complex, value)) if isinstance(value, tuple | list) else _is_complex(value)


def _is_viewable(value: torch.Tensor) -> bool:
    if value.layout is not torch.strided or value.dtype not in REAL or value.is_nested or value.is_neg():
        return False
    # One that is conjugated where it is read is copied for the call, and may lie otherwise then.
    return not value.is_conj() or value.resolve_conj().stride() == value.stride()


class _Rewriting:
    def __init__(self, gm: GraphModule, mode: Any) -> None:
        self._gm = gm
        self._graph = Graph()
        self._values: dict[Node, Node | Complex] = {}
        self._positive: dict[Node, Node] = {}  # of what eager negates only when it is read, what lies in memory
        self._origin: Node  # the node that is being rewritten
        self._mode = mode
        # Memory that callers get to see: what shares it with a result stays where that is.
        self._returned = {_root(node) for node in gm.graph.output_node().all_input_nodes}

    def result(self) -> Pairs:
        for node in self._gm.graph.nodes:
            self._origin = node
            if node.op == "output":
                self._output(node)
            else:
                self._values[node] = self._rewrite(node)
        self._graph.eliminate_dead_code()
        inputs = self._gm.graph.find_nodes(op="placeholder")
        outputs = torch.utils._pytree.tree_leaves(self._gm.graph.output_node().args[0])
        taken = [at for at, node in enumerate(inputs) if _is_complex(node.meta.get("val"))]
        given = [at for at, out in enumerate(outputs) if isinstance(out, Node) and _is_complex(out.meta.get("val"))]
        conjugated = [at for at in given if self._is_stored(outputs[at])]
        negated = [at for at, out in enumerate(outputs) if isinstance(out, Node) and out in self._positive]
        return Pairs(GraphModule(self._gm, self._graph), taken, given, conjugated, negated)

    def _is_stored(self, node: Node) -> bool:
        value = self._values[node]
        return isinstance(value, Complex) and value.stored is not None

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A node of the new graph, with what it makes of fake tensors."""
        node = self._graph.call_function(target, args, kwargs)
        node.meta = {
            key: value for key, value in self._origin.meta.items() if key in ("stack_trace", "nn_module_stack")
        }
        values, keywords = map_arg((args, kwargs), lambda argument: argument.meta["val"])
        with self._mode:
            node.meta["val"] = target(*values, **keywords)
        return node

    def _rewrite(self, node: Node) -> Node | Complex:
        value = node.meta.get("val")
        if node.op == "placeholder":
            return self._given_pair(node) if _is_complex(value) else self._copied(node)
        if node.op == "get_attr":
            constant = getattr(self._gm, str(node.target), None)
            if isinstance(constant, torch.Tensor) and constant.is_complex():
                return self._constant_pair(node, constant)
            return self._copied(node)
        if not _has_complex(value) and not any(
            isinstance(self._values[each], Complex) for each in node.all_input_nodes
        ):
            if (negative := self._of_negative(node)) is not None:
                return negative
            part = self._part_of_one(node)
            return self._copied(node) if part is None else part
        try:
            if rule := RULES.get(node.target):
                if rule in OF_COMPLEX and not isinstance(self._values.get(node.args[0]), Complex):  # type: ignore[arg-type]
                    raise NoRule
                return rule(self, node, *self._arguments(node.args), **self._arguments(node.kwargs))
            if node.target in VIEWS or node.target in EACH or node.target is operator.getitem:
                return self._each(node)
        except NoRule:
            pass  # what it made by then is dead code
        return self._outside(node)

    def _of_negative(self, node: Node) -> Node | None:
        """``z.conj().imag`` is a view of ``z``, and so is each view of that; what reads it computes with what it is then."""
        source = node.args[0] if node.args else None
        held = self._values.get(source) if isinstance(source, Node) else None
        if not isinstance(held, Node):
            return None
        below = self._positive.get(source)  # type: ignore[arg-type]
        if node.target is _aten._neg_view.default:
            if below is not None:
                return below
            made = held
        elif below is not None and (node.target is operator.getitem or getattr(node.target, "is_view", False)):
            made = self.call(node.target, below, *self._arguments(node.args[1:]), **self._arguments(node.kwargs))
        else:
            return None
        self._positive[node] = made
        return self.call(_aten.neg.default, made) if isinstance(node.meta["val"], torch.Tensor) else made

    def _arguments(self, arguments: Any) -> Any:
        return map_arg(arguments, lambda argument: self._values[argument])

    def _copied(self, node: Node) -> Node:
        return self._graph.node_copy(node, lambda argument: self._as_before(self._values[argument]))

    def _as_before(self, value: Node | Complex) -> Node:
        return self.call(_aten.view_as_complex.default, value.pair) if isinstance(value, Complex) else value

    def _given_pair(self, node: Node) -> Complex:
        pair = self._graph.node_copy(node)
        with self._mode:
            pair.meta = {**node.meta, "val": torch.view_as_real(node.meta["val"].resolve_conj())}
        pair.meta.pop(saved_strides.STRIDES, None)
        return self.of_pair(pair)

    def _constant_pair(self, node: Node, constant: torch.Tensor) -> Complex:
        name = f"{node.target}_as_pair"
        with torch.no_grad(), unset_fake_temporarily():
            value = torch.view_as_real(constant.detach().resolve_neg().resolve_conj())
        self._gm.register_buffer(name, value)
        pair = self._graph.get_attr(name)
        pair.meta = dict(node.meta)
        with self._mode:
            pair.meta["val"] = self._mode.from_tensor(value, static_shapes=True)
        return self.of_pair(pair)

    def _part_of_one(self, node: Node) -> Node | None:
        """``z.real`` is a selected half of ``view_as_real(z)``. Where neither leaves the graph, the pair is not made for it."""
        source = node.args[0] if node.target is _aten.select.int else None
        if (
            not isinstance(source, Node)
            or source.target is not _aten.view_as_real.default
            or _root(source) in self._returned
        ):
            return None
        dim, index = node.args[1:3]
        if dim not in (-1, source.meta["val"].dim() - 1):
            return None
        value = self._values[source.args[0]]  # type: ignore[index]
        return value.halves[index] if isinstance(value, Complex) else None  # type: ignore[index]

    def _outside(self, node: Node) -> Node | Complex:
        """The operator as it is, on complex tensors."""
        made = self._copied(node)
        if not _has_complex(node.meta.get("val")):
            return made
        if not _is_complex(node.meta["val"]):
            return made  # several: each is taken by itself
        return self._of_tensor(made)

    def _of_tensor(self, made: Node) -> Complex:
        value = made.meta["val"]
        if value.is_conj():
            made = self.call(_aten.resolve_conj.default, made)
        return self.of_pair(self.call(_aten.view_as_real.default, made))

    def _each(self, node: Node) -> Node | Complex:
        """The same operator on both parts. Of a view, on the pair as well."""
        source = node.args[0]
        if node.target is operator.getitem and isinstance(source, Node) and isinstance(self._values[source], Node):
            made = self._copied(node)
            return self._of_tensor(made) if _is_complex(node.meta["val"]) else made
        if any(isinstance(value, torch.dtype) for value in (*node.args, *node.kwargs.values())):
            raise NoRule
        real = None if node.target in VIEWS or node.target is operator.getitem else real_of(node)
        holders = OF_VALUES.get(node.target, (0,))

        def of_part(part: int) -> Node:
            def take(argument: Node, is_value: bool) -> Node:
                value = self._values[argument]
                taken = value.halves[part] if isinstance(value, Complex) else value
                if real is None or not is_value:
                    return taken
                if part == 1 and isinstance(value, Node):  # a real number's
                    return self.call(_aten.zeros_like.default, value, dtype=real)
                return cast(self, taken, real)

            def make() -> Node:
                values, others = (lambda argument: take(argument, True)), (lambda argument: take(argument, False))
                arguments = [map_arg(each, values if at in holders else others) for at, each in enumerate(node.args)]
                return self.call(node.target, *arguments, **map_arg(node.kwargs, others))

            return self._with_origin(node, make)

        def halves() -> tuple[Node, Node]:
            return of_part(0), of_part(1)

        if node.target not in VIEWS and node.target is not operator.getitem:
            value = self.of_halves(node, halves)
            _ = value.halves  # raises what it cannot do here, not later
            return value

        def view_of(whole: Node) -> Node:
            rest = map_arg(node.args[1:], lambda argument: self._values[argument])
            args = rest if node.target is operator.getitem else VIEWS[node.target](source.meta["val"].dim(), *rest)  # type: ignore[union-attr]
            keywords = map_arg(node.kwargs, lambda argument: self._values[argument])
            target = OF_PAIRS.get(node.target, node.target)
            return self._with_origin(node, lambda: self.call(target, whole, *args, **keywords))

        whole: Any = self._values[source]  # type: ignore[index]
        stored = whole.stored
        return Complex(lambda: view_of(whole.pair), halves, stored and (lambda: view_of(stored())))

    def _with_origin(self, node: Node, make: Callable[[], Node]) -> Node:
        before, self._origin = self._origin, node
        try:
            return make()
        finally:
            self._origin = before

    def of_halves(self, node: Node, halves: Callable[[], tuple[Node, Node]]) -> Complex:
        """A value of its own memory: as a pair, its parts are put side by side, in the strides that eager's has."""

        def pair() -> Node:
            parts = [self.call(_aten.unsqueeze.default, half, -1) for half in value.halves]
            made = self.call(_aten.cat.default, parts, -1)
            with self._mode:
                made.meta["val"] = torch.view_as_real(node.meta["val"].resolve_conj())
            return made

        value = Complex(pair, halves)
        return value

    def of_pair(self, pair: Node) -> Complex:
        return Complex(
            lambda: pair,
            lambda: (self.call(_aten.select.int, pair, -1, 0), self.call(_aten.select.int, pair, -1, 1)),
        )

    def _output(self, node: Node) -> None:
        def result(each: Node) -> Node:
            if each in self._positive:
                return self._positive[each]
            value = self._values[each]
            if not isinstance(value, Complex):
                return value
            return value.pair if value.stored is None else value.stored()

        results = map_arg(node.args[0], result)
        made = self._graph.output(results)
        # Nobody reports how what is saved for backward lies.
        made.meta = {key: value for key, value in node.meta.items() if key != saved_strides.ANY_STRIDES}


def _root(node: Node) -> Node:
    """Of which the node is a view."""
    while isinstance(target := node.target, torch._ops.OpOverload) or target is operator.getitem:
        if target is not operator.getitem and not target.is_view:  # type: ignore[union-attr]
            break
        node = node.args[0]  # type: ignore[assignment]
    return node
