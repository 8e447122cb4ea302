"""Training steps: forward, backward and optimizer, against eager. Fallbacks are allowed here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zefuse import backend
from zefuse.testing import relative_error

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 3, 2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(4),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        nn.Flatten(),
        nn.Linear(8, 4),
    ),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam fused"])
@pytest.mark.parametrize("name", MODELS)
def test_steps(name: str, optimizer: str) -> None:
    ours = MODELS[name]()
    ours(torch.randn(2, 8))  # lazy parameters
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="zefuse")
    make = {
        "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        "adam fused": lambda model: torch.optim.Adam(
            model.parameters(), lr=0.01, eps=0.1, fused=True
        ),  # eps: no gradient of pure noise decides a step,
    }[optimizer]
    optimizers = make(ours), make(theirs)
    for step in range(4):
        x, y = torch.randn(6, 8), torch.randint(4, (6,))
        losses = []
        for model, stepper in zip((compiled, theirs), optimizers, strict=True):
            stepper.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            stepper.step()
            losses.append(loss)
        assert relative_error(losses[0], losses[1]) < 1e-4, f"step {step}"
    assert relative_error(dict(ours.named_parameters()), dict(theirs.named_parameters())) < 1e-3
    assert relative_error(dict(ours.named_buffers()), dict(theirs.named_buffers())) < 1e-3


def test_input_gradients() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(x @ y, -1) * torch.tanh(x)).sum()

    ours = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    torch.compile(function, backend="zefuse", fullgraph=True)(*ours).backward()
    function(*theirs).backward()
    assert relative_error([t.grad for t in ours], [t.grad for t in theirs]) < 1e-5


def trained(
    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]], *inputs: torch.Tensor, dynamic: bool = False
) -> dict[str, object]:
    """Compiles and differentiates ``function``; compares outputs, their strides, gradients and theirs with eager's. Returns the
    compiled graphs by kind."""
    graphs: dict[str, object] = {}
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="zefuse", dynamic=dynamic)
    found = []
    for call in (function, compiled):
        given = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in inputs]
        with backend.observe(graphs.__setitem__):
            outputs = call(*given)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            gradients = torch.autograd.grad(sum((out * out.detach().clamp(-1, 1)).sum() for out in outputs), given)
        found.append((*outputs, *gradients))
    for theirs, ours in zip(*found, strict=True):
        assert relative_error(ours, theirs) < 1e-4
        assert ours.stride() == theirs.stride()
    return graphs


def copies(graph: object) -> list[str]:
    return [kernel["name"] for kernel in graph.report()["kernels"] if "layout_copy" in kernel["name"]]


def images(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    hidden = F.conv2d(x, first, padding=1)
    hidden = F.relu(F.batch_norm(hidden, None, None, training=True))
    return F.batch_norm(F.conv2d(hidden, second, padding=1), None, None, training=True)


IMAGES = tuple(
    torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for shape in [(2, 16, 12, 12), (24, 16, 3, 3), (8, 24, 3, 3)]
)


def test_saved_activations_lie_as_they_were_computed() -> None:
    graphs = trained(images, *IMAGES)
    # What comes in and goes out: the image, its gradient, the output and its gradient.
    assert len(copies(graphs["forward"])) <= 2
    assert len(copies(graphs["backward"])) <= 2
    strides = graphs["forward"].output_strides()
    assert strides[0] == (8 * 144, 144, 12, 1)
    assert (24 * 144, 1, 24 * 12, 24) in strides[1:]


def test_saved_activations_of_any_batch_size() -> None:
    trained(images, *IMAGES, dynamic=True)


def test_a_saved_activation_that_is_returned_has_eagers_strides() -> None:
    def function(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = F.conv2d(x, first, padding=1).sigmoid()
        return hidden, F.conv2d(hidden, second, padding=1), hidden.transpose(1, 2)

    trained(function, *IMAGES)


class SavedGradient(torch.autograd.Function):
    """Its gradient is what it saved."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, saved: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(saved)
        return x.sum()

    @staticmethod
    def backward(context: Any, _: torch.Tensor) -> tuple[torch.Tensor, None]:
        return context.saved_tensors[0], None


def test_a_gradient_that_is_a_saved_activation_has_eagers_strides() -> None:
    def function(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        saved = F.conv2d(x.detach(), first.detach()[:16], padding=1)
        return SavedGradient.apply(x, saved) + (first * first).sum() + second.sum()

    trained(function, *IMAGES)


@torch.library.custom_op("zefuse_test::doubled_rows", mutates_args=())
def doubled_rows(x: torch.Tensor) -> torch.Tensor:
    assert x.is_contiguous()  # as it was traced
    return 2 * x


@doubled_rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class SavesInput(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x.sin()


class Opaque(SavesInput):
    """Its backward hands what it saved to an operator that nobody looks into, and to one that depends on strides."""

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        return gradient * doubled_rows(x) * x.as_strided(x.shape, (24 * 144, 144, 1, 12))


class InParts(SavesInput):
    """Its backward is no one plan: complex numbers."""

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        return gradient * torch.view_as_real(torch.fft.fft(x.view(-1))).sum(1).view(x.shape)


@pytest.mark.parametrize("between", [Opaque, InParts], ids=["operators", "parts"])
def test_what_runs_outside_a_plan_in_the_backward_sees_eagers_strides(between: type[SavesInput]) -> None:
    def function(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return F.conv2d(between.apply(F.conv2d(x, first, padding=1).sigmoid()), second, padding=1)

    trained(function, *IMAGES)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["solve", "lu_factor", "cholesky", "inv"])
def test_operators_that_check_their_result(name: str, dynamic: bool) -> None:
    """The token of the check is an output before all others, which AOTAutograd does not count."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        square = x @ x.mT + 1
        made = torch.linalg.solve(square, x) if name == "solve" else getattr(torch.linalg, name)(square)
        return (made[0] if name == "lu_factor" else made).sin(), x[x.shape[0] // 2 :]

    results = []
    for run in (function, torch.compile(function, backend="zefuse", dynamic=dynamic)):
        x = (torch.eye(6) * torch.arange(2.0, 8)).requires_grad_()
        made, view = run(x)
        assert view.storage_offset() == 18 and view._base is x
        (made.sum() + (view * 3).sum()).backward()
        assert x.grad is not None
        results.append((made.detach(), x.grad, made.stride()))
    assert results[1][2] == results[0][2]
    for ours, theirs in zip(results[1][:2], results[0][:2], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
