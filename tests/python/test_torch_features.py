"""What torch offers around and inside a compiled function gives what it gives in eager: transforms, hooks, operators of the user's
own, subclasses, deterministic algorithms, inference tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zefuse.backend import observe
from zefuse.testing import relative_error

WEIGHT = torch.linspace(-1, 1, 18).reshape(6, 3)
LAYER = nn.Linear(6, 3)


def zefuse(function: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="zefuse", **keywords)


def loss(x: torch.Tensor) -> torch.Tensor:
    return (x @ WEIGHT).tanh().square().sum()


def layer(x: torch.Tensor) -> torch.Tensor:
    return (x @ WEIGHT).sin()


def sample_loss(weight: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return (row @ weight).square().sum()


# --- torch.func -------------------------------------------------------------------------------------------------------

INSIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap": lambda x: vmap(lambda row: (row * 2).softmax(-1), out_dims=1)(x),
    "grad": lambda x: grad(loss)(x),
    "grad of grad": lambda x: grad(lambda y: grad(loss)(y).sin().sum())(x),
    "vjp": lambda x: vjp(layer, x)[1](torch.ones(4, 3)),
    "jvp": lambda x: jvp(layer, (x,), (x * 2,)),
    "jacrev": lambda x: jacrev(layer)(x),
    "jacfwd": lambda x: jacfwd(layer)(x),
    "hessian": lambda x: hessian(loss)(x),
    "gradients of samples": lambda x: vmap(grad(sample_loss), (None, 0))(WEIGHT, x),
    "functional_call": lambda x: functional_call(LAYER, {k: v * 2 for k, v in LAYER.named_parameters()}, (x,)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_transforms_inside(name: str) -> None:
    function = INSIDE[name]
    x = torch.randn(4, 6)
    graphs: list[Any] = []
    with observe(lambda _, graph: graphs.append(graph)):
        actual = zefuse(function, fullgraph=True)(x)
    assert relative_error(actual, function(x)) < 1e-5
    assert len(graphs) == 1


def test_transforms_of_a_compiled_function() -> None:
    x = torch.randn(4, 6)
    torch.testing.assert_close(grad(zefuse(loss))(x), grad(loss)(x))
    torch.testing.assert_close(vmap(zefuse(loss))(x), vmap(loss)(x))
    torch.testing.assert_close(jvp(zefuse(loss), (x,), (x,)), jvp(loss, (x,), (x,)))


def test_a_penalty_on_a_gradient() -> None:
    """A second derivative, of one graph."""

    def penalty(x: torch.Tensor) -> torch.Tensor:
        return grad(loss)(x).square().sum()

    gradients = []
    for run in (penalty, zefuse(penalty, fullgraph=True)):
        x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
        run(x).backward()
        gradients.append(x.grad)
    assert relative_error(gradients[1], gradients[0]) < 1e-5


def test_backward_through_a_backward_is_refused() -> None:
    """AOTAutograd has no second derivative of a compiled graph: an error, and no wrong number."""
    x = torch.randn(4, 6, requires_grad=True)
    (first,) = torch.autograd.grad(zefuse(loss)(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()


# --- operators of the user's own --------------------------------------------------------------------------------------


@torch.library.custom_op("zefuse_test::scale_into", mutates_args=("out",))
def scale_into(x: torch.Tensor, factor: float, out: torch.Tensor) -> None:
    out.copy_(x * factor)


@torch.library.custom_op("zefuse_test::cubed", mutates_args=())
def cubed(x: torch.Tensor) -> torch.Tensor:
    return x**3


@cubed.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


cubed.register_autograd(lambda ctx, g: 3 * g * ctx.saved_tensors[0] ** 2, setup_context=_keep)


class Clipped(torch.autograd.Function):
    """A forward and a backward that do not belong together."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x.clamp(-1, 1) * 2

    @staticmethod
    def backward(context: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        return g * 3 + x


def _into(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    scale_into(x * 2, 1.5, out)
    return out + 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [_into, lambda x: cubed(x.sin()) * 2, lambda x: Clipped.apply(x * 2) + 1],
    ids=["writes its argument", "with a gradient", "autograd.Function"],
)
def test_operators_of_the_users_own(function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool) -> None:
    results = []
    for run in (function, zefuse(function, fullgraph=True, dynamic=dynamic)):
        x = torch.linspace(-2, 2, 24).reshape(4, 6).requires_grad_(function is not _into)
        y = run(x)
        if x.requires_grad:
            y.square().sum().backward()
        results.append([y, x.grad])
    assert relative_error(results[1], results[0]) < 1e-5


# --- hooks ------------------------------------------------------------------------------------------------------------


def _hooked(log: list[str]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    model[0].register_forward_pre_hook(lambda module, arguments: (arguments[0] * 2,))
    model[0].register_forward_hook(lambda module, arguments, result: result + 1)
    model[2].register_full_backward_hook(lambda module, into, out: (into[0] * 3,))
    model[2].weight.register_hook(lambda g: g * 5)
    model[2].bias.register_post_accumulate_grad_hook(lambda parameter: log.append(f"bias {parameter.grad.sum():.4f}"))
    return model


def test_hooks() -> None:
    seen = []
    for compile_it in (False, True):
        log: list[str] = []
        model = _hooked(log)
        run = zefuse(model) if compile_it else model
        x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
        x.register_hook(lambda g: g * 7)
        hidden = run(x)
        hidden.register_hook(lambda g: g + 1)
        hidden.square().sum().backward()
        seen.append((log, [hidden, x.grad, *(p.grad for p in model.parameters())]))
    assert seen[1][0] == seen[0][0] and len(seen[0][0]) == 1
    assert relative_error(seen[1][1], seen[0][1]) < 1e-5


def test_a_hook_on_a_tensor_inside() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y.register_hook(lambda g: g * 4)
        return (y * 2).exp()

    gradients = []
    for run in (function, zefuse(function)):
        x = torch.linspace(-1, 1, 24).requires_grad_()
        run(x).sum().backward()
        gradients.append(x.grad)
    assert relative_error(gradients[1], gradients[0]) < 1e-5


# --- checkpointing, autocast ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_around_a_compiled_block(reentrant: bool) -> None:
    """The block is called a second time, in the backward, with the state of the random numbers of the first."""
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Dropout(0.5))
    results = []
    for run in (block, zefuse(block)):
        block.zero_grad()
        x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
        torch.manual_seed(3)
        y = checkpoint(run, x, use_reentrant=reentrant)
        y.square().sum().backward()
        results.append([y, x.grad, *(p.grad.clone() for p in block.parameters())])
    assert relative_error(results[1], results[0]) < 1e-5


def test_autocast_trains() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    results = []
    for run in (model, zefuse(model)):
        model.zero_grad()
        x = torch.linspace(-1, 1, 24).reshape(4, 6).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        y.float().square().sum().backward()
        results.append([y, x.grad, *(p.grad.clone() for p in model.parameters())])
    for ours, theirs in zip(*results[::-1], strict=True):
        assert ours.dtype == theirs.dtype
        assert relative_error(ours, theirs) < 2e-2


# --- subclasses -------------------------------------------------------------------------------------------------------


class Named(torch.Tensor):
    """Of torch's function protocol alone."""


class Pair(torch.Tensor):
    """Of the dispatch protocol: two tensors that look like one."""

    first: torch.Tensor
    second: torch.Tensor

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, first.shape, strides=first.stride(), dtype=first.dtype, requires_grad=first.requires_grad
        )

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.first, self.second = first, second

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], meta: None, size: Any, stride: Any) -> Pair:
        return Pair(inner["first"], inner["second"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        def run(part: str) -> Any:
            of = lambda value: getattr(value, part) if isinstance(value, Pair) else value  # noqa: E731
            return function(*torch.utils._pytree.tree_map(of, arguments), **(keywords or {}))

        first, second = run("first"), run("second")
        return Pair(first, second) if isinstance(first, torch.Tensor) else first


def test_subclasses() -> None:
    x = torch.randn(4, 6)
    named = zefuse(lambda x: (x * 2).sin() + 1)(x.as_subclass(Named))
    assert type(named) is Named
    torch.testing.assert_close(named.as_subclass(torch.Tensor), (x * 2).sin() + 1)
    pair = zefuse(lambda x: (x * 2).sin() + 1, fullgraph=True)(Pair(x, -x))
    assert type(pair) is Pair
    torch.testing.assert_close(pair.first, (x * 2).sin() + 1)
    torch.testing.assert_close(pair.second, (-x * 2).sin() + 1)


# --- deterministic algorithms, inference tensors ----------------------------------------------------------------------


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms() -> None:
    """Sums into few places, by every thread: the same bits each time, also compared with a call that was compiled before the
    switch."""
    where = torch.arange(6000) * 7 % 11
    values = torch.randn(6000, 33)

    def function(x: torch.Tensor) -> Any:
        scattered = x.scatter_add(0, where[:, None].expand(-1, 33), values)
        return (
            x.index_add(0, where, values),
            scattered,
            x.index_put((where,), values, accumulate=True),
            values.cumsum(0),
        )

    x = torch.randn(11, 33)
    compiled = zefuse(function)
    before = compiled(x)
    with deterministic():
        expected = function(x)
        results = [compiled(x) for _ in range(3)]
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            zefuse(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2))(torch.randn(1, 1, 4, 4))
    assert relative_error(results[0], expected) < 1e-5
    for result in (before, *results[1:]):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(result, results[0], strict=True))


def test_inference_tensors_used_later() -> None:
    """They may be read, and are refused where a gradient would need them or they would be written, as in eager."""
    with torch.inference_mode():
        made = zefuse(lambda x: (x * 2).sin())(torch.ones(4, 6))
    assert made.is_inference()
    assert torch.equal(zefuse(lambda x: x + 1)(made), made + 1)
    with torch.no_grad():
        assert not zefuse(LAYER)(made).is_inference()
    for run in (LAYER, zefuse(LAYER)):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            run(made)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        made.add_(1)
    made = made.clone()  # the way out that torch's message names
    assert torch.equal(zefuse(lambda x: x.add_(1))(made), made)
    zefuse(LAYER)(made).sum().backward()
