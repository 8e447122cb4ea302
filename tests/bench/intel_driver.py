"""Intel's real Level Zero driver without a GPU: its capture mode builds modules, takes arguments and launches as ever, and writes
what the hardware would be told to a file. Nothing is computed. The mode is read from the environment once a process.

As tests/unit/intel_driver does for single kernels, with the PCI id besides, by which a package finds its plan.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

# A target of ours -> how version 22.43 is told to be one. It needs one of the last two settings: without slices x
# sub-slices x engines dg2 and pvc allow no work-item, and tgllp ends the process on other numbers than its own; with
# any, adlp divides by its number of engines, 0.
PRODUCTS = {
    "dg2-g11": {"ProductFamilyOverride": "dg2", "ForceDeviceId": "0x56a5", "HardwareInfoOverride": "8x4x8"},
    "tgllp": {"ProductFamilyOverride": "tgllp", "ForceDeviceId": "0x9a49", "HardwareInfoOverride": "1x6x16"},
    "adl-p": {"ProductFamilyOverride": "adlp", "ForceDeviceId": "0x46a6", "OverrideMaxWorkgroupSize": "512"},
    "pvc": {"ProductFamilyOverride": "pvc", "ForceDeviceId": "0x0bd5", "HardwareInfoOverride": "8x4x8"},
}


def installed() -> bool:
    try:
        ctypes.CDLL("libze_intel_gpu.so.1")
    except OSError:
        return False
    return True


def environment(target: str) -> dict[str, str]:
    """For a process that has Intel's driver with one device, ``gpu:0``; it writes ``*.aub`` files where it runs."""
    return {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1", "ZEFUSE_CPU_DRIVER_AS": "cpu", **PRODUCTS[target]}


def discard_captures(folder: Path) -> None:
    """After a first process there: those that follow write their captures, hundreds of megabytes, nowhere."""
    for capture in folder.glob("*.aub"):
        capture.unlink()
        capture.symlink_to("/dev/null")
