"""Results that share memory in eager, where a plan would lay them otherwise: a call returns what they are views of, and the views are
made of that by eager's own operators.

A plan gives results that are views of one value one piece of memory, where it can tell how eager's lie in it
(``compiler/fuse/prepare.cpp``). It can for most whose sizes are numbers, and then costs nothing. It often cannot for sizes that are
symbols, nor for complex values, which are pairs there, for another dtype's view, whose bits are copied, and for some that cost nothing
and are made again for each reader (padding by less than nothing).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from zefuse import _native
from zefuse.graphs import output_aliases

_aten = torch.ops.aten


class Replay(NamedTuple):
    graph: GraphModule  # to be compiled
    views: GraphModule  # of the results at `given`
    given: list[int]
    made: list[int]  # which results its own are
    results: int  # that the caller gets, the first ones


class Replayed:
    """A compiled graph that gives None where a view is made of its results, and what the views are made of behind its results. Called
    as a compiled graph is. Thread-safe as the graph is. All else is the graph's own."""

    _boxed_call = True

    def __init__(self, compiled: Callable[[list[Any]], Any], replay: Replay) -> None:
        self._compiled, self._replay = compiled, replay

    def __call__(self, arguments: list[Any]) -> list[Any]:
        results = list(self._compiled(arguments))
        _, views, given, made, count = self._replay
        for at, view in zip(made, views(*[results[at] for at in given]), strict=True):
            results[at] = view
        return results[:count]

    def __getattr__(self, name: str) -> Any:
        if name == "save_in_block":  # results at other places (saved_block.py)
            raise AttributeError(name)
        return getattr(self._compiled, name)


def foreseen(gm: GraphModule, kind: str) -> Replay | None:
    """``taken`` of a graph whose plan may not be told how they lie. None: it has none, or there is ``lie_apart`` to ask."""
    if not any(True for _ in _groups(gm.graph.output_node().args[0], kind)):  # type: ignore[arg-type]
        return None
    hard = any(
        value.is_complex() or node.target is _aten.view.dtype or output_aliases.has_symbols(value)
        for node in gm.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
    )
    return taken(gm, kind) if hard else None


def lie_apart(gm: GraphModule, kind: str, compiled: Any) -> bool:
    """Whether results of ``compiled``, a plan of ``gm`` without symbols, lie otherwise in each other's memory than eager's do."""
    outputs: list[Any] = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    groups = list(_groups(outputs, kind))
    if not groups or not isinstance(compiled, _native.load().CompiledGraph):
        return False
    plan = json.loads(compiled.plan_json())
    numbers = [expression["value"] for expression in plan["exprs"]]
    places: dict[Any, tuple[int, int]] = {}
    for node, output in zip(outputs, plan["outputs"], strict=True):
        if any(node in nodes for _, nodes in groups):
            value = plan["values"][output.get("value", 0)]  # what is 0 is left out
            places[node] = value.get("buffer", 0), numbers[value.get("offset", 0)]
    for _, nodes in groups:
        some = [(*places[node], node.meta["val"]) for node in nodes]
        ours = {(buffer, offset - int(val.storage_offset())) for buffer, offset, val in some if val.numel()}
        if len(ours) > 1:
            return True
    return False


def taken(gm: GraphModule, kind: str) -> Replay | None:
    """``gm``, an inference or forward graph, that returns what such results are views of. None: it has none."""
    before: list[Any] = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    chosen = [views for views in _groups(before, kind) if _Replayer.can(views)]
    if not chosen:
        return None
    graph, copies = Graph(), dict[Any, Node]()
    graph.graph_copy(gm.graph, copies)
    for original, copy in copies.items():
        copy.meta = dict(original.meta)
    replayer = _Replayer()
    for root, nodes in chosen:
        replayer.returned(root)
        for node in nodes:
            replayer.view(node)
    of_caller = before[: _returned(before, kind)]
    made = [
        at for at, node in enumerate(of_caller) if any(node in nodes and node is not root for root, nodes in chosen)
    ]
    views = replayer.finish([before[at] for at in made])
    after = [None if at in made else node for at, node in enumerate(before)]
    after += [node for node in replayer.given if node not in after]
    graph.output(tuple(copies.get(node, node) for node in after)).meta = dict(gm.graph.output_node().meta)
    graph.eliminate_dead_code()
    given = [after.index(node) for node in replayer.given]
    return Replay(GraphModule(gm, graph), GraphModule({}, views), given, made, len(before))


_Views = tuple[Node, set[Node]]


def _groups(outputs: Sequence[Any], kind: str) -> Iterator[_Views]:
    """Each value that the graph makes and of which several results are views (or it itself), and those. Not those of an input's memory
    (``output_aliases.py``), nor where AOTAutograd makes all of them, of a result that it keeps (gradients flow through such views)."""
    groups: dict[Node, set[Node]] = {}
    plain: set[Node] = set()
    types = output_aliases.types()
    if types is None:
        return iter(())
    of_inputs = {outputs[at] for at, each in types.items() if each in (OutputType.alias_of_input, OutputType.is_input)}
    for at, node in enumerate(outputs[: _returned(outputs, kind)]):
        if isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor) and node not in of_inputs:
            *_, root = output_aliases.behind(node)
            if root.op == "call_function" and _storage(root) == _storage(node):
                groups.setdefault(root, set()).add(node)
                if node is not root and types.get(at, OutputType.non_alias) in _PLAIN:
                    plain.add(node)
    return ((root, nodes) for root, nodes in groups.items() if len(nodes) > 1 and nodes & plain)


def _returned(outputs: Sequence[Any], kind: str) -> int:
    """How many of the outputs callers get; behind those of a forward graph is what it saves for its backward."""
    if kind != "forward":
        return len(outputs)
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return 0
    return len(context.fw_metadata.tokens) + context.fw_metadata.num_forward_returns


_PLAIN = (OutputType.non_alias, OutputType.unsafe_view_alias)


def _storage(node: Node) -> Any:
    value = node.meta["val"]
    return value.untyped_storage()._cdata if value.layout is torch.strided else node


class _Replayer:
    """Copies views into a graph that takes what they are made of: the values and their sizes that are symbols."""

    def __init__(self) -> None:
        self.given: list[Node] = []
        self._graph = Graph()
        self._copies: dict[Node, Node] = {}

    @staticmethod
    def can(views: _Views) -> bool:
        root, nodes = views
        steps = {step for node in nodes for step in output_aliases.behind(node)} - {root}
        others = {each for step in steps for each in step.all_input_nodes} - steps - {root}
        return all(
            isinstance(size := each.meta.get("val"), torch.SymInt) and not free_unbacked_symbols(size)
            for each in others
        )

    def returned(self, node: Node) -> Node:
        if node not in self._copies:
            self.given.append(node)
            self._copies[node] = self._graph.placeholder(f"given_{len(self.given)}")
        return self._copies[node]

    def view(self, node: Node) -> Node:
        if node not in self._copies:
            source, *others = node.all_input_nodes
            self.view(source)
            for each in others:
                self.returned(each)
            copy = self._graph.node_copy(node, lambda argument: self._copies[argument])
            if node.target is _aten.as_strided.default and len(node.args) > 3 and node.args[3] is not None:
                # It counts from where the storage begins, and there what it views begins in eager.
                *_, root = output_aliases.behind(node)
                with self._graph.inserting_before(copy):
                    begin = self._graph.call_method("storage_offset", (self._copies[root],))
                    begin = self._graph.call_function(operator.add, (begin, copy.args[3]))
                copy.args = (*copy.args[:3], begin)
            self._copies[node] = copy
        return self._copies[node]

    def finish(self, made: Sequence[Node]) -> Graph:
        # Placeholders come first.
        graph, copies = Graph(), dict[Node, Node]()
        for node in sorted(self._graph.nodes, key=lambda node: node.op != "placeholder"):
            copies[node] = graph.node_copy(node, lambda argument: copies[argument])
        graph.output(tuple(copies[self._copies[node]] for node in made))
        return graph
