"""Training: forward, backward and the optimizer's step compiled; the same losses as eager's, from the same seed.

python examples/training.py
"""

import copy
from collections.abc import Callable

import torch
from torch import nn

STEPS = 40


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))


def spirals(points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two arms that a line cannot part."""
    label = torch.arange(points) % 2
    angle = torch.linspace(0.5, 6, points)
    radius = angle * (1 - 2 * label)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) / 6, label


def train(model: nn.Module, wrap: Callable[[Callable[..., object]], Callable[..., object]]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    points, labels = spirals(256)

    def loss_of(points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(points), labels)

    loss_of_points, update = wrap(loss_of), wrap(optimizer.step)
    torch.manual_seed(1)  # of the dropout
    losses = []
    for _ in range(STEPS):
        loss = loss_of_points(points, labels)
        loss.backward()  # type: ignore[attr-defined]
        update()
        optimizer.zero_grad()
        losses.append(loss.item())  # type: ignore[attr-defined]
    return losses


def main() -> None:
    model = make()
    eager = train(copy.deepcopy(model), lambda function: function)
    compiled = train(model, lambda function: torch.compile(function, backend="zefuse"))
    print(f"eager:    loss {eager[0]:.4f} -> {eager[-1]:.4f}")
    print(f"compiled: loss {compiled[0]:.4f} -> {compiled[-1]:.4f}")
    difference = max(abs(one - other) for one, other in zip(eager, compiled, strict=True))
    print(f"largest difference on the way: {difference:.1e}")
    assert difference < 1e-2 and compiled[-1] < compiled[0]


if __name__ == "__main__":
    main()
