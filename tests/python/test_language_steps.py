"""What stands around a decoding step's graph: its inputs, and the call with weights and cache bound to it."""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any

import pytest
import torch
import transformers
from torch.fx.experimental.proxy_tensor import make_fx

from zefuse.backend import compile_graph
from zefuse.errors import InvalidArgumentError
from zefuse.llm import step_inputs
from zefuse.llm.cache import KeyValueCache
from zefuse.options import Options

_SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64,
    "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
_KINDS: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 8},
    "Gemma3": {"sliding_window": 8, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]},
}


def _model(name: str) -> Any:
    torch.manual_seed(0)
    settings = {**_SIZES, "num_key_value_heads": 2, **_KINDS[name]}
    settings["num_hidden_layers"] = len(settings.get("layer_types", [0]))
    config = getattr(transformers, f"{name}{'Text' if name == 'Gemma3' else ''}Config")(**settings)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other)
    return one is other or one == other


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", _KINDS)
def test_steps_get_what_transformers_prepares_for_them(
    name: str, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model(name)
    assert step_inputs.takes(model)
    made_ahead = step_inputs.StepInputs(model)
    masks_of: list[int] = []
    monkeypatch.setattr(made_ahead, "prepare", _counting(made_ahead.prepare, masks_of))
    compared = 0

    @functools.wraps(model.prepare_inputs_for_generation)  # generate() asks which arguments it takes
    def both(input_ids: Any, **given: Any) -> Any:
        nonlocal compared
        expected = type(model).prepare_inputs_for_generation(model, input_ids, **given)
        made = made_ahead(input_ids, **given)
        assert _equal(made, expected)
        compared += 1
        return made

    model.prepare_inputs_for_generation = both
    prompt = torch.randint(2, 64, (2, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(prompt)
    if padded:
        mask[0, :3] = 0
    model.generate(
        prompt, attention_mask=mask, max_new_tokens=80, do_sample=False,
        past_key_values=KeyValueCache(model.config.num_hidden_layers, 96),
    )  # fmt: skip
    assert compared == 80
    # The prompt; the first step and those after it; the step behind these, and what the cache has place for.
    assert masks_of == [7, 1, 64, 1, 25]


def _counting(prepare: Any, lengths: list[int]) -> Any:
    def counted(input_ids: Any, **given: Any) -> Any:
        made = prepare(input_ids, **given)
        lengths.append(made["input_ids"].shape[1])
        return made

    return counted


def test_inputs_of_another_kind_are_prepared_by_transformers() -> None:
    model = _model("Llama")
    made_ahead = step_inputs.StepInputs(model)
    cache = KeyValueCache(1, 32)
    cache.length = 4
    ids, places = torch.tensor([[1, 2, 3, 4, 5]]), torch.arange(5)[None]
    given = {"past_key_values": cache, "attention_mask": torch.ones(1, 5, dtype=torch.int64), "position_ids": places}
    first = made_ahead(
        ids, next_sequence_length=1, **given, extra=torch.ones(1)
    )  # a tensor that may be another next time
    assert not made_ahead._ahead
    assert torch.equal(first["extra"], torch.ones(1))
    made_ahead(ids, next_sequence_length=1, **given)
    assert made_ahead._ahead
    # The same place again, with another mask: nothing of what was made ahead serves.
    given["attention_mask"] = torch.tensor([[0, 0, 1, 1, 1]])
    again = made_ahead(ids, next_sequence_length=1, **given)
    assert again["attention_mask"][0, 0, 0, :6].tolist() == [False, False, True, True, True, False]
    copied = copy.deepcopy(made_ahead)
    assert copied.model is not model
    assert copied.prepare.__self__ is copied.model


def _linear() -> Any:
    def function(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ((weight * x).sum(1) + bias,)

    given = torch.randn(8, 16), torch.randn(16), torch.randn(8)
    graph = make_fx(function, tracing_mode="fake")(*given)
    return compile_graph(graph, range(1), Options.make({}), "inference"), given


def test_a_bound_call_reads_memory_that_was_bound() -> None:
    compiled, (weight, x, bias) = _linear()
    call = compiled.bind([weight], 1, [bias])
    expected = compiled([weight, x, bias])[0]
    given = [x]
    assert torch.equal(call(given)[0], expected)
    assert given == [x]  # which keeps its arguments
    weight.mul_(2)  # in place: seen
    doubled = compiled([weight, x, bias])[0]
    assert torch.equal(call([x])[0], doubled)
    weight.data = torch.zeros(8, 16)  # other memory: not seen, and the bound one lives on
    filler = [torch.full((8, 16), 7.0) for _ in range(64)]
    assert torch.equal(call([x])[0], doubled)
    assert len(filler) == 64
    with pytest.raises(InvalidArgumentError, match="takes 1 arguments, and got 2"):
        call([x, x])
    with pytest.raises(InvalidArgumentError):
        call([x[:8]])
    assert torch.equal(call([x])[0], doubled)  # a refused call leaves it as it was


def test_what_cannot_be_bound_is_not() -> None:
    compiled, (weight, _, bias) = _linear()
    assert compiled.bind([torch._neg_view(weight)], 1, [bias]) is None
    assert compiled.bind([3], 1, [bias]) is None


def test_threads_may_share_a_bound_call() -> None:
    compiled, (weight, _, bias) = _linear()
    call = compiled.bind([weight], 1, [bias])
    inputs = [torch.randn(16) for _ in range(4)]
    expected = [compiled([weight, each, bias])[0] for each in inputs]
    right = [0] * 4

    def work(number: int) -> None:
        for _ in range(200):
            right[number] += torch.equal(call([inputs[number]])[0], expected[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert right == [200] * 4
