"""Environment variables: ours that are set, and what they are set to; those that look like ours and are none."""

from __future__ import annotations

import os
import re

from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Machine
from zefuse.suggestions import closest

# docs/environment.md, in its order (a test compares): what a value has to be. "" takes anything.
OURS = {
    "ZEFUSE_CPU_ISA": "",  # processor.py judges it
    "ZEFUSE_GPU_TARGET": "product",
    "ZEFUSE_OCLOC": "",  # compilers.py
    "ZEFUSE_PTX_COMPILER": "",
    "ZEFUSE_PTXAS": "",
    "ZEFUSE_PACKAGE": "file",
    "ZEFUSE_DUMP": "",
    "ZEFUSE_CACHE_DIR": "",  # cache_folder.py
    "ZEFUSE_CACHE_LIMIT_MB": "number",
    "ZEFUSE_KEPT_MEMORY_MB": "number",
    "ZEFUSE_JIT": "never|warn|allow",
    "ZEFUSE_TARGETS": "targets",
    "ZEFUSE_LIBRARY_DIR": "folder",
    "ZEFUSE_CPU_DRIVER": "file",
    "ZEFUSE_CPU_DRIVER_AS": "cpu|gpu|integrated-gpu|integrated-gpu-usm",
    "ZEFUSE_CPU_DRIVER_GPU_MEMORY_MB": "number",
    "ZEFUSE_CPU_DRIVER_GPU_ID": "id",
    "ZEFUSE_CPU_DRIVER_GPU_FAULT": "",
    "ZEFUSE_CPU_DRIVER_THREADS": "number",
    "ZEFUSE_CPU_DRIVER_LOG": "0|1",
    "ZEFUSE_TRACEBACK": "0|1",
    "ZEFUSE_CUDA_DRIVER_LOG": "0|1",
    "ZEFUSE_CUDA_LIBRARY": "file",
    "ZEFUSE_CUBLASLT": "",  # off, or a file
    "ZEFUSE_CUDNN": "",  # off, or a file
    "ZEFUSE_NVJITLINK": "",  # off, or a file
    "ZEFUSE_SYCL": "file",
    "ZEFUSE_WINOGRAD": "off",
    "ZEFUSE_ZE_TRACE": "0|1",
}
# Without the prefix, so that they count as no variable of the program: those that building reads.
_OF_THE_BUILD = {"TORCH_DIRS", "PREFIX"}
_PREFIX = "ZEFUSE_"
_SLOW = {
    "ZEFUSE_DUMP": "every stage of every kernel is written to files",
    "ZEFUSE_ZE_TRACE": "every Level Zero call is printed",
    "ZEFUSE_CPU_DRIVER_GPU_FAULT": "the CPU posing as a GPU fails on purpose",
}
# Others' that decide what zefuse finds or how fast it is.
_OTHERS = (
    "ZE_ENABLE_ALT_DRIVERS",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_VALIDATION_LAYER",
    "ZE_ENABLE_TRACING_LAYER",
    "NEOReadDebugKeys",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_VERBOSE",
    "ATEN_CPU_CAPABILITY",
    "TORCH_COMPILE_DISABLE",
    "TORCHDYNAMO_DISABLE",
    "LD_PRELOAD",
)
_OFF = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def collect(machine: Machine) -> Facts:
    environment = machine.environment
    found = {name: value for name, value in environment.items() if name.startswith(_PREFIX)}
    ours = {name: value for name, value in found.items() if name in OURS}
    unknown = sorted(name for name in found if name not in OURS and name.removeprefix(_PREFIX) not in _OF_THE_BUILD)
    return {
        "ours": dict(sorted(ours.items())),
        "unknown": {name: closest(name, OURS, cutoff=0.75) for name in unknown},
        "others": {name: environment[name] for name in _OTHERS if name in environment},
        "wrong": {name: why for name, value in sorted(ours.items()) if (why := _wrong(machine, name, value))},
    }


def _wrong(machine: Machine, name: str, value: str) -> str:
    """Why a value is none; what needs the tables of targets is judged later."""
    kind = OURS[name]
    if not value:
        return ""
    if kind == "number":
        return "" if value.isdecimal() and int(value) > 0 else "expected a number"
    if kind == "id":
        return "" if re.fullmatch(r"0x[0-9a-fA-F]{1,4}", value) else "expected a PCI id such as 0x56a5"
    if kind in ("file", "folder"):
        there = machine.exists(value) if os.path.isabs(value) else os.path.exists(value)
        return "" if there else f"no such {kind}"
    if "|" in kind:
        return "" if value in kind.split("|") else f"expected {', '.join(kind.split('|'))}"
    return ""


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["environment"]
    found = []
    wrong = {**mine["wrong"], **_wrong_targets(mine["ours"], facts["build"].get("targets"))}
    for name, value in mine["ours"].items():
        key = f"environment.{name}"
        if name in wrong:
            found.append(Finding(key, "problem", f"{name}={value}: {wrong[name]}", f"unset {name}"))
        elif name in _SLOW and value not in ("", "0"):
            found.append(Finding(key, "warning", f"{name}={value}: {_SLOW[name]}", f"unset {name}"))
        else:
            found.append(Finding(key, "note", f"{name}={value}"))
    for name, close in mine["unknown"].items():
        text = f"{name} is no variable of zefuse's" + (f"; did you mean {close}?" if close else "")
        found.append(Finding(f"environment.{name}", "warning", text, "docs/environment.md lists them"))
    for name, value in mine["others"].items():
        if name in _OFF and value == "1":
            text = f"{name}=1: torch.compile does nothing, with any back end"
            found.append(Finding(f"environment.{name}", "warning", text, f"unset {name}"))
        else:
            found.append(Finding(f"environment.{name}", "note", f"{name}={value}"))
    return found or [Finding("environment.none", "ok", "No variable of zefuse's is set")]


def _wrong_targets(ours: dict[str, str], targets: Facts | None) -> dict[str, str]:
    if not targets:
        return {}
    gpus = {name for row in targets["gpu"] for name in (row["name"], row["alias"]) if name}
    levels = {name for row in targets["cpu"] for name in (row["name"], row["alias"]) if name} | {"cpu", "host"}
    ids = {f"0x{one:04x}" for row in targets["gpu"] for one in row["device_ids"]}
    found = {}
    if (given := ours.get("ZEFUSE_GPU_TARGET")) and given not in gpus:
        found["ZEFUSE_GPU_TARGET"] = _no_such(given, gpus)
    for name in (part.strip() for part in ours.get("ZEFUSE_TARGETS", "").split(",")):
        if name and name.lower() not in gpus | levels | ids:
            found["ZEFUSE_TARGETS"] = _no_such(name, gpus | levels)
    return found


def _no_such(name: str, known: set[str]) -> str:
    close = closest(name, sorted(known))
    hint = f"; did you mean {close}?" if close else ""
    return f"no target {name}{hint} (zefuse targets lists them)"
