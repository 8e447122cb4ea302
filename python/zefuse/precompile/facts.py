"""What the result of tracing a callable depends on, as plain facts that another process can compare.

Dynamo guards what it read: each guard has a *source*, a way from the call's arguments or a module to a value. A ``Table`` holds these
ways (``zefuse.precompile.guard_facts`` makes them out of the guards) and what was found at their ends, described by words: dtypes and
strides of tensors, values of numbers and texts, hashes of the code of functions and of the methods of classes, keys of
dictionaries, which tensors are one and the same. Nothing that cannot be told to another process is a fact: it raises
``NotExpressible``. A table is data; following its ways looks attributes and items up, and calls nothing else. The words are
``zefuse.precompile.descriptions``'.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from zefuse.precompile.conditions import condition
from zefuse.precompile.descriptions import (
    MISSING,
    Description,
    NotExpressible,
    NotWatchable,
    Watch,
    package_of,
    watch_attribute,
    watch_container,
)

_GLOBAL_HOOKS = [
    hooks for name, hooks in vars(nn_module).items() if name.startswith("_global_") and name.endswith("hooks")
]
STATE_NAMES = (
    "grad",
    "inference mode",
    "autocast",
    "autocast dtype",
    "default dtype",
    "default device",
    "deterministic",
    "deterministic, warning only",
    "matmul precision",
    "precision of CUDA's products",
    "precision of CUDA's convolutions",
    "anomaly mode",
)


def state() -> tuple[Any, ...]:
    """What every call depends on besides its callable and arguments (STATE_NAMES). Cheap."""
    if any(_GLOBAL_HOOKS):
        raise NotExpressible("a global hook on modules is set")
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        raise NotExpressible("a torch function or dispatch mode is active")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotExpressible("it is called inside a transform of torch.func")
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        torch._C._get_fp32_precision_getter("cuda", "matmul"),
        torch._C._get_fp32_precision_getter("cuda", "conv"),
        torch.is_anomaly_enabled(),
    )


UNLOADED = object()  # a module of torch's or Python's that is not imported here, and so is as its version has it


class Roots:
    """What a call starts from: the arguments by name, the closure and the globals of the function that was traced."""

    def __init__(self, function: types.FunctionType, instance: Any) -> None:
        self.function, self.instance = function, instance
        code = function.__code__
        self._names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._positional = code.co_argcount
        at = len(self._names)
        self._rest = code.co_varnames[at] if code.co_flags & inspect.CO_VARARGS else None
        at += self._rest is not None
        self._others = code.co_varnames[at] if code.co_flags & inspect.CO_VARKEYWORDS else None
        self.fixed = (self._names[0],) if instance is not MISSING and self._positional else ()

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """As the function's parameters get them. What does not fit is left out: the call itself will say so."""
        if self.fixed:
            args = (self.instance, *args)
        found = dict(zip(self._names[: self._positional], args, strict=False))
        if self._rest is not None:
            found[self._rest] = args[self._positional :]
        others = {}
        for name, value in kwargs.items():
            if name in self._names:
                found[name] = value
            else:
                others[name] = value
        if self._others is not None:
            found[self._others] = others
        if len(found) < len(self._names):
            defaults = self.function.__defaults__ or ()
            for name, value in zip(
                self._names[self._positional - len(defaults) : self._positional], defaults, strict=True
            ):
                found.setdefault(name, value)
            for name, value in (self.function.__kwdefaults__ or {}).items():
                found.setdefault(name, value)
        return found


class Table:
    """Ways and facts. ``nodes``: each ``[parent, kind, what]``, parents first; ``facts``: each ``[node, question, answer]``;
    ``methods``: the names of all functions that were traced."""

    def __init__(self, nodes: list[list[Any]], facts: list[list[Any]], methods: Iterable[str]) -> None:
        self.nodes, self.facts, self.methods = nodes, facts, frozenset(methods)

    def varying(self, fixed: Iterable[str]) -> list[bool]:
        """Of each node: whether it starts at an argument that each call brings."""
        result: list[bool] = []
        for parent, kind, what in self.nodes:
            own = kind == "local" and what not in fixed
            result.append(own or (parent >= 0 and result[parent]) or (kind == "item by" and result[what]))
        return result

    def look(self, roots: Roots, arguments: Mapping[str, Any]) -> list[Any]:
        """The value at each node."""
        values: list[Any] = []
        for node in self.nodes:
            values.append(self._at(node, values, roots, arguments, None))
        return values

    def look_again(self, values: list[Any], nodes: Iterable[int], roots: Roots, arguments: Mapping[str, Any]) -> None:
        """Only at these nodes, in their order."""
        for at in nodes:
            values[at] = self._at(self.nodes[at], values, roots, arguments, None)

    def add_class(self, module: str, name: str) -> None:
        """One more fact: what this class is."""
        parent = len(self.nodes)
        self.nodes += [[-1, "module", module], [parent, "attr", name]]
        self.facts.append([parent + 1, "what", Description(self.methods)(getattr(sys.modules[module], name))])

    def gathered(self, kept: Collection[int]) -> tuple[Table, dict[int, int]]:
        """The same in fewer words, and where nodes are in it: attributes of one object that have one and the same answer, and of which
        nothing else is asked, are one fact. (Half of what is known of a model is that its modules have no hooks.) ``kept``: nodes
        that others refer to."""
        asked: dict[int, list[int]] = {}
        used = {parent for parent, _, _ in self.nodes} | set(kept)
        used |= {what for _, kind, what in self.nodes if kind == "item by"}
        for number, (node, question, _) in enumerate(self.facts):
            asked.setdefault(node, []).append(number)
            if question[0] == "same as":
                used.add(question[1])
            elif question[0] == "holds":
                used.update(range(len(self.nodes)))  # conditions name any
        groups: dict[tuple[int, str], list[int]] = {}
        for node, (parent, kind, _) in enumerate(self.nodes):
            if kind == "attr" and node not in used and len(asked.get(node, ())) == 1:
                _, question, answer = self.facts[asked[node][0]]
                if question == "what" and answer is not None and " #" not in answer:
                    groups.setdefault((parent, answer), []).append(node)
        gone: dict[int, list[Any] | None] = {}
        for (parent, answer), nodes in groups.items():
            if len(nodes) > 1:
                gone |= dict.fromkeys(nodes)
                gone[nodes[0]] = [parent, ["each", [self.nodes[node][2] for node in nodes]], answer]
        places = {old: new for new, old in enumerate(at for at in range(len(self.nodes)) if at not in gone)}
        moved = [
            [places.get(parent, -1), kind, places[what] if kind == "item by" else what]
            for at, (parent, kind, what) in enumerate(self.nodes)
            if at not in gone
        ]
        facts = []
        for node, question, answer in self.facts:
            if node in gone:
                if (fact := gone[node]) is not None:
                    facts.append([places[fact[0]], *fact[1:]])
            else:
                ask = [question[0], places[question[1]]] if question[0] == "same as" else question
                facts.append([places.get(node, -1), ask, answer])
        return Table(moved, facts, self.methods), places

    def name(self, at: int) -> str:
        """As people would write it."""
        parent, kind, what = self.nodes[at]
        base = self.name(parent) if parent >= 0 else ""
        if kind in ("attr", "generic"):
            return f"{base}.{what}"
        if kind == "item":
            return f"{base}[{what!r}]"
        return {
            "item by": lambda: f"{base}[{self.name(what)}]",
            "type": lambda: f"type({base})",
            "typedict": lambda: f"{base}.__dict__",
            "key": lambda: f"key {what} of {base}",
        }.get(kind, lambda: str(what or kind))()

    def _at(
        self, node: list[Any], values: list[Any], roots: Roots, arguments: Mapping[str, Any], watch: Watch | None
    ) -> Any:
        parent, kind, what = node
        base = values[parent] if parent >= 0 else None
        if base is MISSING or base is UNLOADED:
            return base
        try:
            return _step(roots, arguments, base, kind, values[what] if kind == "item by" else what, watch)
        except NotWatchable:
            raise
        except Exception:  # an attribute may be computed by anything
            return MISSING

    def answers(self, values: list[Any]) -> list[str | None]:
        """To each question, in order. None: what is not loaded is what it was. Tensors get numbers in the order of their first
        mention, so which of them are the same is part of the answers."""
        describe = Description(self.methods)
        result = [_answer(question, values[node], values, describe) for node, question, _ in self.facts]
        self.codes = describe.codes
        return result

    def answer(self, fact: int, values: list[Any], describe: Description) -> str | None:
        node, question, _ = self.facts[fact]
        return _answer(question, values[node], values, describe)

    def watch(
        self, roots: Roots, arguments: Mapping[str, Any], values: list[Any], varying: list[bool]
    ) -> tuple[list[tuple[str, Any]], list[int], list[int]]:
        """What to watch so that later calls need to look again only at some nodes and facts, which are the other results."""
        watch = Watch()
        again = list(varying)
        for at, node in enumerate(self.nodes):
            parent, kind, what = node
            again[at] |= (parent >= 0 and again[parent]) or (kind == "item by" and again[what])
            if not again[at]:
                try:
                    self._at(node, values, roots, arguments, watch)
                except NotWatchable:
                    again[at] = True
        facts = []
        describe = Description(self.methods, watch)
        for at, (node, question, _) in enumerate(self.facts):
            try:
                if again[node] or question[0] == "holds" or (question[0] == "same as" and again[question[1]]):
                    facts.append(at)
                else:
                    _answer(question, values[node], values, describe)
            except NotWatchable:
                facts.append(at)
        return watch.items, [at for at, yes in enumerate(again) if yes], facts


def _answer(question: Any, value: Any, values: list[Any], describe: Description) -> str | None:
    if value is UNLOADED:
        return None
    if question == "what":
        return describe(value)
    if question == "but sizes":
        return describe.of_any_size(value)
    kind, what = question
    if kind == "each":
        answers = [describe.attribute(value, name) for name in what]
        other = next((at for at, answer in enumerate(answers) if answer != answers[0]), None)
        return answers[0] if other is None else f"{answers[0]}, but {what[other]} is {answers[other]}"
    if kind == "has":
        describe.attributes(value)
        return str(hasattr(value, what))
    if kind == "in __dict__":
        describe.attributes(value)
        return str(what in getattr(value, "__dict__", ()))
    if kind == "contains":
        describe(value)
        return str(value is not MISSING and what in value)
    if kind == "same as":
        return str(value is values[what])
    if kind == "holds":
        try:
            return str(bool(condition(what)(values)))
        except ValueError as error:
            raise NotExpressible(str(error)) from None
    raise NotExpressible(f"an unknown question {kind!r}")


def _step(roots: Roots, arguments: Mapping[str, Any], base: Any, kind: str, what: Any, watch: Watch | None) -> Any:
    if kind == "attr":
        value = getattr(base, what)
        if watch is not None:
            watch_attribute(base, what, value, watch)
        return value
    if kind == "item" or kind == "item by":
        if watch is not None:
            watch_container(base, watch)
        if isinstance(base, dict):
            return dict.__getitem__(base, what)
        return list.__getitem__(base, what) if isinstance(base, list) else base[what]
    if kind == "generic":
        value = object.__getattribute__(base, what)
        if watch is not None:
            watch_attribute(base, what, value, watch)
        return value
    if kind == "type":
        if watch is not None:
            watch.add("instance", base)
        return type(base)
    if kind == "typedict":
        if watch is not None:
            watch.add("type", base)
        return dict(vars(base))
    if kind == "key":
        if watch is not None:
            watch_container(base, watch)
        return list(dict.keys(base))[what]
    if kind == "local":
        return arguments[what]
    if kind == "free":
        cell = dict(zip(roots.function.__code__.co_freevars, roots.function.__closure__ or (), strict=True))[what]
        if watch is not None:
            watch.add("cell", cell)
        return cell.cell_contents
    if kind == "global":
        if watch is not None:
            watch.add("dict", roots.function.__globals__)
        return roots.function.__globals__[what]
    if kind == "module":
        module = sys.modules.get(what)
        if module is None:
            if package_of(what) == "user":
                raise LookupError(what)
            return UNLOADED
        return module
    if kind == "builtins":
        return vars(builtins)
    if kind == "function":
        return roots.function
    if kind == "referent":
        return base() if isinstance(base, weakref.ref) else MISSING
    if kind == "size":
        return base.shape[what]
    if kind == "stride":
        return base.stride(what)
    if kind == "offset":
        return base.storage_offset()
    raise NotExpressible(f"an unknown way {kind!r}")
