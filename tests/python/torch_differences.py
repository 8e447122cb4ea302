"""What torch's versions make of the same program, where a test has to know: the only table of it. What the package does about
their differences is in ``torch_versions.py``, what users notice in docs/install.md.
"""

from __future__ import annotations

import torch

from zefuse.installing import torch_versions

DIFFERENCES = {
    # What Dynamo makes of a function that calls an nn.LSTM: it runs all of it in eager, or the LSTM alone.
    "around an LSTM": {"2.11": "skipped", "2.13": "skipped", "2.15": "graph break"},
    # Whether Dynamo keeps the reasons for which it left functions to Python.
    "reasons of skipped functions": {"2.11": "not kept", "2.13": "kept", "2.15": "kept"},
}

# The zoo's kernels, where they are not those of tests/zoo/kernel_counts.json: transformers makes masks for attention by other
# operators with an older torch.
KERNELS = {
    "2.11": {"T5, inference": 23, "T5, backward": 64, "ViT, inference": 9, "ViT, forward": 11},
}


def kernels_here() -> dict[str, int]:
    return KERNELS.get(torch_versions.minor(torch.__version__), {})


def here(what: str) -> str:
    """What the installed torch does; one that the table lacks is taken for the newest."""
    versions = DIFFERENCES[what]
    return versions.get(torch_versions.minor(torch.__version__), [*versions.values()][-1])
