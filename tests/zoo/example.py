"""One model of the zoo with what it is called on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = ("small", "real")


@dataclass
class Example:
    """``model(*inputs)`` is what inference measures (batch 1 in the real size); a training step is ``loss(model(*inputs)).backward()``.

    ``training_inputs``: those of the training step, where they differ (a larger batch).
    ``batch_dims``: which dimension of each input is the batch, for tests with symbolic sizes; None where the model fixes it.
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Callable[[Any], Tensor]
    training_inputs: tuple[Tensor, ...] | None = None
    batch_dims: tuple[int, ...] | None = None
    dynamo_options: dict[str, Any] = field(default_factory=dict)

    def compile(self, backend: str, **keywords: Any) -> Callable[..., Any]:
        """``torch.compile(self.model)`` under ``dynamo_options`` (of torch._dynamo.config) at each call."""
        compiled = torch.compile(self.model, backend=backend, **keywords)
        if not self.dynamo_options:
            return compiled

        def run(*inputs: Any) -> Any:
            with torch._dynamo.config.patch(self.dynamo_options):
                return compiled(*inputs)

        return run

    def step(self, model: Callable[..., Any]) -> Tensor:
        """Loss and gradients (added to the parameters' ``grad``) of ``model``, which is ``self.model`` or compiled from it."""
        loss = self.loss(model(*(self.training_inputs or self.inputs)))
        loss.backward()
        return loss.detach()


Maker = Callable[[bool], Example]  # small?


class Output(nn.Module):
    """One tensor of a transformers model: ``field`` of its output, the inputs by name."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], field: str = "logits", **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.field, self.fixed = model, names, field, fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return getattr(self.model(**named, **self.fixed), self.field)


def classes_loss(logits: Tensor) -> Tensor:
    """Cross-entropy over the last dimension, against classes that follow from the positions."""
    rows = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(rows.float(), torch.arange(rows.shape[0], device=rows.device) % rows.shape[-1])


def square_loss(output: Tensor) -> Tensor:
    """Half the mean square distance from one."""
    return 0.5 * (output - 1).square().mean()
