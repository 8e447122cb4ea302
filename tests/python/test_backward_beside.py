"""A backward is compiled beside its forward, and native code beside the caller (python/zefuse/graphs/later.py), on the posing GPU."""

from __future__ import annotations

import posing_programs
import pytest
import torch
from posing_programs import needs_posing_cuda

from zefuse.graphs import later

BEGIN = """
import torch
from zefuse import _native

native = _native.load()
asked = []

class Counted:
    def __getattr__(self, name):
        return getattr(native, name)
    def compile(self, graph, *rest):
        asked.append("compile")
        return native.compile(graph, *rest)
    def begin(self, graph, *rest):
        asked.append("begin")
        return native.begin(graph, *rest)

_native.load = Counted

torch.manual_seed(0)
x = torch.randn(8, 16).cuda().requires_grad_()

def layers(x):
    for _ in range(3):
        x = torch.sin(x * 2).softmax(-1)
    return x.sum()

def gradient(function, **options):
    return torch.autograd.grad(torch.compile(function, backend="zefuse", **options)(x), x)[0].cpu()
"""


def run(program: str) -> None:
    posing_programs.run(BEGIN + program)


@needs_posing_cuda
def test_it_begins_behind_the_forward() -> None:
    run("""
from zefuse.graphs import observers
kinds = []
with observers.observe(lambda kind, compiled: kinds.append(kind)):
    out = torch.compile(layers, backend="zefuse")(x)
    assert asked == ["compile", "begin"] and kinds == ["forward"], (asked, kinds)
    got = torch.autograd.grad(out, x)[0].cpu()
    assert asked == ["compile", "begin"] and kinds == ["forward", "backward"], (asked, kinds)
own = x.detach().cpu().requires_grad_()
assert torch.allclose(got, torch.autograd.grad(layers(own), own)[0], atol=1e-6)
""")


@needs_posing_cuda
def test_it_waits_for_sizes_that_it_does_not_know() -> None:
    run("""
torch.compile(layers, backend="zefuse", dynamic=True)(x)
assert "begin" not in asked, asked
""")


@needs_posing_cuda
def test_errors_are_told_by_backward() -> None:
    """In the words that a backward has which is compiled there."""
    run("""
from zefuse.errors import FallbackError, UnsupportedError
from zefuse.graphs import later

@torch.library.custom_op("beside::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
twice.register_fake(torch.empty_like)

class Own(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.sin()
    @staticmethod
    def backward(context, gradient):
        return twice(gradient)

def told():
    torch._dynamo.reset()
    out = torch.compile(lambda x: Own.apply(x).sum(), backend="zefuse", options={"strict": True})(x)
    for _ in range(2):  # and again by the next
        try:
            torch.autograd.grad(out, x, retain_graph=True)
        except FallbackError as error:
            yield str(error)

here = list(told())
later.may_begin = lambda given: False
assert len(here) == 2 and here == list(told()) and "twice" in here[0], here
""")


@needs_posing_cuda
def test_what_fails_beside_is_tried_again() -> None:
    """The graph in parts, or in eager, as if nothing had been begun."""
    run("""
from zefuse.errors import UnsupportedError

class Refusing:
    def take(self):
        asked.append("take")
        raise UnsupportedError("not today")

Counted.begin = lambda *_: Refusing()
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    got = gradient(layers)
assert any("a graph runs in eager: not today" in str(each.message) for each in told), told
assert asked == ["compile", "take"], asked
own = x.detach().cpu().requires_grad_()
assert torch.allclose(got, torch.autograd.grad(layers(own), own)[0], atol=1e-6)
""")


@needs_posing_cuda
@pytest.mark.parametrize(
    "end",
    [
        "",
        "torch._dynamo.reset(); out = None; import gc; gc.collect()",
        "import os; child = os.fork(); assert not child or os.waitpid(child, 0)[1] == 0",
    ],
)
def test_nobody_calls_it(end: str) -> None:
    """The process ends, the graph goes, or a child does, while it is compiled."""
    run(f"""
out = torch.compile(layers, backend="zefuse")(x)
assert asked == ["compile", "begin"]
{end}
""")


def test_what_comes_at_the_first_call() -> None:
    made, asked = [], []

    def rest() -> later.Boxed:
        asked.append(torch._guards.CompileContext.try_get())
        if len(asked) == 1:
            raise ValueError("the first")
        return made.append

    with torch._guards.compile_context(
        torch._guards.CompileContext(torch._guards.CompileId(frame_id=7, frame_compile_id=0))
    ) as context:
        call = later.at_first_call(rest)
    with pytest.raises(ValueError, match="the first"):
        call([1])
    call([2])
    call([3])
    assert made == [[2], [3]] and asked == [context, context]
    assert call._boxed_call  # type: ignore[attr-defined]
