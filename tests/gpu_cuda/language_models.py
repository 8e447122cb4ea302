"""On a machine with an NVIDIA GPU, zefuse's wheel and transformers: language models of CUDA tensors, beside torch's eager and Inductor.

    language_models.py [--only checks|speed] [--seconds N] [--profile] [--json FILE] [--no-inductor] [MODEL ...]

First what has to be right: greedy tokens of small models in f32 are eager's, logits of quantized ones those of their dequantized
weights. Then speed, with random weights in bf16 (MODEL: SmolLM2-135M, Llama-1.1B; both without any): tokens per second of
``generate()`` after a prompt of 32, by the clock (the median of three rounds of 64 tokens), and ms to the first token of a prompt of
512. "cold" is the first ``generate()``, in s, with an empty cache. Inductor is transformers' own: a static cache, for which it
compiles decoding ("reduce-overhead").
--profile: what the device does for a token, by kernel. --seconds: no way begins after these. Status 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

os.environ.setdefault("ZEFUSE_CACHE_DIR", tempfile.mkdtemp(prefix="zefuse-cache-"))

import device_time
import torch
import transformers

import zefuse.llm

_NO_END = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
_SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True, "max_position_embeddings": 8192,
    },
    "Llama-1.1B": {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 32000,
    },
}  # fmt: skip
TOKENS = 64
ROUNDS = 3


def llama(sizes: dict[str, Any], dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    with torch.device("cuda"):
        config = transformers.LlamaConfig(**sizes, **_NO_END)
        return transformers.LlamaForCausalLM(config).eval().to(dtype)


def optimized(model: Any, **options: Any) -> Any:
    with redirect_stdout(io.StringIO()):
        return zefuse.llm.optimize(model, **options)


def prompt(length: int, vocabulary: int, batch: int = 1) -> torch.Tensor:
    ids = torch.randint(2, vocabulary, (batch, length), generator=torch.Generator().manual_seed(1))
    return ids.to("cuda")


def dequantized(model: Any) -> Any:
    """The weights that a quantized model stands for, in a model without zefuse."""
    from zefuse.llm.quantized import QuantizedLinear

    plain = llama(_SMALL, torch.float32)
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            plain.get_submodule(name).weight.data = module.weight.float()
    return plain


def check_tokens() -> str:
    kinds = {
        "Llama": _SMALL,
        "Mistral": {**_SMALL, "sliding_window": 8},
        "GPT2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128},
        "OPT": {
            "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128, "ffn_dim": 96,
            "word_embed_proj_dim": 64,
        },
    }  # fmt: skip
    for name, sizes in kinds.items():
        kind = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM"))
        config = getattr(transformers, f"{name}Config")(**sizes, **_NO_END)
        pair = []
        for _ in range(2):
            torch.manual_seed(0)
            pair.append(kind(config).eval().cuda())
        model, ours = pair[0], optimized(pair[1])
        ids, several = prompt(9, 128), prompt(7, 128, 2)
        mask = torch.ones_like(several)
        mask[0, :3] = 0
        for arguments in (
            {"inputs": ids, "max_new_tokens": 80},
            {"inputs": several, "attention_mask": mask, "max_new_tokens": 20, "num_beams": 2},
        ):
            expected = model.generate(**arguments, do_sample=False, disable_compile=True)
            assert torch.equal(ours.generate(**arguments, do_sample=False), expected), name
        report = zefuse.llm.report(ours)  # what of a prompt runs in eager depends on transformers' version
        assert not any(graph.fallbacks for graph in report.graphs if graph.kind == "decode"), report
        print("\n".join(f"      {name}: {line}" for line in report.left), end="\n" if report.left else "")
    return f"greedy tokens and beams of {', '.join(kinds)} are eager's"


def check_quantized() -> str:
    worst = {}
    for options in (
        {"weights": "int8"},
        {"weights": "int4"},
        {"weights": "int8", "activations": "int8"},
        {"weights": "int4", "activations": "int8"},
        {"weights": "int8", "cache": "int8"},
    ):
        ours = optimized(llama(_SMALL, torch.float32), **options)
        plain = dequantized(ours)
        ids = prompt(12, 128)
        arguments = {"max_new_tokens": 2, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
        made, expected = ours.generate(ids, **arguments), plain.generate(ids, disable_compile=True, **arguments)
        error = (made.logits[1] - expected.logits[1]).abs().max() / expected.logits[1].abs().max()
        bound = 1e-4 if len(options) == 1 else 0.05
        assert error < bound, (options, float(error))
        assert not zefuse.llm.report(ours).left, zefuse.llm.report(ours)
        worst[" ".join(options.values()) + (" cache" if "cache" in options else "")] = f"{float(error):.1e}"
    return f"logits of quantized weights: errors {worst}"


class Clock:
    """A streamer that keeps when tokens came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def measure(model: Any, vocabulary: int, options: dict[str, Any], profiled: bool) -> dict[str, Any]:
    short, long = prompt(32, vocabulary), prompt(512, vocabulary)

    def tokens(count: int) -> Clock:
        clock = Clock()
        model.generate(short, max_new_tokens=count, do_sample=False, streamer=clock, **options)
        return clock

    def first() -> float:
        began = time.perf_counter()
        model.generate(long, max_new_tokens=1, do_sample=False, **options)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) * 1e3

    began = time.perf_counter()
    tokens(2)
    cold = time.perf_counter() - began
    tokens(TOKENS)
    first()
    rounds = []
    for _ in range(ROUNDS):
        times = tokens(TOKENS).times[2:]  # the prompt, which it streams as well, and its first answer
        rounds.append(statistics.median(later - earlier for earlier, later in itertools.pairwise(times)) * 1e3)
    found = {
        "ms a token": round(statistics.median(rounds), 3),
        "prompt of 512, ms": round(statistics.median(first() for _ in range(ROUNDS)), 2),
        "cold, s": round(cold, 1),
    }
    if profiled:
        count = 33
        shares = device_time.by_name(lambda: tokens(count), 1)
        busy = sum(share.us for share in shares.values())
        found["device, ms a token (about)"] = round(busy / count / 1e3, 3)
        slowest = sorted(shares.items(), key=lambda pair: -pair[1].us)[:12]
        found["kernels"] = [
            f"{share.us / count:8.1f} us {share.count / count:6.1f} x  {name[:90]}" for name, share in slowest
        ]
    return found


WAYS: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "eager bf16": (None, {"disable_compile": True}),
    "zefuse bf16": ({}, {}),
    "zefuse int4": ({"weights": "int4"}, {}),
    "Inductor bf16, static cache": (None, {"cache_implementation": "static"}),
    "zefuse int8": ({"weights": "int8"}, {}),
    "zefuse int4, int8 activations": ({"weights": "int4", "activations": "int8"}, {}),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", choices=("checks", "speed"))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--json")
    given = parser.parse_args()
    began = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}",
        flush=True,
    )
    wrong = 0
    checks: tuple[Callable[[], str], ...] = (check_tokens, check_quantized)
    for check in () if given.only == "speed" else checks:
        try:
            print(f"ok    {check()}", flush=True)
        except Exception as error:  # the others have their turn
            wrong = 1
            print(f"WRONG {check.__name__}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
    rows: dict[str, Any] = {}
    logits: dict[str, torch.Tensor] = {}
    ways = {} if given.only == "checks" else WAYS
    for way, name in itertools.product(ways, given.models or MODELS):
        changes, options = WAYS[way]
        if given.no_inductor and "Inductor" in way:
            continue
        if time.perf_counter() - began > given.seconds:
            print(f"{name:14} {way:32} not run: no time left", flush=True)
            continue
        try:
            model = llama(MODELS[name], torch.bfloat16)
            if changes is not None:
                model = optimized(model, **changes)
            vocabulary = MODELS[name]["vocab_size"]
            with torch.inference_mode():
                row = measure(model, vocabulary, options, given.profile)
                made = model.generate(
                    prompt(32, vocabulary), max_new_tokens=1, do_sample=False, return_dict_in_generate=True,
                    output_logits=True, **options,
                ).logits[0].float()  # fmt: skip
            base = logits.setdefault(name, made)
            row["error"] = f"{float((made - base).abs().max() / base.abs().max()):.1e}"
            if changes is not None and zefuse.llm.report(model).left:
                row["left"] = zefuse.llm.report(model).left
        except Exception as error:
            wrong = 1
            row = {"failed": f"{type(error).__name__}: {str(error)[:1500]}"}
        rows[f"{name}, {way}"] = row
        print(f"{name:14} {way:32} {json.dumps({k: v for k, v in row.items() if k != 'kernels'})}", flush=True)
        for line in row.get("kernels", ()):
            print(f"        {line}", flush=True)
        model = None
        torch.cuda.empty_cache()
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
