"""One run of a model: what it returned, its gradients, and what it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from zefuse.checking.modes import Mode
from zefuse.checking.subject import State, Subject
from zefuse.explaining.explanation import fresh
from zefuse.options import Options

_SEED = 20  # any; the same for all runs that are compared


@dataclass
class Outcome:
    """Leaves by name: ``output``, ``output[0]``, ``gradient of weight``, ``buffer running_mean``, ``input 0 afterwards``."""

    values: dict[str, Any] = field(default_factory=dict)
    drew: bool = False  # random numbers

    def add(self, name: str, nest: Any) -> list[Any]:
        """A nest's leaves under a name; returns them as they are, while copies are kept."""
        paths, _ = pytree.tree_flatten_with_path(nest)
        for path, leaf in paths:
            self.values[name + pytree.keystr(path)] = _kept(leaf)
        return [leaf for _, leaf in paths]

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.values.items() if isinstance(value, Tensor)}


def run(call: Callable[..., Any], subject: Subject, mode: Mode, state: State) -> Outcome:
    """Calls ``call`` (the subject's model, or what it was compiled to) in a mode, with gradients where the mode has them.

    ``state`` is put back before, so that several runs of one model begin alike; the seed is the same each time, and torch's
    generator is afterwards what it was.
    """
    outcome = Outcome()
    state.restore()
    for leaf in pytree.tree_leaves((subject.args, subject.kwargs)):
        if isinstance(leaf, Tensor):
            leaf.grad = None
    with torch.random.fork_rng(devices=[]), mode.entered():
        torch.manual_seed(_SEED)
        before = torch.get_rng_state()
        result = call(*subject.args, **subject.kwargs)
        outcome.drew = not torch.equal(before, torch.get_rng_state())
        leaves = outcome.add("output", result)
        if mode.grad == "grad":
            _backward([leaf for leaf in leaves if isinstance(leaf, Tensor)])
    outcome.values |= _gradients(subject)
    for name, tensor in state.changed().items():
        kind = "buffer" if name in dict(_named(subject.model, "named_buffers")) else "parameter"
        outcome.values[f"{kind} {name}"] = tensor
    for name, leaf in _inputs(subject):
        outcome.values[f"{name} afterwards"] = _kept(leaf)
    return outcome


def prepared_for(subject: Subject, mode: Mode) -> Subject:
    """A copy for a run in that mode."""
    made = subject.copy()
    if mode.grad == "grad" and not subject.learns():
        made = made.with_gradients()
    return made.channels_last() if mode.channels_last else made


def compiled(model: Callable[..., Any], mode: Mode, options: Options) -> Callable[..., Any]:
    return torch.compile(fresh(model), backend="zefuse", options=options.to_dict(), dynamic=mode.dynamic)


def _backward(outputs: list[Tensor]) -> None:
    """With a gradient for each output that differs per element and does not grow with the output's size."""
    differentiable = [output for output in outputs if output.requires_grad]
    if not differentiable:
        return
    generator = torch.Generator().manual_seed(_SEED)
    given = []
    for output in differentiable:
        drawn = torch.randn(output.shape, generator=generator, dtype=torch.float32) / max(output.numel(), 1) ** 0.5
        given.append(drawn.to(output.dtype))
    torch.autograd.backward(differentiable, given)


def _gradients(subject: Subject) -> dict[str, Any]:
    named = [*_named(subject.model, "named_parameters"), *_inputs(subject)]
    return {f"gradient of {name}": _kept(leaf.grad) for name, leaf in named if leaf.grad is not None}


def _inputs(subject: Subject) -> Iterator[tuple[str, Tensor]]:
    for path, leaf in pytree.tree_flatten_with_path((subject.args, dict(subject.kwargs)))[0]:
        if isinstance(leaf, Tensor):
            yield f"input {pytree.keystr(path[1:])}", leaf


def _named(model: Any, what: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(model, nn.Module):
        yield from getattr(model, what)()


def _kept(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf


class SameDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In here an f64 model draws the numbers that the f32 model would: drawn in f32 and converted. Otherwise dropout would
    drop others, and f64 would be no reference."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)

        def narrow(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and leaf.dtype == torch.float64:
                return leaf.float()
            return torch.float32 if leaf is torch.float64 else leaf

        def widen(leaf: Any) -> Any:
            return leaf.double() if isinstance(leaf, Tensor) and leaf.dtype == torch.float32 else leaf

        made = func(*pytree.tree_map(narrow, args), **pytree.tree_map(narrow, kwargs))
        if func._schema.is_mutable and isinstance(args[0], Tensor):
            return args[0].copy_(made)
        return pytree.tree_map(widen, made)


@contextmanager
def room_for_modes() -> Iterator[None]:
    """Dynamo compiles a function a few times at most, then leaves it in eager without a word: a dozen modes are more."""
    import torch._dynamo

    names = {"recompile_limit": 256, "accumulated_recompile_limit": 4096}
    known = {name: value for name, value in names.items() if hasattr(torch._dynamo.config, name)}
    with torch._dynamo.config.patch(known):
        yield
