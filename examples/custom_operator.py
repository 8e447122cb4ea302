"""A custom operator in a compiled model: as a black box it stays apart; as a function of torch's operators it is fused.

python examples/custom_operator.py
"""

import numpy as np
import torch
from torch import nn

import zefuse

# --- a black box: code that torch cannot look into, here NumPy ---------------------------------------------------------


@torch.library.custom_op("example::clip_outliers", mutates_args=())
def clip_outliers(x: torch.Tensor, most: float) -> torch.Tensor:
    """Numbers farther from zero than ``most`` standard deviations are brought there."""
    numbers = x.numpy()
    limit = most * numbers.std()
    return torch.from_numpy(np.clip(numbers, -limit, limit).astype(np.float32))


@clip_outliers.register_fake
def _(x: torch.Tensor, most: float) -> torch.Tensor:
    """The result's shape and dtype: all that a compiler asks of it."""
    return torch.empty_like(x)


# --- the same of torch's operators: write it so, where you can ---------------------------------------------------------


def clip_outliers_in_torch(x: torch.Tensor, most: float) -> torch.Tensor:
    limit = most * x.std(correction=0)
    return torch.maximum(torch.minimum(x, limit), -limit)


class Model(nn.Module):
    def __init__(self, clip: object) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.clip = clip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.clip(self.linear(x), 2.0) * 0.5)  # type: ignore[operator]


@torch.no_grad()
def main() -> None:
    results = []
    for name, clip in {"black box": clip_outliers, "in torch": clip_outliers_in_torch}.items():
        torch.manual_seed(0)
        model, x = Model(clip).eval(), torch.randn(32, 64)
        report = zefuse.explain(model, x)
        torch.testing.assert_close(report.result, model(x), rtol=1e-4, atol=1e-5)
        results.append(report.result)
        print(f"{name}: {report.summary()}")
        for entry in report.fallbacks:
            print(f"  fallback {entry['op']}: {entry['reason']}")
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
