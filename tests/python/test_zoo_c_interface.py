"""The model zoo in small through the C interface, with inputs and results in the posing GPU's memory: outputs, and a step's gradients
of one of each kind, or of all in `make test-full`.

The host cannot reach that memory (docs/gpu.md): what is not copied through the interface is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from torch import Tensor
from torch._decomp import get_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx
from zoo import examine

import zefuse
from zefuse import cache
from zefuse.decompositions.table import decompositions
from zefuse.packages import c_model
from zefuse.testing import relative_error

DTYPES = {torch.float32: (2, 32, 1), torch.int64: (0, 64, 1), torch.bool: (6, 8, 1)}


def run(program: torch.export.ExportedProgram, inputs: Sequence[Tensor], folder: Path) -> list[Tensor | None]:
    """What a package of it gives, for tensors on the device."""
    zefuse.compile_package(program, folder / "m.zefuse", targets=["dg2-g11"], standalone=True)
    model = c_model.CModel(str(folder / "m.zefuse"), "gpu:0", cache.directory())
    dense = [value.detach().contiguous() for value in inputs]
    placed = [
        model.copied(c_model.tensor(value.data_ptr(), DTYPES[value.dtype], value.shape), to_device=True)
        for value in dense
    ]
    assert all(each.on_device for each in placed)
    for _ in range(3):  # the last call is replayed
        results = model.call_on_device([each.tensor for each in placed])
    assert all(each is None or each.on_device for each in results)
    return [None if each is None else torch.from_numpy(model.array(each).copy()) for each in results]


@pytest.mark.parametrize("name", zoo.DIFFERENT)
def test_outputs(name: str, tmp_path: Path) -> None:
    example = zoo.make(name)
    model = example.model.eval()
    with torch.no_grad():
        program = torch.export.export(model, example.inputs)
        expected = [each for each in torch.utils._pytree.tree_leaves(model(*example.inputs)) if torch.is_tensor(each)]
    results = run(program, example.inputs, tmp_path)
    for got, wanted in zip(results, expected, strict=True):
        assert relative_error(got, wanted) <= examine.OUTPUT_ERROR


@pytest.mark.parametrize("name", zoo.OF_EACH_KIND)
def test_gradients(name: str, tmp_path: Path) -> None:
    """Of a program that computes loss and gradients, all parameters among its inputs."""
    example = zoo.make(name)
    inputs = example.training_inputs or example.inputs
    model = example.model.eval()
    if not all(each.is_floating_point() for each in inputs):  # what depends on values (masks) is decided
        model = torch.export.export(model, inputs).module()
    parameters = dict(model.named_parameters())

    def step(*given: Tensor) -> tuple[Any, ...]:
        values, inputs = given[: len(parameters)], given[len(parameters) :]
        outputs = torch.func.functional_call(model, dict(zip(parameters, values, strict=True)), inputs)
        loss = example.loss(outputs)
        return loss, *torch.autograd.grad(loss, values, allow_unused=True)

    given = [p.detach().requires_grad_() for p in parameters.values()]
    given += inputs
    loss, *gradients = step(*given)
    # Recurrent layers of oneDNN's are one operator of torch's alone; composites' gradients are to be those of their pieces.
    with torch.backends.mkldnn.flags(enabled=False), enable_python_dispatcher():
        # torch.export keeps silu_backward, ... A layer norm's derivative lies otherwise than its shape rule says where rows are permuted.
        table = decompositions() | get_decompositions([torch.ops.aten.native_layer_norm_backward])
        traced = make_fx(step, decomposition_table=table)(*given)
    with torch.no_grad():
        program = torch.export.export(traced, tuple(value.detach() for value in given))
    results = run(program, given, tmp_path)
    assert relative_error(results[0], loss.detach()) <= examine.OUTPUT_ERROR
    pairs = [each for each in zip(results[1:], gradients, strict=True) if each[1] is not None]
    error = examine.tensors_error([got for got, _ in pairs], [wanted for _, wanted in pairs])
    assert error <= examine.GRADIENT_ERROR
