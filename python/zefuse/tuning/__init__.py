"""What ``zefuse tune`` measured on a device, and how compiling finds it.

One entry of the cache for each device and version: a table of kernels, by the hash of what they compute, with the decisions
that were quicker than the cost model's. Whoever compiles for the device takes them; a table that cannot be read costs the
tuning only, with a warning that says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from zefuse import _native
from zefuse.errors import NotFoundError

KIND = "tuning"

# Of kernels and operators: {"name": ..., "choice": {decision: number}, "before_us": ..., "after_us": ...}.
Table = dict[str, dict[str, Any]]


_without_eager: ContextVar[bool] = ContextVar("zefuse_without_eager", default=False)


@contextmanager
def without_eager() -> Iterator[None]:
    """Within it, operators that were measured to be quicker in eager are compiled: for what runs without torch."""
    token = _without_eager.set(True)
    try:
        yield
    finally:
        _without_eager.reset(token)


def applied(values: Mapping[str, Any], product: str | None = None) -> dict[str, Any]:
    """Options as the compiled part takes them (``Options.to_dict``) with what was measured on their device.

    ``product``: of a GPU that they compile for ahead of need; the tables of such devices here hold for it.
    """
    made = dict(values)
    folder = folder_of(values)
    if not made.pop("tuned", True) or "tuning" in made or not folder:
        return made
    device = made["device"] if product is None else _device_of(product, folder)
    if device is None:
        return made
    try:
        table = load(folder, device)
    except NotFoundError:  # whoever needs the device says so
        return made
    if _without_eager.get():
        table = {key: row for key, row in table.items() if row["choice"].get("implementation") != 1}
    if table:
        made["tuning"] = as_text(table)
    return made


def fingerprint(values: Mapping[str, Any]) -> str:
    """Of what ``applied`` takes; empty where nothing was measured."""
    text = applied(values).get("tuning", "")
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def folder_of(values: Mapping[str, Any]) -> str:
    """The cache folder of options; empty: there is none."""
    given = values.get("cache_dir")
    return os.environ.get("ZEFUSE_CACHE_DIR", "") if given is None else given


def fields(device: str) -> list[tuple[str, str]]:
    """What a table depends on. Raises NotFoundError, which lists the devices that there are."""
    from zefuse import __version__

    native = _native.load()
    return [("format", "1"), ("zefuse", f"{__version__} {native.build_id()}"), *native.device_fields(device)]


def load(folder: str, device: str) -> Table:
    """The device's table; empty where there is none, and with a warning where it is damaged."""
    native = _native.load()
    key = fields(device)
    path = native.cache_path(folder, KIND, key)
    there = os.path.exists(path)
    found = native.cache_load(folder, KIND, key)
    if found is None:
        if there:
            _ignored(path, "it is damaged, or another user can write it")
        return {}
    try:
        return _read(found)
    except ValueError as error:
        _ignored(path, str(error))
        return {}


def update(folder: str, limit: int, device: str, measured: Iterable[str], quicker: Table) -> None:
    """Puts what was measured into the device's table: ``quicker`` with its choices, the others of ``measured`` without. Other
    processes' kernels stay. Raises ZefuseError where the entry cannot be written."""
    from zefuse.errors import ZefuseError

    drop = set(measured)

    def merge(before: bytes | None) -> str:
        try:
            table = _read(before) if before else {}
        except ValueError:  # load() warned, or will; a new one takes its place
            table = {}
        return as_text({key: row for key, row in table.items() if key not in drop} | quicker)

    problem = _native.load().cache_update(folder, limit, KIND, fields(device), device, merge)
    if problem:
        raise ZefuseError(f"tune: what was measured cannot be kept in {folder!r}: {problem}")


def as_text(table: Table) -> str:
    """The same for the same kernels: it is part of a plan's key."""
    return json.dumps(table, sort_keys=True)


def _read(body: bytes) -> Table:
    table = json.loads(body)
    if not isinstance(table, dict):
        raise ValueError("it is no table")
    for row in table.values():
        choice = row.get("choice") if isinstance(row, dict) else None
        if not isinstance(choice, dict) or not all(type(number) is int for number in choice.values()):
            raise ValueError("a kernel's entry is no choice")
    return table


def _ignored(path: str, reason: str) -> None:
    warnings.warn(
        f"zefuse: what was tuned for this device is not used: {path}: {reason}; run `zefuse tune` again",
        stacklevel=2,
    )


def _device_of(product: str, folder: str) -> str | None:
    """A GPU here that this product is compiled for. Drivers are loaded for it only where something was measured: else compiling
    ahead needs none. (A device that compiles for itself is asked at once: looking at a folder of 40,000 entries takes longer.)"""
    from zefuse import targets

    if next(Path(folder).glob(f"*.{KIND}"), None) is None:
        return None
    return next((each["device"] for each in targets.devices() if each["target"] == product), None)
