"""What the result of tracing a callable depends on, as plain facts that another process can compare.

Dynamo guards what it read: each guard has a *source*, a way from the call's arguments or a module to a value. A ``Table`` holds these
ways (``zefuse.guard_facts`` makes them out of the guards) and what was found at their ends, described by words: dtypes and
strides of tensors, values of numbers and texts, hashes of the code of functions and of the methods of classes, keys of
dictionaries, which tensors are one and the same. Nothing that cannot be told to another process is a fact: it raises
``NotExpressible``. A table is data; following its ways looks attributes and items up, and calls nothing else.
"""

from __future__ import annotations

import builtins
import enum
import functools
import hashlib
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from zefuse import _native
from zefuse.conditions import condition


class NotExpressible(Exception):
    """Something that tracing may have depended on cannot be compared by another process; the message names it."""


class NotWatchable(NotExpressible):
    """What a look found may change without a trace, so it must be looked at each time."""


_codes: dict[int, tuple[types.CodeType, str]] = {}  # by id; the code is kept, so that the id stays its own


def code_hash(code: types.CodeType) -> str:
    """Of all that runs: instructions, constants, names; not the file and its lines. Nested functions are part of it."""
    known = _codes.get(id(code))
    if known is None:
        if len(_codes) > 100_000:
            _codes.clear()
        known = _codes[id(code)] = (code, _native.load().code_hash(code))
    return known[1]


@functools.cache
def package_of(module: str) -> str:
    """Whose code a module is: "torch" and "python" have versions that are facts of their own."""
    root = module.partition(".")[0]
    if root in ("torch", "zefuse"):
        return "torch"
    return "python" if root in sys.stdlib_module_names else "user"


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
        torch.is_anomaly_enabled(),
    )


class _Missing:
    """What a way leads to that ends early."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
UNLOADED = object()  # a module of torch's or Python's that is not imported here, and so is as its version has it

_CONSTANTS = (type(None), int, float, bool, str, bytes, complex, type(Ellipsis), type(NotImplemented))
_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice, torch.Size)


class Watch:
    """Collects what was looked at, so that a later look can be left out as long as none of it changed (``_native``'s Watch)."""

    def __init__(self) -> None:
        self.items: list[tuple[str, Any]] = []
        self._known: set[tuple[str, int]] = set()

    def add(self, kind: str, value: Any) -> None:
        if (kind, id(value)) not in self._known:
            self._known.add((kind, id(value)))
            self.items.append((kind, value))


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
            _watch_attribute(base, what, value, watch)
        return value
    if kind == "item" or kind == "item by":
        if watch is not None:
            _watch_container(base, watch)
        if isinstance(base, dict):
            return dict.__getitem__(base, what)
        return list.__getitem__(base, what) if isinstance(base, list) else base[what]
    if kind == "generic":
        value = object.__getattribute__(base, what)
        if watch is not None:
            _watch_attribute(base, what, value, watch)
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
            _watch_container(base, watch)
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


def _watch_container(base: Any, watch: Watch) -> None:
    if isinstance(base, dict):
        watch.add("dict", base)
    elif isinstance(base, list):
        watch.add("list", base)
    elif not isinstance(base, (tuple, str, bytes, range)):
        raise NotWatchable(f"items of {type(base).__qualname__} cannot be watched")


def _watch_attribute(base: Any, name: str, value: Any, watch: Watch) -> None:
    """Notes what ``base.name`` is looked up in, so that it stays ``value`` while that does not change."""
    if isinstance(base, types.FunctionType) and name in ("__code__", "__defaults__", "__kwdefaults__", "__closure__"):
        return watch.add("function", base)
    if isinstance(base, types.CellType) and name == "cell_contents":
        return watch.add("cell", base)
    if isinstance(base, type):
        if name == "__mro__" or type(base).__getattribute__ is type.__getattribute__:
            return watch.add("type", base)
        raise NotWatchable(f"the class {base.__qualname__} has attributes by a rule of its own")
    if isinstance(base, property) and name in ("fget", "fset", "fdel"):
        return None  # cannot change
    if isinstance(base, (staticmethod, classmethod, types.MethodType)) and name in (
        "__func__",
        "__self__",
        "__wrapped__",
    ):
        return None
    if name == "__class__" and value is type(base):
        return watch.add("instance", base)
    if type(base).__getattribute__ not in _USUAL_LOOKUPS:
        raise NotWatchable(f"{type(base).__qualname__} has attributes by a rule of its own")
    own = getattr(base, "__dict__", None)
    if type(own) is dict and own.get(name, MISSING) is value:
        watch.add("type", type(base))  # a data descriptor would come first
        return watch.add("instance", base)
    for kind in type(base).__mro__:
        if name in vars(kind):
            if vars(kind)[name] is value:
                watch.add("type", type(base))
                if type(own) is dict:
                    watch.add("instance", base)
                return None
            break
    raise NotWatchable(f"{type(base).__qualname__}.{name} is computed")


_USUAL_LOOKUPS: tuple[Any, ...] = (object.__getattribute__, types.ModuleType.__getattribute__)


class Description:
    """Values in words. ``methods``: those of classes that count, beside the special ones (whose names begin with two
    underscores). ``codes``: hashes of the code of every function that was met, with those inside it."""

    def __init__(self, methods: Collection[str], watch: Watch | None = None) -> None:
        self.codes: set[str] = set()
        self._methods, self._watch = methods, watch
        self._tensors: dict[int, int] = {}
        self._classes: dict[type, str] = {}
        self._own_methods: dict[type, list[str]] = {}
        self._by_type: dict[type, Callable[[Any], str]] = {}

    def attributes(self, value: Any) -> None:
        """To be watched: which there are."""
        if self._watch is None:
            return
        kind = type(value)
        if kind.__getattribute__ not in _USUAL_LOOKUPS or "__getattr__" in vars(kind):
            raise NotWatchable(f"{kind.__qualname__} has attributes by a rule of its own")
        if hasattr(kind, "__getattr__") and kind.__getattr__ is not torch.nn.Module.__getattr__:
            raise NotWatchable(f"{kind.__qualname__} has attributes by a rule of its own")
        self._watch.add("type", kind)
        self._watch.add("instance", value)
        if isinstance(value, torch.nn.Module):
            for own in (value._parameters, value._buffers, value._modules):
                self._watch.add("dict", own)

    def __call__(self, value: Any) -> str:
        kind = type(value)
        describe = self._by_type.get(kind)
        if describe is None:
            describe = self._by_type[kind] = self._describer(kind)
        return describe(value)

    def _describer(self, kind: type) -> Callable[[Any], str]:
        """For all values of exactly this type: a model has hundreds of a few."""
        if kind in _CONSTANTS:
            return lambda value: f"{kind.__name__} {value!r}"
        if kind in _VALUES:
            return repr
        if issubclass(kind, torch.Tensor):
            return lambda value: self._tensor(value, tensor(value))
        if issubclass(kind, enum.Enum):
            return lambda value: f"enum {kind.__module__}.{kind.__qualname__}.{value.name}"
        if kind is _Missing:
            return repr
        if kind is types.FunctionType:
            return self._function
        if kind is types.CodeType:
            return lambda value: f"code {self._code(value)}"
        if kind is types.MethodType:
            return lambda value: f"method of {self(type(value.__self__))}: {self(value.__func__)}"
        if issubclass(kind, types.ModuleType):
            return lambda value: f"module {value.__name__}"
        if issubclass(kind, type):
            return self._class
        if issubclass(kind, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
            return _built_in
        if kind in (staticmethod, classmethod):
            return lambda value: f"{kind.__name__} {self(value.__func__)}"
        if kind is property:
            return lambda value: f"property {[part and self(part) for part in (value.fget, value.fset, value.fdel)]}"
        if issubclass(kind, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return lambda value: f"operator {value}"
        if kind is functools.partial:
            raise NotExpressible("a functools.partial")
        if issubclass(kind, (tuple, list)):
            return lambda value: f"{self._class(kind)} of {len(value)}: {', '.join(self._items(value))}"
        if issubclass(kind, (set, frozenset)):
            return self._set
        if issubclass(kind, (dict, types.MappingProxyType)):
            return self._mapping
        if kind is types.CellType:
            return lambda value: "cell"
        return self._object

    def _set(self, value: set[Any] | frozenset[Any]) -> str:
        if self._watch is not None and isinstance(value, set):
            raise NotWatchable("a set cannot be watched")
        if not all(type(item) in (int, str, bool, float) for item in value):
            raise NotExpressible("a set of other things than numbers and texts")
        return f"{type(value).__name__} {sorted(map(repr, value))}"

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        if self._watch is not None and isinstance(value, dict):
            self._watch.add("dict", value)
        keys = [repr(key) if type(key) in _CONSTANTS else self._key(key) for key in value]
        return f"{self._class(type(value))} of {len(keys)}: {', '.join(keys)}"

    def _object(self, value: Any) -> str:
        if self._watch is not None:
            self._watch.add("instance", value)
        return f"an object of {self._class(type(value))}"

    def attribute(self, value: Any, name: str) -> str:
        try:
            found = getattr(value, name)
            if self._watch is not None:
                _watch_attribute(value, name, found, self._watch)
        except NotWatchable:
            raise
        except Exception:  # as at a node's end
            found = MISSING
        return self(found)

    def of_any_size(self, value: Any) -> str:
        """A tensor about whose sizes and strides there are conditions of their own."""
        return self._tensor(value, tensor(value, sizes=False)) if isinstance(value, torch.Tensor) else self(value)

    def _tensor(self, value: torch.Tensor, text: str) -> str:
        if self._watch is not None:
            self._watch.add("tensor", value)
        return f"{text} #{self._tensors.setdefault(id(value), len(self._tensors))}"

    def _items(self, value: tuple[Any, ...] | list[Any], depth: int = 0) -> list[str]:
        """Numbers and texts, also of lists inside; of other things their type: guards lead to what counts of them."""
        if self._watch is not None and isinstance(value, list):
            self._watch.add("list", value)
        return [
            repr(item)
            if type(item) in _CONSTANTS
            else f"{type(item).__name__} of {self._items(item, depth + 1)}"
            if type(item) in (tuple, list) and depth < 8
            else type(item).__name__
            for item in value
        ]

    def _key(self, key: Any) -> str:
        if isinstance(key, (type, enum.Enum, torch.dtype)):
            return self(key) if not isinstance(key, type) else f"{key.__module__}.{key.__qualname__}"
        return f"a key of {type(key).__module__}.{type(key).__qualname__}"

    def _code(self, code: types.CodeType) -> str:
        self.codes.add(code_hash(code))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant)
        return code_hash(code)

    def _function(self, value: types.FunctionType) -> str:
        if self._watch is not None:
            self._watch.add("function", value)
            if value.__kwdefaults__:
                self._watch.add("dict", value.__kwdefaults__)
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return f"function {value.__module__}.{value.__qualname__} {self._code(value.__code__)} {self._items(defaults)}"

    def _class(self, value: type) -> str:
        """With the code of its methods: what an instance does, whoever changed its class."""
        known = self._classes.get(value)
        if known is None:
            if self._watch is not None and package_of(value.__module__) != "python":
                self._watch.add("type", value)
            methods = [line for base in value.__mro__ for line in self._methods_of(base)]
            digest = hashlib.sha256("\n".join(methods).encode()).hexdigest()[:16] if methods else ""
            known = self._classes[value] = f"class {value.__module__}.{value.__qualname__} {digest}".rstrip()
        return known

    def _methods_of(self, base: type) -> list[str]:
        """Of its own, not of its bases: torch.nn.Module is that of all."""
        known = self._own_methods.get(base)
        if known is None:
            known = self._own_methods[base] = []
            if package_of(base.__module__) == "python":
                return known
            for name, item in vars(base).items():
                if name not in self._methods and not name.startswith("__"):
                    continue  # tracing went through none of this name
                if base is torch.nn.Module and name in ("__init__", "__setstate__"):
                    continue  # Dynamo replaces them, sooner or later in a process
                for function in _functions(item):
                    known.append(f"{base.__qualname__}.{name} {self._code(function.__code__)}")
        return known


def _built_in(value: Any) -> str:
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, (types.ModuleType, type)) and "torch" not in str(type(owner)):
        raise NotExpressible(f"a built-in method of an object of type {type(owner).__name__}")
    return f"built-in {getattr(value, '__module__', '')}.{value.__qualname__}"


def _functions(item: Any) -> list[types.FunctionType]:
    if isinstance(item, (staticmethod, classmethod)):
        item = item.__func__
    parts = (item.fget, item.fset, item.fdel) if isinstance(item, property) else (item,)
    return [part for part in parts if isinstance(part, types.FunctionType)]


def tensor(value: torch.Tensor, sizes: bool = True) -> str:
    """All of a tensor but its numbers. (An attribute of its own that tracing read has a guard of its own.)"""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise NotExpressible(f"a tensor of the class {type(value).__qualname__}")
    if value.device.type != "cpu" or value.layout is not torch.strided:
        raise NotExpressible(f"a tensor with layout {value.layout} on {value.device}")
    if value._backward_hooks:
        raise NotExpressible("a tensor with hooks of its own")
    flags = (
        value.requires_grad,
        value.is_leaf,
        value.is_inference(),
        value.is_conj(),
        value.is_neg(),
        value._is_view(),
    )
    extent = f"{list(value.shape)} strides {list(value.stride())}" if sizes else f" of {value.dim()} dimensions"
    return (
        f"{type(value).__name__} {value.dtype}{extent} "
        f"offset {value.storage_offset()} {''.join(str(int(flag)) for flag in flags)}"
    )


def is_user_code(code: types.CodeType) -> bool:
    """Whether its file is neither torch's nor Python's own."""
    file = code.co_filename
    if file.startswith((_TORCH, "<frozen")):
        return False
    return "site-packages" in file or not file.startswith(_PYTHON)


_TORCH = (torch.__file__ or "").removesuffix("__init__.py")
_PYTHON = inspect.getfile(inspect).removesuffix("inspect.py")
