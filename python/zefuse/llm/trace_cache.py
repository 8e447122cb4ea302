"""Graphs of language models in zefuse's cache: a second process takes the plan, and traces nothing.

An entry is a line of JSON (how the graph is called, on which conditions on sizes it holds) and the plan; reading it executes
nothing. Its key is what the trace depends on (``trace_key``). Entries of one key that hold for different sizes are numbered.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch.utils import _pytree as pytree

from zefuse import _native, backend, cache
from zefuse.graphs import places
from zefuse.llm import cache_parts, trace_key
from zefuse.llm.cache_parts import LayerShape
from zefuse.llm.reports import FROM_CACHE
from zefuse.llm.tracing import CACHE, TENSOR, Given, Interface, Traced
from zefuse.options import Options
from zefuse.precompile.calls import folder_of, other_way
from zefuse.precompile.conditions import condition
from zefuse.precompile.descriptions import NotExpressible

KIND = "language"
_MOST_VARIANTS = 4
_PLACE = re.compile(r"L\['t(\d+)'\]\.(size|stride|storage_offset)\(\)(?:\[(\d+)\])?")


class Place:
    """Where the cache has, or gets, one graph of a model. ``story``: what came of it, for the report."""

    def __init__(self, model: Any, forward: Any, call: Any, options: Options, kind: str) -> None:
        """``forward``: of the model, what is traced. ``call``: what else tells its graphs apart, tuples of plain values."""
        place = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), None)
        self._options = options.to_dict() | places.settings(place if place and place.type in places.NAMES else None)
        self._folder = folder_of(self._options)
        self._note = f"{type(model).__name__} {kind}"
        self._fields: list[tuple[str, str]] | None = None
        self._variant = 0
        self.story = ""
        try:
            if not self._folder:
                raise NotExpressible("there is no folder for it")
            if reason := other_way(options):
                raise NotExpressible(reason)
            if getattr(forward, "__func__", None) is not type(model).forward:
                raise NotExpressible("another tool replaced the model's forward")
            self._fields = trace_key.fields(model, kind, call, options, self._options)
        except NotExpressible as reason:
            self.story = f"not kept in the cache: {reason}"

    def load(self, tensors: Sequence[torch.Tensor]) -> tuple[Interface, Any] | None:
        """The graph that holds for tensors of these sizes, ready to be called."""
        if self._fields is None:
            return None
        native = _native.load()
        reasons = []
        for self._variant in range(_MOST_VARIANTS):
            place = native.cache_path(self._folder, KIND, self._key())
            was_there = os.path.lexists(place)
            body = native.cache_load(self._folder, KIND, self._key())
            if body is None:
                if was_there:
                    reasons.append("an entry was there and was damaged, or others could have written it")
                break
            head, _, plan = body.partition(b"\n")
            try:
                interface = _interface(json.loads(head))
                if not interface.holds(tensors):
                    reasons.append("an entry holds for other sizes")
                    continue
                compiled = native.PlanLoading(plan, self._options).take()
            except Exception as error:  # an entry that is of no use costs the reuse only; the next one takes its place
                reasons.append(f"an entry cannot be used ({type(error).__name__}: {error})")
                break
            backend.adopt(compiled, "inference")
            self.story = FROM_CACHE
            return interface, compiled
        reasons = reasons or [cache.why_missed(self._folder, KIND, self._key(), self._note)]
        self.story = f"not in the cache: {'; '.join(dict.fromkeys(reasons))}"
        return None

    def keep(self, traced: Traced, compiled: Any) -> None:
        """For other processes. What prevents it is told in ``story``."""
        if self._fields is None:
            return
        try:
            if not hasattr(compiled, "plan_bytes"):
                raise NotExpressible("parts of it run in eager")
            if compiled.constants():
                raise NotExpressible("it holds tensors that are no parameters")
            body = json.dumps(_described(traced)).encode() + b"\n" + compiled.plan_bytes()
            limit = (self._options["cache_limit_mb"] or 2048) << 20
            if problem := _native.load().cache_store(self._folder, limit, KIND, self._key(), self._note, body):
                raise NotExpressible(problem)
        except Exception as error:  # the graph itself is fine
            self.story += f"; not kept: {error}"

    def _key(self) -> list[tuple[str, str]]:
        assert self._fields is not None
        return [*self._fields, ("variant", str(self._variant))]


def settled(traced: Traced) -> Interface:
    """What is needed of a trace once its graph is compiled: not the graph, and not the tensors and symbols of the trace, which its
    guards hold where they are no conditions on sizes."""
    try:
        return _interface(json.loads(json.dumps(_described(traced))))
    except Exception:  # what words cannot say
        return Interface(**{each.name: getattr(traced, each.name) for each in fields(Interface)})


def _described(traced: Traced) -> dict[str, Any]:
    return {
        "parameters": traced.parameters,
        "outputs": [_output(leaf) for leaf in traced.outputs],
        "result": pytree.treespec_dumps(traced.out_spec),
        "layers": [_words_of(shape) for shape in traced.shapes],
        "cross": [_words_of(shape) for shape in traced.cross_shapes],
        "different_layers": traced.different_layers,
        **_conditions(traced.guards()),
    }


def _words_of(shape: LayerShape) -> list[Any]:
    return [shape.key_heads, shape.key_dim, shape.value_dim, str(shape.dtype).removeprefix("torch."), shape.format]


def _shape(words: Sequence[Any]) -> LayerShape:
    heads, key_dim, value_dim, name, format = words
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} is no dtype")
    if format not in (None, *cache_parts.FORMATS):
        raise ValueError(f"{format} is no format of a cache")
    return LayerShape(int(heads), int(key_dim), int(value_dim), dtype, format)


def _output(leaf: Any) -> Any:
    if leaf is TENSOR or leaf is CACHE:
        return ["tensor" if leaf is TENSOR else "cache"]
    if isinstance(leaf, Given):
        return ["given", leaf.position]
    if leaf is None or type(leaf) in (bool, str, int):
        return ["constant", leaf]
    raise NotExpressible(f"it returns an object of type {type(leaf).__qualname__}")


def _conditions(guards: str | None) -> dict[str, Any]:
    """torch's expression, with a name for each size that is asked for."""
    sizes: dict[tuple[int, str, int], str] = {}

    def named(found: re.Match[str]) -> str:
        return sizes.setdefault((int(found[1]), found[2], int(found[3] or 0)), f"v{len(sizes)}")

    text = "True" if guards is None else _PLACE.sub(named, guards)
    try:
        condition(text)  # checks it
    except (SyntaxError, ValueError) as error:
        raise NotExpressible(f"{error}") from error
    return {"sizes": list(sizes), "condition": text}


def _interface(head: dict[str, Any]) -> Interface:
    return Interface(
        parameters=[str(name) for name in head["parameters"]],
        outputs=[_leaf(*each) for each in head["outputs"]],
        out_spec=pytree.treespec_loads(head["result"]),
        shapes=[_shape(each) for each in head["layers"]],
        cross_shapes=[_shape(each) for each in head["cross"]],
        different_layers=int(head["different_layers"]),
        holds=_holds(head["sizes"], head["condition"]),
    )


def _leaf(kind: str, value: Any = None) -> Any:
    if kind == "given":
        return Given(int(value))
    return {"tensor": TENSOR, "cache": CACHE}.get(kind, value)


def _holds(sizes: list[tuple[int, str, int]], text: str) -> Callable[[Sequence[torch.Tensor]], bool]:
    asked = condition(text)

    def holds(tensors: Sequence[torch.Tensor]) -> bool:
        values = [
            tensors[number].storage_offset() if what == "storage_offset"
            else (tensors[number].shape if what == "size" else tensors[number].stride())[dim]
            for number, what, dim in sizes
        ]  # fmt: skip
        return bool(asked(values))

    return holds
