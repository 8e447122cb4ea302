"""``zefuse.enable_precompile()``: a second process calls a compiled model without tracing it again.

torch's own precompile cache drops guards, and keys by name and line. Here an entry of our cache holds the plan, which tensors go in,
how the results are put together, and facts (``zefuse.facts``) about everything that tracing may have depended on. All are data: loading
executes nothing, and a file that others could have written is not used. At each call the facts are compared; any difference compiles
as usual. What cannot be stated as facts is not kept, with a reason (``events()``).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import logging
import os
import platform
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch

from zefuse import __version__, _native, backend, cache
from zefuse.facts import Facts, NotExpressible, code_hash, is_user_code, state
from zefuse.options import Options

_KIND = "precompile"
_log = logging.getLogger("zefuse.precompile")
_events: deque[str] = deque(maxlen=1000)
_inside: ContextVar[bool] = ContextVar("zefuse_precompile_inside", default=False)


# Where these are set, compiling does more than to make a plan.
_OTHER_WAYS = ("ZEFUSE_DUMP", "ZEFUSE_PACKAGE", "ZEFUSE_TARGETS")


def events() -> list[str]:
    """What happened, newest last: entries taken, kept, refused and outdated, each with its reason. Also logged (INFO)."""
    return list(_events)


def _note(text: str) -> None:
    _events.append(text)
    _log.info("%s", text)


def enable_precompile() -> None:
    """From now on ``torch.compile(..., backend="zefuse")`` looks in the cache (``cache_dir``) before it traces.

    Covered: inference (no gradients) of functions and modules that are one graph of fixed shapes, take and return plain tensors,
    numbers and containers of them, and change nothing but their results. Everything else is compiled as before. Each call
    compares facts, which takes longer than Dynamo's guards: docs/cache.md has figures. Calling it twice is harmless.
    """
    _native.load()
    Facts(
        _function, (torch.nn.Module, torch.Tensor), ()
    )  # hashes of torch's own code are taken here, not at the first call
    original = torch.compile
    if getattr(original, "_zefuse_precompile", False):
        return

    @functools.wraps(original)
    def compile(model: Any = None, **keywords: Any) -> Any:  # torch.compile takes no other argument by position
        if model is None:
            return lambda model: compile(model, **keywords)
        compiled = original(model, **keywords)
        if (
            keywords.get("backend") != "zefuse"
            or keywords.get("dynamic")
            or keywords.get("disable")
            or keywords.get("mode")
        ):
            return compiled
        options = Options.make(keywords.get("options"))
        other = (options.dump_dir, options.package, options.targets, *map(os.environ.get, _OTHER_WAYS))
        if options.device != "cpu" or any(other):
            return compiled
        if isinstance(model, torch.nn.Module):
            # Of a module only ``forward`` is replaced: the rest is torch's own wrapper.
            compiled.forward = _Precompiled(model, compiled.forward, options)  # type: ignore[attr-defined]
            return compiled
        if inspect.isfunction(model) or inspect.ismethod(model):
            return functools.wraps(model)(_function(_Precompiled(model, compiled, options)))
        return compiled

    compile._zefuse_precompile = True  # type: ignore[attr-defined]
    torch.compile = compile


def _function(callable_: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return callable_(*args, **kwargs)

    return run


class _Entry:
    """A plan with what its use depends on."""

    def __init__(self, traced: list[str], facts: list[str], inputs: list[int], results: Any, graph: Any) -> None:
        self.traced, self.facts, self.inputs, self.results, self.graph = traced, facts, inputs, results, graph

    def run(self, tensors: list[torch.Tensor]) -> Any:
        return _build(self.results, self.graph([tensors[number] for number in self.inputs]))


class _Precompiled:
    def __init__(self, model: Any, compiled: Callable[..., Any], options: Options) -> None:
        self._model, self._compiled, self._options = model, compiled, options
        function = type(model).forward if isinstance(model, torch.nn.Module) else model
        self._name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        self._entries: dict[str, _Entry | None] = {}  # by place in the cache; None: compiled by torch in this process
        functools.update_wrapper(self, compiled, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            _inside.get()
            or backend._observer.get()
            or backend._captured.get()
            or _stance() != "default"
            or torch.compiler.is_compiling()
        ):
            return self._compiled(*args, **kwargs)
        try:
            fields = self._fields(args, kwargs)
        except NotExpressible as reason:
            _note(f"{self._name}: not looked for: {reason}")
            return self._compiled(*args, **kwargs)
        place = json.dumps(fields)
        if place not in self._entries:
            self._entries[place] = self._load(fields)
        entry = self._entries[place]
        if entry is not None:
            try:
                facts = Facts(self._model, (args, kwargs), entry.traced)
            except NotExpressible as reason:
                self._entries[place] = None
                _note(f"{self._name}: compiled again: {reason}")
            else:
                if facts.lines == entry.facts:
                    with torch.no_grad():
                        return entry.run(facts.tensors)
                self._entries[place] = None
                _note(f"{self._name}: compiled again: {_difference(entry.facts, facts.lines)}")
        return self._record(fields, args, kwargs)

    def _fields(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, str]]:
        """Where an entry lies: what is cheap to say and differs between entries that live side by side."""
        options = {k: v for k, v in self._options.to_dict().items() if k in ("device", "strict", "fuse", "package")}
        shapes = hashlib.sha256("\n".join(_signature((args, kwargs))).encode()).hexdigest()
        return [
            ("format", "1"),
            ("torch", torch.__version__),
            ("python", platform.python_version()),
            ("zefuse", f"{__version__} {_native.load().build_id()}"),
            ("callable", self._name),
            ("options", json.dumps(options, sort_keys=True)),
            *state().items(),
            ("arguments", shapes),
        ]

    def _load(self, fields: list[tuple[str, str]]) -> _Entry | None:
        options = self._options.to_dict()
        native = _native.load()
        found = native.cache_load(_folder(options), _KIND, fields)
        if found is None:
            return None
        head, _, plan = found.partition(b"\n")
        try:
            parts = json.loads(head)
            entry = _Entry(
                parts["traced"], parts["facts"], parts["inputs"], parts["results"], native.load_plan(plan, options)
            )
        except Exception as error:  # an entry that is of no use costs the reuse only
            _note(f"{self._name}: the entry cannot be used: {error}")
            return None
        _note(f"{self._name}: taken from the cache")
        return entry

    def _record(self, fields: list[tuple[str, str]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recording = _Recording()
        try:
            before: Facts | None = Facts(self._model, (args, kwargs), ())
        except NotExpressible as reason:
            before = None
            recording.problem = str(reason)
        versions = [] if before is None else [t._version for t in before.tensors if not t.is_inference()]
        from torch._dynamo.utils import counters

        broken, frames = sum(counters["graph_break"].values()), counters["frames"]["total"]
        with recording.active():
            result = self._compiled(*args, **kwargs)
        if not recording.graphs:
            return result  # compiled before in this process
        try:
            if before is None:
                raise NotExpressible(recording.problem)
            if sum(counters["graph_break"].values()) != broken or counters["frames"]["total"] != frames + 1:
                raise NotExpressible("it is more than one graph")
            if [t._version for t in before.tensors if not t.is_inference()] != versions:
                raise NotExpressible("it changes a tensor")
            if recording.problem:
                raise NotExpressible(recording.problem)
            if Facts(self._model, (args, kwargs), ()).lines != before.lines:
                raise NotExpressible("it changes an object")
            self._keep(fields, recording, args, kwargs, result)
            _note(f"{self._name}: kept")
        except NotExpressible as reason:
            _note(f"{self._name}: not kept: {reason}")
        finally:
            recording.forget()
        return result

    def _keep(self, fields: list[tuple[str, str]], recording: _Recording, args: Any, kwargs: Any, result: Any) -> None:
        graph, inputs, outputs = recording.only_call()
        facts = Facts(self._model, (args, kwargs), recording.traced)
        for code in recording.codes:
            if is_user_code(code) and code_hash(code) not in facts.codes:
                raise NotExpressible(f"{code.co_qualname} was traced, and cannot be found again")
        numbers = {id(tensor): number for number, tensor in enumerate(facts.tensors)}
        places = []
        for value in inputs:
            if id(value) not in numbers:
                raise NotExpressible("the graph has an input that is neither an argument nor held by the model")
            places.append(numbers[id(value)])
        results = _template(result, {id(value): number for number, value in enumerate(outputs) if value is not None})
        head = {"traced": sorted(recording.traced), "facts": facts.lines, "inputs": places, "results": results}
        options = self._options.to_dict()
        body = json.dumps(head).encode() + b"\n" + graph.plan_bytes()
        limit = (options["cache_limit_mb"] or 2048) << 20
        problem = _native.load().cache_store(_folder(options), limit, _KIND, fields, self._name, body)
        if problem:
            raise NotExpressible(problem)


class _Recording:
    """What one tracing call compiled, and what its graph was called with."""

    def __init__(self) -> None:
        self.graphs: list[tuple[str, Any]] = []
        self.calls: list[tuple[list[Any], Any]] = []
        self.codes: list[Any] = []
        self.problem = ""
        self._on = True

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        token, inside = backend._recorder.set(self._take), _inside.set(True)
        try:
            yield
        finally:
            backend._recorder.reset(token)
            _inside.reset(inside)

    def _take(self, kind: str, graph: Any) -> Callable[[list[Any]], Any]:
        self.graphs.append((kind, graph))
        self.codes += torch._guards.TracingContext.get_traced_code() or ()
        if _changes_objects():
            self.problem = "it changes an object"
        if not self.codes:
            self.problem = "this torch does not say which code it traced"

        def run(arguments: list[Any]) -> Any:
            if not self._on:
                return graph(arguments)
            given = list(arguments)
            results = graph(arguments)
            self.calls.append((given, results))
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    @property
    def traced(self) -> list[str]:
        return sorted({code_hash(code) for code in self.codes})

    def only_call(self) -> tuple[Any, list[Any], Any]:
        if len(self.graphs) != 1 or len(self.calls) != 1:
            raise NotExpressible(f"it is {len(self.graphs)} graphs")
        (kind, graph), (inputs, outputs) = self.graphs[0], self.calls[0]
        if kind != "inference":
            raise NotExpressible("it needs gradients")
        if not hasattr(graph, "plan_bytes"):
            raise NotExpressible("parts of it run in eager")
        if graph.constants():
            raise NotExpressible("its graph holds tensors that are no parameters")
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise NotExpressible("its shapes are dynamic")
        return graph, inputs, outputs

    def forget(self) -> None:
        self._on = False
        self.calls.clear()


def _stance() -> str:
    """torch.compiler.set_stance."""
    from torch._dynamo import eval_frame

    return eval_frame._stance.stance


def _changes_objects() -> bool:
    """Whether what Dynamo is tracing writes to an object that exists outside (a global's attribute, a list, ...)."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables.base import AttributeMutationExisting, ValueMutationExisting

    effects = InstructionTranslator.current_tx().output.side_effects
    return any(
        isinstance(variable.mutation_type, (AttributeMutationExisting, ValueMutationExisting))
        and effects.is_modified(variable)
        for variable in effects.id_to_variable.values()
    )


def _folder(options: dict[str, Any]) -> str:
    return cache.directory() if options["cache_dir"] is None else str(options["cache_dir"])


def _signature(value: Any) -> Iterator[str]:
    """Arguments, roughly: enough that entries for different shapes live side by side. The facts say the rest."""
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{list(value.shape)}{value.requires_grad}"
    elif type(value) in (tuple, list):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from _signature(item)
    elif type(value) is dict:
        for key, item in value.items():
            yield repr(key)
            yield from _signature(item)
    elif value is None or type(value) in (int, float, bool, str):
        yield repr(value)
    else:
        yield type(value).__qualname__


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
    raise NotExpressible(f"it returns an object of type {type(value).__qualname__}")


def _build(template: dict[str, Any], outputs: Any) -> Any:
    ((kind, content),) = template.items()
    if kind == "output":
        return outputs[content]
    if kind == "constant":
        return content
    if kind == "dict":
        return {key: _build(item, outputs) for key, item in content}
    items = [_build(item, outputs) for item in content]
    return tuple(items) if kind == "tuple" else items


def _difference(old: list[str], new: list[str]) -> str:
    for was, now in zip(old, new):  # noqa: B905  the first that differs
        if was != now:
            return f"was {was!r}, is {now!r}"
    return f"{len(old)} facts became {len(new)}"
