"""What the trace of a decoder depends on, as fields of a cache's key: the model's code, its configuration and everything else that
its modules hold, its tensors (not their numbers), the call, versions and options.

Nothing of the model runs. What words cannot name raises ``NotExpressible``.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import platform
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

import zefuse
from zefuse import _native, tuning
from zefuse.llm.layers import StandIn
from zefuse.options import Options
from zefuse.precompile.calls import plan_options
from zefuse.precompile.descriptions import NotExpressible, code_hash, package_of
from zefuse.precompile.facts import STATE_NAMES, state

FORMAT = "1"
# Of a module: tensors and modules inside it have fields of their own; what zefuse put there is in the options; how tokens are chosen
# is not part of a forward.
_NOT_STATE = frozenset({
    "_parameters", "_buffers", "_modules", "forward", "_prepare_cache_for_generation", "_valid_auto_compile_criteria",
    "prepare_inputs_for_generation", "_get_logits_processor", "_zefuse_llm_report", "generation_config",
})  # fmt: skip
# Of a configuration: where it was read and by which version.
_NOT_CONFIGURATION = frozenset({"_name_or_path", "name_or_path", "transformers_version"})
_CONSTANTS = (type(None), int, float, bool, str, bytes, complex)
_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice, torch.Size)
_DEEPEST = 12


def fields(model: Any, graph: str, call: Any, options: Options, settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """``graph`` ("decode") and ``call`` (tuples of plain values) tell the graphs of one model apart. ``settings``: the options, and
    where the model's tensors lie."""
    code = _Code()
    held = "\n".join(_held(model, code))
    return [
        ("format", FORMAT),
        ("torch", torch.__version__),
        ("transformers", transformers.__version__),
        ("python", platform.python_version()),
        ("zefuse", f"{zefuse.__version__} {_native.load().build_id()} {_own_sources()}"),
        ("model", f"{type(model).__module__}.{type(model).__qualname__}"),
        ("graph", graph),
        ("configuration", _hash(_configuration(model.config))),
        ("modules", _hash(held)),
        ("tensors", _hash("\n".join(_tensors(model)))),
        ("code", _hash("\n".join(code.lines(type(module) for module in model.modules())))),
        ("options", plan_options(options)),
        ("device", "" if settings["device"] == "cpu" else repr(_native.load().device_fields(settings["device"]))),
        ("tuning", tuning.fingerprint(settings)),
        *((name, str(value)) for name, value in zip(STATE_NAMES, state(), strict=True)),
        ("attention", _attention_kernels()),
        ("call", _words(call, code, {})),
    ]  # fmt: skip


def _attention_kernels() -> str:
    """``torch.nn.attention.sdpa_kernel``: which operators an attention becomes."""
    kinds: Any = torch.backends.cuda
    return f"{kinds.flash_sdp_enabled()} {kinds.mem_efficient_sdp_enabled()} {kinds.math_sdp_enabled()}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _own_sources() -> str:
    """Ours decide what is traced, and the compiled part's build says nothing of them."""
    root = Path(zefuse.__file__).parent
    made = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        made.update(f"{file.relative_to(root)}\n".encode())
        made.update(file.read_bytes())
    return made.hexdigest()[:16]


def _configuration(config: Any) -> str:
    def without(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): without(each) for key, each in value.items() if key not in _NOT_CONFIGURATION}
        return [without(each) for each in value] if isinstance(value, (list, tuple)) else value

    # Private ones, such as which attention is computed, are not in to_dict() of every version.
    own = {name: value for name, value in vars(config).items() if isinstance(value, _CONSTANTS)}
    return json.dumps([without(config.to_dict()), without(own)], sort_keys=True, default=str)


def _tensors(model: torch.nn.Module) -> Iterator[str]:
    first: dict[int, str] = {}
    for kind, named in (
        ("parameter", model.named_parameters(remove_duplicate=False)),
        ("buffer", model.named_buffers(remove_duplicate=False)),
    ):
        for name, tensor in named:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
                raise NotExpressible(f"{name} is a tensor of the class {type(tensor).__qualname__}, {tensor.layout}")
            same = first.setdefault(id(tensor), name)
            yield (
                f"{kind} {name} {same} {tensor.dtype} {tensor.device} {tuple(tensor.shape)} {tensor.stride()} "
                f"{tensor.storage_offset()}"
            )


def _held(model: torch.nn.Module, code: _Code) -> Iterator[str]:
    """What the modules hold besides: numbers, texts, functions."""
    names = {id(module): name for name, module in model.named_modules()}
    for name, module in model.named_modules():
        children = [
            f"{key}: {None if child is None else type(child).__qualname__}" for key, child in module._modules.items()
        ]
        yield f"{name} {type(module).__module__}.{type(module).__qualname__} {children}"
        for attribute, value in sorted(vars(module).items()):
            if attribute in _NOT_STATE and (attribute != "forward" or module is model or isinstance(value, StandIn)):
                continue
            try:
                yield f"{name}.{attribute} {_words(value, code, names)}"
            except NotExpressible as error:
                raise NotExpressible(f"{name or 'the model'}.{attribute} holds {error}") from None


def _words(value: Any, code: _Code, modules: Mapping[int, str], inside: tuple[int, ...] = ()) -> str:
    """A value, with the code of functions and classes in it."""
    kind = type(value)
    if kind in _CONSTANTS or kind in _VALUES:
        return repr(value)
    if id(value) in inside:
        return f"as {len(inside) - inside.index(id(value))} above"
    if len(inside) > _DEEPEST:
        raise NotExpressible("objects in objects, too deep")
    deeper = functools.partial(_words, code=code, modules=modules, inside=(*inside, id(value)))
    named = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, enum.Enum):
        return f"{named}.{value.name}"
    if isinstance(value, torch.Tensor):
        raise NotExpressible("a tensor that is no parameter and no buffer")
    if isinstance(value, torch.nn.Module):
        if id(value) not in modules:
            raise NotExpressible(f"a {kind.__qualname__} that is none of the model's modules")
        return f"module {modules[id(value)]}"
    if isinstance(value, transformers.PreTrainedConfig):
        return f"{named} {_configuration(value)}"
    if isinstance(value, (tuple, list)):
        return f"{named} {[deeper(each) for each in value]}"
    if isinstance(value, (set, frozenset)):
        return f"{named} {sorted(deeper(each) for each in value)}"
    if isinstance(value, (dict, types.MappingProxyType)):
        return f"{named} {[(deeper(key), deeper(each)) for key, each in value.items()]}"
    if isinstance(value, types.FunctionType):
        code.add(value)
        return f"function {value.__module__}.{value.__qualname__} {code_hash(value.__code__)}"
    if isinstance(value, type):
        code.add_class(value)
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, types.MethodType):
        return f"method {deeper(value.__func__)} of {deeper(value.__self__)}"
    if isinstance(value, functools.partial):
        return f"partial {deeper(value.func)} {deeper(value.args)} {deeper(value.keywords)}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"built-in {value.__module__}.{value.__qualname__}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if hasattr(value, "__dict__") and package_of(kind.__module__) == "user":
        code.add_class(kind)
        return f"{named} {deeper(vars(value))}"
    raise NotExpressible(f"an object of the class {named}")


class _Code:
    """Functions that a forward may run. Python's and torch's own are left to their versions.

    All methods of the modules' classes count. Of those that ``forward`` may reach by a name, whatever it stands for (a global, an
    item of a global dictionary, a method of any of the modules' classes, a cell of a closure), the same holds in turn: too many
    rather than too few.
    """

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._seen: set[int] = set()
        self._waiting: deque[types.FunctionType] = deque()
        self._classes: set[type] = set()
        self._methods: dict[str, list[types.FunctionType]] = {}
        self._kept: list[Any] = []  # so that ids stay their own

    def add(self, value: types.FunctionType) -> None:
        if id(value) not in self._seen and package_of(value.__module__ or "") == "user":
            self._seen.add(id(value))
            self._kept.append(value)
            self._waiting.append(value)

    def add_class(self, kind: type) -> None:
        """What an instance does when it is called is followed; its other methods where their name is met."""
        for base in kind.__mro__:
            if base in self._classes or package_of(base.__module__) != "user":
                continue
            self._classes.add(base)
            for name, item in vars(base).items():
                for function in _functions(item):
                    self._line(function)
                    self._methods.setdefault(name, []).append(function)
                    if name in ("forward", "__call__"):
                        self.add(function)
                # transformers keeps what it found out about a class there (_can_set_attn_implementation_cached_value)
                if isinstance(item, _CONSTANTS) and not name.startswith("__") and "_cached" not in name:
                    self._lines.add(f"{base.__module__}.{base.__qualname__}.{name} = {item!r}")

    def lines(self, kinds: Iterable[type]) -> list[str]:
        for kind in dict.fromkeys(kinds):
            self.add_class(kind)
        names: set[str] = set()
        while self._waiting:
            while self._waiting:
                names |= self._follow(self._waiting.popleft())
            # Only now are all classes known whose methods a name may be.
            for name in names & self._methods.keys():
                for function in self._methods[name]:
                    self.add(function)
        return sorted(self._lines)

    def _line(self, function: types.FunctionType) -> None:
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())
        plain = [repr(each) if isinstance(each, _CONSTANTS) else type(each).__name__ for each in defaults]
        self._lines.add(f"{function.__module__}.{function.__qualname__} {code_hash(function.__code__)} {plain}")

    def _follow(self, function: types.FunctionType) -> set[str]:
        """Gives the names in its code, after what they are as globals was added."""
        self._line(function)
        names: set[str] = set()
        codes = [function.__code__]
        for code in codes:
            names.update(code.co_names)
            codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in sorted(names & function.__globals__.keys()):
            value = function.__globals__[name]
            self._found(f"{function.__module__}.{name}", value)
            if isinstance(value, types.ModuleType) and package_of(value.__name__) == "user":
                for own in sorted(names & vars(value).keys()):
                    self._found(f"{value.__name__}.{own}", vars(value)[own])
        for number, cell in enumerate(function.__closure__ or ()):
            try:
                self._found(f"{function.__module__}.{function.__qualname__} cell {number}", cell.cell_contents)
            except ValueError:  # empty
                continue
        if wrapped := getattr(function, "__wrapped__", None):
            self._found(f"{function.__module__}.{function.__qualname__} wrapped", wrapped)
        return names

    def _found(self, place: str, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            self.add(value)
        elif isinstance(value, type):
            self.add_class(value)
        elif isinstance(value, (staticmethod, classmethod, types.MethodType)):
            self._found(place, value.__func__)
        elif isinstance(value, functools.partial):
            self._found(place, value.func)
        elif isinstance(value, _CONSTANTS):
            self._lines.add(f"{place} = {value!r}")
        elif not isinstance(value, types.ModuleType):
            self._found_functions(value)

    def _found_functions(self, value: Any) -> None:
        """Of a global table: of attention, masks, activations. Its other items may come and go with what is used of it."""
        for table in (value, *(vars(value).values() if hasattr(value, "__dict__") else ())):
            if isinstance(table, (dict, types.MappingProxyType)):
                for each in list(dict(table).values()):
                    if isinstance(each, types.FunctionType):
                        self.add(each)
                    elif isinstance(each, type):
                        self.add_class(each)


def _functions(item: Any) -> list[types.FunctionType]:
    if isinstance(item, (staticmethod, classmethod)):
        item = item.__func__
    parts: tuple[Any, ...] = (item.fget, item.fset) if isinstance(item, property) else (item,)
    if isinstance(item, functools.cached_property):
        parts = (item.func,)
    return [part for part in parts if isinstance(part, types.FunctionType)]
