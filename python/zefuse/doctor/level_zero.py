"""The Level Zero loader and each driver, started in a process of its own (runtime/ze/loader_trial.h): one that hangs or
crashes is a finding. The loader is tried with every driver, as the runtime does, and with one driver at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zefuse.doctor import packages
from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Ended, Machine
from zefuse.doctor.minimum import LEVEL_ZERO_API, LOADER, LOADER_WHY, at_least

LOADER_NAME = "libze_loader.so.1"
# What loaders look for (1.8 the first two).
DRIVERS = {
    "libze_intel_gpu.so.1": "Intel GPUs",
    "libze_intel_vpu.so.1": "Intel NPUs",
    "libze_intel_gpu_legacy1.so.1": "Intel GPUs before 2020",
    "libze_intel_npu.so.1": "Intel NPUs",
}
FOR_GPUS = ("libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1")
SECONDS = 10.0  # until a trial counts as hanging: starting several GPUs takes a second or two
_PREFIX = "zefuse-try-loader: "
_OUR_PCI_VENDOR = "7a66"
_RESULTS = {
    "0x78000001": "ZE_RESULT_ERROR_UNINITIALIZED: no device that it can use",
    "0x70000001": "ZE_RESULT_ERROR_DEVICE_LOST",
    "0x70010000": "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS",
    "0x70020000": "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE",
    "0x78000003": "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
    "0x7ffffffe": "ZE_RESULT_ERROR_UNKNOWN",
}


def collect(machine: Machine, helper: str, seconds: float = SECONDS) -> Facts:
    """``helper``: zefuse-try-loader's path. Takes ``seconds`` and little more, whatever drivers do."""
    given = [name.strip() for name in machine.environment.get("ZE_ENABLE_ALT_DRIVERS", "").split(",") if name.strip()]
    names = given or list(DRIVERS)
    if not machine.exists(helper):
        return {
            "helper": None,
            "alternative": given,
            "affinity_mask": "",
            "loader": {"outcome": "untried"},
            "drivers": [],
        }

    def trial(driver: str | None) -> dict[str, Any]:
        command = [helper, "--list", LOADER_NAME, *([driver] if driver else [])]
        return {"name": driver or LOADER_NAME, **parse(machine.run(command, seconds))}

    with ThreadPoolExecutor(len(names) + 1) as threads:
        loader, *drivers = threads.map(trial, [None, *names])
    if not loader["version"]:  # it was not asked any more
        known = next((one for one in drivers if one["version"]), loader)
        loader |= {name: known[name] for name in ("version", "api", "path")}
    mask = machine.environment.get("ZE_AFFINITY_MASK", "")
    return {"helper": helper, "alternative": given, "affinity_mask": mask, "loader": loader, "drivers": drivers}


def parse(ended: Ended) -> dict[str, Any]:
    """What a trial says: ``outcome`` is the helper's word, or ``hangs``, ``crashes``, ``failed``."""
    found: dict[str, Any] = {
        "outcome": "",
        "detail": "",
        "step": "",
        "path": "",
        "version": "",
        "api": "",
        "drivers": [],
    }
    for line in ended.output.splitlines():
        if line.startswith(_PREFIX):
            with contextlib.suppress(ValueError):  # cut short
                _add_line(found, line.removeprefix(_PREFIX))
    if ended.late:
        found["outcome"], found["detail"] = "hangs", ended.how()
    elif not found["outcome"]:
        crashed = ended.code is not None and ended.code < 0
        printed = ended.error.strip().splitlines()
        found["outcome"] = "crashes" if crashed else "failed"
        found["detail"] = ended.how() + (f": {printed[-1][:200]}" if printed else "")
    return found


def _add_line(found: dict[str, Any], line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "step":
        found["step"] = rest
    elif word in ("library", "driver-library"):
        found["path" if word == "library" else "driver_path"] = rest
    elif word == "component":
        name, version, api = rest.rsplit(" ", 2)
        if name == "loader":
            found["version"], found["api"] = version, api
    elif word == "driver":
        version, api, uuid = rest.split()
        found["drivers"].append({"version": _driver_version(version, uuid), "api": api, "devices": []})
    elif word == "device":
        found["drivers"][-1]["devices"].append(_device(rest))
    elif word in ("works", "no-library", "no-driver", "no-driver-library"):
        found["outcome"], found["detail"] = word, rest


def _driver_version(text: str, uuid: str) -> str:
    number = int(text, 16)
    if bytes.fromhex(uuid)[:11] == b"zefuse-cpu-":
        return text
    return f"{number >> 24}.{number >> 16 & 255}.{number & 65535}"  # as Intel counts: 1.3.24595 is of 22.43.24595


def _device(text: str) -> dict[str, Any]:
    kind, vendor, device, size, shared, name = text.split(" ", 5)
    return {
        "kind": kind,
        "vendor": f"{int(vendor, 16):04x}",
        "id": f"{int(device, 16):04x}",
        "memory_bytes": int(size),
        "integrated": shared == "1",
        "name": name,
        "ours": vendor == _OUR_PCI_VENDOR,
    }


def devices(facts: AllFacts) -> list[dict[str, Any]]:
    """What the runtime gets from the loader; where that fails, what single drivers list."""
    mine = facts["level_zero"]
    trials = [mine["loader"]] if mine["loader"].get("drivers") else mine["drivers"]
    return [device for trial in trials for driver in trial["drivers"] for device in driver["devices"]]


def absent(trial: dict[str, Any]) -> bool:
    """Whether a driver's library is not installed, other than one that lacks a library itself."""
    return trial["outcome"] == "no-driver-library" and trial["detail"].startswith(f"{trial['name']}: cannot open")


def missing_library(detail: str) -> str:
    """Of dlerror's text, the library that was not found."""
    found = re.match(r"([^:]+): cannot open shared object file", detail)
    return os.path.basename(found[1]) if found else ""


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["level_zero"]
    if mine["loader"]["outcome"] == "untried":
        return [
            Finding(
                "level_zero.helper",
                "note",
                "The loader and its drivers were not tried: zefuse-try-loader, which does it, is not there",
            )
        ]
    wanted = bool(facts["devices"]["intel_gpus"]) or facts["devices"]["dxg"]
    found = _loader(mine["loader"], wanted, facts)
    if mine["loader"]["outcome"] == "no-library":
        return found
    installed = [trial for trial in mine["drivers"] if not absent(trial)]
    found += [_driver(trial, wanted, facts) for trial in installed]
    for trial in mine["drivers"] if mine["alternative"] else []:
        if absent(trial):
            found.append(
                Finding(
                    f"level_zero.driver.{trial['name']}",
                    "problem",
                    f"ZE_ENABLE_ALT_DRIVERS names {trial['name']}, which is not there",
                    "unset ZE_ENABLE_ALT_DRIVERS, or name a driver's library",
                )
            )
    if not mine["alternative"] and not any(trial["name"] in FOR_GPUS for trial in installed):
        text = "No Level Zero driver for GPUs is installed (libze_intel_gpu.so.1)"
        found.append(Finding("level_zero.no_driver", "note", text))  # graphics.py judges it
    whole = mine["loader"]["outcome"]
    if whole in ("hangs", "crashes", "failed") and all(
        trial["outcome"] in ("works", "no-driver") for trial in installed
    ):
        found.append(
            Finding(
                "level_zero.together",
                "problem",
                f"The loader {_did(mine['loader'])}, though each driver works alone",
                "try one of them: export ZE_ENABLE_ALT_DRIVERS=libze_intel_gpu.so.1",
            )
        )
    return found


def _loader(trial: dict[str, Any], wanted: bool, facts: AllFacts) -> list[Finding]:
    if trial["outcome"] == "no-library":
        if missing_library(trial["detail"]) == LOADER_NAME:
            text = f"No Level Zero loader ({LOADER_NAME}): the CPU needs none, a GPU is not found without"
            return [Finding("level_zero.loader", "note", text)]  # graphics.py judges it
        return [
            Finding(
                "level_zero.loader",
                "problem" if wanted else "warning",
                f"The Level Zero loader cannot be loaded: {trial['detail']}",
                "install the loader of this distribution again: " + packages.install("loader", facts["system"]),
            )
        ]
    what = f"Level Zero loader {trial['version'] or 'of unknown version'}"
    if trial["api"]:
        what += f" (API {trial['api']})"
    what += f", {trial['path']}" if trial["path"] else ""
    if trial["version"] and not at_least(trial["version"], LOADER):
        return [
            Finding(
                "level_zero.loader",
                "warning",
                f"{what}: older than {LOADER}, the oldest that was tried ({LOADER_WHY})",
                packages.install("loader", facts["system"]),
            )
        ]
    return [Finding("level_zero.loader", "ok", what)]


def _did(trial: dict[str, Any]) -> str:
    """``hangs in zeInit (no answer within 10 s)``."""
    where = f" in {trial['step']}" if trial["step"].startswith("ze") else f" {trial['step']}" if trial["step"] else ""
    verb = {"hangs": "hangs", "crashes": "crashes", "failed": "ends the process"}[trial["outcome"]]
    return f"{verb}{where} ({trial['detail']})"


def _driver(trial: dict[str, Any], wanted: bool, facts: AllFacts) -> Finding:
    name = os.path.basename(trial["name"])
    key = f"level_zero.driver.{name}"
    purpose = f" for {DRIVERS[name]}" if name in DRIVERS else ""
    outcome = trial["outcome"]
    if outcome in ("hangs", "crashes", "failed"):
        fix = "update it; to go without it: export ZE_ENABLE_ALT_DRIVERS=libze_intel_gpu.so.1"
        if name in FOR_GPUS:
            fix = f"update it: {packages.install('driver', facts['system'])}; what the kernel says: sudo dmesg | "
            fix += "grep -iE 'i915|xe|dxg'"
        elif trial["name"] in facts["level_zero"]["alternative"]:
            fix = "update it; to go without it: unset ZE_ENABLE_ALT_DRIVERS, which names it"
        return Finding(key, "problem", f"The driver {name}{purpose} {_did(trial)}; the CPU is not affected", fix)
    if outcome == "no-driver-library":
        lacks = missing_library(trial["detail"])
        return Finding(
            key,
            "problem" if wanted else "warning",
            f"The driver {name}{purpose} cannot be loaded: {f'it needs {lacks}' if lacks else trial['detail']}",
            f"install it again with all it needs: {packages.install('driver', facts['system'])}",
        )
    if outcome == "no-driver":
        code = trial["detail"].rsplit(" ", 1)[-1]
        call = trial["detail"].rpartition(" ")[0] or "zeInit"
        return Finding(key, "ok", f"{name}{purpose}: {call} says {_RESULTS.get(code, code)}")
    versions = trial["drivers"]
    listed = [device["name"] for driver in versions for device in driver["devices"]]
    version = versions[0]["version"] if versions else "?"
    api = versions[0]["api"] if versions else ""
    what = f"{name}{purpose}: version {version}, API {api or '?'}, {', '.join(listed) or 'no device'}"
    if api and not at_least(api, LEVEL_ZERO_API):
        return Finding(
            key,
            "warning",
            f"{what}: older than API {LEVEL_ZERO_API}, the oldest that was tried",
            packages.install("driver", facts["system"]),
        )
    return Finding(key, "ok", what)
