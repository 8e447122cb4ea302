"""What is checked: a model and its inputs, copied for each run, so that no run sees what another one changed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from zefuse.errors import InvalidArgumentError

_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Subject:
    """A model (any callable) and what it is called with."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    owned: bool = False  # the model is a copy, which may be changed

    @classmethod
    def of(cls, model: Any, inputs: Any, kwargs: Mapping[str, Any] | None = None) -> Subject:
        """``inputs``: a tuple or list of positional arguments, a dict of keyword arguments, or a single tensor.

        Raises InvalidArgumentError for what cannot be called, or cannot be called with that.
        """
        model = getattr(model, "_orig_mod", model)
        if not callable(model):
            raise InvalidArgumentError(
                f"the model is of type {type(model).__name__}, which cannot be called; pass a module or a function"
            )
        if isinstance(model, type):
            raise InvalidArgumentError(
                f"the model is the class {model.__name__}; pass an object of it: {model.__name__}(...)"
            )
        if isinstance(inputs, Mapping) and not kwargs:
            made = cls(model, (), dict(inputs))
        else:
            made = cls(model, as_arguments(inputs), dict(kwargs or {}))
        made._check_signature()
        return made

    def _check_signature(self) -> None:
        called = self.model.forward if isinstance(self.model, nn.Module) else self.model
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError):  # a callable of C
            return
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            name = getattr(called, "__qualname__", type(self.model).__name__)
            raise InvalidArgumentError(
                f"the inputs do not fit {name}{signature}: {error}; they are {described(self.args, self.kwargs)}"
            ) from error

    @property
    def name(self) -> str:
        return getattr(self.model, "__name__", type(self.model).__name__)

    @property
    def training(self) -> bool:
        return bool(getattr(self.model, "training", False))

    def has_images(self) -> bool:
        """Whether channels last means anything for it."""
        return bool(self._images())

    def _images(self) -> list[Tensor]:
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return [
            leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() in _LAYOUTS and leaf.is_floating_point()
        ]

    def require_eager(self) -> None:
        """Calls a copy once. Raises InvalidArgumentError where the model fails by itself: before a compiler's messages hide that."""
        copy = self.copy()
        state = State(copy.model)
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                copy.model(*copy.args, **copy.kwargs)
        except Exception as error:
            first = next((line for line in str(error).splitlines() if line.strip()), "no message")
            raise InvalidArgumentError(
                f"{self.name} fails without zefuse, in eager: {type(error).__name__}: {first}\n"
                f"  It was called with {described(self.args, self.kwargs)}"
            ) from error
        finally:
            if not copy.owned:
                state.give_back()

    def is_meta(self) -> bool:
        """Whether some of its tensors have no memory."""
        leaves = [*pytree.tree_leaves((self.args, self.kwargs)), *tensors_of(self.model).values()]
        return any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in leaves)

    def learns(self) -> bool:
        """Whether something of it requires a gradient."""
        tensors = [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]
        if isinstance(self.model, nn.Module):
            tensors += self.model.parameters()
        return any(tensor.requires_grad for tensor in tensors)

    def copy(self) -> Subject:
        """With a memory of its own. Of a module that cannot be copied the state is shared (``State`` puts it back)."""
        made = self._with(self.model, _Copier())
        if isinstance(self.model, nn.Module):
            try:
                return Subject(copy.deepcopy(self.model), made.args, made.kwargs, owned=True)
            except Exception:  # tensors that are no leaves, handles of other libraries
                pass
        return made

    def channels_last(self) -> Subject:
        def convert(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and leaf.dim() in _LAYOUTS and leaf.is_floating_point():
                return leaf.detach().contiguous(memory_format=_LAYOUTS[leaf.dim()]).requires_grad_(leaf.requires_grad)
            return leaf

        if isinstance(self.model, nn.Module) and self.owned:
            for layout in {_LAYOUTS[leaf.dim()] for leaf in self._images()}:
                self.model.to(memory_format=layout)  # type: ignore[call-overload]
        return self._with(self.model, convert)

    def double(self) -> Subject:
        """In f64; of a function the inputs alone."""

        def convert(leaf: Any) -> Any:
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                return leaf.detach().double().requires_grad_(leaf.requires_grad)
            return leaf

        if isinstance(self.model, nn.Module):
            if not self.owned:
                raise TypeError("the module cannot be copied (copy.deepcopy), so it stays in its dtype")
            self.model.double()
        return self._with(self.model, convert)

    def with_gradients(self) -> Subject:
        """The floating inputs require a gradient."""
        return self._with(
            self.model,
            lambda leaf: leaf.requires_grad_() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf,
        )

    def longer(self) -> Subject | None:
        """With one row more in the first dimension, where all tensors have the same; else None."""
        tensors = [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]
        rows = {leaf.shape[0] if leaf.dim() else 0 for leaf in tensors}
        if len(rows) != 1 or rows <= {0}:
            return None

        def convert(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return torch.cat([leaf.detach(), leaf.detach()[:1]]).requires_grad_(leaf.requires_grad)

        return self._with(self.model, convert)

    def _with(self, model: Callable[..., Any], convert: Callable[[Any], Any]) -> Subject:
        args, kwargs = pytree.tree_map(convert, (self.args, dict(self.kwargs)))
        return Subject(model, args, kwargs, self.owned)


class State:
    """A module's parameters and buffers as they are now, to be put back before the next run."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._kept = {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}
        self._gradients = {name: tensor.grad for name, tensor in tensors_of(model).items()}

    def restore(self) -> None:
        with torch.no_grad():
            for name, tensor in tensors_of(self._model).items():
                tensor.grad = None
                if name in self._kept and tensor.shape == self._kept[name].shape:
                    tensor.copy_(self._kept[name])

    def give_back(self) -> None:
        """As ``restore``, and the gradients too: at the end, for a model that is the caller's own."""
        self.restore()
        for name, tensor in tensors_of(self._model).items():
            tensor.grad = self._gradients.get(name)

    def changed(self) -> dict[str, Tensor]:
        """What a run left different, as copies; buffers always."""
        buffers = dict(self._model.named_buffers()) if isinstance(self._model, nn.Module) else {}
        return {
            name: tensor.detach().clone()
            for name, tensor in tensors_of(self._model).items()
            if name in buffers or name not in self._kept or not torch.equal(tensor, self._kept[name])
        }


def tensors_of(model: Any) -> dict[str, Tensor]:
    if not isinstance(model, nn.Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def as_arguments(inputs: Any) -> tuple[Any, ...]:
    """A single tensor is one argument: a tensor is a sequence too, of its rows, which nobody means."""
    if isinstance(inputs, tuple):
        return tuple(inputs) if type(inputs) is tuple else (inputs,)  # a named tuple is one argument
    return tuple(inputs) if isinstance(inputs, list) else (inputs,)


def described(args: Any, kwargs: Mapping[str, Any]) -> str:
    """``a tensor f32[8, 64], mask=a tensor bool[8]``."""
    words = [_described(value) for value in args] + [f"{name}={_described(value)}" for name, value in kwargs.items()]
    return ", ".join(words) or "none"


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"a {type(value).__name__}"


class _Copier:
    """Copies tensors, one that is met twice once: the copies share what the originals do. Strides stay as they are."""

    def __init__(self) -> None:
        self._made: dict[int, Tensor] = {}

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in self._made:
            made = self._made[id(leaf)] = self._copy(leaf).requires_grad_(leaf.requires_grad)
            # mark_dynamic and the like
            vars(made).update({name: value for name, value in vars(leaf).items() if name.startswith("_dynamo_")})
        return self._made[id(leaf)]

    @staticmethod
    def _copy(leaf: Tensor) -> Tensor:
        made = leaf.detach().clone(memory_format=torch.preserve_format)
        if type(leaf) is not Tensor or leaf.layout is not torch.strided or made.stride() == leaf.stride():
            return made
        if leaf.is_neg() or leaf.is_conj() or leaf.is_quantized:
            return made
        memory = leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]  # with its gaps, and elements that several indices name
        return leaf.new_empty(0).set_(memory, leaf.storage_offset(), leaf.shape, leaf.stride())
