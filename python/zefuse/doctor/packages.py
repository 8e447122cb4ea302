"""What the parts of a GPU's software are called, by distribution."""

from __future__ import annotations

from typing import Any

from zefuse.doctor.minimum import numbers

_INTEL = "Intel's packages: https://dgpu-docs.intel.com"
_DEBIAN_12 = {"loader": "libze1", "driver": "intel-opencl-icd", "compiler": "intel-opencl-icd"}
_SINCE = {"loader": "libze1", "driver": "libze-intel-gpu1", "compiler": "intel-ocloc"}
_FEDORA = {"loader": "oneapi-level-zero", "driver": "intel-level-zero", "compiler": "intel-ocloc"}
_ARCH = {"loader": "level-zero-loader", "driver": "intel-compute-runtime", "compiler": "intel-compute-runtime"}


def install(part: str, system: dict[str, Any]) -> str:
    """The command that installs ``loader``, ``driver`` or ``compiler`` there; else where to get it."""
    names = (system["id"], *system["like"])
    version = numbers(system["version"])
    if system["id"] == "debian" and version[:1] == (12,):
        return f"sudo apt install {_DEBIAN_12[part]}"
    if system["id"] == "debian" and version and part != "loader":  # 13's release has none; sid has no version
        return f"install {_SINCE[part]} from {_INTEL}"
    if system["id"] == "ubuntu" and version and version < (24, 4):
        return f"sudo apt install {_SINCE[part]}, from {_INTEL}"
    if system["id"] in ("debian", "ubuntu"):
        return f"sudo apt install {_SINCE[part]}"
    if "debian" in names or "ubuntu" in names:
        return f"sudo apt install {_SINCE[part]} (older ones: {_INTEL})"
    if "fedora" in names:
        return f"sudo dnf install {_FEDORA[part]}"
    if "arch" in names:
        return f"sudo pacman -S {_ARCH[part]}"
    return f"install {_SINCE[part]} or what your distribution calls it, or {_INTEL}"
