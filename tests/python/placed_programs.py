"""Programs with tensors on the posing GPU, of torch's device "cuda" or "xpu": what they begin with."""

from __future__ import annotations

import posing_programs
import pytest
from posing_programs import needs_posing_cuda, needs_posing_xpu

on_each_device = pytest.mark.parametrize(
    "device", [pytest.param("cuda", marks=needs_posing_cuda), pytest.param("xpu", marks=needs_posing_xpu)]
)

BEGIN = """
import copy, torch, zefuse
from torch import nn
from torch.nn import functional as F
from zefuse import backend

torch.manual_seed(0)
graphs = []

def compiled(function, **options):
    run = torch.compile(function, backend="zefuse", options=options or None, dynamic=False)
    def call(*inputs):
        with backend.observe(lambda kind, graph: graphs.append(graph)):
            return run(*inputs)
    return call

def close(actual, expected, tolerance=1e-4):
    error = (actual.detach().cpu() - expected.detach().cpu()).abs().max() / expected.detach().abs().max().cpu().clamp(min=1e-3)
    assert error <= tolerance, error

def count(name):
    return sum(graph.counters()[name] for graph in graphs)

def nothing_copied():
    for name in ("copies_to_device", "copies_to_host", "bytes_to_device", "bytes_to_host", "parameters_uploaded", "host_steps"):
        assert count(name) == 0, name

def raised(kind, function, *inputs):
    try:
        function(*inputs)
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")

mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
"""


TRAINING = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 64), nn.LayerNorm(64)
        self.qkv, self.out, self.batch = nn.Linear(64, 192), nn.Linear(64, 50), nn.BatchNorm1d(64)

    def forward(self, i, labels):
        x = self.norm(self.table(i))
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = self.batch(x.transpose(1, 2)).transpose(1, 2)
        return F.cross_entropy(self.out(x).flatten(0, 1), labels.flatten())

theirs = Model()
ours = copy.deepcopy(theirs).to("cuda")
i, labels = torch.randint(50, (3, 16)), torch.randint(50, (3, 16))
"""


def run(program: str, whole: bool = False, device: str = "cuda", **environment: str) -> str:
    """The program's output; it has to end well."""
    return posing_programs.run(BEGIN + program, whole=whole, device=device, **environment)
