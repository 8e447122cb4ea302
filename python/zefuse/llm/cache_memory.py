"""Whether a key-value cache fits this machine's memory, asked before any of it is written: the kernel gives more than there is, and ends
the process later."""

from __future__ import annotations

from zefuse.errors import OutOfMemoryError
from zefuse.wording import counted


def check(size: int, tokens: int, sequences: int) -> None:
    """Raises OutOfMemoryError where ``size`` bytes are more than are free."""
    if size > (free := _free_memory()):
        each = "" if sequences == 1 else f" of each of {sequences} sequences"
        raise OutOfMemoryError(
            f"a key-value cache for {counted(tokens, 'token')}{each} takes {size / 1e6:.0f} MB, and {free / 1e6:.0f} MB "
            "of memory are free: ask for fewer new tokens" + ("" if sequences == 1 else " or fewer sequences")
        )


def _free_memory() -> int:
    """Bytes that this machine can still give, as the kernel estimates it."""
    try:
        with open("/proc/meminfo") as file:
            line = next(line for line in file if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return 1 << 62
