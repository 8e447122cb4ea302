"""A GGUF file as a ``transformers`` model, whose quantized matrices may stay as the file has them.

The file is mapped, and its tensors are read one after the other: there is never a second copy of the whole model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from zefuse.llm import filling, gguf_blocks, gguf_experts
from zefuse.llm.freed_memory import Freed
from zefuse.llm.packing import Packed
from zefuse.llm.quantized import QuantizedEmbedding, QuantizedLinear, replace


def load(path: Path, dtype: torch.dtype, keep: bool) -> Any:
    """The model, in evaluation mode. ``gguf_file.check`` has passed the file.

    ``keep``: linear layers, experts and the token embedding are quantized modules where ``gguf_blocks`` knows their type; all else is
    of ``dtype``. Raises InvalidArgumentError where the file lacks a weight of the model.
    """
    from gguf import GGUFReader, dequantize
    from transformers import AutoConfig
    from transformers import modeling_gguf_pytorch_utils as of_transformers

    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    model = filling.empty(config, dtype)
    reader = GGUFReader(path)  # under gguf_reading.read_once the one that there is
    architecture = str(reader.fields["general.architecture"].contents())
    make_processor = of_transformers.TENSOR_PROCESSORS.get(architecture, of_transformers.TensorProcessor)
    processor = make_processor(config=config.to_dict())
    names = of_transformers.get_gguf_hf_weights_map(model, processor)
    reader.fields.clear()  # a vocabulary of 32,000 words is 80 MB of numpy's arrays
    places = _places(model) if keep else {}
    experts = gguf_experts.Experts(model, names, reader.tensors if keep else [], dtype)
    freed = Freed()
    dequantized: dict[str, Any] = {}  # by the model's names
    for tensor in reader.tensors:
        if (size := experts.take(tensor)) is not None:
            freed.note(size)
            continue
        kind, name = tensor.tensor_type.name, names.get(tensor.name, "")
        known = name in places and gguf_blocks.is_known(kind)
        if known and (order := _row_order(processor, tensor.name, tensor.data.shape, names)) is not None:
            packed = gguf_blocks.pack(kind, tensor.data, order)
            for place in places[name]:
                _put(model, place, packed, dtype)
            freed.note(packed.bytes())
            continue
        result = processor.process(
            weights=dequantize(tensor.data, tensor.tensor_type), name=tensor.name,
            tensor_key_mapping=names, parsed_parameters={"tensors": dequantized},
        )  # fmt: skip
        if result.name in names:
            dequantized[names[result.name]] = torch.tensor(result.weights)
    filling.fill(model, dequantized, dtype, path)
    return model


def _places(model: Any) -> dict[str, list[str]]:
    """Weights that may be quantized, by name, and the modules that have them."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and embedding is not None and head.weight is embedding.weight
    names = {module: name for name, module in model.named_modules()}
    places = {f"{name}.weight": [name] for module, name in names.items() if type(module) is nn.Linear}
    if type(embedding) is nn.Embedding or hasattr(embedding, "embed_scale"):
        places[f"{names[embedding]}.weight"] = [names[embedding], *([names[head]] if tied else [])]
    return places


def _row_order(processor: Any, name: str, shape: tuple[int, ...], names: dict[str, str]) -> Any:
    """Which row of the file's matrix each row of the model's is; None where it is more than an order of rows."""
    if len(shape) != 2:
        return None
    numbers = np.arange(shape[0])[:, None]
    made = processor.process(weights=numbers, name=name, tensor_key_mapping=names, parsed_parameters={"tensors": {}})
    order = np.asarray(made.weights)
    same_rows = made.name == name and order.shape == numbers.shape and np.array_equal(np.sort(order, 0), numbers)
    return order[:, 0] if same_rows else None


def _put(model: Any, place: str, packed: Packed, dtype: torch.dtype) -> None:
    module = model.get_submodule(place)
    if isinstance(module, nn.Linear):
        made: nn.Module = QuantizedLinear(packed, None, dtype)
        made.bias = module.bias  # its values may still come
    else:
        made = QuantizedEmbedding(packed, getattr(module, "embed_scale", None), dtype)
    replace(model, place, made)
