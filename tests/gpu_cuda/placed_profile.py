"""Where a call's time on the device goes, ours beside torch's: tables for placed_speed.py --profile."""

from __future__ import annotations

import re
from collections.abc import Mapping

from device_time import Share

# The first that is found in a kernel's name says what it is: names of zefuse's kernels, of Triton's, cuBLAS's, cuDNN's, torch's.
KINDS = (
    ("convolutions", r"conv(?!ert)|implicit|dgrad|wgrad|fprop|cudnn.*(nhwc|nchw)"),
    (
        "attention, backward",
        r"attention_gradient|attention.*backward|fmha.*bwd|flash_bwd|bwd_kernel|sdpa.*bprop|dot_do_o|convert_dq",
    ),
    ("attention, forward", r"attention|fmha|flash|sdpa"),
    ("products", r"matmul|gemm|cublas|nvjet|cutlass|xmma|splitK|^mm\b|_mm_"),
    ("scatters and gathers", r"embedding|scatter|index|gather|sort|radix"),
    ("copies and fills", r"Memcpy|Memset|copy_kernel|CopyFunctor|FillFunctor|direct_copy|^_?to_copy(_\d+)?$|^cat"),
)


def kind_of(name: str) -> str:
    return next((kind for kind, words in KINDS if re.search(words, name, re.IGNORECASE)), "other kernels")


def kinds(shares: Mapping[str, Share]) -> dict[str, Share]:
    found: dict[str, Share] = {}
    for name, share in shares.items():
        total = found.setdefault(kind_of(name), Share(0, 0))
        total.us += share.us
        total.count += share.count
    return found


def text(ways: Mapping[str, Mapping[str, Share]], most: int = 25) -> str:
    """µs and number of kernels in a call: by kind for all ways side by side, then each way's slowest."""
    if not any(ways.values()):
        return "the profiler saw no device"
    of_ways = {way: kinds(shares) for way, shares in ways.items()}
    lines = [f"{'device µs a call (kernels)':28}" + "".join(f"{way:>20}" for way in ways)]

    def row(name: str, shares: list[Share]) -> None:
        lines.append(f"{name:28}" + "".join(f"{share.us:12.0f} ({share.count:5.0f})" for share in shares))

    order = [kind for kind, _ in KINDS] + ["other kernels"]
    for kind in order:
        if any(kind in found for found in of_ways.values()):
            row(kind, [found.get(kind, Share(0, 0)) for found in of_ways.values()])
    row("all", [Share(sum(s.us for s in f.values()), sum(s.count for s in f.values())) for f in of_ways.values()])
    for way, shares in ways.items():
        lines.append(f"  {way}:")
        slowest = sorted(shares.items(), key=lambda item: -item[1].us)[:most]
        lines += [
            f"    {share.us:9.1f} µs  {share.count:4.0f} x {share.us / max(share.count, 1e-9):8.1f}  {name[:110]}"
            for name, share in slowest
        ]
    return "\n".join(lines)
