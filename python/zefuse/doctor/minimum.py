"""The oldest versions that were seen to work: one table, with the reason of each."""

from __future__ import annotations

import re

PYTHON = "3.11"
GLIBC = "2.35"
GLIBC_WHY = "that of Ubuntu 22.04"

# What is compared with what `zefuse doctor` finds. An older one gets a warning, never a refusal.
LOADER = "1.8"
LOADER_WHY = "docs/cpu_driver.md: tried with 1.8.12 and 1.32"
LEVEL_ZERO_API = "1.3"  # of Intel's driver 22.43
OCLOC = "22.43"  # for a GPU: the first of the versions that `zefuse targets --json` lists for it

# GPUs, by their families' names in common/toolchain/targets.cpp -> the first Linux kernel whose driver takes them
# without force_probe.
KERNEL = {"Xe-HPG": "6.2", "Xe-LPG": "6.7", "Xe2": "6.12"}


def numbers(version: str) -> tuple[int, ...]:
    """``6.18.44-fc`` is (6, 18, 44)."""
    found = re.match(r"\d+(?:\.\d+)*", version.strip().lstrip("v"))
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def at_least(version: str, wanted: str) -> bool:
    """Whether a version is that or newer; one that has no numbers is."""
    have, want = numbers(version), numbers(wanted)
    return not have or (*have, *(0,) * (len(want) - len(have))) >= want
