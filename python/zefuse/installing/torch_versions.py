"""Which torch versions this package serves: the one place that knows.

The compiled part has a piece for each of them (``lib/torch-2.13``), since torch's C++ classes change from one minor version
to the next.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zefuse.errors import InstallationError

# What the operator, zoo and semantics tests passed on (docs/install.md).
TESTED = ("2.11", "2.13", "2.15")


def minor(version: str) -> str:
    """``2.13.0+cpu`` is of ``2.13``."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return f"{match[1]}.{match[2]}" if match else version


def compiled_for(folder: Path) -> list[str]:
    """The torch versions that the libraries in ``folder`` have a piece for, oldest first."""
    found = [path.name.removeprefix("torch-") for path in folder.glob("torch-*") if any(path.glob("_C.*.so"))]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def extension(folder: Path, torch_version: str) -> Path:
    """The extension module for this Python and torch; an InstallationError that says what to do where there is none."""
    served = compiled_for(folder)
    if not served:
        raise InstallationError(
            f"zefuse's compiled part is not there: no torch-*/_C.*.so in {folder}; in a checkout run `make build`, else "
            "install zefuse again (or set ZEFUSE_LIBRARY_DIR to another build's lib folder)"
        )
    mine = minor(torch_version)
    if mine not in served:
        raise InstallationError(
            f"this zefuse was compiled for torch {listed(served)}, not for the installed {torch_version}: "
            f"pip install 'torch=={served[-1]}.*', or install zefuse for your torch"
        )
    place = folder / f"torch-{mine}"
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        file = place / f"_C{suffix}"
        if file.exists():
            break
    else:
        there = ", ".join(sorted(path.name for path in place.glob("_C.*.so")))
        raise InstallationError(
            f"this zefuse was compiled for another Python than {sys.version_info[0]}.{sys.version_info[1]} ({there}): "
            "install zefuse for this one"
        )
    if mine not in TESTED:
        warnings.warn(f"zefuse has not been tested with torch {torch_version} (tested: {listed(TESTED)})", stacklevel=2)
    return file


def aten_operator(name: str) -> Any | None:
    """``torch.ops.aten.NAME``; None in a torch that does not have it yet (``_foreach_clone`` is not in 2.11)."""
    import torch

    return getattr(torch.ops.aten, name, None)


def returns_the_base_of_an_input() -> bool:
    """Whether AOTAutograd, where it makes one tensor of inputs that share memory, returns that for an input that the graph returns
    (``x.mul_(2)``): torch before 2.13, with every back end."""
    import torch

    return tuple(map(int, minor(torch.__version__).split("."))) < (2, 13)


@contextlib.contextmanager
def linear_algebra_checks_kept() -> Iterator[None]:
    """While AOTAutograd traces, ``aten::_linalg_check_errors`` has an effect: what ``torch.linalg`` raises for a singular matrix.

    torch says so itself from 2.13 on. An older one takes the operator, which has no result, for dead code, and gives a result that
    eager refuses to. Back ends beside this one find torch as it was.
    """
    from torch._higher_order_ops import effects

    operator = "aten::_linalg_check_errors"
    with _tokens_of_joined_inputs_kept():
        if effects._get_effect(operator) is not None:
            yield
            return
        registration = effects._register_effectful_op(operator, effects._EffectType.ORDERED)
        try:
            yield
        finally:
            registration.destroy()


@contextlib.contextmanager
def _tokens_of_joined_inputs_kept() -> Iterator[None]:
    """AOTAutograd orders effects by tokens that go through the graph. Where inputs share memory and one is written, or one tensor is
    passed twice, it makes one input of them and forgets the tokens in its notes: the graph then takes one that nobody passes, with
    every back end."""
    from torch._functorch._aot_autograd import runtime_wrappers

    def with_tokens(original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(notes: Any, *rest: Any) -> Any:
            result = original(notes, *rest)
            (result[0] if isinstance(result, tuple) else result).tokens = notes.tokens
            return result

        return noted

    names = ("create_synthetic_base_metadata", "remove_dupe_metadata")
    originals = {name: getattr(runtime_wrappers, name) for name in names}
    for name, original in originals.items():
        setattr(runtime_wrappers, name, with_tokens(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(runtime_wrappers, name, original)


def norms_leave_out_dimensions() -> None:
    """For the whole process: a norm over a dimension of one element that is counted from the end has a dimension less, as in eager.

    torch 2.11's shape rule forgets to, for tensors of one element in that dimension; gradients were then of another shape than their
    results. Fake tensors remember what a rule has said, so this is no matter of one back end's tracing.
    """
    import torch

    if torch.linalg.vector_norm(torch.empty(1, device="meta"), dim=-1).dim() == 0:
        return
    from torch._refs import linalg
    from torch._subclasses.fake_tensor import FakeTensorMode

    check = linalg._check_vector_norm_args

    def counted_from_the_start(x: Any, ord: Any = 2, dim: Any = None) -> None:
        if isinstance(dim, list):
            dim[:] = [each + x.ndim if -x.ndim <= each < 0 else each for each in dim]
        check(x, ord, dim)

    linalg._check_vector_norm_args = counted_from_the_start  # type: ignore[assignment, unused-ignore]
    FakeTensorMode.cache_clear()


def lstm_states_have_two_dimensions() -> None:
    """For the whole process: what torch makes of one layer of an LSTM gives states of ``[rows, units]``.

    That of torch 2.11 keeps the steps' dimension of one, but for a single row, with every back end that takes the layer apart: the layer's
    states then had a dimension more than eager's.
    """
    import torch

    if tuple(map(int, minor(torch.__version__).split("."))) >= (2, 13):
        return
    from torch._decomp import decompositions

    layer = decompositions.one_layer_lstm

    def with_states(inp: Any, hidden: Any, *rest: Any, **named: Any) -> Any:
        output, states = layer(inp, hidden, *rest, **named)  # type: ignore[no-untyped-call]
        return output, tuple(made.reshape(given.shape) for made, given in zip(states, hidden, strict=True))

    decompositions.one_layer_lstm = with_states


def subclasses_are_taken_apart_as_traced() -> None:
    """For the whole process: a compiled function gets of a tensor subclass the tensors that it was traced with.

    A jagged tensor remembers its longest row as a tensor of its own once eager has asked for it, which may be after the trace: AOTAutograd
    then hands over one tensor more, with every back end, and all behind it stand elsewhere.
    """
    from torch._functorch._aot_autograd import runtime_wrappers
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    name = "runtime_unwrap_tensor_subclasses"
    unwrap = getattr(runtime_wrappers, name)

    def as_traced(args: Any, *, append_symints: bool, subclass_metas: Any = None) -> Any:
        if subclass_metas is None:
            return unwrap(args, append_symints=append_symints)
        later = {
            at: names
            for at, each in enumerate(args)
            if is_traceable_wrapper_subclass(each)
            and (names := each.__tensor_flatten__()[0]) != [*subclass_metas[at].attrs]
            and not any(is_traceable_wrapper_subclass(getattr(each, name)) for name in names)
        }
        if not later:
            return unwrap(args, append_symints=append_symints, subclass_metas=subclass_metas)
        found: list[Any] = []
        for at, each in enumerate(args):
            inner = unwrap([each], append_symints=append_symints, subclass_metas=subclass_metas[at : at + 1])
            names = later.get(at, [])
            known = [one for name, one in zip(names, inner, strict=False) if name in subclass_metas[at].attrs]
            found += known + inner[len(names) :]
        return found

    setattr(runtime_wrappers, name, as_traced)


def views_stride_ones_as_eager() -> None:
    """For the whole process, as above: in a view, a dimension of size 1 has eager's stride, which its right neighbour gives.

    torch's shape rule may give the input's. No element lies elsewhere, but operators tell channels last from contiguous by it: what was
    `[1, channels, places]` with the channels innermost is, seen as an image, contiguous to eager's convolutions and resizing.
    """
    import torch
    from torch._subclasses import fake_impls
    from torch._subclasses.fake_tensor import FakeTensorMode

    view = torch.ops.aten.view.default
    rule = fake_impls.op_implementations_dict.get(view)
    with FakeTensorMode():
        if rule is None or torch.empty(1, 4, 2).transpose(1, 2).view(1, 2, 2, 2).stride(0) == 2:
            return

    def is_one(size: Any) -> bool:
        return isinstance(size, int) and size == 1

    def by_neighbours(fake_mode: Any, func: Any, a: Any, *shape: Any, **rest: Any) -> Any:
        sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape)
        ones = [dim for dim, size in enumerate(sizes) if is_one(size)]
        if not ones or len(ones) == len(sizes) or 0 in a.shape or torch._prims_common.is_contiguous_or_false(a):
            return rule(fake_mode, func, a, *shape, **rest)
        try:
            without = a.squeeze([dim for dim, size in enumerate(a.shape) if is_one(size)])
            seen = rule(fake_mode, func, without, [size for size in sizes if not is_one(size)], **rest)
        except (ValueError, RuntimeError):
            return rule(fake_mode, func, a, *shape, **rest)  # says what does not fit, in the program's own sizes
        for dim in ones:
            seen = seen.unsqueeze(dim)
        return seen

    fake_impls.op_implementations_dict[view] = by_neighbours
    FakeTensorMode.cache_clear()


def keep_whole_for_sizes(operator: Any, whole: Callable[..., Any]) -> None:
    """Dynamo asks ``whole`` for the sizes of a composite operator's results, which would otherwise be taken apart for them.

    A recurrent layer taken apart has a step for each of its input's: the length of the sequence becomes a constant, and each other
    length another compilation. ``whole`` gets and gives fake tensors, or gives NotImplemented. Back ends that trace the operator take
    it apart as ever.
    """
    from torch._C import DispatchKey
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    def instead_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            modes = _get_current_dispatch_mode_stack()
            only_sizes = len(modes) == 1 and isinstance(modes[0], FakeTensorMode)
            if only_sizes and not kwargs and (result := whole(*args)) is not NotImplemented:
                return result
            return original(*args, **kwargs)

        return kernel

    for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd):
        if (original := operator.py_kernels.get(key)) is not None:
            operator.py_kernels[key] = instead_of(original)
    operator._dispatch_cache.clear()


def listed(versions: list[str] | tuple[str, ...]) -> str:
    """``2.11``, ``2.11 and 2.13``, ``2.11, 2.13 and 2.15``."""
    if len(versions) < 2:
        return "".join(versions)
    return ", ".join(versions[:-1]) + " and " + versions[-1]


def hide_own_warnings() -> None:
    """torch copies its own LeafSpec, which it deprecates: a FutureWarning in ``copyreg`` that tells nobody anything. One that a
    user's own code causes names the user's file and stays."""
    hidden = ("ignore", re.compile(r".*\bLeafSpec\b", re.IGNORECASE), FutureWarning, re.compile(r"copyreg$|torch\."), 0)
    if hidden not in warnings.filters:  # adding one makes Python repeat what it has warned of
        warnings.filterwarnings("ignore", r".*\bLeafSpec\b", FutureWarning, r"copyreg$|torch\.")
