"""The model zoo of the tests and of docs/status.md: the architectures that issue reports and measurements name.

Built from transformers configurations or as plain torch modules, with random weights from a fixed seed (MiniLM alone has real ones,
from a package): nothing is downloaded. Users never import this.
"""

from __future__ import annotations

import os

from zoo import language, other, vision
from zoo.example import SIZES, Example, Maker

MAKERS: dict[str, Maker] = {**language.MAKERS, **vision.MAKERS, **other.MAKERS}

# For tests of a second road, which take a compilation of each: without those whose layers another one has as well (BERT, ResNet-50,
# Qwen2), and for the longest of them one of each kind of layer (attention with and across, windows, depthwise, up and down, steps,
# bags). `make test-full` has all of them.
FULL = bool(os.environ.get("ZEFUSE_TEST_FULL"))
DIFFERENT = [name for name in MAKERS if FULL or name not in ("MiniLM", "DistilBERT", "ResNet-18", "Llama")]
OF_EACH_KIND = list(MAKERS) if FULL else ["GPT-2", "T5", "Qwen2", "Swin", "MobileNetV2", "U-Net", "LSTM", "DLRM"]


def make(name: str, size: str = "small") -> Example:
    """The model ``name`` with its inputs; the same numbers at each call. ``size``: "small" for tests, "real" for measuring."""
    import torch

    if size not in SIZES:
        raise ValueError(f"size {size!r}: one of {', '.join(SIZES)}")
    torch.manual_seed(0)
    example = MAKERS[name](size == "small")
    example.model.eval()
    return example


__all__ = ["DIFFERENT", "MAKERS", "OF_EACH_KIND", "SIZES", "Example", "make"]
