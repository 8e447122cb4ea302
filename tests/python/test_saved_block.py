"""What a forward graph on a GPU saves for its backward is one tensor (python/zefuse/graphs/saved_block.py), on the posing GPU."""

from __future__ import annotations

import posing_programs
from posing_programs import needs_posing_cuda

pytestmark = needs_posing_cuda

BEGIN = """
import torch
from torch.autograd.graph import saved_tensors_hooks

torch.manual_seed(0)
x, w, g = torch.randn(16, 32), torch.randn(32, 32) / 6, torch.randn(16, 32)

def step(function, through, times=1, dynamic=False, pack=lambda t: t, unpack=lambda t: t):
    inputs = [t.clone().to(through).requires_grad_() for t in (x, w)]
    run = torch.compile(function, backend="zefuse", dynamic=dynamic) if through == "cuda" else function
    with saved_tensors_hooks(pack, unpack):
        results = run(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for left in range(times)[::-1]:
        torch.autograd.backward(results, [g.to(through)] * len(results), retain_graph=left > 0)
    return [t.detach().cpu() for t in (*results, *(t.grad for t in inputs))]

def check(function, **how):
    saved = []
    pack = how.pop("pack", lambda t: t)
    def noted(t):
        saved.append((t.dtype, tuple(t.shape)))
        return pack(t)
    got = step(function, "cuda", pack=noted, **how)
    for a, b in zip(got, step(function, "cpu", times=how.get("times", 1)), strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max(), (a, b)
    return saved

def layers(x, w):
    for _ in range(3):
        x = torch.sin(x @ w)
    return x

def blocks(saved):
    return [shape for dtype, shape in saved if dtype == torch.uint8]
"""


def run(program: str) -> None:
    posing_programs.run(BEGIN + program)


def test_activations_are_one_tensor() -> None:
    """Also where a backward runs again, where hooks take it elsewhere in between, and where others see some of it."""
    run("""
saved = check(layers)
assert len(blocks(saved)) == 1 and len(saved) == 3, saved  # and what the graph was called with
assert blocks(saved)[0][0] >= 3 * 16 * 32 * 4
assert blocks(check(lambda x, w: layers(x, w), times=3))  # torch wants to know at the first one
assert blocks(check(layers, pack=lambda t: t.cpu(), unpack=lambda t: t.to("cuda")))

def returned(x, w):
    a = torch.sin(x @ w)
    return a, torch.sin(torch.sin(a @ w) @ w)
saved = check(returned)
assert len(blocks(saved)) == 1 and len(saved) == 4, saved  # the first result is saved as itself
""")


def test_backwards_that_need_tensors() -> None:
    """One that returns what was saved, and one that torch computes a part of."""
    run("""
class Returned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        a, b = x @ w, x @ w @ w
        ctx.save_for_backward(a, b, w)
        return torch.tanh(b)
    @staticmethod
    def backward(ctx, gradient):
        a, b, w = ctx.saved_tensors
        return a, w * b.sum()

class Inverse(Returned):
    @staticmethod
    def backward(ctx, gradient):
        a, b, w = ctx.saved_tensors
        return gradient * a, torch.linalg.inv(a.T @ b + 40 * torch.eye(32, device=w.device))

for function in (Returned, Inverse):
    assert blocks(check(function.apply)), function
""")


def test_what_is_not_in_it() -> None:
    """What is large, and what has no fixed size."""
    run("""
for rows in (16, 24):
    x, g = torch.randn(rows, 32), torch.randn(rows, 32)
    assert not blocks(check(layers, dynamic=True))

x, g = torch.randn(1 << 17, 32), torch.randn(1 << 17, 32)
large = 1 << 24
saved = check(lambda x, w: torch.sin(torch.sin((x @ w).repeat(1, 2))[:, :32] + layers(x[:16], w).sum()))
assert blocks(saved) and all(shape[0] < large for shape in blocks(saved)), saved
assert any(torch.Size(shape).numel() * 4 > large for dtype, shape in saved if dtype != torch.uint8), saved
""")
