"""``zefuse.enable_precompile()``: a second process calls a compiled model without tracing it again.

torch's own precompile cache drops guards, and keys by name and line. Here an entry of our cache holds the plan, which tensors go in,
how the results are put together, and facts (``zefuse.precompile.facts``) about everything that Dynamo guards and about the code that it
traced. All are data: loading executes nothing, and a file that others could have written is not used. The facts are compared
at the first call; later ones compare them again when anything that they depend on has changed (``_native``'s Watch). Any
difference compiles as usual. What cannot be stated as facts is not kept, with a reason (``events()``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import logging
import os
import platform
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

from zefuse import __version__, _native, backend, cache, tuning
from zefuse.graphs import observers
from zefuse.options import Options
from zefuse.precompile.descriptions import MISSING, Description, NotExpressible, tensor
from zefuse.precompile.facts import STATE_NAMES, Roots, Table, state

if TYPE_CHECKING:
    from zefuse.precompile import guard_facts

_KIND = "precompile"
_log = logging.getLogger("zefuse.precompile")
_events: deque[str] = deque(maxlen=1000)
_inside: ContextVar[bool] = ContextVar("zefuse_precompile_inside", default=False)


def other_way(options: Options) -> str:
    """Why compiling with these does something else than to make a plan for the CPU; empty: it does not."""
    if options.device != "cpu":
        return f"it is compiled for {options.device}"
    for name in ("dump_dir", "package", "targets"):
        if getattr(options, name):
            return f"the option {name} is given"
    for name in ("ZEFUSE_DUMP", "ZEFUSE_PACKAGE", "ZEFUSE_TARGETS"):
        if os.environ.get(name):
            return f"{name} is set"
    return ""


def plan_options(options: Options) -> str:
    """Of a key: those that change a plan where there is no ``other_way``."""
    named = ("device", "strict", "fuse", "library_products", "library_convolutions", "fallback_random", "package")
    return json.dumps({name: options.to_dict()[name] for name in named}, sort_keys=True)


def events() -> list[str]:
    """What happened, newest last: entries taken, kept, refused and outdated, each with its reason. Also logged (INFO)."""
    return list(_events)


def _note(text: str) -> None:
    _events.append(text)
    _log.info("%s", text)


def enable_precompile() -> None:
    """From now on ``torch.compile(..., backend="zefuse")`` looks in the cache (``cache_dir``) before it traces.

    Covered: inference (no gradients) of functions and modules that are one graph (of fixed or any sizes), return plain tensors, numbers
    and containers of them, and change nothing but their results. Everything else is compiled as before. docs/cache.md has
    figures. It holds for the whole process, and for what is compiled after it. Calling it twice is harmless.
    """
    _native.load()
    original = torch.compile
    if getattr(original, "_zefuse_precompile", False):
        return

    @functools.wraps(original)
    def compile(model: Any = None, **keywords: Any) -> Any:  # torch.compile takes no other argument by position
        if model is None:
            return lambda model: compile(model, **keywords)
        compiled = original(model, **keywords)
        if keywords.get("backend") != "zefuse" or keywords.get("disable") or keywords.get("mode"):
            return compiled
        options = Options.make(keywords.get("options"))
        if reason := other_way(options):
            _note(f"{_name(model)}: not looked for: {reason}")
            return compiled
        if isinstance(model, torch.nn.Module):
            # Of a module only ``forward`` is replaced: the rest is torch's own wrapper.
            compiled.forward = _Precompiled(model, compiled.forward, options)  # type: ignore[attr-defined]
            return compiled
        if inspect.ismethod(model) and model.__func__ is torch.nn.Module._call_impl:
            model = model.__self__  # Module.compile; Dynamo traces its forward
            return _function(_Precompiled(model, compiled, options))
        if inspect.isfunction(model) or inspect.ismethod(model):
            return functools.wraps(model)(_function(_Precompiled(model, compiled, options)))
        _note(f"{_name(model)}: not looked for: it is no module and no function of Python's")
        return compiled

    compile._zefuse_precompile = True  # type: ignore[attr-defined]
    torch.compile = compile


def _function(callable_: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return callable_(*args, **kwargs)

    return run


class _Entry:
    """A plan with what its use depends on. Called by any thread."""

    def __init__(self, table: Table, inputs: list[int], results: Any, loading: Any) -> None:
        self.table, self.inputs, self.results = table, inputs, results
        self._loading, self._graph, self._lock = loading, None, threading.Lock()
        self._watched: _Watched | None = None
        self._matched = False

    def graph(self) -> Any:
        """The plan, once it is loaded; raises what stopped that."""
        if self._graph is None:
            with self._lock:
                if self._loading is not None:
                    loading, self._loading = self._loading, None
                    self._graph = loading.take()
        if self._graph is None:
            raise RuntimeError("its plan could not be loaded")
        return self._graph

    def tensors(self, roots: Roots, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], str]:
        """The graph's inputs in this call, or why this is not what was traced."""
        arguments = roots.arguments(args, kwargs)
        watched = self._watched
        if watched is not None and (values := watched.values(roots, arguments)) is not None:
            return [values[node] for node in self.inputs], ""
        table = self.table
        values = table.look(roots, arguments)
        answers = table.answers(values)
        for (node, question, was), now in zip(table.facts, answers, strict=True):
            if was != now and was is not None and now is not None:
                return [], f"{table.name(node)}: was {was!r}, is {now!r}" + (
                    "" if question == "what" else f" ({question})"
                )
        if self._matched:  # the first call is to be quick
            self._watched = _Watched(table, roots, arguments, values)
        self._matched = True
        return [values[node] for node in self.inputs], ""

    def run(self, tensors: list[Any]) -> Any:
        return _build(self.results, self.graph()(tensors))


class _Watched:
    """A look at everything that was as traced, and what must not have changed for it to hold still."""

    def __init__(self, table: Table, roots: Roots, arguments: dict[str, Any], values: list[Any]) -> None:
        self._table, self._values = table, values
        items, self._nodes, facts = table.watch(roots, arguments, values, table.varying(roots.fixed))
        self._kept = [*items, *(list(value) for kind, value in items if kind == "list")]  # Watch keeps addresses only
        self._kept += [value.cell_contents for kind, value in items if kind == "cell"]
        self._watch = _native.load().Watch(items)
        self._unloaded = [what for _, kind, what in table.nodes if kind == "module" and what not in sys.modules]
        again = set(self._nodes)
        self._fixed_tensors: dict[int, str] = {}
        for number, (node, question, answer) in enumerate(table.facts):
            if question in ("what", "but sizes") and node not in again and isinstance(values[node], torch.Tensor):
                self._fixed_tensors[id(values[node])] = str(answer).rpartition(" #")[2]
            if node in again and number not in facts:
                raise AssertionError("a fact about an argument is looked at each time")
        self._fixed_numbers = set(self._fixed_tensors.values())
        self._facts = [(number, *table.facts[number]) for number in facts]

    def values(self, roots: Roots, arguments: dict[str, Any]) -> list[Any] | None:
        """At each node of the table; None: look at everything again."""
        if not self._watch.unchanged() or any(name in sys.modules for name in self._unloaded):
            return None
        values = list(self._values)
        self._table.look_again(values, self._nodes, roots, arguments)
        describe = Description(self._table.methods)
        numbers: dict[int, str] = {}
        for number, node, question, was in self._facts:
            value = values[node]
            if question in ("what", "but sizes") and isinstance(value, torch.Tensor):
                text, _, which = was.rpartition(" #")
                if id(value) in self._fixed_tensors:
                    if self._fixed_tensors[id(value)] != which:
                        return None
                elif which in self._fixed_numbers or numbers.setdefault(id(value), which) != which:
                    return None
                if tensor(value, sizes=question == "what") != text:
                    return None
            elif self._table.answer(number, values, describe) != was and was is not None:
                return None
        return values if len(set(numbers.values())) == len(numbers) else None


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class _Precompiled:
    def __init__(self, model: Any, compiled: Callable[..., Any], options: Options) -> None:
        self._model, self._compiled, self._options = model, compiled, options
        module = isinstance(model, torch.nn.Module)
        function = type(model).forward if module else model
        self._name = _name(function)
        self._function = function
        self._roots: Roots | None = None
        if (wrapper := _wrapper_of_torch(compiled)) is not None:
            self._roots = Roots(wrapper, MISSING)
        elif inspect.isfunction(function):
            self._roots = Roots(function, model if module else MISSING)
        elif inspect.ismethod(function) and inspect.isfunction(function.__func__):
            self._roots = Roots(function.__func__, function.__self__)
        self._entries: dict[Any, _Entry | None] = {}  # by what _key makes; None: compiled by torch in this process
        functools.update_wrapper(self, compiled, updated=())

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """What is cheap to say and differs between entries that live side by side."""
        if self._roots is None:
            raise NotExpressible("it is no function of Python's")
        model = self._model
        if isinstance(model, torch.nn.Module):
            if "forward" in model.__dict__ or type(model).forward is not self._function:
                raise NotExpressible("its forward was replaced")
            if any(model.__dict__[name] for name in _HOOKS):
                raise NotExpressible("it has hooks")
        return (*state(), *_signature((args, kwargs)))

    def _any_size(self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The key of an entry that serves many sizes."""
        return (*key[: len(STATE_NAMES)], "any size", *_signature((args, kwargs), sizes=False))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            _inside.get()
            or observers.compiled_graphs.get()
            or observers.captured_graphs.get()
            or torch.compiler.is_compiling()
            or _stance() != "default"
        ):
            return self._compiled(*args, **kwargs)
        try:
            key = self._key(args, kwargs)
        except NotExpressible as reason:
            _note(f"{self._name}: not looked for: {reason}")
            return self._compiled(*args, **kwargs)
        assert self._roots is not None
        if key not in self._entries:
            if (found := self._load(key)) is None:
                any_size = self._any_size(key, args, kwargs)
                if any_size not in self._entries:
                    self._entries[any_size] = self._load(any_size)
                found = self._entries[any_size]
            self._entries[key] = found
        entry = self._entries[key]
        if entry is not None:
            try:
                tensors, difference = entry.tensors(self._roots, args, kwargs)
                if not difference:
                    entry.graph()
            except Exception as error:  # what looking at a user's object raises
                tensors, difference = [], f"{type(error).__name__}: {error}"
            if not difference:
                if torch.is_grad_enabled():
                    with torch.no_grad():
                        return entry.run(tensors)
                return entry.run(tensors)
            self._entries[key] = entry = None  # a plan that still loads ends its compilers
            _note(f"{self._name}: compiled again: {difference}")
        return self._record(key, args, kwargs)

    def _fields(self, key: tuple[Any, ...]) -> list[tuple[str, str]]:
        """Where an entry lies in the cache."""
        shapes = hashlib.sha256(repr(key[len(STATE_NAMES) :]).encode()).hexdigest()
        return [
            ("format", "3"),
            ("torch", torch.__version__),
            ("python", platform.python_version()),
            ("zefuse", f"{__version__} {_native.load().build_id()}"),
            ("callable", self._name),
            ("options", plan_options(self._options)),
            ("tuning", tuning.fingerprint(self._options.to_dict())),
            *((name, str(value)) for name, value in zip(STATE_NAMES, key, strict=False)),
            ("arguments", shapes),
            ("parts", _parts(self._model)),
        ]

    def _load(self, key: tuple[Any, ...]) -> _Entry | None:
        options = self._options.to_dict()
        native = _native.load()
        found = native.cache_load(folder_of(options), _KIND, self._fields(key))
        if found is None:
            return None
        head, _, plan = found.partition(b"\n")
        try:
            loading = native.PlanLoading(plan, options)  # while the facts are compared
            parts = json.loads(head)
            table = Table(parts["nodes"], parts["facts"], parts["methods"])
            entry = _Entry(table, parts["inputs"], parts["results"], loading)
        except Exception as error:  # an entry that is of no use costs the reuse only
            _note(f"{self._name}: the entry cannot be used: {error}")
            return None
        _note(f"{self._name}: taken from the cache")
        return entry

    def _record(self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._roots is not None
        recording = _Recording(self._roots)
        with recording.active():
            result = self._compiled(*args, **kwargs)
        if not recording.graphs:
            self._entries.setdefault(key, None)
            return result  # compiled before in this process
        try:
            if recording.problem:
                raise NotExpressible(recording.problem)
            assert recording.trace is not None
            place = self._any_size(key, args, kwargs) if recording.trace.dynamic else key
            self._keep(self._fields(place), recording, args, kwargs, result)
            _note(f"{self._name}: kept")
        except NotExpressible as reason:
            _note(f"{self._name}: not kept: {reason}")
        except Exception as error:  # the call itself went well
            _note(f"{self._name}: not kept: {type(error).__name__}: {error}")
        finally:
            recording.forget()
        return result

    def _keep(self, fields: list[tuple[str, str]], recording: _Recording, args: Any, kwargs: Any, result: Any) -> None:
        from zefuse.precompile import guard_facts

        assert self._roots is not None
        graph, inputs, outputs = recording.only_call()
        arguments = self._roots.arguments(args, kwargs)
        assert recording.trace is not None
        table, sizes = guard_facts.table(recording.trace, self._roots, arguments)
        values = table.look(self._roots, arguments)
        nodes = {
            id(value): node for node, value in reversed(list(enumerate(values))) if isinstance(value, torch.Tensor)
        }
        described = {id(values[node]) for node, question, _ in table.facts if question in ("what", "but sizes")}
        places = []
        for value, size in zip(inputs, sizes, strict=True):
            if size is not None and values[size] == value:
                places.append(size)
            elif id(value) in nodes and id(value) in described:
                places.append(nodes[id(value)])
            else:
                raise NotExpressible("the graph has an input that is neither an argument nor held by the model")
        results = _template(result, {id(value): number for number, value in enumerate(outputs) if value is not None})
        if recording.trace.dynamic and _numbers(results):
            raise NotExpressible("it returns a number, and its shapes are dynamic")
        for module, name in _classes(results):
            table.add_class(module, name)
        table, moved = table.gathered(places)
        head = {
            "nodes": table.nodes,
            "facts": table.facts,
            "methods": sorted(table.methods),
            "inputs": [moved[place] for place in places],
            "results": results,
        }
        options = self._options.to_dict()
        body = json.dumps(head).encode() + b"\n" + graph.plan_bytes()
        limit = (options["cache_limit_mb"] or 2048) << 20
        problem = _native.load().cache_store(folder_of(options), limit, _KIND, fields, self._name, body)
        if problem:
            raise NotExpressible(problem)


class _Recording:
    """What one tracing call compiled, and what its graph was called with."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self.graphs: list[tuple[str, Any]] = []
        self.calls: list[tuple[list[Any], Any]] = []
        self.trace: guard_facts.Traced | None = None
        self.problem = ""
        self._on = True

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        token, inside = observers.recorder.set(self._take), _inside.set(True)
        try:
            yield
        finally:
            observers.recorder.reset(token)
            _inside.reset(inside)

    def _take(self, kind: str, graph: Any, gm: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
        from zefuse.precompile import guard_facts

        self.graphs.append((kind, graph))
        if len(self.graphs) > 1:
            self.problem = self.problem or "it is more than one graph"
            return backend._boxed_function(graph)
        if kind != "inference":
            self.problem = "it needs gradients"
            return backend._boxed_function(graph) if kind == "backward" else graph
        try:
            self.trace = guard_facts.traced(self._roots.function, gm)
        except NotExpressible as reason:
            self.problem = str(reason)
        except Exception as error:  # another torch than this was written for
            self.problem = f"{type(error).__name__}: {error}"

        def run(arguments: list[Any]) -> Any:
            if not self._on:
                return graph(arguments)
            given = list(arguments)
            results = graph(arguments)
            self.calls.append((given, results))
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def only_call(self) -> tuple[Any, list[Any], Any]:
        if len(self.graphs) != 1 or len(self.calls) != 1:
            raise NotExpressible(f"it is {len(self.graphs)} graphs")
        (_, graph), (inputs, outputs) = self.graphs[0], self.calls[0]
        if not hasattr(graph, "plan_bytes"):
            raise NotExpressible("parts of it run in eager")
        if (place := graph.report().get("place", "cpu")) != "cpu":
            raise NotExpressible(f"its tensors lie on {place}")
        if graph.constants():
            raise NotExpressible("its graph holds tensors that are no parameters")
        return graph, inputs, outputs

    def forget(self) -> None:
        self._on = False
        self.calls.clear()


def _name(function: Any) -> str:
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _wrapper_of_torch(compiled: Callable[..., Any]) -> types.FunctionType | None:
    """What Dynamo traces in place of a function or module of torch's own (``nn.Sequential``), whose frames it skips: a function that
    calls it, with it in the closure. None: it traces the function itself."""
    from torch._dynamo import external_utils

    traced = getattr(compiled, "_torchdynamo_orig_callable", None)
    inner = external_utils.wrap_inline.__code__.co_consts
    return traced if inspect.isfunction(traced) and traced.__code__ in inner else None


def _stance() -> str:
    """torch.compiler.set_stance."""
    from torch._dynamo import eval_frame

    return eval_frame._stance.stance


def folder_of(options: dict[str, Any]) -> str:
    return cache.directory() if options["cache_dir"] is None else str(options["cache_dir"])


def _signature(value: Any, sizes: bool = True) -> Iterator[Any]:
    """Arguments, roughly: enough that entries for different shapes live side by side. The facts say the rest."""
    if isinstance(value, torch.Tensor):
        yield value.dtype
        yield tuple(value.shape) if sizes else value.dim()
        yield value.requires_grad
    elif type(value) in (tuple, list):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from _signature(item, sizes)
    elif type(value) is dict:
        for key, item in value.items():
            yield repr(key)
            yield from _signature(item, sizes)
    elif value is None or type(value) in (int, float, bool, str):
        yield repr(value)
    else:
        yield type(value).__qualname__


def _parts(model: Any) -> str:
    """Classes and parameters of a module and those inside it: one class may hold any."""
    if not isinstance(model, torch.nn.Module):
        return ""
    lines = [f"{name} {type(part).__module__}.{type(part).__qualname__}" for name, part in model.named_modules()]
    lines += [f"{name} {tuple(value.shape)}" for name, value in model.named_parameters(remove_duplicate=False)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _template(value: Any, outputs: dict[int, int]) -> Any:
    """A result as JSON: which of the graph's outputs stand where."""
    if isinstance(value, torch.Tensor):
        if id(value) not in outputs:
            raise NotExpressible(
                "it returns a tensor that its graph does not make: a view of an input or of another result"
            )
        return {"output": outputs[id(value)]}
    if value is None or type(value) in (bool, str) or (type(value) is int and abs(value) < 2**53):
        return {"constant": value}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_template(item, outputs) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": [[key, _template(item, outputs)] for key, item in value.items()]}
    kind = type(value)
    if (
        isinstance(value, dict)
        and dataclasses.is_dataclass(kind)
        and _named(kind.__module__, kind.__qualname__) is kind
    ):
        # transformers' ModelOutput: made of its fields
        fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(kind) if field.init]
        content = [[name, _template(item, outputs)] for name, item in fields if item is not None]
        return {"dataclass": [kind.__module__, kind.__qualname__, content]}
    raise NotExpressible(f"it returns an object of type {kind.__qualname__}")


def _named(module: str, name: str) -> Any:
    """A class of a module that is loaded; None otherwise."""
    return getattr(sys.modules.get(module), name, None)


def _numbers(template: Any) -> bool:
    """Whether a result holds a number that tracing computed."""
    if isinstance(template, list):
        return any(map(_numbers, template))
    if not isinstance(template, dict):
        return False
    return type(template.get("constant")) in (int, float) or any(map(_numbers, template.values()))


def _classes(template: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Those that results are objects of, as module and name."""
    ((kind, content),) = template.items()
    if kind == "dataclass":
        yield content[0], content[1]
        content = content[2]
    if kind in ("dataclass", "dict"):
        content = [item for _, item in content]
    if kind in ("dataclass", "dict", "tuple", "list"):
        for item in content:
            yield from _classes(item)


def _build(template: dict[str, Any], outputs: Any) -> Any:
    ((kind, content),) = template.items()
    if kind == "output":
        return outputs[content]
    if kind == "constant":
        return content
    if kind == "dataclass":
        module, name, fields = content
        return _named(module, name)(**{key: _build(item, outputs) for key, item in fields})
    if kind == "dict":
        return {key: _build(item, outputs) for key, item in content}
    items = [_build(item, outputs) for item in content]
    return tuple(items) if kind == "tuple" else items
