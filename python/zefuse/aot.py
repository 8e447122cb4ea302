"""Ahead of time: ``torch.export``'s program to a package, and back to a callable without Dynamo.

A package holds what the compiled graph holds in memory (the plan, its kernels as SPIR-V and as native code), the
weights as safetensors, and a small JSON about calling conventions. The compiled part writes and checks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zefuse import _native
from zefuse.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from zefuse.options import Options

if TYPE_CHECKING:
    import torch

    from zefuse.explanation import Explanation


def compile_package(
    program: torch.export.ExportedProgram, path: str | Path, *, options: Mapping[str, Any] | Options | None = None
) -> Explanation:
    """Compiles an exported program and writes it to ``path``. Returns what it became."""
    from torch.export.graph_signature import InputKind, OutputKind
    from torch.utils import _pytree as pytree

    from zefuse.backend import compile_graph
    from zefuse.explanation import Explanation

    checked = Options.make(options)
    program = program.run_decompositions(_table())
    signature = program.graph_signature
    weights: dict[str, torch.Tensor] = {}
    inputs: list[dict[str, Any]] = []  # one per graph input: {"weight": name} or {"user": position}
    users = 0
    for spec in signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            name = spec.target
            assert name is not None
            constants = program.constants if name in program.constants else program.state_dict
            weights[name] = constants[name].detach()
            inputs.append({"weight": name})
        elif spec.kind is InputKind.USER_INPUT:
            inputs.append({"user": users})
            users += 1
        else:
            raise UnsupportedError(
                f"zefuse compile: input {spec.arg.name!r} of the program is a {spec.kind.name}; a package takes tensors and integers only"
            )
    outputs: list[
        dict[str, Any]
    ] = []  # one per graph output: {"user": True}, {"weight": name} or {"mutates": position}
    positions = {
        spec.arg.name: entry["user"]
        for spec, entry in zip(signature.input_specs, inputs, strict=True)
        if "user" in entry
    }
    for out in signature.output_specs:
        if out.kind is OutputKind.USER_OUTPUT:
            outputs.append({"user": True})
        elif out.kind is OutputKind.BUFFER_MUTATION:
            outputs.append({"weight": out.target})
        elif out.kind is OutputKind.USER_INPUT_MUTATION:
            assert out.target is not None
            outputs.append({"mutates": positions[out.target]})
        else:
            raise UnsupportedError(
                f"zefuse compile: output kind {out.kind.name} of the program: export it for inference"
            )

    compiled = compile_graph(
        program.graph_module, [number for number, entry in enumerate(inputs) if "weight" in entry], checked, whole=True
    )
    convention = {
        "inputs": inputs,
        "outputs": outputs,
        "in_spec": pytree.treespec_dumps(program.call_spec.in_spec),
        "out_spec": pytree.treespec_dumps(program.call_spec.out_spec),
    }
    _native.load().package_write(str(path), compiled, weights, json.dumps(convention))
    return Explanation.of(compiled)


def _table() -> dict[Any, Any]:
    """Ours, and every composite operator's own, which AOTAutograd takes apart by itself but an exported program keeps."""
    from torch._export.utils import _collect_all_valid_cia_ops, _get_decomp_for_cia

    from zefuse.decompositions import decompositions

    return {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops()} | dict(decompositions())


class Package:
    """A loaded package: call it as the exported module. Thread-safe, unless the module changes its own buffers."""

    def __init__(self, graph: Any, weights: Mapping[str, torch.Tensor], convention: dict[str, Any]) -> None:
        from torch.utils import _pytree as pytree

        self._graph = graph
        self._weights = dict(weights)
        self._inputs: list[dict[str, Any]] = convention["inputs"]
        self._outputs: list[dict[str, Any]] = convention["outputs"]
        self._in_spec = pytree.treespec_loads(convention["in_spec"])
        self._out_spec = pytree.treespec_loads(convention["out_spec"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils import _pytree as pytree

        given, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise InvalidArgumentError(
                f"zefuse package: called with arguments of another structure than exported\n  exported: {self._in_spec}\n  called:   {spec}"
            )
        values = [
            self._weights[entry["weight"]] if "weight" in entry else given[entry["user"]] for entry in self._inputs
        ]
        with torch.no_grad():
            results = self._graph(values)
            users = []
            for entry, result in zip(self._outputs, results, strict=True):
                if "weight" in entry:
                    self._weights[entry["weight"]].copy_(result)
                elif "mutates" in entry:
                    given[entry["mutates"]].copy_(result)
                else:
                    users.append(result)
        return pytree.tree_unflatten(users, self._out_spec)

    def explain(self) -> Explanation:
        """What the package holds, as ``zefuse.explain`` says it."""
        from zefuse.explanation import Explanation

        return Explanation.of(self._graph)


def load(path: str | Path, *, options: Mapping[str, Any] | Options | None = None) -> Package:
    """Loads what ``zefuse compile`` wrote. Raises DamagedError when the file fails its checks."""
    if not Path(path).is_file():
        raise NotFoundError(f"zefuse.load: no file {str(path)!r}; make one with: zefuse compile model.pt2 -o {path}")
    graph, weights, convention = _native.load().package_load(str(path), Options.make(options).to_dict())
    return Package(graph, weights, json.loads(convention))
