"""``zefuse bench --llm``: a language model in eager, through Inductor, through zefuse, and llama.cpp beside them.

All take turns in one run, so that what else the machine does meets all of them; medians are told. Decoding goes on from a prompt of
a few tokens, as llama.cpp's ``llama-bench`` does it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zefuse import peaks
from zefuse.errors import InvalidArgumentError
from zefuse.llm import generating, limits
from zefuse.llm.package import check_length
from zefuse.wording import counted

# What zefuse compiles, by name: dtype, weights, activations.
_COMPILED: dict[str, tuple[str, str | None, str | None]] = {
    "zefuse f32": ("float32", None, None),
    "zefuse bf16": ("bfloat16", None, None),
    "zefuse int8": ("float32", "int8", None),
    "zefuse int4": ("float32", "int4", None),
    "zefuse int8 x int8": ("float32", "int8", "int8"),
    "zefuse int4 x int8": ("float32", "int4", "int8"),
}
_LLAMA = {"llama.cpp Q8_0": "Q8_0", "llama.cpp Q4_0": "Q4_0"}
# The very files that llama.cpp reads, with activations="int8".
_SAME_FILES = {"zefuse Q8_0 x int8": "Q8_0", "zefuse Q4_0 x int8": "Q4_0"}
NAMES = ("eager", "inductor", *_COMPILED, *_SAME_FILES, *_LLAMA)
_SHORT_PROMPT = 8  # tokens before decoding is measured
_SAME = 1.05  # times as fast that nobody would call faster


@dataclass
class Settings:
    prompt: int = 512
    tokens: int = 64
    rounds: int = 5
    names: tuple[str, ...] = NAMES
    seconds: float = 900.0  # for all; who is not ready by then is left out
    ready_seconds: float = 240.0  # for one to compile and answer once
    llama_bench: str | None = None  # the program; None: what PATH has


@dataclass
class Row:
    """One contestant. Seconds."""

    name: str
    ready: float = 0.0  # from the first call to the first answer, compiling included
    prefill: list[float] = field(default_factory=list)  # of the whole prompt, each round
    decode: list[float] = field(default_factory=list)  # of a token, each round's median
    # The same in processor time of all threads, where known.
    decode_processor: list[float] = field(default_factory=list)
    bytes_per_token: int = 0  # weights and cache; 0: not known
    left_out: str = ""

    def tokens_per_second(self, prompt: int) -> tuple[float, float]:
        """Of the prompt, and decoded; medians over the rounds. 0 without any."""
        prefill, decode = (statistics.median(times) if times else 0.0 for times in (self.prefill, self.decode))
        return prompt / prefill if prefill else 0.0, 1 / decode if decode else 0.0


@dataclass
class Result:
    model: str
    threads: int
    prompt: int
    tokens: int
    bandwidth: float  # bytes a second that this machine reads
    rows: list[Row]

    def sentence(self) -> str:
        """Whether compiling helps."""
        rates = {row.name: row.tokens_per_second(self.prompt) for row in self.rows if row.decode}
        others = [rates[name] for name in ("eager", "inductor") if name in rates]
        mine = rates.get("zefuse f32")
        if not others or mine is None:
            return "Whether compiling helps was not measured: that takes eager or inductor, and zefuse f32."
        prefill, decode = (
            mine[which] / best if (best := max(rate[which] for rate in others)) else 0.0 for which in (0, 1)
        )
        rivals = " and Inductor" if len(others) == 2 else ""
        than = f"{'the better of ' if rivals else ''}{'eager' if 'eager' in rates else 'Inductor'}{rivals}"
        figures = f"decoding {decode:.2f} times, prompts {prefill:.2f} times as fast as {than}, all in f32"
        small = {name: rate[1] for name, rate in rates.items() if name in _COMPILED and _COMPILED[name][1]}
        if small:
            best_small = max(small, key=lambda name: small[name])
            times = small[best_small] / max(rate[1] for rate in others)
            _, weights, activations = _COMPILED[best_small]
            also = f" and {activations} activations" if activations else ""
            figures += f"; decoding with {weights} weights{also} {times:.2f} times"
        if min(prefill, decode) > _SAME:
            return f"Compiling helps: {figures}."
        if max(prefill, decode) <= _SAME:
            return f"Compiling does not help here: {figures}."
        return f"Compiling helps {'to decode' if decode > _SAME else 'with prompts'} alone: {figures}."

    def as_json(self) -> str:
        rows = []
        for row in self.rows:
            prefill, decode = row.tokens_per_second(self.prompt)
            rows.append({**asdict(row), "prefill_tokens_per_second": prefill, "decode_tokens_per_second": decode})
        return json.dumps({**asdict(self), "rows": rows, "sentence": self.sentence()}, indent=2)

    def table(self) -> Any:
        from rich.table import Table

        table = Table(title=f"{self.model}, {counted(self.threads, 'thread')}", title_justify="left")
        for column in (
            "",
            f"prompt of {self.prompt}\ntokens/s",
            "decoding\ntokens/s",
            "MB a\ntoken",
            "of\nmemory",
            "ready\ns",
        ):
            table.add_column(column, justify="right" if column else "left")
        for row in self.rows:
            if row.left_out or not row.decode:
                continue
            prefill, decode = row.tokens_per_second(self.prompt)
            read = row.bytes_per_token
            share = f"{100 * read * decode / self.bandwidth:.0f} %" if read else ""
            table.add_row(
                row.name, f"{prefill:.0f}" if prefill else "", f"{decode:.1f}", f"{read / 1e6:.0f}" if read else "", share,
                f"{row.ready:.0f}" if row.ready else "",
            )  # fmt: skip
        return table

    def left_out(self) -> list[str]:
        return [f"{row.name} left out: {row.left_out}" for row in self.rows if row.left_out]


class _TooLate(BaseException):
    """Of no Exception, so that what catches those around a compiler does not stop it."""


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Ends what Python code runs inside with _TooLate. For the main thread alone.

    Native code below may turn the exception into another or drop it (torch's parsers of arguments do); whoever was
    rung for is too late all the same, as soon as it comes back.
    """
    rung = False

    def ring(*_: Any) -> None:
        nonlocal rung
        rung = True
        raise _TooLate

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    except Exception:
        if not rung:
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if rung:
        raise _TooLate


def run(place: str, settings: Settings) -> Result:
    """Measures. Progress goes to standard error.

    Raises InvalidArgumentError for what is no model (see ``generating.load``) and for a name or number that does not exist.
    """
    unknown = [name for name in settings.names if name not in NAMES]
    if unknown:
        raise InvalidArgumentError(f"{unknown[0]!r} is not measured; known: {', '.join(NAMES)}")
    if min(settings.prompt, settings.tokens, settings.rounds) < 1:
        raise InvalidArgumentError("a prompt, tokens and rounds are at least one each")
    import torch

    _say(f"loading {place}")
    model, _ = generating.load(place, "float32")
    check_length(limits.context_of(model), settings.prompt, 1)
    check_length(limits.context_of(model), _SHORT_PROMPT, settings.tokens)
    model.generation_config.eos_token_id = None  # all go on to the end
    end = time.monotonic() + settings.seconds
    rows, ready = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in settings.names:
            row = Row(name)
            rows.append(row)
            _say(f"{name}: starting")
            try:
                contestant = _contestant(name, place, model, settings, Path(folder))
                began = time.perf_counter()
                with _deadline(min(settings.ready_seconds, end - time.monotonic())):
                    contestant(row)
                row.ready = 0.0 if name in _LLAMA else time.perf_counter() - began
                row.prefill, row.decode, row.decode_processor = [], [], []
                ready.append((row, contestant))
            except _Missing as missing:
                row.left_out = str(missing)
            except (_TooLate, subprocess.TimeoutExpired):
                row.left_out = f"not ready within {min(settings.ready_seconds, settings.seconds):.0f} s"
            except Exception as error:  # another compiler's, which says what it likes
                row.left_out = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        for number in range(settings.rounds):
            _say(f"round {number + 1} of {settings.rounds}")
            for row, contestant in ready:
                if time.monotonic() < end or not row.decode:
                    contestant(row)
    threads = torch.get_num_threads()
    return Result(place, threads, settings.prompt, settings.tokens, peaks.bandwidth(threads), rows)


class _Missing(Exception):
    """What a contestant needs and is not here."""


def _contestant(name: str, place: str, model: Any, settings: Settings, folder: Path) -> Callable[[Row], None]:
    """What adds one round's times to a row."""
    if name in _LLAMA:
        return _llama(_LLAMA[name], place, settings, folder)
    import torch

    from zefuse.llm import optimize

    options: dict[str, Any] = {}
    if name in _COMPILED:
        dtype, weights, activations = _COMPILED[name]
        with contextlib.redirect_stdout(io.StringIO()):
            model = optimize(_sharing(model).to(getattr(torch, dtype)), weights=weights, activations=activations)
    elif name in _SAME_FILES:
        _, file = _quantized(_SAME_FILES[name], place, settings, folder)
        model, _ = generating.load(str(file), "float32", keep=True)
        model.generation_config.eos_token_id = None
        with contextlib.redirect_stdout(io.StringIO()):
            model = optimize(model, activations="int8")
    elif name == "inductor":
        from transformers import CompileConfig

        # Transformers compiles decoding; prompts of any length stay in eager.
        compiling = CompileConfig(fullgraph=False, mode="default", backend="inductor")
        compiling._compile_all_devices = True
        model = _sharing(model)
        options = {"cache_implementation": "static", "compile_config": compiling}
    draw = torch.Generator().manual_seed(0)
    words = model.config.get_text_config(decoder=True).vocab_size
    long, short = (torch.randint(0, words, (1, length), generator=draw) for length in (settings.prompt, _SHORT_PROMPT))
    options |= {"do_sample": False, "return_dict_in_generate": True, "pad_token_id": 0}

    class Clock:
        def __init__(self) -> None:
            self.times: list[float] = []
            self.processor: list[float] = []

        def put(self, _: Any) -> None:
            self.times.append(time.perf_counter())
            self.processor.append(time.process_time())

        def end(self) -> None:
            pass

    def measured(row: Row) -> None:
        with torch.inference_mode():
            began = time.perf_counter()
            model.generate(long, attention_mask=torch.ones_like(long), max_new_tokens=1, **options)
            row.prefill.append(time.perf_counter() - began)
            clock = Clock()
            made = model.generate(
                short,
                attention_mask=torch.ones_like(short),
                max_new_tokens=settings.tokens + 1,
                streamer=clock,
                **options,
            )
        for times, each in ((clock.times, row.decode), (clock.processor, row.decode_processor)):
            decoded = times[1:]  # the first is the prompt's
            each.append(statistics.median(after - before for before, after in itertools.pairwise(decoded)))
        row.bytes_per_token = generating.bytes_per_token(model, made.past_key_values)

    return measured


def _sharing(model: Any) -> Any:
    """A copy of the model's modules with the same weights in memory. Another dtype, or weight, of the copy is its own."""
    from torch import nn

    tensors = {id(each): nn.Parameter(each.data, requires_grad=False) for each in model.parameters()}
    return copy.deepcopy(model, {**tensors, **{id(each): each.data for each in model.buffers()}})


def _quantized(kind: str, place: str, settings: Settings, folder: Path) -> tuple[str, Path]:
    """llama-bench, and the model's file in its quantization ``kind``, all matrices alike; made once."""
    import torch

    bench = settings.llama_bench or shutil.which("llama-bench")
    if bench is None:
        raise _Missing("no llama-bench in PATH")
    if not Path(place).is_file():
        raise _Missing("it reads GGUF files alone")
    quantize = Path(bench).with_name("llama-quantize")
    if not quantize.exists():
        raise _Missing("no llama-quantize beside llama-bench")
    file = folder / f"{kind}.gguf"
    if file.exists():
        return bench, file
    part = file.with_suffix(".part")  # what a killed program left is nobody's
    command = [str(quantize), "--allow-requantize", "--pure", place, str(part), kind, str(torch.get_num_threads())]
    made = subprocess.run(command, capture_output=True, text=True, timeout=settings.ready_seconds)
    if made.returncode:
        raise _Missing(f"llama-quantize failed: {(made.stderr.strip().splitlines() or ['?'])[-1]}")
    part.rename(file)
    return bench, file


def _llama(kind: str, place: str, settings: Settings, folder: Path) -> Callable[[Row], None]:
    import torch

    bench, file = _quantized(kind, place, settings, folder)
    words = ["-m", str(file), "-p", str(settings.prompt), "-n", str(settings.tokens), "-r", "1", "-o", "json"]

    def measured(row: Row) -> None:
        said = subprocess.run(
            [bench, *words, "-t", str(torch.get_num_threads())],
            capture_output=True, text=True, check=True, timeout=settings.ready_seconds,
        ).stdout  # fmt: skip
        for test in json.loads(said):
            if test["n_prompt"]:
                row.prefill.append(settings.prompt / test["avg_ts"])
            else:
                row.decode.append(1 / test["avg_ts"])
            row.bytes_per_token = int(test["model_size"])

    return measured


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
