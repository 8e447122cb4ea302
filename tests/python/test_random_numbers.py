"""Random numbers of CUDA tensors, made in the kernels that use them, on the posing GPU (posing_cuda.py)."""

from __future__ import annotations

import posing_programs
from posing_programs import needs_posing_cuda

pytestmark = needs_posing_cuda

BEGIN = """
import torch, zefuse
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from zefuse import backend
from zefuse.decompositions import random_numbers

graphs = []
draws = torch.ops.zefuse_random

def compiled(function, **options):
    run = torch.compile(function, backend="zefuse", dynamic=options.pop("dynamic", False), options=options)
    def call(*inputs):
        with backend.observe(lambda kind, graph: graphs.append(graph)):
            return run(*inputs)
    return call

def backward(result):
    with backend.observe(lambda kind, graph: graphs.append(graph)):
        result.sum().backward()

def seeds_of(seed, count):
    torch.manual_seed(seed)
    return draws.seeds(count, torch.device("cuda")).cpu()

def close(actual, expected, tolerance=1e-6):
    error = (actual.detach().cpu().double() - expected.double()).abs().max()
    assert error <= tolerance, error

def same(first, second):
    return all(torch.equal(a.detach().cpu(), b.detach().cpu()) for a, b in zip(first, second, strict=True))

def in_one_plan():
    for graph in graphs:
        assert not graph.report()["fallbacks"] and graph.counters()["host_steps"] == 0, graph.report()["fallbacks"]
"""


def run(program: str, **environment: str) -> str:
    return posing_programs.run(BEGIN + program, **environment)


def test_draws_are_those_of_their_definition() -> None:
    """Kernels against the same in torch's integers, and torch's own first words; also at places that no vector begins at."""
    run("""
# cuRAND's Philox4x32-10 of key 0 and counter 0 (Random123's known answers)
words = draws.integers(torch.tensor(0), [4], 0, 1 << 32)
assert words.tolist() == [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8], [hex(w) for w in words.tolist()]
def f(x):
    return (torch.rand_like(x), torch.randn(7, 9, device="cuda"), torch.randint(-5, 1000, (11, 3), device="cuda"), F.dropout(x, 0.25),
            torch.randint(0, 1 << 32, (6, 11), device="cuda"))
x = torch.randn(37, 53)
call = compiled(f)
torch.manual_seed(3)
made = call(x.cuda())
seeds = seeds_of(3, 5)
assert torch.equal(made[0].cpu(), draws.uniform(seeds[0], [37, 53]))
close(made[1], draws.normal(seeds[1], [7, 9]), 1e-5)
assert torch.equal(made[2].cpu(), draws.integers(seeds[2], [11, 3], -5, 1000)) and made[2].dtype is torch.int64
close(made[3], x * (draws.uniform(seeds[3], [37, 53]) < 0.75) / 0.75)
assert torch.equal(made[4].cpu(), draws.integers(seeds[4], [6, 11], 0, 1 << 32))
in_one_plan()
assert graphs[0].report()["random"] == {"draws": 5, "generator": "cuda:0"}
torch.manual_seed(3)
again, then = call(x.cuda()), call(x.cuda())
assert same(made, again) and not any(same([a], [b]) for a, b in zip(made, then))
torch._dynamo.reset()
call = compiled(lambda x: torch.rand_like(x), dynamic=True)  # the number of an element is of 64 bits
torch.manual_seed(3)
assert torch.equal(call(x.cuda()).cpu(), draws.uniform(seeds_of(3, 1)[0], [37, 53]))
""")


def test_statistics() -> None:
    run("""
def f(x):
    h = x.half()
    return (torch.rand_like(x), torch.randn_like(x), torch.bernoulli(torch.full_like(x, 0.3)), torch.empty_like(x).uniform_(-2, 4),
            torch.empty_like(x).normal_(3, 0.5), torch.empty_like(x).exponential_(2.0), torch.randint(0, 7, x.shape, device="cuda"),
            torch.rand_like(h), torch.rand_like(x.bfloat16()), torch.normal(x * 0 + 1, 2.0))
x = torch.zeros(512, 512).cuda()
torch.manual_seed(0)
uniform, normal, flips, between, around, waits, dice, half, bf16, moved = (each.cpu().double() for each in compiled(f)(x))
in_one_plan()
n = x.numel()
def mean_and_deviation(values, mean, deviation):
    assert abs(values.mean() - mean) < 5 * deviation / n**0.5, (values.mean(), mean)
    assert abs(values.std() / deviation - 1) < 0.02, (values.std(), deviation)
mean_and_deviation(uniform, 0.5, 12**-0.5)
mean_and_deviation(normal, 0, 1)
mean_and_deviation(flips, 0.3, 0.21**0.5)
mean_and_deviation(between, 1, 6 * 12**-0.5)
mean_and_deviation(around, 3, 0.5)
mean_and_deviation(waits, 0.5, 0.5)
mean_and_deviation(dice, 3, 2)
mean_and_deviation(moved, 1, 2)
for numbers in (half, bf16):
    mean_and_deviation(numbers, 0.5, 12**-0.5)
    assert numbers.min() >= 0 and numbers.max() < 1
assert waits.min() > 0 and 0 <= uniform.min() and uniform.max() < 1
assert abs((normal.abs() > 2).double().mean() - 0.0455) < 0.003
for values in (uniform, normal):  # neighbours in both directions, and the lanes of one counter, know nothing of each other
    for other in (values.roll(1, 1), values.roll(1, 0), values.roll(2, 1), values.roll(4, 1)):
        assert abs(torch.corrcoef(torch.stack([values.flatten(), other.flatten()]))[0, 1]) < 5 / n**0.5
""")


def test_gradients_know_the_mask_and_calls_differ() -> None:
    run("""
layer = nn.Sequential(nn.Linear(32, 48), nn.Dropout(0.3)).cuda()
call = compiled(layer)
x = torch.randn(64, 32).cuda()
states, seen = [], []
for step in range(12):  # the later ones are replayed lists
    layer[0].bias.grad = None
    y = call(x)
    backward(y)
    dropped = y.detach().cpu() == 0
    close(layer[0].bias.grad, (~dropped).sum(0) / 0.7, 1e-4)
    assert all(not torch.equal(dropped, other) for other in seen)
    seen.append(dropped)
    del y
in_one_plan()
assert len(graphs) == 2 and all(graph.counters()["replays"] >= 4 for graph in graphs), [g.counters()["replays"] for g in graphs]
with torch.random.fork_rng(devices=[]):
    inside = call(x)
assert same([inside], [call(x)])  # fork_rng put the state back
one = call(x)
assert not same([one], [call(x)])
""")


def test_checkpoints_make_the_same_numbers_again() -> None:
    run("""
linear = nn.Linear(32, 32).cuda()
def block(x):
    return F.dropout(F.gelu(linear(F.dropout(x, 0.2))), 0.5) * torch.rand_like(x)
def gradient(call):
    x = torch.linspace(-1, 1, 512).reshape(16, 32).cuda().requires_grad_()
    torch.manual_seed(1)
    y = call(x)
    backward(y)
    return y, x.grad
wanted = gradient(compiled(block))
torch._dynamo.reset()
inside = gradient(compiled(lambda x: checkpoint(block, x, use_reentrant=False)))
in_one_plan()
close(inside[0], wanted[0].detach().cpu())
close(inside[1], wanted[1].cpu())
torch._dynamo.reset()
run = torch.compile(block, backend="zefuse")
around = gradient(lambda x: checkpoint(run, x, use_reentrant=False))  # the generator's state is kept, and put back
assert same(around, wanted)
assert not same(gradient(lambda x: checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)), wanted)
""")


def test_what_stays_torchs() -> None:
    """With fallback_random, of a generator of the user's, of f64: drawn by torch, between compiled parts."""
    run("""
x = torch.randn(16, 16).cuda()
call = compiled(lambda x: torch.rand_like(x) + x, fallback_random=True)
torch.manual_seed(4)
made = call(x)
torch.manual_seed(4)
close(made, torch.rand_like(x).cpu() + x.cpu())
(fallback,) = graphs[0].report()["fallbacks"]
assert fallback["op"].startswith("aten::rand") and "random" not in graphs[0].report(), fallback
torch._dynamo.reset()
call = compiled(lambda x: torch.rand(4, 4, dtype=torch.float64, device="cuda") + x.sum())
call(x)
fallback = graphs[-1].report()["fallbacks"][0]
assert "draws from the device's generator" in fallback["reason"], fallback
explanation = zefuse.explain(lambda x: F.dropout(x, 0.5), x)
assert "1 draw in kernels (Philox)" in str(explanation), str(explanation)
strict = compiled(lambda x: F.dropout(x, 0.5).sin(), strict=True)
strict(x)
""")


def test_attention_drops_weights() -> None:
    """Against the formula in f64, with the weights that the seed says: torch's names of attention on a CUDA device."""
    run("""
import math
q, k, v = (torch.randn(2, 4, 24, 16) for _ in range(3))
bias = torch.randn(4, 24, 24).expand(2, 4, 24, 24).contiguous()
grad = torch.randn(2, 4, 24, 16)
aten = torch.ops.aten
def flash(q, k, v, bias):
    return aten._scaled_dot_product_flash_attention(q, k, v, 0.3, True)[0]
def efficient(q, k, v, bias):
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.3)[0]
def cudnn(q, k, v, bias):
    return aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, 0.3)[0]
def formula(q, k, v, bias, causal, seed):
    scores = q @ k.mT / 4 + (0 if bias is None else bias)
    if causal:
        scores = scores.masked_fill(torch.ones(24, 24).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) * (draws.uniform(seed, [2, 4, 24, 24]) < 0.7) / 0.7) @ v
for function, given in ((flash, None), (efficient, bias), (cudnn, bias)):
    torch._dynamo.reset()
    leaves = [x.cuda().requires_grad_() for x in (q, k, v)]
    learned = None if given is None else given.cuda().requires_grad_(function is efficient)
    torch.manual_seed(2)
    y = compiled(function)(*leaves, learned)
    with backend.observe(lambda kind, graph: graphs.append(graph)):
        y.backward(grad.cuda())
    exact = [None if x is None else x.double().requires_grad_() for x in (q, k, v, given)]
    wanted = formula(*exact, function is flash, seeds_of(2, 1)[0])
    wanted.backward(grad.double())
    close(y, wanted, 1e-5)
    for ours, theirs in zip([*leaves, learned], exact):
        if ours is not None and ours.requires_grad:
            close(ours.grad, theirs.grad, 1e-5)
in_one_plan()
# Many scores are torch's, whose kernels keep none.
from zefuse.decompositions import dropped_attention
assert dropped_attention._drops(q, k, 0.3)
dropped_attention.MOST_SCORES = 100
assert dropped_attention.decompositions()[aten._scaled_dot_product_flash_attention.default](q, k, v, 0.3) is NotImplemented
""")
