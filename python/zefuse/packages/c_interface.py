"""Where an installed package has the C interface: headers, and what CMake's ``find_package(zefuse)`` reads (docs/aot.md)."""

from __future__ import annotations

from pathlib import Path

from zefuse.errors import NotFoundError


def include_dir() -> str:
    """The folder for ``-I``: it holds ``zefuse/zefuse.h`` and ``dlpack/dlpack.h``. Raises NotFoundError in a checkout,
    where nothing is installed."""
    return _folder("include", "zefuse/zefuse.h")


def cmake_dir() -> str:
    """For ``cmake -Dzefuse_DIR=$(python -c 'import zefuse; print(zefuse.cmake_dir())')``. Raises as ``include_dir``."""
    return _folder("lib/cmake/zefuse", "zefuseConfig.cmake")


def _folder(name: str, holds: str) -> str:
    folder = Path(__file__).parent / name
    if not (folder / holds).is_file():
        raise NotFoundError(
            f"{folder} has no {holds}: an installed wheel has it; in a checkout run "
            "cmake --install build/release --component runtime --prefix DIR"
        )
    return str(folder)
