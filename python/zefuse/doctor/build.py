"""Python, torch and zefuse's own build: what `probe.py` finds in its child, and the files that should be there."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

from zefuse.doctor import probe
from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Ended, Machine
from zefuse.doctor.minimum import PYTHON, at_least
from zefuse.installing import torch_versions

SECONDS = 60.0  # until a hanging import is given up: torch with CUDA on a cold disk takes 20
REINSTALL = "pip install --force-reinstall zefuse"
# In the order in which they are loaded: each alone, so that the first that fails is the one to blame.
LIBRARIES = ("libzefuse_core.so.1", "libze_zefuse_cpu.so.1", "libzefuse_runtime.so.1")
COMPILER = "libzefuse_cpu_compiler.so.1"  # a library of its own in a checkout, part of the core in a wheel
PROGRAMS = ("zefuse-try-loader", "zefuse-jit", "zefuse-ptx", "zefuse-spirv-emitter")
HELPER = "zefuse-try-loader"


def library_dir(machine: Machine) -> Path:
    return Path(machine.environment.get("ZEFUSE_LIBRARY_DIR") or machine.package / "lib")


def files(machine: Machine) -> Facts:
    """What is on the disk; quick, and starts nothing."""
    folder = library_dir(machine)
    record = _record(machine.package)
    missing, damaged = [], []
    for name, size in record.items():
        file = machine.package.parent / name
        try:
            there = file.stat().st_size
        except OSError:
            missing.append(name)
            continue
        if size is not None and there != size:
            damaged.append(name)
    if not any(name.startswith("zefuse/lib/") for name in record):  # a checkout
        expected = [*LIBRARIES, *PROGRAMS]
        if not machine.environment.get("ZEFUSE_LIBRARY_DIR"):
            expected.append(COMPILER)
        missing += [str(folder / name) for name in expected if not (folder / name).exists()]
    try:
        pieces = torch_versions.compiled_for(folder)
    except (OSError, ValueError):
        pieces = []
    return {
        "folder": str(folder),
        "wheel": bool(record),
        "missing": missing,
        "damaged": damaged,
        "compiled_for": pieces,
        "present": sorted(name for name in (*LIBRARIES, COMPILER, *PROGRAMS) if (folder / name).exists()),
    }


def _record(package: Path) -> dict[str, int | None]:
    """The files of an installed wheel with their sizes, which pip wrote down; empty in a checkout. Compiled Python is no
    part of it."""
    found: dict[str, int | None] = {}
    for record in package.parent.glob("zefuse-*.dist-info/RECORD"):
        try:
            rows = list(csv.reader(record.read_text().splitlines()))
        except OSError:
            continue
        for row in rows:
            if row and row[0].startswith("zefuse/") and not row[0].endswith(".pyc"):
                found[row[0]] = int(row[2]) if len(row) > 2 and row[2].isdecimal() else None
    return found


def examine(machine: Machine, seconds: float = SECONDS) -> dict[str, Any]:
    """Loads everything in a child; see `parse`."""
    folder = library_dir(machine)
    libraries = [name for name in (*LIBRARIES, COMPILER) if (folder / name).exists()]
    python = machine.python()[2]
    if not python:
        return parse(Ended(error="this Python does not say where its program is", code=None, started=False))
    paths = [str(machine.package.parent), *filter(None, [machine.environment.get("PYTHONPATH", "")])]
    more = {
        "PYTHONPATH": os.pathsep.join(paths),
        # GPUs are the trials' business: here a driver that hangs would only hide what comes after it.
        "ZE_ENABLE_ALT_DRIVERS": "/nonexistent/no-driver",
        "PYTHONFAULTHANDLER": "",
    }
    return parse(machine.run([python, "-P", "-c", probe.PROGRAM, str(folder), *libraries], seconds, more))


def parse(ended: Ended) -> dict[str, Any]:
    """The child's lines put together; ``ended`` where it did not come to its end, and ``step`` what it was at."""
    found: dict[str, Any] = {"loaded": [], "not_loaded": [], "step": None, "ended": ""}
    for line in ended.output.splitlines():
        if not line.startswith(probe.PREFIX):
            continue
        try:
            said = json.loads(line.removeprefix(probe.PREFIX))
        except ValueError:
            continue
        for key, value in said.items():
            if key in ("loaded", "not_loaded"):
                found[key].append(value)
            else:
                found[key] = value
    if ended.code != 0:
        printed = ended.error.strip().splitlines()
        found["ended"] = ended.how() + (f": {printed[-1][:300]}" if printed and ended.code is not None else "")
    return found


def facts_of(machine: Machine, there: Facts, found: dict[str, Any]) -> tuple[Facts, Facts]:
    """The facts ``torch`` and ``build``."""
    implementation, version, program = machine.python()
    devices = found.get("devices") or []
    torch = {
        "python": version,
        "implementation": implementation,
        "program": program,
        **(found.get("torch") or {}),
        "error": found.get("torch_error", ""),
        "ended": found["ended"] if found["step"] in (None, "importing torch") else "",
        "tested": list(torch_versions.TESTED),
    }
    build = {
        **there,
        "loaded": found["loaded"],
        "not_loaded": found["not_loaded"],
        "native": found.get("native"),
        "native_error": found.get("native_error", ""),
        "backends": found.get("backends"),
        "failed": found.get("failed"),
        "step": found["step"] or "",
        "ended": found["ended"] if found["step"] not in (None, "importing torch") else "",
        "targets": found.get("targets"),
        "compilers": found.get("compilers") or [],
        "cpu_device": next((device for device in devices if device["kind"] == "cpu"), None),
        "gpus": [_gpu(device) for device in devices if device["kind"] == "gpu"],
    }
    return torch, build


def _gpu(device: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "gpu",
        "vendor": f"{device['vendor_id']:04x}",
        "id": f"{device['device_id']:04x}",
        "memory_bytes": device["memory_bytes"],
        "integrated": device["integrated"],
        "name": device["name"],
        "ours": device["vendor_id"] == 0x7A66,
    }


def judge_torch(facts: AllFacts) -> list[Finding]:
    mine, build = facts["torch"], facts["build"]
    found = []
    what = f"{mine['implementation']} {mine['python']}, {mine['program'] or 'an embedded one'}"
    if mine["implementation"] != "CPython" or not at_least(mine["python"], PYTHON):
        found.append(
            Finding(
                "torch.python",
                "problem",
                f"{what}: zefuse needs CPython {PYTHON} or newer",
                f"python{PYTHON} -m venv env && env/bin/pip install zefuse",
            )
        )
    else:
        found.append(Finding("torch.python", "ok", what))
    served = build["compiled_for"]
    newest = served[-1] if served else torch_versions.TESTED[-1]
    install = f"pip install 'torch=={newest}.*'"
    if mine["error"]:
        missing = "No module named 'torch'" in mine["error"]
        text = "torch is not installed" if missing else f"torch is installed and cannot be imported: {mine['error']}"
        found.append(Finding("torch.version", "problem", text, install if missing else f"{install} --force-reinstall"))
    elif mine["ended"]:
        found.append(
            Finding(
                "torch.version",
                "problem",
                f"Importing torch ended a process: {mine['ended']}",
                f"python -X faulthandler -c 'import torch' shows where; {install} --force-reinstall",
            )
        )
    elif "version" in mine:
        found.append(_torch_version(mine, served, install))
    return found


def _torch_version(mine: Facts, served: list[str], install: str) -> Finding:
    version = mine["version"]
    what = f"torch {version}" + (f" with CUDA {mine['cuda']} (zefuse runs on its CPU side)" if mine["cuda"] else "")
    minor = torch_versions.minor(version)
    if served and minor not in served:
        return Finding(
            "torch.version",
            "problem",
            f"{what}: this zefuse was compiled for {' and '.join(served)}",
            f"{install}, or install zefuse for your torch",
        )
    if minor not in torch_versions.TESTED:
        return Finding(
            "torch.version",
            "warning",
            f"{what}: zefuse was not tested with it (tested: {', '.join(torch_versions.TESTED)})",
            f"pip install 'torch=={torch_versions.TESTED[-1]}.*', or zefuse selftest",
        )
    return Finding("torch.version", "ok", f"{what}, tested with this zefuse")


def judge(facts: AllFacts) -> list[Finding]:
    from zefuse import __version__

    mine = facts["build"]
    again = REINSTALL if mine["wheel"] else "make build"
    found = []
    if mine["missing"]:
        found.append(
            Finding(
                "build.files",
                "problem",
                f"zefuse is half-installed: {_some(mine['missing'])} {'is' if len(mine['missing']) == 1 else 'are'} missing",
                again,
            )
        )
    if mine["damaged"]:
        found.append(
            Finding(
                "build.sizes",
                "problem",
                f"{_some(mine['damaged'])} {'has' if len(mine['damaged']) == 1 else 'have'} another size than the wheel's",
                again,
            )
        )
    for one in mine["not_loaded"]:
        found.append(
            Finding(
                f"build.library.{one['name']}",
                "problem",
                f"{one['name']} cannot be loaded: {_reason(one['why'])}",
                again,
            )
        )
    if mine["ended"]:
        text = f"A process ended {mine['step'] or 'at its end'}: {mine['ended']}"
        fix = again
        if mine["ended"].startswith("SIGILL"):
            text += "; the code is for another processor than this one"
            fix = f"install a build for this processor, or: export ZEFUSE_CPU_ISA=avx2; {again}"
        found.append(Finding("build.crash", "problem", text, fix))
    if mine["native_error"] and not mine["missing"] and "version" in facts["torch"]:
        found.append(
            Finding("build.native", "problem", f"zefuse._C cannot be loaded: {_reason(mine['native_error'])}", again)
        )
    if mine["backends"] == []:
        found.append(
            Finding(
                "build.backend",
                "problem",
                'torch.compile(backend="zefuse") does not find zefuse: its files are on Python\'s path, but it is not installed',
                REINSTALL if mine["wheel"] else "make setup, in the checkout; elsewhere: pip install a wheel",
            )
        )
    if mine["failed"]:
        found.append(
            Finding(
                "build.answers",
                "problem",
                f"zefuse._C does not say its {mine['failed']['name']}: {mine['failed']['why']}",
                again,
            )
        )
    if mine["native"] and mine["cpu_device"] is None and not mine["ended"] and not mine["failed"]:
        found.append(
            Finding(
                "build.cpu_driver",
                "problem",
                "zefuse's CPU driver lists no device: it does not load, or is another one (ZEFUSE_CPU_DRIVER)",
                f"unset ZEFUSE_CPU_DRIVER; {again}",
            )
        )
    kind = "wheel" if mine["wheel"] else "checkout"
    what = f"zefuse {__version__} ({kind}), for torch {', '.join(mine['compiled_for']) or 'none'}, in {mine['folder']}"
    if not found:
        loads = f"; {len(mine['loaded'])} libraries load" if mine["loaded"] else ""
        found.append(Finding("build.parts", "ok", what + loads))
    else:
        found.insert(0, Finding("build.parts", "note", what))
    return found


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _reason(text: str) -> str:
    """Without the name of Python's class."""
    return re.sub(r"^\w+(?:Error|Exception|Warning): ", "", text)
