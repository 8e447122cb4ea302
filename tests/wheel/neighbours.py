"""One process with zefuse and other packages that bring an LLVM, a oneDNN or a thread pool, in the order that is given:

    python neighbours.py zefuse numba triton openvino zefuse

By hand, in an environment with an installed wheel: these packages are no dependencies of the tests. Ends with the libraries
that the process has of each.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch


def model() -> tuple[torch.nn.Module, torch.Tensor]:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).eval(), torch.randn(
        8, 64
    )


def numba() -> None:
    import numba

    @numba.njit
    def squares(x: np.ndarray) -> float:
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i] * x[i]
        return total

    assert squares(np.ones(100)) == 100


def triton() -> None:
    from triton._C.libtriton import ir  # no GPU here: its MLIR, in one process with ours

    ir.load_dialects(ir.context())


def openvino() -> None:
    import openvino

    module, x = model()
    settings = {"INFERENCE_PRECISION_HINT": "f32"}  # bf16 otherwise, where the processor has it
    compiled = openvino.compile_model(openvino.convert_model(module, example_input=x), "CPU", settings)
    assert np.abs(compiled(x.numpy())[0] - module(x).detach().numpy()).max() < 1e-4


@torch.no_grad()
def zefuse() -> None:
    torch._dynamo.reset()
    module, x = model()
    compiled = torch.compile(module, backend="zefuse", options={"cache_dir": ""})
    assert (compiled(x) - module(x)).abs().max() < 1e-5


PACKAGES: dict[str, Callable[[], None]] = {"numba": numba, "triton": triton, "openvino": openvino, "zefuse": zefuse}

if __name__ == "__main__":
    for name in sys.argv[1:] or ["zefuse", "numba", "triton", "openvino", "zefuse"]:
        PACKAGES[name]()
        print(f"{name}: ok", flush=True)
    parts = ("dnnl", "omp.so", "libLLVM", "libMLIR", "tbb")
    lines = Path("/proc/self/maps").read_text().splitlines()
    print(*sorted({line.split("/")[-1] for line in lines if any(part in line for part in parts)}))
