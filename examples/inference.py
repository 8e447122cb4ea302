"""Inference: compile a model, compare it with eager, and see what it became.

python examples/inference.py
"""

import time

import torch
from torch import nn


class Block(nn.Module):
    """A residual block of an image network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x + self.body(x))


def make() -> tuple[nn.Module, torch.Tensor]:
    """The model and its inputs, also for `zefuse check examples/inference.py:make`."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), Block(32), Block(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10), nn.Softmax(dim=-1),
    )  # fmt: skip
    return model.eval(), torch.randn(4, 3, 64, 64)


def milliseconds(call: object, images: torch.Tensor, rounds: int = 20) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call(images)  # type: ignore[operator]
        times.append(time.perf_counter() - begun)
    return 1e3 * sorted(times)[rounds // 2]


@torch.no_grad()
def main() -> None:
    model, images = make()
    compiled = torch.compile(model, backend="zefuse")
    probabilities = compiled(images)  # the first call compiles
    torch.testing.assert_close(probabilities, model(images), rtol=1e-4, atol=1e-5)
    print(f"the same as eager: {tuple(probabilities.shape)}")
    print(f"eager {milliseconds(model, images):.2f} ms, compiled {milliseconds(compiled, images):.2f} ms a call")

    import zefuse

    report = zefuse.explain(model, images)
    print(report)


if __name__ == "__main__":
    main()
