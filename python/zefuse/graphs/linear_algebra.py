"""What a factorisation refuses: torch's error, so that programs which catch it (to add to a diagonal, say) do so here too."""

from __future__ import annotations

import torch

from zefuse.errors import ZefuseError


class LinearAlgebraError(ZefuseError, torch.linalg.LinAlgError):  # type: ignore[misc, name-defined, unused-ignore]
    """A matrix is singular, or not positive definite."""
