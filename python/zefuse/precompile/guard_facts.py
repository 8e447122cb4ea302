"""From Dynamo's guards to facts: called while a graph is compiled, never where one is only used."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._dynamo import source as sources
from torch._guards import ChainedSource, Source

from zefuse.precompile.descriptions import MISSING, Description, NotExpressible, code_hash, is_user_code, package_of
from zefuse.precompile.facts import Roots, Table

# What these guard is compared for every call (facts.state), or only concerns what Dynamo itself keeps.
_STATE = frozenset(
    "GRAD_MODE DETERMINISTIC_ALGORITHMS GLOBAL_STATE TORCH_FUNCTION_STATE DEFAULT_DEVICE AUTOGRAD_SAVED_TENSORS_HOOKS "
    "FSDP_TRAINING_STATE SHAPE_ENV DUAL_LEVEL FUNCTORCH_STACK_MATCH".split()
)

# What these guard is in the description of the value.
_DESCRIBED = frozenset(
    "TYPE_MATCH BOOL_MATCH NONE_MATCH NOT_NONE_MATCH EQUALS_MATCH CONSTANT_MATCH CLASS_MATCH MODULE_MATCH CLOSURE_MATCH "
    "BUILTIN_MATCH FUNCTION_MATCH SEQUENCE_LENGTH DICT_KEYS_MATCH MAPPING_KEYS_CHECK EMPTY_NN_MODULE_HOOKS_DICT TENSOR_MATCH "
    "ID_MATCH HASATTR NOT_PRESENT_IN_GENERIC_DICT DICT_CONTAINS DICT_NOT_CONTAINS SET_CONTAINS SET_NOT_CONTAINS "
    "DUPLICATE_INPUT DISPATCH_KEY_SET_MATCH NN_MODULE WEAKREF_ALIVE".split()
)

# An object whose identity is guarded must be one that words can name.
_IDENTITIES = frozenset("ID_MATCH FUNCTION_MATCH CLASS_MATCH BUILTIN_MATCH NN_MODULE".split())

_KEYS = (str, int, bool, float, type(None))

_ATTRIBUTES: dict[type, Callable[[Any], list[tuple[str, Any]]]] = {
    sources.AttrSource: lambda s: [("attr", s.member)],
    sources.CellContentsSource: lambda s: [("attr", "cell_contents")],
    sources.ParamBufferSource: lambda s: [("attr", s.member)],
    sources.UnspecializedParamBufferSource: lambda s: [("attr", s.member)],
    sources.GenericAttrSource: lambda s: [("generic", s.member)],
    sources.TypeDictSource: lambda s: [("typedict", None)],
    sources.TypeMROSource: lambda s: [("attr", "__mro__")],
    sources.CodeSource: lambda s: [("attr", "__code__")],
    sources.ClosureSource: lambda s: [("attr", "__closure__")],
    sources.TypeSource: lambda s: [("type", None)],
    sources.DefaultsSource: lambda s: [
        ("attr", "__kwdefaults__" if s.is_kw else "__defaults__"),
        ("item", s.idx_key),
    ],
    sources.ConstDictKeySource: lambda s: [("key", s.index)],
    sources.NNModuleSource: lambda s: [],
    sources.UnspecializedNNModuleSource: lambda s: [],
    sources.UnspecializedBuiltinNNModuleSource: lambda s: [],
    sources.SkipGuardSource: lambda s: [],
    sources.WeakRefCallSource: lambda s: [("referent", None)],
}
_ITEMS = (
    sources.GetItemSource,
    sources.ListGetItemSource,
    sources.DictGetItemSource,
    sources.DictSubclassGetItemSource,
)


class _Ways:
    """Nodes, each made once."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self.nodes: list[list[Any]] = []
        self._known: dict[tuple[int, str, Any], int] = {}

    def node(self, parent: int, kind: str, what: Any) -> int:
        key = (parent, kind, (type(what), what))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append([parent, kind, what])
        return self._known[key]

    def of(self, source: Any) -> int:
        kind = type(source)
        if isinstance(source, sources.LocalSource):
            if source.is_derefed_cell_contents and source.local_name in self._roots.function.__code__.co_freevars:
                return self.node(-1, "free", source.local_name)
            return self.node(-1, "local", source.local_name)
        if kind is sources.GlobalSource:
            return self._global(source.global_name)
        if kind is sources.ImportSource:
            return self.node(-1, "module", source.module_name)
        if kind is sources.TensorPropertySource:
            names = {"SIZE": "size", "STRIDE": "stride", "STORAGE_OFFSET": "offset"}
            return self.node(self.of(source.base), names[source.prop.name], source.idx)
        if not isinstance(source, ChainedSource):
            raise NotExpressible(f"torch guards {source.name} ({kind.__name__})")
        base = self.of(source.base)
        if kind in _ITEMS:
            item: Any = source
            index = item.index
            if isinstance(index, Source):
                return self.node(base, "item by", self.of(index))
            if getattr(source, "index_is_slice", False) or type(index) not in _KEYS:
                raise NotExpressible(f"torch guards {source.name}, an item by a key of type {type(index).__name__}")
            return self.node(base, "item", index)
        steps = _ATTRIBUTES.get(kind)
        if steps is None:
            raise NotExpressible(f"torch guards {source.name} ({kind.__name__})")
        for step, what in steps(source):
            base = self.node(base, step, what)
        return base

    def _global(self, name: str) -> int:
        names = self._roots.function.__globals__
        if name.startswith("__builtins_dict__"):
            return self.node(-1, "builtins", None)
        if name.startswith("__import_") or re.match(r"_\d+_c\d+$", name):  # Dynamo's own names
            if not isinstance(names.get(name), types.ModuleType):
                raise NotExpressible(f"torch guards the global {name}, which it made itself")
            return self.node(-1, "module", names[name].__name__)
        return self.node(-1, "global", name)


@dataclasses.dataclass
class Traced:
    """What Dynamo knows when it hands a graph over. ``guards``: later steps of compiling may add some. ``sizes``: of each input
    of the graph the symbol that it is the value of, or None."""

    codes: list[types.CodeType]
    guards: Any
    shape_env: Any
    fakes: list[Any]
    sizes: list[Any]

    @property
    def dynamic(self) -> bool:
        return any(size is not None for size in self.sizes)


def table(trace: Traced, roots: Roots, arguments: dict[str, Any]) -> tuple[Table, list[int | None]]:
    """What ``trace`` says, with the answers as they are now; and for each input of the graph that is a size its node."""
    ways = _Ways(roots)
    guards = trace.guards
    any_size: set[int] = set()
    sizes: list[int | None] = [None] * len(trace.sizes)
    conditions: list[str] = []
    if trace.dynamic:
        for fake in trace.fakes:
            if any(not isinstance(size, int) for size in getattr(fake.fake, "shape", ())):
                any_size.add(ways.of(fake.source))
        for at, symbol in enumerate(trace.sizes):
            if symbol is not None:
                if not trace.shape_env.var_to_sources.get(symbol):
                    raise NotExpressible(f"the graph's input {at} is {symbol}, which is no size of an argument")
                sizes[at] = ways.of(trace.shape_env.var_to_sources[symbol][0])
        (helper,) = trace.shape_env.produce_guards_verbose(
            [fake.fake for fake in trace.fakes],
            [fake.source for fake in trace.fakes],
            input_contexts=[fake.symbolic_context for fake in trace.fakes],
            source_ref=lambda source: f"v{ways.of(source)}",
            ignore_static=False,
            langs=("python",),
        )
        conditions = list(helper.exprs)
    questions: list[tuple[int, Any]] = []
    identities: list[tuple[int, str]] = []
    root = ways.node(-1, "function", None)
    questions.append((root, "what"))
    for guard in sorted(guards):
        name = guard.create_fn_name()
        if name in _STATE:
            continue
        if name not in _DESCRIBED:
            raise NotExpressible(f"torch guards {guard.name} by {name}")
        if guard.name.startswith("G['__import_torch_dot__dynamo"):
            continue  # of torch's version
        node = ways.of(guard.originating_source)
        questions.append((node, "what"))
        if name in _IDENTITIES:
            identities.append((node, guard.name))
        given = guard.create_fn.keywords if isinstance(guard.create_fn, functools.partial) else {}
        if "attr" in given:
            questions.append((node, ["in __dict__" if name == "NOT_PRESENT_IN_GENERIC_DICT" else "has", given["attr"]]))
        elif "key" in given:
            if type(given["key"]) not in _KEYS:
                raise NotExpressible(
                    f"torch guards whether {guard.name} holds a key of type {type(given['key']).__name__}"
                )
            questions.append((node, ["contains", given["key"]]))
        elif "source_b" in given:
            questions.append((node, ["same as", ways.of(given["source_b"])]))
    questions = [(node, "but sizes" if node in any_size and what == "what" else what) for node, what in questions]
    questions += [(root, ["holds", text]) for text in conditions]
    result = Table(ways.nodes, [], {code.co_name for code in trace.codes})
    values = result.look(roots, arguments)
    seen = set()
    for node, question in questions:
        if (key := (node, str(question))) not in seen and not _given_by_version(ways.nodes, node, values[node]):
            seen.add(key)
            result.facts.append([node, question, None])
    _number_answers(result, values)
    answers = {node: answer for node, question, answer in result.facts if question == "what"}
    for node, name in identities:
        if str(answers.get(node, "")).startswith("an object of"):
            raise NotExpressible(f"torch guards which object {name} is: {answers[node]}")
    for _, question, answer in result.facts:
        if question[0] == "holds" and answer != "True":
            raise NotExpressible(f"torch guards sizes by {question[1]}, which does not hold here")
    _find_codes(result, ways, trace.codes, roots, arguments)
    return result, sizes


def _number_answers(table: Table, values: list[Any]) -> None:
    for fact, answer in zip(table.facts, table.answers(values), strict=True):
        fact[2] = answer


def _given_by_version(nodes: list[list[Any]], at: int, value: Any) -> bool:
    """Objects inside torch and Python that have no words: their versions are compared."""
    while nodes[at][0] >= 0:
        at = nodes[at][0]
    _, kind, what = nodes[at]
    if kind != "builtins" and (kind != "module" or package_of(what) == "user"):
        return False
    try:
        Description(())(value)
    except NotExpressible:
        return True
    return False


def _find_codes(
    table: Table, ways: _Ways, codes: Iterable[types.CodeType], roots: Roots, arguments: dict[str, Any]
) -> None:
    """Traced code that no guard leads to (a class that was called, a helper of a helper) is found by its name."""
    import sys

    missing = {code_hash(code): code for code in codes if is_user_code(code) and code_hash(code) not in table.codes}
    if not missing:
        return
    by_file = {getattr(module, "__file__", None): name for name, module in list(sys.modules.items())}
    before = len(table.facts)
    for code in missing.values():
        module = by_file.get(code.co_filename)
        if module is None:
            continue
        node = ways.node(-1, "module", module)
        for name in code.co_qualname.split(".<locals>")[0].split("."):
            node = ways.node(node, "attr", name)
        for _ in range(4):  # what decorators hide
            values = table.look(roots, arguments)
            if isinstance(values[node], types.FunctionType) and hasattr(values[node], "__wrapped__"):
                table.facts.append([node, "what", None])
                node = ways.node(node, "attr", "__wrapped__")
        if table.look(roots, arguments)[node] is not MISSING:
            table.facts.append([node, "what", None])
    if len(table.facts) > before:
        _number_answers(table, table.look(roots, arguments))
    for digest, code in missing.items():
        if digest not in table.codes:
            raise NotExpressible(f"{code.co_qualname} was traced, and cannot be found again")


def traced(function: types.FunctionType, gm: torch.fx.GraphModule) -> Traced:
    """Of what Dynamo compiles right now, as ``gm``."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    output = InstructionTranslator.current_tx().output
    context = torch._guards.TracingContext.get()
    codes = list(torch._guards.TracingContext.get_traced_code() or ())
    if not codes:
        raise NotExpressible("this torch does not say which code it traced")
    if output.root_tx.f_code is not function.__code__:
        raise NotExpressible(f"torch compiles {output.root_tx.f_code.co_qualname} in place of it")
    if output.compile_subgraph_reason is None or output.compile_subgraph_reason.graph_break:
        raise NotExpressible("it is more than one graph")
    for name, variable in _changed_objects(output.side_effects, function.__code__):
        raise NotExpressible(f"it changes an object: {name} of {variable}")
    info = context.fw_metadata.input_info if context.fw_metadata is not None else ()
    if any(each.mutates_data or each.mutates_metadata for each in info):
        raise NotExpressible("it changes a tensor")
    values = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    sizes = [value.node.expr if isinstance(value, torch.SymInt) else None for value in values]
    fakes = list(output.shape_env.tracked_fakes or ())
    return Traced(codes, context.guards_context.dynamo_guards.inner, output.shape_env, fakes, sizes)


def _changed_objects(effects: Any, code: types.CodeType) -> Iterator[tuple[str, str]]:
    """What Dynamo's bytecode will write to objects that exist outside (a global's attribute, a list, ...). An attribute that is
    set to what it is (and was something else for a while) is none, and nobody else sees the dict of a ``**`` parameter."""
    from torch._dynamo.source import LocalSource
    from torch._dynamo.variables.base import AttributeMutationExisting, ValueMutationExisting

    own = None
    if code.co_flags & inspect.CO_VARKEYWORDS:
        before = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        own = code.co_varnames[before]
    for variable in effects.id_to_variable.values():
        if not isinstance(variable.mutation_type, (AttributeMutationExisting, ValueMutationExisting)):
            continue
        if not effects.is_modified(variable):
            continue
        if isinstance(variable.source, LocalSource) and variable.source.local_name == own:
            continue
        place = variable.source.name if variable.source else str(variable)
        writes = effects.store_attr_mutations.get(variable)
        if not writes or not hasattr(variable, "value"):
            yield "an item", place
            continue
        for name, new in writes.items():
            now = getattr(variable.value, "__dict__", {}).get(name, MISSING)
            if not (
                new.is_python_constant()
                and type(now) in (bool, int, str, type(None))
                and now == new.as_python_constant()
            ):
                yield name, place
