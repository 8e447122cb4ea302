"""Makes what run_package.c runs on a machine with a GPU and neither Python, torch nor LLVM: package.py FOLDER TARGETS writes
model.zefuse, and input_0.bin and output_0.bin with what eager on the CPU gives (f32).

NVIDIA's targets need zefuse-ptx (ZEFUSE_PTX_COMPILER, docs/cuda_driver.md).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

BATCH = 6  # at export another: it is a symbol in the package


class Small(nn.Module):
    """A convolution, attention, a normalization, products and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 32, 3, padding=1)
        self.projections = nn.Linear(32, 96)
        self.norm = nn.LayerNorm(32)
        self.classes = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = torch.relu(self.convolution(image)).flatten(2).transpose(1, 2)
        q, k, v = self.projections(tokens).chunk(3, -1)
        heads = [each.unflatten(-1, (4, 8)).transpose(1, 2) for each in (q, k, v)]
        mixed = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return torch.softmax(self.classes(nn.functional.gelu(self.norm(tokens + mixed))).mean(1), -1)


def main(folder: str, targets: str) -> None:
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = Small().eval()
    image = torch.randn(BATCH, 3, 16, 16)
    with torch.no_grad():
        expected = model(image)
        program = torch.export.export(
            model, (image[:4],), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},)
        )
    torch.export.save(program, to / "model.pt2")
    command = [sys.executable, "-m", "zefuse", "compile", str(to / "model.pt2"), "--targets", targets]
    subprocess.run([*command, "--standalone", "-q", "-o", str(to / "model.zefuse")], check=True)
    (to / "model.pt2").unlink()
    image.numpy().tofile(to / "input_0.bin")
    expected.numpy().tofile(to / "output_0.bin")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
