"""Finds the operator at which a compiled graph departs from eager, and writes a program that shows it.

The graphs that Dynamo hands over are kept with what they are called with. Of the first whose results differ, beginnings are
compiled again: an operator is the first that differs where the graph that ends with it is wrong and the one that ends before
it is right. Then the fewest operators before it that still show the difference are looked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from zefuse import backend
from zefuse.checking import comparing
from zefuse.checking.modes import Mode
from zefuse.checking.report import Culprit
from zefuse.checking.running import Outcome
from zefuse.explaining.explanation import Explanation
from zefuse.explaining.report_words import operators
from zefuse.graphs import observers
from zefuse.options import Options

_MOST_EMBEDDED = 64  # elements of a tensor that a reproducer holds as text; larger ones are in a file beside it


@dataclass
class _Kept:
    """A graph and the inputs of its first call."""

    graph: fx.GraphModule
    inputs: list[Any]


def find(
    call: Callable[[], None], mode: Mode, options: Options, tolerance: float | None, folder: str | None
) -> Culprit | str:
    """``call`` compiles and runs the model. A sentence where the difference is not in a graph."""
    kept = _graphs_of(call)
    for each in kept:
        search = _Search(each, options, mode, tolerance)
        culprit = search.culprit(folder)
        if culprit is not None:
            return culprit
    return (
        "No compiled graph differs from eager by itself: the difference comes from what is between graphs (Dynamo, AOTAutograd, "
        'state kept between calls). torch.compile(model, backend="aot_eager") shows whether it is there without zefuse.'
    )


def _graphs_of(call: Callable[[], None]) -> list[_Kept]:
    kept: list[_Kept] = []

    def keep(kind: str, compiled: Any, graph: fx.GraphModule) -> Callable[[list[Any]], Any]:
        copy = fx.GraphModule(graph, _copied(graph))

        def run(inputs: list[Any]) -> Any:
            if all(each.graph is not copy for each in kept):
                kept.append(_Kept(copy, [_own(value) for value in inputs]))
            return compiled(inputs)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    token = observers.recorder.set(keep)
    try:
        call()
    finally:
        observers.recorder.reset(token)
    return kept


def _copied(graph: fx.GraphModule) -> fx.Graph:
    copy = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    output = copy.graph_copy(graph.graph, made)
    copy.output(output)
    for node, twin in made.items():
        twin.meta = dict(node.meta)
    return copy


def _own(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


class _Search:
    def __init__(self, kept: _Kept, options: Options, mode: Mode, tolerance: float | None) -> None:
        self._graph, self._inputs = kept.graph, kept.inputs
        self._options, self._tolerance = options, tolerance
        self._mode = mode.name
        self._computed_in = torch.bfloat16 if mode.bf16 else None
        self._values = self._run_in_eager()
        # Without copies into inputs, which come last: each beginning is a function.
        self._operators = [
            node
            for node in self._graph.graph.nodes
            if node.op == "call_function" and node.target is not torch.ops.aten.copy_.default
        ]

    def culprit(self, folder: str | None) -> Culprit | None:
        if not self._operators or not self._wrong(self._operators):
            return None
        right, wrong = 0, len(self._operators)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self._wrong(self._operators[:middle]):
                wrong = middle
            else:
                right = middle
        operator = self._operators[wrong - 1]
        members = self._fewest(self._operators[:wrong])
        graph, inputs = self._cut(members, [operator])
        explanation = self._explained(graph)
        culprit = Culprit(
            mode=self._mode,
            operator=str(operator.target),
            source=_source(operator),
            kernel=_kernel(explanation),
            alone=len(members) == 1,
            operators=len(members),
        )
        if folder is not None:
            culprit.reproducer = _write(folder, graph, [self._values[node] for node in inputs], self._options)
        return culprit

    def _run_in_eager(self) -> dict[fx.Node, Any]:
        values: dict[fx.Node, Any] = {}

        class Kept(fx.Interpreter):
            def run_node(self, node: fx.Node) -> Any:
                made = super().run_node(node)
                # The graph writes buffers at its end: what they were is what counts.
                values[node] = _own(made) if node.op == "placeholder" else made
                return made

        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            Kept(self._graph).run(*map(_own, self._inputs))
        return values

    def _wrong(self, members: Sequence[fx.Node]) -> bool:
        """Whether what these operators leave to others differs, compiled."""
        inside = set(members)
        results = [
            node
            for node in members
            if isinstance(self._values[node], Tensor)
            and (not node.users or any(user not in inside for user in node.users))
        ]
        if not results:
            return False
        graph, inputs = self._cut(members, results)
        try:
            compiled = backend.compile_graph(graph, (), self._options)
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                made = compiled([_own(self._values[node]) for node in inputs])
        except Exception:  # a cut that cannot be compiled by itself says nothing
            return False
        ours = Outcome({node.name: value for node, value in zip(results, made, strict=True)})
        eager = Outcome({node.name: self._values[node] for node in results})
        found = comparing.compare(ours, eager, None, computed_in=self._computed_in, tolerance=self._tolerance)
        return bool(found.differences)

    def _fewest(self, members: list[fx.Node]) -> list[fx.Node]:
        """The shortest end of ``members`` that is wrong, doubling its length, then without what is not needed."""
        length = 1
        while length < len(members) and not self._wrong(members[-length:]):
            length *= 2
        fewest = members[-length:]
        for node in list(fewest[:-1])[:24]:
            without = [each for each in fewest if each is not node]
            if self._wrong(without):
                fewest = without
        return fewest

    def _cut(self, members: Sequence[fx.Node], results: Sequence[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node]]:
        """A graph of these operators alone, and the nodes whose values are its inputs."""
        inside, inputs = set(members), list[fx.Node]()
        for node in members:
            for read in node.all_input_nodes:
                if read not in inside and read not in inputs and read.op != "get_attr":
                    inputs.append(read)
        # The sizes that symbols stand for are inputs of the whole graph.
        symbols = [node for node in self._graph.graph.find_nodes(op="placeholder") if node not in inputs]
        if any(isinstance(node.meta.get("val"), torch.SymInt) for node in symbols):
            inputs = [*symbols, *inputs]
        graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in inputs:
            made[node] = graph.placeholder(node.name)
            made[node].meta = dict(node.meta)
        for node in members:
            for read in node.all_input_nodes:
                if read.op == "get_attr" and read not in made:
                    made[read] = graph.node_copy(read)
            made[node] = graph.node_copy(node, made.__getitem__)
        graph.output(tuple(made[node] for node in results))
        return fx.GraphModule(self._graph, graph), inputs

    def _explained(self, graph: fx.GraphModule) -> Explanation:
        explanation = Explanation()
        with observers.observe(explanation.add):
            backend.compile_graph(graph, (), self._options)
        return explanation


def _kernel(explanation: Explanation) -> str:
    if explanation.kernels:
        kernel = explanation.kernels[-1]
        return f"the kernel {kernel['name']} ({operators(kernel['ops'])})"
    if explanation.calls:
        call = explanation.calls[-1]
        return f"a library call, {call['kind']} ({operators(call['ops'])})"
    if explanation.fallbacks:
        return f"{explanation.fallbacks[-1]['op']} through ATen"
    return "no kernel: a view"


def _source(node: fx.Node) -> str:
    """The user's line, of the frames of its stack the innermost that is not torch's."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, line) for file, line in frames if "/torch/" not in file] or frames
    return f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""


_PROGRAM = '''"""Shows a difference between zefuse and eager: python {file}"""

import torch
from torch import device  # the graph's code may name it

inf, nan = float("inf"), float("nan")


{function}

class constants:
    """Tensors that the graph holds."""

{constants}

inputs = [
{inputs}
]
eager = forward(constants, *inputs)
compiled = torch.compile(lambda *given: forward(constants, *given), backend="zefuse", options={options})
with torch.no_grad():
    made = compiled(*inputs)
for ours, reference in zip(made, eager):
    print("largest difference:", (ours.double() - reference.double()).abs().max().item())
    torch.testing.assert_close(ours, reference)
'''


def _write(folder: str, graph: fx.GraphModule, inputs: list[Any], options: Options) -> str:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    file = place / "zefuse_reproducer.py"

    def text_of(value: Any, name: str) -> str:
        if not isinstance(value, Tensor):
            return repr(int(value))
        if value.numel() <= _MOST_EMBEDDED and value.is_contiguous():
            return f"torch.tensor({value.tolist()!r}, dtype={value.dtype})"
        data = (place / f"zefuse_reproducer_{name}.pt").resolve()
        torch.save(value.detach().clone(), data)
        return f"torch.load({str(data)!r})"

    lines = [f"    {text_of(value, str(number))}," for number, value in enumerate(inputs)]
    held = {str(node.target): getattr(graph, str(node.target)) for node in graph.graph.find_nodes(op="get_attr")}
    constants = [f"    {name} = {text_of(value, name)}" for name, value in held.items()]
    chosen = {name: getattr(options, name) for name in ("device", "fuse", "jit") if _is_set(options, name)}
    file.write_text(
        _PROGRAM.format(
            file=file,
            function=graph.code.strip() + "\n",
            constants="\n".join(constants) or "    none = None",
            inputs="\n".join(lines),
            options=chosen or "None",
        )
    )
    return str(file)


def _is_set(options: Options, name: str) -> bool:
    return bool(getattr(options, name) != getattr(Options.make(None), name))
