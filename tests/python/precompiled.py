"""A model for tests of the precompile cache, run in processes of its own: prints what happened and whether the result is right."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import zefuse
from zefuse.precompile import calls as precompile

SCALE = 2.0


def helper(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x) * SCALE


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.factor = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(self.norm(self.layer(x))) + self.factor


class Model(nn.Module):
    def __init__(self, block: type[nn.Module] = Block) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block() for _ in range(2)])

    def forward(self, x: torch.Tensor, flag: bool = True) -> dict[str, torch.Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"x": x, "sum": x.sum() if flag else x.mean()}


def main(change: str) -> None:
    global SCALE
    torch.manual_seed(0)
    options: dict[str, object] = {}
    x, kwargs, mode = torch.randn(4, 16), {}, torch.no_grad()
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=change == "autocast")
    block: type[nn.Module] = Block
    namespace: dict[str, object] = dict(globals())
    if change == "global":
        SCALE = 5.0
    elif change == "inlined function":
        exec("def helper(x):\n    return F.relu(x) * SCALE + 1\n", namespace)
        globals()["helper"].__code__ = namespace["helper"].__code__
    elif change == "torch function":
        F.relu = F.gelu
    elif change == "function inside torch":
        linear = F.linear
        F.linear = lambda x, weight, bias=None: linear(x, weight, bias) + 1
    elif change == "option":
        options["fuse"] = False
    elif change == "dtype":
        x = x.double()
    elif change == "shape":
        x = torch.randn(5, 16)
    elif change == "strides":
        x = torch.randn(16, 4).t()
    elif change == "argument":
        kwargs["flag"] = False
    elif change == "grad":
        mode = torch.enable_grad()
    elif change == "inference mode":
        mode = torch.inference_mode()
    elif change == "subclass":

        class Other(Block):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) * 2

        block = Other
    elif change == "method":
        Block.forward = lambda self, x: helper(self.layer(x))  # type: ignore[method-assign]
    model = Model(block).eval()
    if change == "instance method":
        first = model.blocks[0]
        first.forward = lambda x: first.layer(x)  # type: ignore[method-assign]
    elif change == "attribute":
        model.blocks[1].factor = 7
    elif change == "hook":
        model.blocks[0].register_forward_hook(lambda module, args, out: out - 1)
    elif change == "training":
        model.train()
    elif change == "parameter":
        model.blocks[0].layer = nn.Linear(16, 16, bias=False).eval()
    elif change == "tied":
        model.blocks[1].layer.weight = model.blocks[0].layer.weight
    elif change == "weights":
        with torch.no_grad():
            model.blocks[0].layer.weight.mul_(2)
    if change == "dtype":
        model.double()
    zefuse.enable_precompile()
    torch._dynamo.utils  # noqa: B018  what torch.compile imports is no part of a call
    if change == "backend":
        compiled = torch.compile(model, backend="aot_eager")
    else:
        compiled = torch.compile(model, backend="zefuse", options=options)
    with mode, autocast:
        start = time.perf_counter()
        actual = compiled(x, **kwargs)
        seconds = time.perf_counter() - start
        expected = model(x, **kwargs)
        tolerance = 5e-2 if change == "autocast" else 1e-4
        for name in expected:
            torch.testing.assert_close(actual[name], expected[name], rtol=tolerance, atol=tolerance)
        again = compiled(x, **kwargs)
        torch.testing.assert_close(again["x"], actual["x"])
    from torch._dynamo.utils import counters

    print(f"{counters['frames']['total']} frames, {seconds * 1e3:.1f} ms: {'; '.join(precompile.events())}")


if __name__ == "__main__":
    main(sys.argv[1])
