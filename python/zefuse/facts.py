"""What the result of tracing a callable depends on, as plain facts that another process can compare.

``Facts`` walks a callable and the arguments of a call: modules with all that they hold, classes, functions by the hash of their
code, and, for functions whose code was traced, the globals that the code names. What has no checkable form raises
``NotExpressible``. Facts are strings; tensors are described (dtype, sizes, strides, ...) and numbered, never read, so which
tensors are one and the same is part of the facts.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import hashlib
import inspect
import marshal
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch

_MOST = 200_000  # facts of one walk


class NotExpressible(Exception):
    """Something that tracing may have depended on cannot be compared by another process; the message names it."""


_codes: dict[int, tuple[types.CodeType, str]] = {}  # by id; the code is kept, so that the id stays its own


def code_hash(code: types.CodeType) -> str:
    """Of all that runs: instructions, constants, names; not the file and its lines. Nested functions are part of it."""
    known = _codes.get(id(code))
    if known is None:
        if len(_codes) > 100_000:
            _codes.clear()
        known = _codes[id(code)] = (code, hashlib.sha256(_pack(code)).hexdigest()[:32])
    return known[1]


def _pack(code: types.CodeType) -> bytes:
    constants = b"".join(
        _pack(c) if isinstance(c, types.CodeType) else (type(c).__name__ + repr(c)).encode() for c in code.co_consts
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name)
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return marshal.dumps((code.co_code, names, numbers, code.co_exceptiontable)) + hashlib.sha256(constants).digest()


@functools.cache
def _package(module: str) -> str:
    """Whose code a module is: "torch" and "python" have versions that are facts of their own."""
    root = module.partition(".")[0]
    if root in ("torch", "zefuse"):
        return "torch"
    return "python" if root in sys.stdlib_module_names else "user"


def state() -> dict[str, str]:
    """What every call depends on besides its callable and arguments."""
    from torch.nn.modules import module as nn_module

    hooks = [name for name in vars(nn_module) if name.startswith("_global_") and name.endswith("hooks")]
    if any(getattr(nn_module, name) for name in hooks):
        raise NotExpressible("a global hook on modules is set")
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        raise NotExpressible("a torch function or dispatch mode is active")
    values = {
        "grad": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "matmul precision": torch.get_float32_matmul_precision(),
        "anomaly mode": torch.is_anomaly_enabled(),
    }
    return {name: str(value) for name, value in values.items()}


class Facts:
    """``lines``: the facts, in the order of the walk, each ``place: value``. ``tensors``: those met, each once."""

    def __init__(self, function: Callable[..., Any], arguments: Any, traced: Iterable[str]) -> None:
        """``traced``: hashes of the code that tracing went through, whose globals count."""
        self.lines: list[str] = []
        self.tensors: list[torch.Tensor] = []
        self.codes: set[str] = set()  # hashes of all functions met
        self._traced = frozenset(traced)
        self._numbers: dict[int, int] = {}  # id of what was met: its number
        self._kept: list[Any] = []  # so that ids stay their own
        self._walk("function", function)
        self._walk("arguments", arguments)
        self._walk("tensor methods", torch.Tensor)

    def _say(self, place: str, what: str) -> None:
        self.lines.append(f"{place}: {what}")
        if len(self.lines) > _MOST:
            raise NotExpressible(f"{place}: the model has more than {_MOST} parts")

    def _walk(self, place: str, value: Any) -> None:
        kind = type(value)
        if value is None or kind in (int, float, bool, str, bytes, complex, type(Ellipsis), type(NotImplemented)):
            return self._say(place, f"{kind.__name__} {value!r}")
        if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice):
            return self._say(place, repr(value))
        if isinstance(value, enum.Enum):
            return self._say(place, f"enum {kind.__module__}.{kind.__qualname__}.{value.name}")
        if (number := self._numbers.get(id(value))) is not None:
            return self._say(place, f"the same as {number}")
        self._numbers[id(value)] = len(self._kept)
        self._kept.append(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(place, value)
        if kind in (tuple, list, torch.Size):
            self._say(place, f"{kind.__name__} of {len(value)}")
            for at, item in enumerate(value):
                self._walk(f"{place}[{at}]", item)
            return None
        if kind in (dict, OrderedDict):
            return self._dict(place, value)
        if kind in (set, frozenset):
            if not all(type(item) in (int, str, bool, float) for item in value):
                raise NotExpressible(f"{place}: a set of other things than numbers and texts")
            return self._say(place, f"{kind.__name__} {sorted(map(repr, value))}")
        if kind is types.FunctionType:
            return self._function(place, value)
        if kind is types.MethodType:
            self._walk(f"{place}.__func__", value.__func__)
            return self._walk(f"{place}.__self__", value.__self__)
        if kind is types.ModuleType:
            return self._say(place, f"module {value.__name__}")
        if kind in (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType):
            owner = getattr(value, "__self__", None)
            if (
                owner is not None
                and not isinstance(owner, (types.ModuleType, type))
                and "torch" not in str(type(owner))
            ):
                raise NotExpressible(f"{place}: a built-in method of an object of type {type(owner).__name__}")
            return self._say(place, f"built-in {getattr(value, '__module__', '')}.{value.__qualname__}")
        if isinstance(value, type):
            return self._class(place, value)
        if kind in (staticmethod, classmethod):
            self._say(place, kind.__name__)
            return self._walk(f"{place}.__func__", value.__func__)
        if kind is property:
            self._say(place, "property")
            for part in ("fget", "fset", "fdel"):
                self._walk(f"{place}.{part}", getattr(value, part))
            return None
        if kind is functools.partial:
            self._say(place, "partial")
            return self._walk(place, (value.func, value.args, value.keywords))
        if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return self._say(place, f"operator {value}")
        if isinstance(value, torch.nn.Module):
            return self._object(place, value)
        if _package(kind.__module__) == "user" and hasattr(value, "__dict__") and kind.__new__ is object.__new__:  # type: ignore[comparison-overlap]
            return self._object(place, value)
        raise NotExpressible(f"{place}: an object of type {kind.__module__}.{kind.__qualname__}")

    def _tensor(self, place: str, value: torch.Tensor) -> None:
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise NotExpressible(f"{place}: a tensor of the class {type(value).__qualname__}")
        if value.device.type != "cpu" or value.layout is not torch.strided:
            raise NotExpressible(f"{place}: a tensor with layout {value.layout} on {value.device}")
        if set(vars(value)) - {"_dynamo_static_input_type"} or value._backward_hooks:  # Dynamo writes that one itself
            raise NotExpressible(f"{place}: a tensor with attributes or hooks of its own")
        flags = (
            value.requires_grad,
            value.is_leaf,
            value.is_inference(),
            value.is_conj(),
            value.is_neg(),
            value._is_view(),
        )
        self._say(
            place,
            f"{type(value).__name__} {value.dtype}{list(value.shape)} strides {list(value.stride())} "
            f"offset {value.storage_offset()} {''.join(str(int(flag)) for flag in flags)}",
        )
        self.tensors.append(value)

    def _dict(self, place: str, value: dict[Any, Any]) -> None:
        self._say(place, f"{type(value).__name__} of {len(value)}")
        for key, item in value.items():
            if type(key) not in (str, int, bool, float, type(None)):
                raise NotExpressible(f"{place}: a key of type {type(key).__name__}")
            self._walk(f"{place}[{key!r}]", item)

    def _object(self, place: str, value: Any) -> None:
        kind = type(value)
        self._say(place, f"an object of {kind.__module__}.{kind.__qualname__}")
        self._walk(f"type({place})", kind)
        self._dict(place, vars(value))

    def _class(self, place: str, value: type) -> None:
        self._say(place, f"class {value.__module__}.{value.__qualname__} of {type(value).__qualname__}")
        if _package(value.__module__) == "python":
            return
        for base in value.__bases__:
            self._walk(f"{place}.{base.__qualname__}", base)
        ours = _package(value.__module__) == "user"
        for name, item in vars(value).items():
            if value is torch.nn.Module and name in ("__init__", "__setstate__"):
                continue  # Dynamo replaces them, sooner or later in a process
            if isinstance(item, (types.FunctionType, staticmethod, classmethod, property)) or (
                ours and name not in _OF_EVERY_CLASS
            ):
                self._walk(f"{place}.{name}", item)

    def _function(self, place: str, value: types.FunctionType) -> None:
        code = value.__code__
        digest = code_hash(code)
        self._cover(code)
        self._say(place, f"function {value.__module__}.{value.__qualname__} {digest}")
        if vars(value):
            self._say(place, f"attributes {sorted(vars(value))}")
            if "__wrapped__" in vars(value):
                self._walk(f"{place}.__wrapped__", value.__wrapped__)  # type: ignore[attr-defined]
        if digest not in self._traced:
            return
        self._walk(f"{place}.__defaults__", value.__defaults__)
        self._walk(f"{place}.__kwdefaults__", value.__kwdefaults__)
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            if name == "__class__":
                continue  # the class that defines it, which is met by its own way
            try:
                held = cell.cell_contents
            except ValueError:
                raise NotExpressible(f"{place}: the closure variable {name} is empty") from None
            self._walk(f"{place}<{name}>", held)
        self._globals(place, value, code, _names(code))

    def _cover(self, code: types.CodeType) -> None:
        self.codes.add(code_hash(code))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._cover(constant)

    def _globals(self, place: str, function: types.FunctionType, code: types.CodeType, names: frozenset[str]) -> None:
        ours = _package(function.__module__) == "user"
        if ours and _imports(code):
            raise NotExpressible(f"{place}: it imports while it runs")
        if ours and (dynamic := names & _BY_NAME):
            raise NotExpressible(f"{place}: it looks things up by name ({', '.join(sorted(dynamic))})")
        for name in sorted(names):
            if name in function.__globals__:
                item = function.__globals__[name]
                if ours:
                    self._global(f"{place}:{name}", item, names, 0)
                elif callable(item) or isinstance(item, types.ModuleType):
                    # Torch's own objects have its version; what may be put in place of its functions counts all the same.
                    with contextlib.suppress(NotExpressible):
                        self._global(f"{place}:{name}", item, names, 0)

    def _global(self, place: str, value: Any, names: frozenset[str], depth: int) -> None:
        """Of a module what the code can name in it: ``F.relu``, ``torch.nn.functional.relu``."""
        if not isinstance(value, types.ModuleType):
            return self._walk(place, value)
        self._say(place, f"module {value.__name__}")
        for name in sorted(names):
            item = vars(value).get(name)
            if isinstance(item, types.ModuleType):
                if depth < 6 and item is not value:
                    self._global(f"{place}.{name}", item, names, depth + 1)
            elif item is not None and (_package(value.__name__) == "user" or callable(item)):
                self._walk(f"{place}.{name}", item)
        return None


_BY_NAME = frozenset("globals getattr eval exec vars locals __dict__ __import__ import_module attrgetter".split())

_OF_EVERY_CLASS = frozenset(
    "__module__ __dict__ __weakref__ __doc__ __annotations__ __qualname__ __parameters__ __orig_bases__ __firstlineno__ "
    "__static_attributes__ __abstractmethods__ _abc_impl __slots__ __match_args__".split()
)


@functools.lru_cache(maxsize=10_000)
def _names(code: types.CodeType) -> frozenset[str]:
    """Every name that the code, or a function inside it, looks up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=10_000)
def _imports(code: types.CodeType) -> bool:
    return any(instruction.opname == "IMPORT_NAME" for instruction in dis.get_instructions(code)) or any(
        _imports(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)
    )


def is_user_code(code: types.CodeType) -> bool:
    """Whether its file is neither torch's nor Python's own."""
    file = code.co_filename
    if file.startswith((_TORCH, "<frozen")):
        return False
    return "site-packages" in file or not file.startswith(_PYTHON)


_TORCH = (torch.__file__ or "").removesuffix("__init__.py")
_PYTHON = inspect.getfile(inspect).removesuffix("inspect.py")
