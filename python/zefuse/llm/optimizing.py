"""``zefuse.llm.optimize`` and ``zefuse.llm.report``."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

from zefuse.errors import InvalidArgumentError, OptionError, UnsupportedError
from zefuse.installing import installation
from zefuse.llm.reports import Report
from zefuse.options import Options

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_REPORT = "_zefuse_llm_report"


def optimize(
    model: PreTrainedModel,
    dtype: torch.dtype | None = None,
    weights: str | None = None,
    group_size: int = 32,
    inplace: bool = True,
    device: str | None = None,
    activations: str | None = None,
    cache: str | None = None,
) -> PreTrainedModel:
    """Compiles what ``model.generate()`` runs, in its first call; returns the model, in evaluation mode.

    ``dtype``: f32, bf16 or f16 for all weights and what is computed of them; None leaves them. ``weights``: "int8" or "int4"
    quantizes the matrices of linear layers, with a scale for each ``group_size`` weights of a row (a multiple of 8); what is
    computed of them has the model's dtype. What ``load`` left quantized stays as it is. ``activations="int8"``: what such a
    matrix is multiplied by is quantized as well, where it is a single token's: decoding is faster and less exact.
    ``cache="int8"``: keys and values are kept in 8 bits, with a scale for each head and token, and read so.
    ``inplace=False`` optimizes a copy. ``device``: as ``torch.compile(..., options={"device": ...})`` takes it. Prints what it
    changed; ``report`` returns it.

    Raises InvalidArgumentError for what is no ``transformers`` model that generates, OptionError for a dtype, ``weights``,
    ``group_size``, ``activations`` or ``cache`` that do not exist, UnsupportedError for a ``cache`` of a model that has none of ours,
    InstallationError without ``transformers``.
    """
    options = Options.make({} if device is None else {"device": device})
    model, made = prepare(model, dtype, weights, group_size, inplace, activations, cache)
    if options.device == "cpu":
        from zefuse.llm import huge_pages

        changed, left = huge_pages.move(model)
        made.changed += [changed] if changed else []
        made.left += [left] if left else []
    _install(model, options, made, cache)
    model.__dict__[_REPORT] = made
    print(made)
    return model


def prepare(
    model: PreTrainedModel,
    dtype: torch.dtype | None = None,
    weights: str | None = None,
    group_size: int = 32,
    inplace: bool = True,
    activations: str | None = None,
    cache: str | None = None,
) -> tuple[PreTrainedModel, Report]:
    """What ``optimize`` does to a model before anything is compiled."""
    installation.require("transformers", "zefuse.llm")
    import torch
    from transformers import PreTrainedModel

    from zefuse.llm import packing, quantized, torchao_modules

    if weights not in (None, *packing.FORMATS):
        raise OptionError(f"zefuse.llm.optimize(weights={weights!r}): expected None, 'int8' or 'int4'")
    if dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
        raise OptionError(f"zefuse.llm.optimize(dtype={dtype}): expected torch.float32, bfloat16 or float16")
    if not isinstance(group_size, int) or group_size < 8 or group_size % 8:
        raise OptionError(f"zefuse.llm.optimize(group_size={group_size!r}): expected a multiple of 8, such as 32")
    if activations not in (None, "int8"):
        raise OptionError(f"zefuse.llm.optimize(activations={activations!r}): expected None or 'int8'")
    check_cache("optimize", cache)
    if not isinstance(model, PreTrainedModel) or not model.can_generate():
        raise InvalidArgumentError(
            f"zefuse.llm.optimize: a {type(model).__name__} is no transformers model with generate(); "
            'use torch.compile(model, backend="zefuse")'
        )
    if activations is not None and weights is None and not quantized.is_quantized(model):
        raise OptionError("zefuse.llm.optimize(activations='int8') takes quantized weights: weights='int8' or 'int4'")
    if cache is not None and (reason := _why_no_graphs(model)):
        raise UnsupportedError(
            f"zefuse.llm.optimize(cache={cache!r}): a {type(model).__name__} has no cache that could be so: {reason}"
        )
    if not inplace:
        model = copy.deepcopy(model)
    if report_of(model) is not None:
        raise InvalidArgumentError("zefuse.llm.optimize: this model is optimized already")
    model.eval()
    made = Report(type(model).__name__)
    if dtype is not None and dtype != model.dtype:
        made.changed.append(f"weights: {_name(model.dtype)} to {_name(dtype)}")
        model.to(dtype)
    made.changed += quantized.quantized_before(model)
    made.changed += torchao_modules.take(model)
    if weights is not None:
        changed, left = quantized.quantize(model, weights, group_size)
        made.changed += changed
        made.left += left
    if line := quantized.arrange(model, activations):
        made.changed.append(line)
    return model, made


def check_cache(function: str, cache: str | None) -> None:
    """Raises OptionError for a format of the key-value cache that does not exist."""
    from zefuse.llm import cache_parts

    if cache not in (None, *cache_parts.FORMATS):
        raise OptionError(f"zefuse.llm.{function}(cache={cache!r}): expected None or 'int8'")


def load(place: str | os.PathLike[str], dtype: torch.dtype | None = None) -> tuple[PreTrainedModel, Any]:
    """A model and its tokenizer, from a folder that ``save_pretrained()`` wrote or a GGUF file. Nothing is downloaded.

    ``dtype``: of the weights; None is f32. What is quantized in a GGUF file or in a folder of GPTQ's or AWQ's stays so, with the file's
    codes and scales: the matrices of linear layers, of a GGUF file the token embedding as well.

    Raises InvalidArgumentError for what is neither, is damaged, or has an unknown quantization, InstallationError without
    ``transformers`` or (for a GGUF file) ``gguf``.
    """
    installation.require("transformers", "zefuse.llm")
    import torch

    from zefuse.llm import generating

    return generating.load(os.fspath(place), _name(dtype or torch.float32), keep=True)


def report(model: PreTrainedModel) -> Report:
    """What ``optimize`` changed, what was compiled since, and what was left. Raises InvalidArgumentError for another model."""
    found = report_of(model)
    if found is None:
        raise InvalidArgumentError(
            "zefuse.llm.report: the model was not optimized; call zefuse.llm.optimize(model) first"
        )
    return found


def report_of(model: Any) -> Report | None:
    from zefuse.llm.decoder import Decoder

    forward = model.__dict__.get("forward")
    return forward.report if isinstance(forward, Decoder) else model.__dict__.get(_REPORT)


def why_not_traced(model: Any) -> str | None:
    """Why a decoder's graphs are not made by ``tracing``; None where they are."""
    return "an encoder-decoder" if model.config.is_encoder_decoder else _why_no_graphs(model)


def _why_no_graphs(model: Any) -> str | None:
    from zefuse.llm.layers import decoder_layers, stack_layers

    if model.config.is_encoder_decoder:
        encoder = model.get_encoder()
        if encoder is model or stack_layers(model, encoder) is None:
            return "no list of encoder layers was found"
        if model.get_decoder() is model:
            return "no list of decoder layers was found"
    if decoder_layers(model) is None:
        return "no list of decoder layers was found"
    if not model._supports_default_dynamic_cache() or not getattr(model, "_can_compile_fullgraph", False):
        return "its cache is of its own kind"
    return None


def _install(model: Any, options: Options, made: Report, cache: str | None) -> None:
    from zefuse.llm import likeliest, step_inputs
    from zefuse.llm.decoder import Decoder, Encoder

    reason = _why_no_graphs(model)
    if reason is None:
        decoder = Decoder(model, options, made, cache)
        model.forward = decoder
        model._prepare_cache_for_generation = decoder.prepare_cache
        model._valid_auto_compile_criteria = decoder.asks_torch_to_compile
        model._get_logits_processor = likeliest.Processors(model)
        if step_inputs.takes(model):
            model.prepare_inputs_for_generation = step_inputs.StepInputs(model)
        if model.config.is_encoder_decoder:
            encoder = model.get_encoder()
            encoder.forward = Encoder(encoder, decoder)
            made.changed.append("the encoder's forward: one compiled graph for each batch size")
        made.changed.append("forward: one compiled graph for prompts, one for single tokens, for each batch size")
        kept = ", and the encoded sequence's, computed once" if model.config.is_encoder_decoder else ""
        of_kind = "" if cache is None else f", in {cache} with a scale for each head and token"
        made.changed.append(f"generate(): a key-value cache of fixed size{kept}{of_kind}")
        return
    import torch

    made.changed.append("forward: torch.compile with zefuse, sizes as symbols")
    made.left.append(f"the cache and the loop of generate() ({reason})")
    compiled = torch.compile(model.forward, backend="zefuse", dynamic=True, options={"device": options.device})
    model.forward = compiled


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
