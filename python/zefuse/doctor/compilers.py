"""Intel's offline compilers, asked for their version here too: the library leaves out those that do not answer."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zefuse.doctor import packages
from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Machine
from zefuse.doctor.minimum import OCLOC, at_least

SECONDS = 5.0
# It writes the answer into a file where it runs (common/toolchain/ocloc.cpp).
_ASK = '"$1" query OCL_DRIVER_VERSION >/dev/null && cat OCL_DRIVER_VERSION'


def collect(machine: Machine, seconds: float = SECONDS) -> Facts:
    given = machine.environment.get("ZEFUSE_OCLOC", "")
    commands = [given] if given else ["ocloc", *_unpacked(machine)]
    found = [(name, path) for name in commands if (path := machine.program(name))]

    def ask(one: tuple[str, str]) -> dict[str, Any]:
        name, path = one
        try:
            with tempfile.TemporaryDirectory(prefix="zefuse-doctor-", ignore_cleanup_errors=True) as folder:
                ended = machine.run(["sh", "-c", _ASK, "sh", path], seconds, cwd=folder)
        except OSError as error:
            return {
                "command": name,
                "path": path,
                "version": "",
                "problem": f"no folder for its answer: {error.strerror}",
            }
        version = "".join(c for c in ended.output if c.isalnum() or c in ".-_") if ended.code == 0 else ""
        return {"command": name, "path": path, "version": version, "problem": "" if version else ended.how()}

    with ThreadPoolExecutor(max(1, len(found))) as threads:
        asked = list(threads.map(ask, found))
    return {"given": given, "installed": asked}


def _unpacked(machine: Machine) -> list[str]:
    """Those of ``zefuse toolchain install``."""
    data = machine.environment.get("XDG_DATA_HOME", "")
    base = data if data.startswith("/") else os.path.join(machine.home() or "/nonexistent", ".local/share")
    folder = os.path.join(base, "zefuse", "toolchains")
    return [f"{folder}/{name}/ocloc" for name in machine.names(folder) if machine.exists(f"{folder}/{name}/ocloc")]


def with_products(mine: Facts, asked: list[dict[str, Any]]) -> Facts:
    """``asked``: what zefuse's library says of them, with the products that each compiles for."""
    return {**mine, "usable": asked}


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["compilers"]
    wanted = bool(facts["devices"]["intel_gpus"]) or facts["devices"]["dxg"]
    found = []
    if mine["given"] and not mine["installed"]:
        found.append(
            Finding(
                "compilers.given",
                "problem" if wanted else "warning",
                f"ZEFUSE_OCLOC={mine['given']} names no program",
                "unset ZEFUSE_OCLOC, or name Intel's ocloc",
            )
        )
    for one in mine["installed"]:
        found.append(_judge_one(one, mine["usable"], facts))
    if not mine["installed"] and not mine["given"]:
        found.append(
            Finding(
                "compilers.none",
                "warning" if wanted else "note",
                "No offline compiler for Intel GPUs (ocloc); the CPU's is built in",
                f"zefuse toolchain install, or {packages.install('compiler', facts['system'])}" if wanted else "",
            )
        )
    return found


def _judge_one(one: dict[str, Any], usable: list[dict[str, Any]], facts: AllFacts) -> Finding:
    key = f"compilers.{one['command']}"
    if one["problem"]:
        return Finding(
            key,
            "warning",
            f"The compiler {one['path']} does not say its version: {one['problem']}",
            "zefuse toolchain install gets a current one; ZEFUSE_OCLOC names the one to use",
        )
    what = f"{one['command']} {one['version']}"
    if one["command"] != one["path"]:
        what += f", {one['path']}"
    targets = (facts["build"].get("targets") or {}).get("gpu", [])
    rows = [row for row in targets if row["compiler"] == "ocloc"]  # NVIDIA's have a compiler of zefuse's own
    products = next((set(known["products"]) for known in usable if known["command"] == one["command"]), set())
    if not at_least(one["version"], OCLOC):
        return Finding(
            key, "warning", f"{what}: older than {OCLOC}, the oldest that was tried", "zefuse toolchain install"
        )
    if rows and products:
        lacking = [row["name"] for row in rows if row["name"] not in products]
        what += f": code for {len(rows) - len(lacking)} of {len(rows)} Intel GPUs"
        if lacking:
            fix = "for these: zefuse toolchain install" if len(usable) < 2 else ""
            return Finding(key, "ok", f"{what}, none for {', '.join(lacking)}", fix)
    return Finding(key, "ok", what)
