"""A worker's side of the pool: a question per line on standard input, an answer per line on what was standard output.

What the questions print goes to standard error, and one that crashes takes its process with it: the pool starts another.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import kept_memory

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve(prepare: Callable[[], Answer]) -> None:
    """``prepare`` imports what the answers need, after standard output was taken and torch was set up."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("ZEFUSE_CACHE_DIR", "")  # each kernel is compiled
    import torch
    import torch._decomp.decompositions_for_rng
    import torch._dynamo.guards
    import torch._functorch.config

    # A report of guards' times for a log, after all caches were emptied: a quarter of what Dynamo takes.
    torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
    # Tensors for a way to draw numbers that is off, made through every tracer that is active: a twelfth of a small compilation.
    assert not torch._functorch.config.functionalize_rng_ops
    torch._decomp.decompositions_for_rng.PhiloxStateTracker.reset = classmethod(lambda _: None)
    torch.set_num_threads(1)
    answer = prepare()
    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except Exception:
            result = {"status": "broken", "kind": "broken", "text": traceback.format_exc()[-3000:]}
        answers.write(json.dumps(result) + "\n")
        answers.flush()
        kept_memory.freeze()
