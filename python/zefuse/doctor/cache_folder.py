"""The folder of the cache: where, writable, how full."""

from __future__ import annotations

import os

from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Machine
from zefuse.options import cache_dir_of

_MB = 1 << 20
_DEFAULT_LIMIT_MB = 2048


def folder_of(machine: Machine) -> str:
    """As `zefuse.cache.directory`; empty for none."""
    given = machine.environment.get("ZEFUSE_CACHE_DIR")
    return cache_dir_of(machine.environment, machine.home()) if given is None else given


def collect(machine: Machine) -> Facts:
    folder = os.path.abspath(place) if (place := folder_of(machine)) else ""
    limit = machine.environment.get("ZEFUSE_CACHE_LIMIT_MB", "")
    facts: Facts = {
        "folder": folder,
        "turned_off": machine.environment.get("ZEFUSE_CACHE_DIR") == "",
        "limit_mb": int(limit) if limit.isdecimal() else _DEFAULT_LIMIT_MB,
        "exists": bool(folder) and machine.exists(folder),
    }
    if not folder:
        return facts
    nearest = folder  # the first that is there: what would be made is made in it
    while not machine.exists(nearest) and nearest != "/":
        nearest = os.path.dirname(nearest)
    files, size, whole = machine.folder_size(folder) if facts["exists"] else (0, 0, True)
    return {
        **facts,
        "writable": machine.writable(nearest),
        "nearest": nearest,
        "free_bytes": machine.free_bytes(nearest),
        "files": files,
        "bytes": size,
        "all_counted": whole,
    }


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["cache"]
    if mine["turned_off"]:
        return [
            Finding(
                "cache.folder",
                "note",
                "No cache, as ZEFUSE_CACHE_DIR is empty: each process compiles anew",
                "unset ZEFUSE_CACHE_DIR",
            )
        ]
    if not mine["folder"]:
        return [
            Finding(
                "cache.folder",
                "warning",
                "No cache, since this user has no home folder: each process compiles anew",
                "export ZEFUSE_CACHE_DIR=/a/folder/of/your/own",
            )
        ]
    if not mine["writable"]:
        return [
            Finding(
                "cache.folder",
                "warning",
                f"The cache {mine['folder']} is not writable: each process compiles anew",
                "export ZEFUSE_CACHE_DIR=/a/folder/of/your/own",
            )
        ]
    used, free = mine["bytes"] / _MB, mine["free_bytes"]
    what = f"Cache {mine['folder']}: "
    if mine["exists"]:
        files = "1 file" if mine["files"] == 1 else f"{mine['files']} files"
        what += f"{'' if mine['all_counted'] else 'more than '}{used:.0f} of {mine['limit_mb']} MB in {files}"
    else:
        what += "not there yet, and can be made"
    if free is not None:
        what += f", {free / (1 << 30):.1f} GiB free"
        if free < 100 * _MB:
            return [
                Finding(
                    "cache.space",
                    "warning",
                    f"{what}: hardly anything can be kept",
                    "make room, or export ZEFUSE_CACHE_DIR=/a/folder/with/room",
                )
            ]
    return [Finding("cache.folder", "ok", what)]
