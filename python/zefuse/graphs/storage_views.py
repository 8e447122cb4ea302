"""What counts from the start of an input's storage: ``as_strided``, of the user or of AOTAutograd for inputs that share memory.

Dynamo guards an input's sizes and strides, but not where in its storage it begins, and a functional graph sees of an input only
what the tensor itself covers, each element by itself. So a graph with such views serves the offsets it was traced with, and what it
cannot express runs in eager."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from zefuse.errors import UnsupportedError
from zefuse.graphs import output_aliases
from zefuse.installing import torch_versions

_aten = torch.ops.aten
_SCATTERS = {
    _aten.select_scatter.default,
    _aten.slice_scatter.default,
    _aten.diagonal_scatter.default,
    _aten.as_strided_scatter.default,
}
_VIEWS = {_aten.as_strided.default, _aten.as_strided_copy.default, _aten.as_strided_scatter.default}


def own_bits(gm: torch.fx.GraphModule) -> None:
    """In place: what the graph made, seen as another dtype, is a copy of its bits. ATen gives the memory of what it is given, and in a
    plan that may be an input's, of which the graph made a copy (``x.clone().view(torch.int32)``): copies are values there. Tensors that
    share memory in eager are made outside of the graph (AOTAutograd)."""
    for node in gm.graph.find_nodes(op="call_function", target=_aten.view.dtype):
        source = node.args[0]
        if source.meta["val"].dtype == node.meta["val"].dtype:
            continue
        while output_aliases.is_view(source):
            source = source.args[0]
        if source.op == "call_function" and not _counts_from_its_storage(node):
            node.target = _aten.view_copy.dtype


def _counts_from_its_storage(node: torch.fx.Node) -> bool:
    """Whether ``as_strided`` reads it, or a view of it: what lies around it counts then."""
    return any(
        user.target in _VIEWS or (output_aliases.is_view(user) and _counts_from_its_storage(user))
        for user in node.users
    )


class OutsideOfInput(UnsupportedError):
    """A graph changes or returns memory of an input's storage that the input itself does not cover."""


class StorageViews:
    """Of one Dynamo graph. ``look`` at each functional graph that becomes of it; ``guard`` then what was compiled."""

    def __init__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self._eager = gm
        self._examples = example_inputs
        self._counts_from_storage = False
        self._reach = 0  # bytes of a storage that such views reach

    def why_eager(self) -> str | None:
        """AOTAutograd makes one tensor of inputs that share memory, and forgets which of them was a lazy negative."""
        storages: dict[int, int] = {}
        tensors = [each for each in self._examples if _is_strided(each)]
        for each in tensors:
            key = each.untyped_storage()._cdata
            storages[key] = storages.get(key, 0) + 1
        for each in tensors:
            if _is_lazy(each) and storages[each.untyped_storage()._cdata] > 1:
                return "an input with the negative or conjugate bit shares memory with another input"
        return None

    def look(self, gm: torch.fx.GraphModule) -> None:
        """Raises OutsideOfInput."""
        if torch_versions.returns_the_base_of_an_input() and output_aliases.is_base_returned(len(self._examples)):
            raise OutsideOfInput("an input that shares memory with another is returned, which this torch does wrong")
        if any(
            _is_strided(each) and output_aliases.may_overlap(each) for each in output_aliases.written(self._examples)
        ):
            # Functional operators change one element; here that would be several.
            raise OutsideOfInput("an input is written whose elements share memory (an expanded one, windows)")
        written = [each for each in output_aliases.written(self._examples) if _is_strided(each)]
        for node in gm.graph.nodes:
            if node.target in _SCATTERS and _is_made_of_windows(node.args[0].meta["val"]):
                raise OutsideOfInput("elements are written that share memory with others of the same tensor (windows)")
            if node.target is _aten.as_strided_scatter.default and _overlap(node.args[2], node.args[3]):
                raise OutsideOfInput(
                    "elements are written that share memory with others of the same tensor (as_strided)"
                )
            if node.op != "call_function" or node.target not in _VIEWS:
                continue
            chain = _chain(node.args[0])
            # Such elements are computed before the plan reads them, and not what lies around them.
            if any(_is_lazy(each.meta["val"]) for each in chain if isinstance(each.meta["val"], torch.Tensor)):
                raise OutsideOfInput("as_strided of what has the negative or conjugate bit")
            behind = chain[-1]
            if behind.op != "placeholder":
                if behind.target in _SCATTERS and not _is_dense(behind.meta["val"]):  # eager copies the gaps as well
                    raise OutsideOfInput("as_strided reads between the elements of a copy with gaps")
                if any(_may_be_written_with(each, behind.meta["val"]) for each in written):
                    raise OutsideOfInput("as_strided reads what is written into an input")
                continue
            self._counts_from_storage = True
            self._reach = max(self._reach, _reach(node))
            if node.target is _aten.as_strided_scatter.default:
                value = behind.meta["val"]
                if _leaves(node, value):  # torch up to 2.13 notices this itself, while it traces
                    raise OutsideOfInput("as_strided changes memory around an input, not only the input")
                counted = len(node.args) > 4 and node.args[4] is not None
                offset = value.storage_offset()
                if not _is_dense(value) or (counted and not (isinstance(offset, int) and offset == 0)):
                    raise OutsideOfInput("as_strided changes memory around an input, not only the input")
        outputs = gm.graph.output_node().args[0]
        for number in output_aliases.numbers() if self._counts_from_storage else ():
            if _is_returned_with_symbols(outputs[number]):  # type: ignore[index]
                raise OutsideOfInput("as_strided of an input is returned with sizes that vary")

    def guard(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Where a graph counts from a storage's start, calls with inputs at other offsets run in eager, and with storages that end before
        what it reads, where eager raises."""
        if not self._counts_from_storage:
            return compiled
        # A symbolic offset is an input of the graph, and guarded.
        traced = [
            (at, offset)
            for at, each in enumerate(self._examples)
            if _is_strided(each) and isinstance(offset := each.storage_offset(), int)
        ]
        reach, eager = self._reach, self._eager
        long = [at for at, each in enumerate(self._examples) if _is_strided(each) and _storage_bytes(each) >= reach]

        def run(*args: Any) -> Any:
            for at, offset in traced:
                if args[at].storage_offset() != offset:
                    return eager(*args)
            for at in long:
                if args[at].untyped_storage().nbytes() < reach:
                    return eager(*args)
            return compiled(*args)

        return run


def refused_write(error: RuntimeError | AssertionError, gm: torch.fx.GraphModule) -> str | None:
    """Why torch did not make a write functional: one through as_strided (or before it, where that leaves the input), into a part of an
    expanded tensor or of windows, into one of several inputs that share memory and of which none is another's view to autograd (what
    one graph returns and the next one takes). None: the error is of something else."""
    text = str(error)
    if "size_bytes_is_heap_allocated_" in text:
        return "an input is written that shares memory of a size that varies with an input that is no view of it"
    refused = (
        "more than one element of the written-to tensor" in text
        or "a tensor being mutated that has internal overlap" in text
        or "does not yet handle non-differentiable view input mutations" in text
        or (("as_strided" in text or "setStorage" in text) and _takes_storage_views(gm))
    )
    return text.splitlines()[0] if refused else None


def _takes_storage_views(gm: torch.fx.GraphModule) -> bool:
    """Whether the user's own code calls as_strided."""
    names = ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter")
    return any(
        (node.op == "call_method" and node.target in names)
        or (node.op == "call_function" and any(name in str(node.target) for name in names[:1]))
        for node in gm.graph.nodes
    )


def _is_lazy(value: torch.Tensor) -> bool:
    """Whether its memory holds other numbers than its elements."""
    return value.is_neg() or value.is_conj()


def _is_made_of_windows(value: torch.Tensor) -> bool:
    """Whether elements share memory and torch's scatters keep it so; they copy what is expanded."""
    expanded = any(isinstance(n, int) and n == 0 for n in value.stride())
    return not expanded and output_aliases.may_overlap(value)


def _overlap(sizes: Any, strides: Any) -> bool:
    """Of a view by as_strided: what is written into a part of it is not found in all that lies there."""
    numbers = [[n.meta["val"] if isinstance(n, torch.fx.Node) else n for n in each] for each in (sizes, strides)]
    return output_aliases.lie_in_one_place(*numbers)


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _chain(node: Any) -> list[torch.fx.Node]:
    """A value, what it is a view of, and so on to the tensor whose memory it lies in; as_strided_scatter's result stands for its
    argument's."""
    chain = [node]
    while node.target is _aten.as_strided_scatter.default or output_aliases.is_view(node):
        node = node.args[0]
        chain.append(node)
    return chain


def _reach(view: torch.fx.Node) -> int:
    """How many bytes of a storage a view by as_strided reaches; 0 where symbols say."""
    args: Any = view.args
    sizes, strides, *rest = args[2 if view.target is _aten.as_strided_scatter.default else 1 :]
    value = args[0].meta["val"]
    start = rest[0] if rest and rest[0] is not None else value.storage_offset()
    if not all(isinstance(number, int) for number in (start, *sizes, *strides)) or 0 in sizes:
        return 0
    last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return int(last + 1) * int(value.itemsize)


def _storage_bytes(example: torch.Tensor) -> int:
    """Of one that was traced; without a guard."""
    size = example.untyped_storage().nbytes()
    hint = size if isinstance(size, int) else size.node.hint
    return sys.maxsize if hint is None else int(hint)


def _is_returned_with_symbols(output: Any) -> bool:
    """Whether a view of an input is one by as_strided and has symbolic sizes, strides or offset. AOTAutograd repeats the views of
    other outputs; of these it asks the result where in the input's storage it begins, and a plan, which has no address around
    its inputs, makes a copy."""
    by_as_strided = symbolic = False
    while isinstance(output, torch.fx.Node) and output_aliases.is_view(output):
        by_as_strided |= output.target is _aten.as_strided.default
        value = output.meta["val"]
        symbolic |= isinstance(value, torch.Tensor) and any(
            not isinstance(number, int) for number in (*value.shape, *value.stride(), value.storage_offset())
        )
        output = output.args[0]
    return by_as_strided and symbolic


def _leaves(scatter: torch.fx.Node, whole: torch.Tensor) -> bool:
    """Whether as_strided_scatter into ``whole`` goes beyond it. Sizes that are symbols become guards."""
    seen, sizes, strides = scatter.args[0].meta["val"], scatter.args[2], scatter.args[3]  # type: ignore[union-attr]
    start = scatter.args[4] if len(scatter.args) > 4 and scatter.args[4] is not None else seen.storage_offset()
    value = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in (start, *sizes, *strides)]  # type: ignore[misc]
    start, sizes, strides = value[0], value[1 : 1 + len(sizes)], value[1 + len(sizes) :]  # type: ignore[arg-type]
    if any(size == 0 for size in sizes):
        return False

    def last(begin: Any, lengths: Any, steps: Any) -> Any:
        return begin + sum((length - 1) * step for length, step in zip(lengths, steps, strict=True))

    if whole.numel() == 0:
        return True
    first = whole.storage_offset()
    return bool(start < first) or bool(last(start, sizes, strides) > last(first, whole.shape, whole.stride()))


def _may_be_written_with(input: torch.Tensor, value: torch.Tensor) -> bool:
    """A functional graph tells only what an input holds at last. Such a value may lie otherwise than the input, which may be a part of
    its storage."""
    return input.dim() == value.dim() and input.dtype == value.dtype


def _is_dense(value: torch.Tensor) -> bool:
    return bool(torch._prims_common.is_non_overlapping_and_dense_or_false(value))
