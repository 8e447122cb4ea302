"""Outputs that AOTAutograd rebuilds as views of an input, and where the view begins.

Functionalisation returns such an output as a view of the value that the input is overwritten with, whose memory is another. Where
the view was taken with symbolic sizes, AOTAutograd rebuilds it by ``as_strided`` with the storage offset of the tensor that the
graph returned at run time (``gen_alias_from_base``), which says where in the *input's* storage it begins. So such an output is a
real view of the input, and the importer is told which outputs they are: ``y = x + 1; x.copy_(y); return y`` looks alike and is none.

The gradient of ``as_strided`` shares out what belongs to elements that lie in one place, while that of the views themselves does
not. So outputs that are views of an input whose elements overlap (an expanded one, windows) are made by the views: of a result that
is a view of the input AOTAutograd repeats the views.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch._guards import TracingContext
from torch.fx.experimental.symbolic_shapes import free_symbols

_copy = torch.ops.aten.copy_.default
ALIASES = "zefuse_aliases"  # of a graph's output node: the numbers of outputs


def types() -> dict[int, OutputType] | None:
    """What AOTAutograd takes the function's results for, by their numbers among the outputs of the forward or inference graph that is
    being compiled; of no graph of AOTAutograd's: empty. None: nobody can tell."""
    metadata = _metadata()
    if metadata is None:
        return {}
    if not all(isinstance(meta, PlainTensorMeta) for meta in metadata.subclass_fw_graph_out_meta):
        return None  # a subclass's tensors are several outputs each
    return {_first(metadata) + number: info.output_type for number, info in enumerate(metadata.output_info)}


def _metadata() -> Any:
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


def _first(metadata: Any) -> int:
    """The number of the function's first result; before it come tokens, of operators with effects, and what inputs become."""
    return len(metadata.tokens) + int(metadata.num_mutated_inp_runtime_indices)


def numbers() -> list[int]:
    """Of the outputs of the forward or inference graph that is being compiled."""
    return [number for number, each in (types() or {}).items() if each == OutputType.alias_of_input]


def behind(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """It, what it is a view of, and so on."""
    yield node
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
        yield node


def is_view(node: torch.fx.Node) -> bool:
    """Also of what is one of several (``unbind``, ``split``): those follow it in ``behind``."""
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def has_symbols(value: torch.Tensor) -> bool:
    """Whether its sizes, strides or place in its storage vary."""
    where = (*value.stride(), value.storage_offset()) if value.layout is torch.strided else ()
    return bool(free_symbols([number for number in (*value.shape, *where) if isinstance(number, torch.SymInt)]))


def is_base_returned(inputs: int) -> bool:
    """Whether an input is returned of a graph of which AOTAutograd made one with fewer inputs, since some share memory."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None or len(context.fw_metadata.input_info) >= inputs:
        return False
    return any(info.output_type == OutputType.is_input for info in context.fw_metadata.output_info)


def written(inputs: Sequence[Any]) -> list[Any]:
    """Which of the inputs the graph that is being compiled writes; all of them where AOTAutograd made one of several."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return []
    infos = context.fw_metadata.input_info
    numbers = [number for number, info in enumerate(infos) if info.mutates_data]
    if len(infos) != len(inputs):
        return list(inputs) if numbers else []
    return [inputs[number] for number in numbers]


def note(gm: torch.fx.GraphModule) -> None:
    """Marks the outputs of ``gm``, a forward or inference graph that is being compiled."""
    if aliases := numbers():
        gm.graph.output_node().meta[ALIASES] = aliases


def apart(compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``compiled``, whose outputs are no input's own tensor where an input's sizes change (``x.t_()``): AOTAutograd changes them after
    the call, and the sizes of an output that is all of the input (``x.t().t()``) with them."""
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return compiled
    if not any(info.mutates_metadata for info in context.fw_metadata.input_info):
        return compiled

    def run(args: list[Any]) -> Any:
        inputs = {id(arg): arg for arg in args if isinstance(arg, torch.Tensor)}  # which the call takes out of its list
        return [each.view_as(each) if id(each) in inputs else each for each in compiled(args)]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def by_views(gm: torch.fx.GraphModule, kind: str, compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``compiled``, a forward or inference graph, with views of the inputs themselves for the outputs that are views of inputs whose
    elements overlap (of a forward graph), and of written inputs of symbolic sizes: of ``x.mul_(2).chunk(2)[1]`` the graph returns
    a view of the product, whose place and strides AOTAutograd would take for the input's."""
    outputs: Any = gm.graph.output_node().args[0]
    bases = _bases(gm)
    overlapping = {at for at in bases if kind == "forward" and _views_an_overlapping_input(outputs[at])}
    written = {at for at in bases.keys() - overlapping if _views_what_is_written(gm, outputs[at], bases[at])}
    if not overlapping and not written:
        return compiled
    graph, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    graph.graph_copy(gm.graph, copies)
    chosen = {at: copies[outputs[at]] for at in overlapping}
    for at in written:
        *_, root = behind(outputs[at])
        chosen[at] = _again(outputs[at], graph, copies | {root: copies[bases[at]]})
    graph.output(tuple(chosen.values()))
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))  # writes too: `compiled` does them
    views = torch.fx.GraphModule(gm, graph)

    def run(args: list[Any]) -> Any:
        made = views(*args)
        results = list(compiled(args))
        for number, view in zip(chosen, made, strict=True):
            results[number] = view
        return results

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _bases(gm: torch.fx.GraphModule) -> dict[int, torch.fx.Node]:
    """Of which inputs those outputs are views."""
    if not (chosen := numbers()):
        return {}
    metadata = _metadata()
    inputs = gm.graph.find_nodes(op="placeholder")[len(metadata.tokens) :]
    return {number: inputs[metadata.output_info[number - _first(metadata)].base_idx] for number in chosen}


def _views_what_is_written(gm: torch.fx.GraphModule, node: Any, base: torch.fx.Node) -> bool:
    """Whether it varies and is a view of what ``base`` is overwritten with: here or, where that is an output, by AOTAutograd after the
    call."""
    if not isinstance(node, torch.fx.Node) or not isinstance(value := node.meta.get("val"), torch.Tensor):
        return False
    if not has_symbols(value):
        return False
    *_, root = behind(node)
    if any(each.args[:2] == (base, root) for each in gm.graph.find_nodes(op="call_function", target=_copy)):
        return True
    metadata = _metadata()
    inputs = gm.graph.find_nodes(op="placeholder")[len(metadata.tokens) :]
    outputs: Any = gm.graph.output_node().args[0]
    return any(
        inputs[at] is base and outputs[len(metadata.tokens) + number] is root
        for number, at in enumerate(metadata.mutated_inp_runtime_indices)
    )


def _again(node: torch.fx.Node, graph: torch.fx.Graph, copies: dict[Any, torch.fx.Node]) -> torch.fx.Node:
    """The views up to ``node``, of the copy of their root. ``copies``: of its root, and of all sizes."""
    if not is_view(node):
        return copies[node]
    source = _again(node.args[0], graph, copies)  # type: ignore[arg-type]
    return graph.node_copy(node, lambda argument: source if argument is node.args[0] else copies[argument])


def _views_an_overlapping_input(node: Any) -> bool:
    if not isinstance(node, torch.fx.Node):
        return False
    *_, root = behind(node)
    return root.op == "placeholder" and may_overlap(root.meta["val"])


def may_overlap(tensor: torch.Tensor) -> bool:
    """Of the sizes that it is compiled for: whether elements lie in one place cannot change without its strides."""
    return lie_in_one_place(tensor.shape, tensor.stride())


def lie_in_one_place(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether several elements may; symbols count as what they are compiled for."""

    def number(size: Any) -> int | None:
        return size if isinstance(size, int) else size.node.hint

    sizes, strides = [number(n) for n in sizes], [number(n) for n in strides]
    if None in sizes or None in strides:
        return True
    reach = 0
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
