"""Ahead of time: ``torch.export``'s programs to a package, and back to a callable without Dynamo.

A package (docs/aot.md) holds for each target what the compiled graph holds in memory (the plan, its kernels as SPIR-V and
as native code), the weights as safetensors, and a manifest: which tensors of a call and which weights are whose inputs.
The compiled part writes and checks it.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zefuse import _native, targets, tuning
from zefuse.errors import (
    DeadlineError,
    DeviceError,
    FallbackError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from zefuse.graphs.for_target import PlanOnly, for_host, graph_key
from zefuse.installing import torch_versions
from zefuse.options import Options

if TYPE_CHECKING:
    import torch
    from torch.utils import _pytree as pytree

    from zefuse.explaining.explanation import Explanation
    from zefuse.packages.captured import CapturedGraph

# progress(kernel, target, seconds, done, all): after each kernel; seconds is 0 for one from the cache; False ends the work.
Progress = Callable[[str, str, float, int, int], Any]


def compile_package(
    program: torch.export.ExportedProgram | Sequence[torch.export.ExportedProgram | CapturedGraph],
    path: str | Path,
    *,
    targets: Sequence[str] = ("cpu",),
    standalone: bool = False,
    options: Mapping[str, Any] | Options | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Compiles an exported program and writes it to ``path``. Returns what the first plan became.

    ``program`` may be several programs of one model, exported with different shapes: a call takes the first that fits. Among
    them, or alone, may be what ``zefuse.capture`` returns: graphs for ``torch.compile`` with the package attached.
    ``targets``: names that ``zefuse targets`` lists; ``"cpu"`` stands for ``avx2`` and ``avx512``. ``standalone``: the package
    is for programs without torch, so an operator that would run through ATen raises FallbackError. The same programs,
    targets and versions give the same bytes. The file is renamed into its place when it is whole. ``progress(kernel, target,
    seconds, done, all)`` is called after each kernel, by one thread at a time; where it returns False the work ends.

    Raises UnsupportedError for what a package cannot hold (inputs that are no tensors and integers, programs that were exported
    for training), InvalidArgumentError for programs of different structure, NotFoundError for an unknown target or folder.
    """
    from zefuse.packages.captured import CapturedGraph

    checked = Options.make(options)
    wanted = resolved_targets(targets)
    if not wanted:
        raise InvalidArgumentError("compile_package: no target; `zefuse targets` lists them")
    programs = list(program) if isinstance(program, Sequence) else [program]
    graphs = [each for each in programs if isinstance(each, CapturedGraph)]
    on_cpu = all(family == "cpu" for family, _ in wanted)
    flat = [_Exported(each, on_cpu) for each in programs if not isinstance(each, CapturedGraph)]
    if not programs:
        raise InvalidArgumentError("compile_package: no program")
    if not Path(path).absolute().parent.is_dir():  # before the work
        raise NotFoundError(f"compile_package: no folder {str(Path(path).parent)!r} to write {Path(path).name!r} into")
    if standalone and not flat:
        raise InvalidArgumentError(
            "compile_package: standalone is for programs of torch.export; graphs of torch.compile are only for torch"
        )
    return write_package(flat, path, wanted, graphs=graphs, standalone=standalone, options=checked, progress=progress)


def write_package(
    programs: Sequence[Program],
    path: str | Path,
    wanted: Sequence[tuple[str, list[str]]],
    *,
    graphs: Sequence[CapturedGraph] = (),
    standalone: bool,
    options: Options,
    progress: Progress | None,
    files: Mapping[str, bytes] | None = None,
) -> Explanation:
    """Compiles programs for targets (of ``resolved_targets``) into one package. ``files``: what it carries for the program around
    the model, by name. Returns what the first plan became."""
    from zefuse.explaining.explanation import Explanation

    native = _native.load()
    for other in programs[1:]:
        programs[0].check_same_convention(other)

    weights = _Weights()
    plans: list[dict[str, Any]] = []
    captured: list[dict[str, Any]] = []
    sections: dict[str, Any] = {}
    explanation: Explanation | None = None

    def add(compiled: Any, section: str, codes: Sequence[str]) -> None:
        nonlocal explanation
        explanation = explanation or Explanation.of(compiled)
        sections[section] = plan = compiled.plan_bytes()
        sections.update(native.package_natives(plan, list(codes), options.to_dict(), progress))

    for number, each in enumerate(programs):
        names = {name: weights.add(name, tensor) for name, tensor in each.weights.items()}
        for family, codes in wanted:
            with tuning.without_eager() if standalone else contextlib.nullcontext():
                compiled = each.compile(options, family)
            if standalone:
                _refuse_aten(compiled)
            constants = [
                {"weight": weights.add(f"zefuse.constant.{number}.{at}", tensor)}
                for at, tensor in enumerate(compiled.constants())
            ]
            section = f"plan/{family}" + (f".{number}" if number else "")
            add(compiled, section, codes)
            inputs = [{"weight": names[slot["weight"]]} if "weight" in slot else slot for slot in each.inputs]
            outputs = [{"weight": names[slot["weight"]]} if "weight" in slot else slot for slot in each.outputs]
            plans.append(
                {
                    "target": family,
                    "section": section,
                    "inputs": inputs + constants,
                    "outputs": outputs,
                    "graph": each.key(options, family),
                    "guards": each.guards,
                }
            )
    for family, codes in wanted:
        known: list[dict[str, Any]] = []
        for graph in graphs:
            key = graph.key(options, family)
            if key in known:
                continue
            section = f"plan/{family}.captured.{len(known)}"
            known.append(key)
            compiled = graph.compile(options, family)
            add(compiled, section, codes)
            num_inputs = graph.num_inputs + len(compiled.constants())
            captured.append({"target": family, "section": section, "num_inputs": num_inputs, "graph": key})
    from zefuse import __version__

    sections |= {f"file/{name}": data for name, data in (files or {}).items()}
    sections["weights"], strides = weights.serialize()
    manifest = {
        "producer": f"zefuse {__version__}",
        "standalone": standalone,
        "inputs": programs[0].input_names if programs else [],
        "outputs": programs[0].output_names if programs else [],
        "in_spec": programs[0].in_spec if programs else "",
        "out_spec": programs[0].out_spec if programs else "",
        "plans": plans,
        "captured": captured,
        "strides": strides,
    }
    sections["manifest"] = json.dumps(manifest, sort_keys=True, indent=1).encode()
    native.package_write(str(path), sections)
    assert explanation is not None
    return explanation


def resolved_targets(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What ``--targets`` names: plans to make, each with the targets of its native code."""
    levels, products = targets.resolve(names)
    host_code = levels or list(targets.CPU)  # a GPU's plan may have steps on the host
    return ([("cpu", levels)] if levels else []) + [(product, [product, *host_code]) for product in products]


def _refuse_aten(compiled: Any) -> None:
    report = compiled.report()
    calls = list(report["fallbacks"]) + [c for c in report["calls"] if c["kind"] == "draw"]
    if calls:
        lines = sorted(
            {f"{c['op']} at {', '.join(c['sources']) or 'no known line'}: {c['reason'] or 'draws'}" for c in calls}
        )
        raise FallbackError(
            "zefuse compile: standalone packages run without torch, and these operators need it:\n  "
            + "\n  ".join(lines)
        )


class Program:
    """One functional graph with flat inputs and outputs, and how a call is bound to them.

    What a package calls it by: names of inputs and outputs, and torch's pytree of both.
    """

    graph_module: torch.fx.GraphModule
    guards: Any
    weights: dict[str, torch.Tensor]
    # One per graph input: {"weight": name} or {"user": position}; then "constant": it is not read, "written": in place.
    inputs: list[dict[str, Any]]
    input_names: list[str]
    # One per graph output: {"user": True}, {"weight": name} or {"mutates": position}.
    outputs: list[dict[str, Any]]
    output_names: list[str]
    in_spec: str
    out_spec: str

    def check_same_convention(self, other: Program) -> None:
        if (self.in_spec, self.out_spec) != (other.in_spec, other.out_spec):
            raise InvalidArgumentError(
                "compile_package: the programs take or give arguments of different structure; a package has one convention"
            )

    def compile(self, options: Options, family: str) -> Any:
        from zefuse.backend import compile_graph

        if family == "cpu":
            return compile_graph(self.graph_module, self._static(), for_host(options), whole=True)
        return PlanOnly(self.graph_module, self._static(), options, family)

    def key(self, options: Options, family: str) -> dict[str, Any] | None:
        """By which torch.compile finds the plan again, when the package is attached; None: it never asks for such a graph."""
        return graph_key(self.graph_module, self._static(), options, family)

    def _static(self) -> list[int]:
        return [number for number, entry in enumerate(self.inputs) if "weight" in entry]


class _Exported(Program):
    """An exported program."""

    def __init__(self, program: torch.export.ExportedProgram, on_cpu: bool) -> None:
        from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
        from torch.utils import _pytree as pytree

        from zefuse.decompositions import quantized_graphs
        from zefuse.packages.export_guards import guards_of

        torch_versions.hide_own_warnings()
        self.guards = guards_of(program)  # of the program as it came: its decompositions ask nothing of the user
        table = _table()
        program = quantized_graphs.decomposed(program, table) if on_cpu else program.run_decompositions(table)
        signature = program.graph_signature
        self.graph_module = program.graph_module
        _remove_checks(self.graph_module)
        self.weights, self.inputs, self.input_names, self.outputs = {}, [], [], []
        positions: dict[str, int] = {}
        for spec in signature.input_specs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                name = spec.target
                assert name is not None
                constants = program.constants if name in program.constants else program.state_dict
                self.weights[name] = constants[name].detach()
                self.inputs.append({"weight": name})
            elif spec.kind is InputKind.USER_INPUT:
                positions[spec.arg.name] = len(self.input_names)
                constant = {"constant": True} if isinstance(spec.arg, ConstantArgument) else {}
                self.inputs.append({"user": len(self.input_names), **constant})
                self.input_names.append(spec.arg.name)
            else:
                raise UnsupportedError(
                    f"zefuse compile: input {spec.arg.name!r} of the program is a {spec.kind.name}; "
                    "a package takes tensors and integers only"
                )
        users = 0
        for out in signature.output_specs:
            if out.kind is OutputKind.USER_OUTPUT:
                self.outputs.append({"user": True})
                users += 1
            elif out.kind is OutputKind.BUFFER_MUTATION:
                self.outputs.append({"weight": out.target})
            elif out.kind is OutputKind.USER_INPUT_MUTATION:
                assert out.target is not None
                self.outputs.append({"mutates": positions[out.target]})
            else:
                raise UnsupportedError(
                    f"zefuse compile: output kind {out.kind.name} of the program: export it for inference"
                )
        self.in_spec = pytree.treespec_dumps(program.call_spec.in_spec)
        self.out_spec = pytree.treespec_dumps(program.call_spec.out_spec)
        leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(users)), program.call_spec.out_spec))
        self.output_names = [_path_name(path) for path, _ in leaves]


def _path_name(path: tuple[Any, ...]) -> str:
    """``("logits", 0)`` to ``"logits.0"``; a program that returns one tensor calls it ``"output"``."""
    parts = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
    return ".".join(parts) or "output"


def _remove_checks(module: torch.fx.GraphModule) -> None:
    """Export's assertions about dtypes and layouts hold by construction; what the plan needs it checks at each call."""
    import torch

    aten = torch.ops.aten
    checks = {
        aten._assert_tensor_metadata.default,
        aten._assert_scalar.default,
        aten.sym_constrain_range_for_size.default,
    }
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in checks:
            module.graph.erase_node(node)
    # What only an assertion read, Python arithmetic on sizes included.
    module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or _has_effects(node))
    module.recompile()


def _has_effects(node: torch.fx.Node) -> bool:
    import torch

    return isinstance(node.target, torch._ops.OpOverload) and node.is_impure()


class _Weights:
    """The weights of all plans under one name each: equal ones are stored once."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}

    def add(self, name: str, tensor: torch.Tensor) -> str:
        """The name under which it is kept: another one where ``name`` is taken by another tensor."""
        import torch

        candidate, number = name, 1
        while (known := self._tensors.get(candidate)) is not None:
            same = known.dtype == tensor.dtype and known.shape == tensor.shape and known.stride() == tensor.stride()
            same_memory = not (_is_lazy(known) or _is_lazy(tensor)) and known.data_ptr() == tensor.data_ptr()
            if same and (same_memory or torch.equal(known, tensor)):
                return candidate
            candidate, number = f"{name}#{number}", number + 1
        self._tensors[candidate] = tensor.detach()
        return candidate

    def serialize(self) -> tuple[bytes, dict[str, list[int]]]:
        """As safetensors, and the strides of those whose plan wants another order than row-major (its writer refuses such,
        and tensors that share memory)."""
        from safetensors.torch import save

        dense: dict[str, torch.Tensor] = {}
        strides: dict[str, list[int]] = {}
        seen: set[int] = set()
        for name, tensor in self._tensors.items():
            if not tensor.is_contiguous():
                strides[name] = list(tensor.stride())
            copy = (tensor.clone() if _is_lazy(tensor) else tensor).resolve_conj().resolve_neg().contiguous()
            if copy.untyped_storage().data_ptr() in seen:
                copy = copy.clone()
            seen.add(copy.untyped_storage().data_ptr())
            dense[name] = copy
        return save(dense), strides


def _is_lazy(tensor: torch.Tensor) -> bool:
    """Whether its memory does not hold its elements: torch computes the negative or conjugate when it is read."""
    return tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()


def _table() -> dict[Any, Any]:
    """Ours, and every composite operator's own, which AOTAutograd takes apart by itself but an exported program keeps."""
    from torch._export.utils import _collect_all_valid_cia_ops, _get_decomp_for_cia

    from zefuse.decompositions import recurrent
    from zefuse.decompositions.table import decompositions

    apart = {op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops()} | dict(decompositions())
    return apart | recurrent.decompositions(apart)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


# The graph; of each input a weight's name, the number of an argument, or None for a constant; its outputs; what checks the
# arguments, if anything.
_Plan = tuple[Any, list[Any], list[Any], Callable[[list[Any]], None] | None]


class Package:
    """A loaded package: call it as the exported module (``zefuse.load`` says with what). Thread-safe, unless the module changes its
    own buffers."""

    def __init__(self, contents: dict[str, Any], place: torch.device | None = None) -> None:
        from torch.utils import _pytree as pytree

        self._plans: list[_Plan] = contents["plans"]
        self._weights: dict[str, torch.Tensor] = contents["weights"]
        self._place = place
        self._in_spec = pytree.treespec_loads(contents["in_spec"])
        self._out_spec = pytree.treespec_loads(contents["out_spec"])
        self._check: Callable[[], None] | None = contents["check"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch.utils import _pytree as pytree

        if (check := self._check) is not None:  # the hash of the weights; threads that come meanwhile wait in it
            check()
            if self._place is not None:
                self._weights = {name: weight.to(self._place) for name, weight in self._weights.items()}
            self._check = None
        given, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            given = self._reordered(args, kwargs, spec)
        for number, plan in enumerate(self._plans):
            try:
                return pytree.tree_unflatten(self._run(plan, given), self._out_spec)
            except InvalidArgumentError:  # another set of shapes
                if number + 1 == len(self._plans):
                    raise
        raise AssertionError("a package has a plan")

    def _reordered(self, args: tuple[Any, ...], kwargs: dict[str, Any], spec: pytree.TreeSpec) -> list[Any]:
        """The arguments in the exported order: keywords, and keys of dictionaries, may come in any."""
        from torch.export._unlift import eq_spec
        from torch.fx._pytree import tree_flatten_spec
        from torch.utils import _pytree as pytree

        names = self._in_spec.child(1).context
        if set(kwargs) != set(names):
            raise InvalidArgumentError(
                f"zefuse package: called with keyword arguments of another structure: {_listed(kwargs)}; "
                f"it was exported with {_listed(names)}"
            )
        kwargs = {name: kwargs[name] for name in names}
        if not eq_spec(pytree.tree_structure((args, kwargs)), self._in_spec):
            raise InvalidArgumentError(
                f"zefuse package: called with arguments of another structure than exported\n  exported: {self._in_spec}\n  called:   {spec}"
            )
        return tree_flatten_spec((args, kwargs), self._in_spec)

    def _run(self, plan: _Plan, given: list[Any]) -> list[Any]:
        import torch

        graph, inputs, outputs, check = plan
        if check is not None:
            check(given)
        with torch.no_grad():
            results = graph(
                [
                    self._weights[slot] if isinstance(slot, str) else None if slot is None else given[slot]
                    for slot in inputs
                ]
            )
            users = []
            for (kind, which), result in zip(outputs, results, strict=True):
                if kind == "weight":
                    self._weights[which].copy_(result)
                elif kind == "mutates":
                    given[which].copy_(result)
                else:
                    users.append(result)
        return users

    def explain(self) -> Explanation:
        """What the package's first plan for this device holds, as ``zefuse.explain`` says it."""
        from zefuse.explaining.explanation import Explanation

        return Explanation.of(self._plans[0][0])


def load(
    path: str | Path | bytes | bytearray | memoryview,
    *,
    options: Mapping[str, Any] | Options | None = None,
    place: torch.device | str | None = None,
) -> Package:
    """Loads what ``zefuse compile`` wrote, for ``options={"device": ...}``: a file, which is mapped, or its bytes, which are
    copied.

    What it returns is called as the exported module was: with tensors of the shapes, dtypes and strides that the program was
    exported for (its dynamic dimensions may differ), on the CPU. An InvalidArgumentError names the argument that does not fit.
    Several threads may call it at a time, unless the module changes its own buffers. Results are new tensors, the caller's. A
    mapped file must not be written to while the package lives: replace it by renaming another.

    ``place``: a GPU of torch's ("cuda:0"), in place of ``options``' device: the package's weights are moved there at the first
    call, its tensors are used and given where they lie, and a call returns when its work is queued in torch's current stream. A
    tensor of the CPU is copied there, and the call waits.

    Raises NotFoundError where there is no such file or device; DamagedError when the file fails its checks, at the latest at the
    first call: the hash of the weights is compared there; UnsupportedError when it is of a newer format.
    """
    from zefuse.graphs import places

    checked = Options.make(options)
    native = _native.load()
    at = _placed(place)
    if isinstance(path, str | Path):
        if not Path(path).is_file():
            raise NotFoundError(
                f"zefuse.load: no file {str(path)!r}; make one with: zefuse compile model.pt2 -o {path}"
            )
        contents = partial(native.package_load, str(path))
    else:
        if not memoryview(path).c_contiguous:
            raise InvalidArgumentError("zefuse.load: the bytes of a package must be contiguous in memory")
        contents = partial(native.package_load_bytes, path)
    try:
        return Package(contents(checked.to_dict() | places.settings(at)), at)
    except (NotFoundError, DeadlineError, DeviceError) as error:
        if at is not None or (other := checked.or_cpu()) is None:
            raise
        warnings.warn(f"zefuse.load: the package runs on the CPU: {error}", stacklevel=2)
        return Package(contents(other.to_dict()))


def _placed(place: torch.device | str | None) -> torch.device | None:
    """With its number. Raises InvalidArgumentError for what no plan is for."""
    import torch

    from zefuse.graphs import places

    if place is None:
        return None
    given = torch.device(place)
    if given.type not in places.NAMES:
        raise InvalidArgumentError(
            f"zefuse.load: place={str(place)!r}: expected a GPU of torch's that plans are for: {', '.join(places.NAMES)}"
        )
    return torch.device(given.type, given.index or 0)
