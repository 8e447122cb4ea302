"""Writes what the C++ program needs: the exported model (any number of sentences), tokens, and Python's embeddings to compare with.

.venv/bin/python examples/minilm_cpp/export.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "examples")]  # the model; the sentences

import torch
import workloads
from semantic_search import CORPUS, QUERIES

LENGTH = 32


@torch.no_grad()
def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    encoder = workloads.SentenceEncoder()
    ids, mask = encoder.tokens([*CORPUS, *QUERIES], length=LENGTH)
    batch = torch.export.Dim("sentences", min=2, max=512)
    program = torch.export.export(encoder, (ids, mask), dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, folder / "minilm.pt2")
    lines = [f"{len(CORPUS)} {len(QUERIES)} {LENGTH}"]
    for sentence, row, keep in zip([*CORPUS, *QUERIES], ids.tolist(), mask.tolist(), strict=True):
        lines += [sentence, " ".join(map(str, row)), " ".join(map(str, keep))]
    (folder / "tokens.txt").write_text("\n".join(lines) + "\n")
    expected = encoder(ids, mask)
    (folder / "expected.txt").write_text("\n".join(" ".join(map(repr, row)) for row in expected.tolist()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
