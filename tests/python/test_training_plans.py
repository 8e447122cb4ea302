"""A training step's plans for an NVIDIA GPU, made without one: what a step reads, writes and launches there (docs/training.md)."""

from __future__ import annotations

import json
from typing import Any

import children
import pytest

PROGRAM = """
import json, torch, zefuse
from torch import nn
from torch.nn import functional as F

TOKENS, WIDTH, WORDS = 512, 512, 1001

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.behind = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = (t.unflatten(-1, (8, 64)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.down(F.gelu(self.up(x), approximate="tanh"))
        return F.linear(self.behind(x), self.table.weight)

torch.manual_seed(0)
with torch.autocast("cpu", torch.bfloat16):
    report = zefuse.explain(Model(), torch.randint(WORDS, (4, TOKENS // 4)), target="sm_90")
assert not report.fallbacks, report.fallbacks
(backward,) = (graph["graph"] for graph in report.graphs if graph["kind"] == "backward")
print(json.dumps([kernel for kernel in report.kernels if kernel["graph"] == backward], default=str))
"""


@pytest.fixture(scope="module")
def backward() -> list[dict[str, Any]]:
    done = children.run(PROGRAM)
    assert done.returncode == 0, done.stderr
    kernels: list[dict[str, Any]] = json.loads(done.stdout)
    return kernels


def of(kernels: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    return [kernel for kernel in kernels if words in kernel["name"] + " " + kernel["schedule"]]


def test_attention_is_derived_on_the_matrix_engine(backward: list[dict[str, Any]]) -> None:
    """In one launch: a head of 128 rows has few groups."""
    (gradient,) = of(backward, "attention's derivative")
    assert "on the matrix engine" in gradient["schedule"], gradient


def test_a_tables_gradient_is_shared_by_groups(backward: list[dict[str, Any]]) -> None:
    (scatter,) = of(backward, "scatter")
    assert "slices of the updates" in scatter["schedule"]


def test_products_of_an_odd_vocabulary_have_whole_rows(backward: list[dict[str, Any]]) -> None:
    """Both derivatives of the projection read one copy of the gradient, whose rows begin at multiples of 16 bytes."""
    products = of(backward, "rows of 1001 elements are copied")
    assert {kernel["name"] for kernel in products} == {"matmul_1008x512", "matmul_512x512"}, products
    copied = [
        kernel for kernel in backward if kernel["ops"] == ["aten.mm.default"] and "pointwise" in kernel["schedule"]
    ]
    assert sorted(kernel["bytes"] for kernel in copied) == [2 * 512 * (1001 + 1008), 2 * 512 * (1001 + 1008)], copied


def test_no_widened_copy_of_an_activation_is_stored(backward: list[dict[str, Any]]) -> None:
    tokens, width = 512, 512
    (gelu,) = of(backward, "gelu_backward")
    assert gelu["bytes"] <= 3 * 2 * tokens * 4 * width + 4096, gelu  # two activations of 16 bits in, one out
    norms = [kernel for kernel in backward if "row per" in kernel["schedule"] and "layer_norm" in kernel["name"]]
    assert len(norms) == 2
    # The gradient in 16 bits and the input in f32; out the gradient in f32, and one in 16 bits or the residual's in f32.
    assert all(kernel["bytes"] <= (2 + 4 + 4 + 4 + 2) * tokens * width + 16384 for kernel in norms), norms


def test_a_norms_gradients_are_one_launch(backward: list[dict[str, Any]]) -> None:
    """Its weight's and its bias' are sums over the same rows. Three other biases take two launches each."""
    assert len(of(backward, "lanes across rows")) == 2 + 3 * 2, [kernel["name"] for kernel in backward]
    assert len(backward) == 29, [kernel["name"] for kernel in backward]
