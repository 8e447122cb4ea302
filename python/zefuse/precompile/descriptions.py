"""Values in words that another process can compare: dtype and strides of tensors, hashes of the code of functions and of the
methods of classes, keys of dictionaries; and what of them to watch, so that a later look can be left out as long as nothing
changed. Nothing of a user's runs but what computes an attribute. What words cannot name raises ``NotExpressible``."""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from zefuse import _native


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


class _Missing:
    """What a way leads to that ends early."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()

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


def watch_container(base: Any, watch: Watch) -> None:
    if isinstance(base, dict):
        watch.add("dict", base)
    elif isinstance(base, list):
        watch.add("list", base)
    elif not isinstance(base, (tuple, str, bytes, range)):
        raise NotWatchable(f"items of {type(base).__qualname__} cannot be watched")


def watch_attribute(base: Any, name: str, value: Any, watch: Watch) -> None:
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
            return self._mappings(kind)
        if kind is types.CellType:
            return lambda value: "cell"
        if self._watch is None:
            text = f"an object of {self._class(kind)}"
            return lambda value: text
        return self._object

    def _set(self, value: set[Any] | frozenset[Any]) -> str:
        if self._watch is not None and isinstance(value, set):
            raise NotWatchable("a set cannot be watched")
        if not all(type(item) in (int, str, bool, float) for item in value):
            raise NotExpressible("a set of other things than numbers and texts")
        return f"{type(value).__name__} {sorted(map(repr, value))}"

    def _mappings(self, kind: type) -> Callable[[Mapping[Any, Any]], str]:
        words = f"{self._class(kind)} of "
        empty = words + "0: "  # most are: a module has seven for hooks alone

        def describe(value: Mapping[Any, Any]) -> str:
            if self._watch is not None and isinstance(value, dict):
                self._watch.add("dict", value)
            if not value:
                return empty
            keys = [repr(key) if type(key) in _CONSTANTS else self._key(key) for key in value]
            return f"{words}{len(keys)}: {', '.join(keys)}"

        return describe

    def _object(self, value: Any) -> str:
        if self._watch is not None:
            self._watch.add("instance", value)
        return f"an object of {self._class(type(value))}"

    def attribute(self, value: Any, name: str) -> str:
        try:
            found = getattr(value, name)
            if self._watch is not None:
                watch_attribute(value, name, found, self._watch)
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
