"""On a machine with an NVIDIA GPU and zefuse's wheel: BERT-base in f32, packed there for sm_90 and run by run_package (the C interface
alone): load and first call. Argument: the program. Also a CUDA graph of 100 small kernels of torch's, beside queueing.c's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from gpu_models import Transformer

import zefuse


class FromFloats(torch.nn.Module):
    """run_package brings f32 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Transformer(causal=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.model(ids.long())
        return out


def graph_of_torch() -> None:
    x = torch.zeros(1, device="cuda")
    x += 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x += 1
    queued, whole = [], []
    for _ in range(56):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        queued.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
        whole.append((time.perf_counter() - start) * 1e6)
    print(
        f"torch's CUDA graph of 100: {sorted(queued)[28]:.2f} us of the host; with the wait {sorted(whole)[28]:.1f} us"
    )


def main(program: str) -> None:
    graph_of_torch()
    torch.manual_seed(0)
    model = FromFloats().eval()
    ids = torch.randint(30522, (1, 128)).float()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        to = Path(folder)
        expected = model(ids)
        torch.export.save(torch.export.export(model, (ids,)), to / "model.pt2")
        command = [
            sys.executable,
            "-m",
            "zefuse",
            "compile",
            str(to / "model.pt2"),
            "--targets",
            "sm_90",
            "--standalone",
            "-q",
        ]
        start = time.time()
        subprocess.run([*command, "-o", str(to / "model.zefuse")], check=True)
        print(f"packed in {time.time() - start:.1f} s: {(to / 'model.zefuse').stat().st_size / 1e6:.0f} MB", flush=True)
        ids.numpy().tofile(to / "input_0.bin")
        expected.numpy().tofile(to / "output_0.bin")
        libraries = Path(zefuse.__file__).parent / "lib"
        for library in ("", "off"):
            environment = os.environ | {"LD_LIBRARY_PATH": str(libraries)}
            found = [
                line.split()[-1]
                for line in Path("/proc/self/maps").read_text().splitlines()
                if "libcublasLt.so" in line
            ]
            environment |= {"ZEFUSE_CUBLASLT": library or found[0]} if library or found else {}
            for _ in range(2):
                ran = subprocess.run(
                    [program, folder, "gpu:0"], capture_output=True, text=True, env=environment, timeout=60, check=False
                )
                print(
                    f"cuBLASLt {library or 'there'}: {ran.stdout.strip()} {ran.stderr.strip()[-300:]} ({ran.returncode})",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1])
