"""Collectives in a graph, and DTensors: two processes over gloo, each result against eager's in the same process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

PROCESSES = 2


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def _into_input(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x + 1


def _gather_into(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(8, 2)
    dist.all_gather_into_tensor(out, x * 2)
    return out + 1


def _scatter_into(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(2, 2)
    dist.reduce_scatter_tensor(out, x * 2)
    return out + 1


def _two(x: torch.Tensor) -> torch.Tensor:
    summed = functional.all_reduce(x.sin(), "sum", dist.group.WORLD)
    gathered = functional.all_gather_tensor(x.cos(), 0, dist.group.WORLD)
    return (summed * 2).sum() + gathered.exp()


def _coalesced(x: torch.Tensor) -> torch.Tensor:
    first, second = functional.all_reduce_coalesced([x * 2, x + 1], "sum", dist.group.WORLD)
    return first + second


COLLECTIVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all_reduce": lambda x: functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1,
    "all_gather": lambda x: functional.all_gather_tensor(x * 2, 0, dist.group.WORLD) + 1,
    "reduce_scatter": lambda x: functional.reduce_scatter_tensor(x * 2, "sum", 0, dist.group.WORLD) + 1,
    "all_to_all": lambda x: functional.all_to_all_single(x * 2, [2, 2], [2, 2], dist.group.WORLD) + 1,
    "broadcast": lambda x: functional.broadcast(x * 2, 0, dist.group.WORLD) + 1,
    "in place": _in_place,
    "into an input": _into_input,
    "gather into": _gather_into,
    "scatter into": _scatter_into,
    "two of them": _two,
    "coalesced": _coalesced,
}

DISTRIBUTED: dict[str, Callable[[DTensor], Any]] = {
    "pointwise": lambda d: (d * 2).relu(),
    "redistributed": lambda d: (d * 2).redistribute(d.device_mesh, [Replicate()]) + 1,
    "product": lambda d: d @ d.t(),
    "all of it": lambda d: (d * 2).full_tensor() + 1,
    "a shard": lambda d: d.to_local() * 2,
}


def _compare(function: Callable[..., Any], make: Callable[[], Any]) -> list[Any]:
    """Fails unless compiled and eager agree; the graphs' reports."""
    from zefuse.backend import observe

    def whole(value: Any) -> torch.Tensor:
        return value.full_tensor() if isinstance(value, DTensor) else value

    torch._dynamo.reset()
    first, second = make(), make()
    expected = function(first)
    graphs: list[Any] = []
    with observe(lambda _, graph: graphs.append(graph)):
        actual = torch.compile(function, backend="zefuse")(second)
    assert type(actual) is type(expected)
    torch.testing.assert_close(whole(actual), whole(expected))
    torch.testing.assert_close(whole(second), whole(first))  # what is written into it
    return [graph.report() for graph in graphs]


def _reasons(reports: list[Any]) -> list[str]:
    return [entry["reason"] for report in reports for entry in report["fallbacks"]]


def _run_collectives(rank: int) -> None:
    for name, function in COLLECTIVES.items():
        reports = _compare(function, lambda: torch.arange(8.0).reshape(4, 2) + rank * 10)
        assert any("communicates with other processes" in reason for reason in _reasons(reports)), name
        assert all(report["kernels"] for report in reports), name

    torch._dynamo.reset()
    layer = torch.nn.Linear(2, 2)
    gradients = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        return functional.all_gather_tensor_autograd(layer(x), 0, dist.group.WORLD).square().sum()

    for run in (loss, torch.compile(loss, backend="zefuse")):
        layer.zero_grad()
        run(torch.ones(4, 2) + rank).backward()
        gradients.append(layer.weight.grad.clone())
    torch.testing.assert_close(gradients[1], gradients[0])


def _run_distributed(rank: int) -> None:
    mesh = init_device_mesh("cpu", (PROCESSES,))
    data = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    for name, function in DISTRIBUTED.items():
        reports = _compare(function, lambda: distribute_tensor(data, mesh, [Shard(0)]))
        assert any(report["kernels"] or report["calls"] for report in reports), name
        assert all("communicates" in reason for reason in _reasons(reports)), (name, _reasons(reports))


def _run_data_parallel(rank: int) -> None:
    """DDP around a compiled model, and compiled with it: buckets that Dynamo cuts the graph at. Two steps, each with other data in
    each process: parameters that are eager's, and everywhere the same."""

    def train(compile_it: str) -> list[torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 40), torch.nn.GELU(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 3)
        )
        inner = torch.compile(model, backend="zefuse") if compile_it == "inside" else model
        # Buckets of about 1 KB: several in this model.
        dist._DEFAULT_FIRST_BUCKET_BYTES = 512  # type: ignore[attr-defined]
        parallel = torch.nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=0.001)
        run = torch.compile(parallel, backend="zefuse") if compile_it == "around" else parallel
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(2):
            optimizer.zero_grad()
            run(torch.linspace(-1, 1, 24).reshape(4, 6) * (rank + 1) + step).square().sum().backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    expected = train("")
    for where in ("inside", "around"):
        actual = train(where)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)
        for parameter in actual:
            others = [torch.empty_like(parameter) for _ in range(PROCESSES)]
            dist.all_gather(others, parameter)
            assert all(torch.equal(other, parameter) for other in others)


_PROGRAMS = {"collectives": _run_collectives, "DTensor": _run_distributed, "DDP": _run_data_parallel}


def one_of_a_group(program: str, rank: int, port: int) -> None:
    """In a process of its own."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    try:
        _PROGRAMS[program](rank)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("program", _PROGRAMS)
def test_as_eager(program: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    text = f"import test_collectives; test_collectives.one_of_a_group({program!r}, %d, {port})"
    group = [children.start(text % rank, env=here) for rank in range(PROCESSES)]
    try:
        assert [child.wait(240) for child in group] == [0] * PROCESSES, [child.output() for child in group]
    finally:
        for child in group:
            child.kill()
