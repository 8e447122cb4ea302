"""``zefuse.llm.compile_package``: a decoder as a package of plans, which programs without torch and transformers run.

Some plans take several tokens (a prompt, or more of a conversation), some a single one, either of one sequence or of any number of
them; the weights are in the package once. All take ``input_ids`` [batch, n], ``padding`` [batch] (how many of a sequence's first
places in the cache are none of its tokens), ``start`` (how many places are filled), and each layer's keys and values (and their
scales, where the cache has codes), of as many places as the caller shows them, which they write in place; they give the last
tokens' logits [batch, vocabulary] in f32. The package carries the tokenizer and SETTINGS, a JSON object (``settings_of``).
"""

from __future__ import annotations

import inspect
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from transformers.masking_utils import create_masks_for_generate

from zefuse.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from zefuse.llm import conversation, experts, optimizing, package, reports
from zefuse.llm.cache import ROOM_STEP, KeyValueCache
from zefuse.llm.decoder import Decoder
from zefuse.llm.generating import bytes_of_weights
from zefuse.llm.layers import decoder_layers
from zefuse.llm.limits import context_of
from zefuse.llm.tracing import TENSOR, Traced, trace
from zefuse.options import Options
from zefuse.packages import aot
from zefuse.wording import counted

# Of the prompts that are traced: any numbers but 1, that nothing else of the call has.
_TOKENS = 8
_BATCH = 5
_MOST_ROWS = 1 << 16  # that a plan for batches is asked for


class _Decoding(aot.Program):
    """One of the graphs, as a package's program."""

    def __init__(
        self, kind: str, batch: int | None, traced: Traced, seconds: float, tensors: Mapping[str, torch.Tensor]
    ) -> None:
        """``batch``: None for any."""
        layers = len(traced.shapes)
        self.kind, self.batch, self.traced, self.seconds = kind, batch, traced, seconds
        self.reports: list[reports.Graph] = []  # one for each target
        self.graph_module, self.guards = traced.graph, []
        self.weights = {name: tensors[name] for name in traced.parameters}
        self.input_names = ["input_ids", "padding", "start"]
        given = len(self.input_names)
        kinds = [part.name for part in traced.shapes[0].parts]
        self.input_names += [f"{kind}.{layer}" for kind in kinds for layer in range(layers)]
        self.inputs = [{"weight": name} for name in traced.parameters]
        self.inputs += [
            {"user": position, **({"written": True} if position >= given else {})}
            for position in range(len(self.input_names))
        ]
        self.outputs, self.output_names = [{"user": True}], ["logits"]
        cache = list(range(layers))
        self.in_spec = pytree.treespec_dumps(pytree.tree_structure(((0, 1, 2, *[cache for _ in kinds]), {})))
        self.out_spec = pytree.treespec_dumps(pytree.tree_structure(0))

    def compile(self, options: Options, family: str) -> Any:
        began = time.perf_counter()
        compiled = super().compile(options, family)
        seconds = self.seconds, time.perf_counter() - began
        counts = len(self.traced.shapes), self.traced.different_layers
        self.reports.append(reports.Graph.of(self.kind, self.batch, *counts, seconds, compiled.report()))
        return compiled

    def key(self, options: Options, family: str) -> None:
        return None  # torch.compile traces no such graph


def compile_package(
    model: Any,
    path: str | Path,
    *,
    tokenizer: Any = None,
    targets: Sequence[str] = ("cpu",),
    options: Mapping[str, Any] | Options | None = None,
    progress: aot.Progress | None = None,
    cache: str | None = None,
    batches: bool = True,
) -> list[reports.Graph]:
    """Compiles a decoder and writes the package, which ``load_package`` and the C interface take.

    ``model``: of ``transformers``; what ``optimize`` quantized or cast stays so. ``tokenizer``: what ``load`` gives beside the
    model; without one the package takes and gives numbers of tokens alone. ``cache``: as ``optimize`` takes it; None is what an
    optimized model has. ``batches``: False leaves out the plans for several sequences at a time (batches, beams), which take as
    long to compile as the others. The rest: as ``zefuse.compile_package``. Returns what the graphs became, for each target.

    Raises OptionError for a ``cache`` that does not exist, InvalidArgumentError for a model that does not generate or a tokenizer that
    only Python has, UnsupportedError for one that cannot be traced (an encoder-decoder, a cache of another kind, a batch that is
    no symbol), FallbackError where it needs an operator of torch's, NotFoundError for an unknown target or folder. Nothing is
    written then.
    """
    checked = Options.make(options)
    optimizing.check_cache("compile_package", cache)
    wanted = aot.resolved_targets(targets)
    if not wanted:
        raise InvalidArgumentError("compile_package: no target; `zefuse targets` lists them")
    if not Path(path).absolute().parent.is_dir():
        raise NotFoundError(f"compile_package: no folder {str(Path(path).parent)!r} to write {Path(path).name!r} into")
    if reason := optimizing.why_not_traced(model):
        raise UnsupportedError(f"zefuse.llm.compile_package: a {type(model).__name__} makes no package: {reason}")
    files = {}
    if tokenizer is not None:
        files[package.TOKENIZER] = _tokenizer_text(tokenizer).encode()
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    host = all(plan == "cpu" for plan, _ in wanted)
    programs = []
    for batch in (1, None) if batches else (1,):  # the first that fits a call is taken
        for kind, count in (("decode", 1), ("prefill", _TOKENS)):
            began = time.perf_counter()
            traced = _traced(model, batch, count, cache, host)
            programs.append(_Decoding(kind, batch, traced, time.perf_counter() - began, tensors))
    files[package.SETTINGS] = json.dumps(settings_of(model, tokenizer, batches), indent=1).encode()
    aot.write_package(programs, path, wanted, standalone=True, options=checked, progress=progress, files=files)
    return [graph for program in programs for graph in program.reports]


def settings_of(model: Any, tokenizer: Any, batches: bool) -> dict[str, Any]:
    """What runs the plans must know: ``context`` (tokens, or null), ``end`` (tokens that end an answer), ``step`` (the cache is
    shown in such steps), ``batches`` (whether there are plans for several sequences), ``conversation`` (texts around messages, or
    null); and for reports ``model``, ``dtype``, ``bytes_per_token`` (of weights)."""
    end = model.generation_config.eos_token_id
    ends = [] if end is None else [end] if isinstance(end, int) else list(end)
    return {
        "model": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "context": context_of(model),
        "end": ends,
        "step": ROOM_STEP,
        "batches": batches,
        "conversation": None if tokenizer is None else conversation.texts_around(tokenizer),
        "bytes_per_token": bytes_of_weights(model),
    }


def _tokenizer_text(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InvalidArgumentError(
            f"zefuse.llm.compile_package: a {type(tokenizer).__name__} has no tokenizer.json: it needs Python and transformers; "
            "leave the tokenizer out, or give a fast one"
        )
    return str(backend.to_str())


def _traced(model: Any, batch: int | None, count: int, cache: str | None, host: bool) -> Traced:
    """The graph for ``count`` tokens after some others. Raises UnsupportedError where it holds for these lengths alone."""
    original: Callable[..., Any] = model.forward
    if isinstance(original, Decoder):
        cache = cache or original.cache
        original = original.forward
    last: dict[str, Any] = {"logits_to_keep": 1} if model._supports_logits_to_keep() else {}

    masks_of = getattr(model, "create_masks_for_generate", create_masks_for_generate)
    takes_positions = "position_ids" in inspect.signature(original).parameters

    def forward(input_ids: Any, padding: Any, past_key_values: Any) -> Any:
        # What generate() prepares for a compiled call: some models would ask how long the cache is, which no graph knows.
        places = torch.arange(input_ids.shape[1]) + past_key_values.get_seq_length()
        positions = (places - padding.unsqueeze(1)).clamp(min=0)  # of padding: any that a table of positions has
        masks = masks_of(
            config=model.config,
            inputs_embeds=torch.empty((*input_ids.shape, 0), dtype=model.dtype),
            attention_mask=None,
            past_key_values=past_key_values,
            position_ids=positions,
        )
        masks = _without_padding(masks, padding)
        if takes_positions:
            last["position_ids"] = positions
        made = original(
            input_ids=input_ids, attention_mask=masks, past_key_values=past_key_values, use_cache=True, **last
        )
        return made.logits[:, -1].float()

    room = 2 * ROOM_STEP
    memory = KeyValueCache(model.config.get_text_config(decoder=True).num_hidden_layers, room, cache)
    memory.length = ROOM_STEP + 3  # an empty cache would be a graph for empty caches
    rows = batch or _BATCH
    arguments = {
        "input_ids": torch.zeros((rows, count), dtype=torch.int64),
        "padding": torch.zeros(rows, dtype=torch.int64),
    }
    with experts.compiled(model, one_row=True, host=host):
        traced = trace(model, forward, arguments, memory, room, decoder_layers(model), any_batch=batch is None)
    if traced.outputs != [TENSOR]:
        raise UnsupportedError("zefuse.llm.compile_package: the model's logits are no tensor")
    most = context_of(model) or 4 * room
    every = itertools.product(
        (1,) if batch else (2, 3, _MOST_ROWS),
        (1,) if count == 1 else (2, 3, most - 1),
        (ROOM_STEP, ROOM_STEP + 1, most),
    )
    for rows, tokens, shown in every:
        sized = [torch.empty(sizes, device="meta") for sizes in ((rows, tokens), (rows,), (shown, 1))]
        if tokens <= shown and not traced.holds(sized):
            raise UnsupportedError(
                f"zefuse.llm.compile_package: the graph of this {type(model).__name__} holds for some sizes alone, not for "
                f"{counted(rows, 'sequence')} of {counted(tokens, 'token')} with a cache of {shown}"
                + ("" if batch else "; batches=False makes a package for one sequence at a time")
            )
    return traced


def _without_padding(masks: Any, padding: torch.Tensor) -> Any:
    """Attention's masks [batch or 1, 1, n, places], of each kind of layer, without the first ``padding`` places of each sequence."""
    if isinstance(masks, dict):
        return {kind: _without_padding(mask, padding) for kind, mask in masks.items()}
    if not isinstance(masks, torch.Tensor) or masks.dim() != 4:
        raise UnsupportedError("zefuse.llm.compile_package: the model's attention has no mask of keys for each query")
    tokens = (torch.arange(masks.shape[-1]) >= padding.unsqueeze(1))[:, None, None]
    if masks.dtype == torch.bool:
        return masks & tokens
    return torch.where(tokens, masks, torch.finfo(masks.dtype).min)
