"""On a machine with an NVIDIA GPU and zefuse's wheel: CUDA tensors where they lie.

    placed.py [NAME ...]

Streams, errors told later, training, optimizers, memory: what tests/python/test_places.py checks on the posing GPU, and what needs
torch's own CUDA. For a GPU that nobody else uses, as two tests fill its memory.
Prints a line for each test; status 1 where one fails.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from gpu_models import SMALL
from torch import nn
from torch.nn import functional as F

import zefuse
from zefuse import backend

TESTS: dict[str, Callable[[], str | None]] = {}

# Torch's tensors are allocations of their own then, and eager's attention is not cuDNN's kernel, in which the tools find
# races and divergent barriers (a kernel that waits for copies by wgmma's rules).
UNDER_SANITIZER = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1"
SKIP = "not run: "  # how a test's word begins that the machine cannot run


def test(function: Callable[[], str | None]) -> Callable[[], str | None]:
    TESTS[function.__name__] = function
    return function


class Watched:
    """A compiled function and its graphs."""

    def __init__(self, function: Any, **options: Any) -> None:
        self.graphs: list[Any] = []
        self.compiled = torch.compile(function, backend="zefuse", options=options or None, dynamic=False)

    def __call__(self, *inputs: Any) -> Any:
        with backend.observe(lambda _, graph: self.graphs.append(graph)):
            return self.compiled(*inputs)

    def count(self, name: str) -> int:
        return sum(graph.counters()[name] for graph in self.graphs)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> None:
    error = (actual.detach().float().cpu() - expected.detach().float().cpu()).abs().max()
    scale = expected.detach().float().abs().max().clamp(min=1e-3).cpu()
    assert error / scale <= tolerance, f"error {float(error / scale):.2e}"


def mlp(width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, width)).cuda()


@test
def nothing_is_copied() -> str:
    model, x = mlp(), torch.randn(64, 256, device="cuda")
    compiled = Watched(model)
    with torch.no_grad():
        for _ in range(8):
            x = torch.tanh(compiled(x))  # in order with torch's own kernels, and with itself
        y = torch.randn(64, 256, device="cuda")
        for _ in range(4):
            result = compiled(y)
        close(result, model(y))
    for name in ("copies_to_device", "copies_to_host", "parameters_uploaded", "host_steps"):
        assert compiled.count(name) == 0, name
    return f"{compiled.count('launches')} launches, {compiled.count('replays')} replays"


@test
def other_streams() -> None:
    model = mlp()
    compiled = Watched(model)
    with torch.no_grad():
        for _ in range(3):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                x = torch.randn(4096, 256, device="cuda")
                for _ in range(20):
                    x = x * 0.5 + 1
                y = compiled(x)
                z = y + 1
            stream.synchronize()
            close(z - 1, model(x))


@test
def threads() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="zefuse")
    wrong: list[str] = []

    def work(seed: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
                x = torch.full((64, 256), float(seed), device="cuda")
                want = model(x)
                for _ in range(50):
                    got = compiled(x)
                close(got, want)
        except Exception:
            wrong.append(traceback.format_exc())

    with torch.no_grad():
        compiled(torch.ones(64, 256, device="cuda"))
    torch.cuda.synchronize()
    runners = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert not wrong, wrong[0]


@test
def an_index_out_of_range_is_told_later() -> str:
    table = torch.randn(10, 64, device="cuda")
    compiled = torch.compile(lambda i: F.embedding(i, table) * 2, backend="zefuse")
    good, bad = torch.tensor([1, 2, 3], device="cuda"), torch.tensor([1, 12, 3], device="cuda")
    close(compiled(good), table[good] * 2)
    compiled(bad)
    try:
        zefuse.synchronize()
    except IndexError as error:
        told = str(error)
    else:
        raise AssertionError("no error")
    zefuse.synchronize()
    close(compiled(good), table[good] * 2)
    torch._dynamo.reset()
    at_once = torch.compile(lambda i: F.embedding(i, table) * 2, backend="zefuse", options={"synchronous": True})
    try:
        at_once(bad)
    except IndexError:
        return told.splitlines()[0][:150]
    raise AssertionError("no error at once")


@test
def cpu_scalars_and_indices() -> None:
    x = torch.randn(64, 64, device="cuda")
    scale, rows = torch.tensor(3.0), torch.tensor([5, 1, 7])
    compiled = Watched(lambda x, s, r: (x * s)[r] + 1)
    close(compiled(x, scale, rows), (x * 3)[rows.cuda()] + 1)
    assert compiled.count("copies_to_device") >= 1


@test
def results_on_the_cpu_and_moves() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 2).relu()
        return y.sum(0).cpu() + 1, y

    x = torch.randn(64, 64, device="cuda")
    a, b = torch.compile(function, backend="zefuse")(x)
    assert a.device.type == "cpu" and b.device.type == "cuda"
    close(a, (x * 2).relu().sum(0).cpu() + 1)


def losses(
    model: nn.Module, step: Callable[[nn.Module, torch.Tensor], torch.Tensor], optimize: str = "eager"
) -> list[float]:
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    update = torch.compile(optimizer.step, backend="zefuse") if optimize == "zefuse" else optimizer.step
    told = []
    for _ in range(4 if UNDER_SANITIZER else 6):  # the fourth step replays what the third recorded
        x = torch.randint(100, (4, 17), device="cuda")
        optimizer.zero_grad()
        loss = step(model, x)
        loss.backward()
        update()
        told.append(loss.item())
    return told


def language_step(run: Callable[..., torch.Tensor]) -> Callable[[nn.Module, torch.Tensor], torch.Tensor]:
    return lambda _, x: F.cross_entropy(run(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten())


def compared_losses(name: str, context: Callable[[], Any], tolerance: float, optimize: str = "eager") -> str:
    torch.manual_seed(0)
    ours = SMALL[name].make().cuda()
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="zefuse", dynamic=False)

    def step(run: Callable[..., torch.Tensor]) -> Callable[[nn.Module, torch.Tensor], torch.Tensor]:
        def one(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
            with context():
                return language_step(run)(model, x)

        return one

    a, b = losses(ours, step(compiled), optimize), losses(theirs, step(theirs))
    assert all(abs(x - y) <= tolerance * abs(y) for x, y in zip(a, b, strict=True)), (a, b)
    zefuse.synchronize()
    return f"losses {a[0]:.4f} .. {a[-1]:.4f}, eager {b[-1]:.4f}"


@test
def training_f32() -> str:
    return compared_losses("GPT-2", lambda: torch.autocast("cuda", enabled=False), 1e-3)


@test
def training_bf16_autocast() -> str:
    return compared_losses("GPT-2", lambda: torch.autocast("cuda", torch.bfloat16), 2e-2)


@test
def training_llama_bf16() -> str:
    return compared_losses("Llama", lambda: torch.autocast("cuda", torch.bfloat16), 2e-2)


@test
def compiled_optimizer() -> str:
    return compared_losses("GPT-2", lambda: torch.autocast("cuda", enabled=False), 1e-3, "zefuse")


@test
def grad_scaler_f16_and_accumulation() -> str:
    model = mlp()
    theirs = copy.deepcopy(model)
    found = []
    for module, run in ((model, torch.compile(model, backend="zefuse")), (theirs, theirs)):
        torch.manual_seed(5)
        scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(module.parameters(), 0.05)
        for step in range(6):
            x = torch.randn(32, 256, device="cuda")
            with torch.autocast("cuda", torch.float16):
                loss = run(x).float().pow(2).mean() / 2
            scaler.scale(loss).backward()
            if step % 2:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        found.append(loss.item())
    assert abs(found[0] - found[1]) < 1e-2 * abs(found[1]), found
    return f"{found[0]:.5f}, eager {found[1]:.5f}"


@test
def checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    model = mlp()
    theirs = copy.deepcopy(model)
    compiled = torch.compile(lambda x: checkpoint(model, x, use_reentrant=False).sum(), backend="zefuse")
    x = torch.randn(32, 256, device="cuda")
    compiled(x).backward()
    theirs(x).sum().backward()
    for a, b in zip(model.parameters(), theirs.parameters(), strict=True):
        close(a.grad, b.grad, 1e-3)


@test
def batch_norm_and_convolutions() -> None:
    model = SMALL["ResNet-50"].make().cuda().train()
    theirs = copy.deepcopy(model)
    x = torch.randn(8, 3, 32, 32, device="cuda")
    torch.backends.cudnn.allow_tf32 = False
    compiled = torch.compile(model, backend="zefuse")
    a, b = compiled(x), theirs(x)
    close(a, b, 1e-3)
    a.square().mean().backward()
    b.square().mean().backward()
    for (name, p), q in zip(model.named_parameters(), theirs.parameters(), strict=True):
        if p.grad.abs().max() > 1e-4:
            close(p.grad, q.grad, 2e-2), name
    for p, q in zip(model.buffers(), theirs.buffers(), strict=True):
        close(p, q, 1e-3)


@test
def convolutions_of_the_vendors_library() -> str:
    """A block of a CNN in bf16: channels-last images between our kernels and cuDNN's, forward and backward."""
    model = nn.Sequential(
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64),
        nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
    ).cuda().train()  # fmt: skip
    exact, eager = copy.deepcopy(model), copy.deepcopy(model)
    compiled = Watched(model)
    x = torch.randn(8, 32, 56, 56, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        z = eager(x)
    z.float().square().mean().backward()
    for _ in range(4):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            y = compiled(x)
        y.float().square().mean().backward()
    exact(x).square().mean().backward()
    close(y, exact(x), 3e-2)
    for a, b, c in zip(model.parameters(), exact.parameters(), eager.parameters(), strict=True):
        if (largest := b.grad.abs().max()) > 1e-4:  # sums of 25088 roundings: eager's own error says what is usual
            close(a.grad, b.grad, max(2e-2, 1.5 * float((c.grad - b.grad).abs().max() / largest)))
    calls = compiled.count("library_calls") // 4
    assert calls >= 3, calls
    return f"{calls} of the forward's convolutions in the library"


@test
def dropout_draws_from_the_device() -> str:
    compiled = torch.compile(lambda x: F.dropout(x * 1, 0.25), backend="zefuse")
    x = torch.ones(1024, 1024, device="cuda")
    torch.manual_seed(7)
    a = compiled(x)
    torch.manual_seed(7)
    assert torch.equal(a, compiled(x))
    assert not torch.equal(a, compiled(x))
    kept = (a != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.01, kept
    return f"kept {kept:.4f}"


class Kept(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.exp().cumsum(0)


def captured(
    call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of torch's with one call, and that call's result."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call(x)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        y = call(x)
    return graph, y


@test
def inside_a_cuda_graph_of_torchs() -> None:
    model, x = mlp(), torch.randn(64, 256, device="cuda")
    compiled = torch.compile(model, backend="zefuse")
    with torch.no_grad():
        graph, y = captured(compiled, x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        close(y, model(x))
        kept = Kept().cuda()  # what is made of its parameters alone is made in each replay
        scaled = torch.compile(kept, backend="zefuse")
        graph, y = captured(scaled, x)
        kept.weight.mul_(2)
        graph.replay()
        torch.cuda.synchronize()
        close(y, kept(x))
        close(scaled(x), kept(x))


@test
def torchs_cache_is_emptied_first() -> str:
    free, _ = torch.cuda.mem_get_info()
    count = int(free * 0.25) // 4
    x = torch.ones(4096, count // 4096 // 2, device="cuda")  # first: it must not be part of what torch keeps
    torch.empty(int(free * 0.75), dtype=torch.uint8, device="cuda")  # freed at once: torch keeps it

    def function(x: torch.Tensor) -> torch.Tensor:
        rows = x.sum(1, keepdim=True)
        return (x / rows).cumsum(0).sum(0)

    compiled = torch.compile(function, backend="zefuse")
    close(compiled(x), function(x), 1e-3)
    zefuse.synchronize()
    torch.cuda.empty_cache()
    return f"{free >> 20} MiB were free"


@test
def no_memory_is_torchs_error() -> str:
    _, total = torch.cuda.mem_get_info()  # what is free may become more, where others use the device
    x = torch.ones(1024, 1024, device="cuda")
    wide = int(total * 1.5) // 4 // 1024 // 1024
    compiled = torch.compile(
        lambda x: (x[None] * torch.arange(1, wide + 1, device="cuda")[:, None, None]).exp(), backend="zefuse"
    )
    try:
        compiled(x)
    except torch.OutOfMemoryError as error:
        return str(error).splitlines()[0][:150]
    raise AssertionError("no error")


@test
def time_of_the_host() -> str:
    x = torch.randn(16, 16, device="cuda")
    compiled = torch.compile(lambda x: x * 2 + 1, backend="zefuse")
    told = []
    with torch.no_grad():
        for name, run in (("zefuse", lambda: compiled(x)), ("eager", lambda: x * 2 + 1)):
            for _ in range(200):
                run()
            torch.cuda.synchronize()
            best = 1e9
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(500):
                    run()
                best = min(best, (time.perf_counter() - start) / 500)
                torch.cuda.synchronize()
            told.append(f"{name} {best * 1e6:.1f} us")
        graphs: list[Any] = []
        torch._dynamo.reset()
        with backend.observe(lambda _, graph: graphs.append(graph)):
            torch.compile(lambda x: x * 2 + 1, backend="zefuse")(x)
        for _ in range(200):
            graphs[0]([x])
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(500):
            graphs[0]([x])
        told.append(f"without Dynamo's guards {(time.perf_counter() - start) / 500 * 1e6:.1f} us")
        torch.cuda.synchronize()
    return ", ".join(told)


@test
def several_gpus() -> str:
    """Each graph on its tensors' GPU, in turn and from threads; a graph of two is split, and the results lie where eager's do."""
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if len(devices) < 2:
        return SKIP + "one GPU"
    wrong: list[str] = []

    def work(device: torch.device) -> None:
        try:
            model = mlp().to(device)
            theirs = copy.deepcopy(model)
            x = torch.randn(64, 256, device=device)
            compiled = torch.compile(model, backend="zefuse")
            for _ in range(20):
                y = compiled(x)
                assert y.device == device
                y.square().mean().backward()
            close(y, theirs(x))
            theirs(x).square().mean().backward()
            for a, b in zip(model.parameters(), theirs.parameters(), strict=True):
                close(a.grad / 20, b.grad, 1e-3)
        except Exception:
            wrong.append(traceback.format_exc())

    for device in devices:
        work(device)
    runners = [threading.Thread(target=work, args=(device,)) for device in devices]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert not wrong, wrong[0]

    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = (x * 2).relu().sum(0)
        return a, (y + a.to(y.device)).exp()

    x, y = torch.randn(64, 64, device=devices[0]), torch.randn(64, 64, device=devices[1])
    found = torch.compile(both, backend="zefuse")(x, y)
    for ours, expected in zip(found, both(x, y), strict=True):
        assert ours.device == expected.device
        close(ours, expected)
    zefuse.synchronize()
    return f"{len(devices)} GPUs"


def main(names: list[str]) -> int:
    failed = 0
    if UNDER_SANITIZER:
        torch.backends.cuda.enable_cudnn_sdp(False)
    # An index out of range that eager were to see would end CUDA for the process.
    for name in names or sorted(TESTS, key=lambda name: name.startswith("an_index")):
        torch._dynamo.reset()
        torch.manual_seed(0)
        start = time.time()
        try:
            said = TESTS[name]() or ""
            word = "SKIP" if said.startswith(SKIP) else "ok  "
        except Exception:
            said, word = traceback.format_exc()[-1500:], "FAIL"
            failed += 1
        print(f"{name:40} {word} {time.time() - start:5.1f} s  {said}", flush=True)
    print(f"placed: {len(names or TESTS) - failed} of {len(names or TESTS)} right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
