"""The process that runs graphs: a question per line on standard input, an answer per line on what was standard output.

Whatever a graph prints goes to standard error, and a graph that crashes takes this process with it: the pool starts another.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("ZEFUSE_CACHE_DIR", "")  # each kernel is compiled
    import torch
    import torch._dynamo.guards

    # A report of guards' times for a log, after all caches were emptied: a quarter of what Dynamo takes.
    torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
    torch.set_num_threads(1)
    from check import check
    from columns import BY_NAME
    from generate import generate
    from program import Program

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        if "seed" in question:
            program = generate(question["seed"], BY_NAME[question["column"]])
            if question.get("only_program"):
                return {"program": program.to_json()}
            result = check(program)
            if result["status"] == "wrong":
                result["program"] = program.to_json()
            return result
        return check(Program.from_json(question["program"]))

    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except Exception:
            result = {"status": "broken", "kind": "broken", "text": traceback.format_exc()[-3000:]}
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
