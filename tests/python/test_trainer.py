"""transformers' Trainer of a compiled model: trains, evaluates, saves, and ends where it does in eager. (Its own
``torch_compile_backend`` takes the names that accelerate lists, and no other.)"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from zefuse.backend import observe
from zefuse.testing import relative_error

VOCABULARY = 32


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        words = torch.randint(VOCABULARY, (8,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": words, "labels": words}


def _trainer(folder: Path, *, compiled: bool) -> Trainer:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=VOCABULARY, n_positions=8)
    config.attn_pdrop = config.resid_pdrop = config.embd_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    if compiled:
        model.compile(backend="zefuse")
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=3,
        learning_rate=1e-2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    return Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())


@pytest.mark.filterwarnings("ignore")
def test_trainer(tmp_path: Path) -> None:
    eager, ours = (_trainer(tmp_path / str(compiled), compiled=compiled) for compiled in (False, True))
    begin = {name: weight.detach().clone() for name, weight in eager.model.named_parameters()}
    kinds: list[str] = []
    with observe(lambda kind, _: kinds.append(kind)):
        ours.train()
        scores = ours.evaluate()
    eager.train()
    assert {"forward", "backward"} <= set(kinds)
    ours.save_model(str(tmp_path / "saved"))
    saved = dict(GPT2LMHeadModel.from_pretrained(str(tmp_path / "saved")).named_parameters())
    for name, weight in eager.model.named_parameters():
        assert relative_error(saved[name].detach(), weight.detach()) < 1e-3, name
        assert not torch.equal(weight, begin[name]), name
    assert abs(scores["eval_loss"] - eager.evaluate()["eval_loss"]) < 1e-3
