"""Targets: the devices that kernels are compiled for ahead of need, by the names of common/toolchain/targets.h."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from zefuse import reports
from zefuse.errors import NotFoundError
from zefuse.suggestions import closest

# What "cpu" stands for: together they run on every x86-64 processor that zefuse supports, and what a package holds does
# not depend on the machine that made it.
CPU = ("avx2", "avx512")

INTEL, NVIDIA = 0x8086, 0x10DE  # PCI


def table() -> dict[str, list[dict[str, Any]]]:
    """``{"cpu": [...], "gpu": [...]}``: each target's properties as the compiler knows them; needs no device."""
    rows: dict[str, list[dict[str, Any]]] = reports.ask("targets")
    return rows


def resolve(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names as users write them to (levels of x86-64, GPU products), lowest level first, without repeats. ``"cpu"``:
    ``avx2`` and ``avx512``; ``"host"``: this machine's level; ``"0x56a5"``: the GPU with this PCI id. Raises
    NotFoundError for a name in no table."""
    rows = table()
    known = {"cpu": list(CPU), "host": [row["name"] for row in rows["cpu"] if row["host"]]}
    for row in rows["cpu"] + rows["gpu"]:
        for name in (row["name"], row["alias"]):
            if name:
                known[name] = [row["name"]]
    known |= {f"0x{one:04x}": [row["name"]] for row in rows["gpu"] for one in row["device_ids"]}
    wanted: set[str] = set()
    for name in names:
        if name.lower() not in known:
            close = "" if name.lower().startswith("0x") else closest(name, known)
            hint = f"; did you mean {close!r}?" if close else ";"
            raise NotFoundError(f"target {name!r}: no such target{hint} `zefuse targets` lists them")
        wanted.update(known[name.lower()])
    return (
        [row["name"] for row in rows["cpu"] if row["name"] in wanted],
        [row["name"] for row in rows["gpu"] if row["name"] in wanted],
    )


def compilers() -> list[dict[str, Any]]:
    """Intel's offline compilers here: ``command``, ``version``, ``products`` (of the table, that it compiles for). Empty
    without one; asking takes milliseconds."""
    found: list[dict[str, Any]] = reports.ask("compilers")
    return found


def devices() -> list[dict[str, Any]]:
    """This machine's devices: ``device`` (what ``options={"device": ...}`` takes), ``name``, ``target`` (of the table, or
    None), ``vendor_id`` and ``device_id`` (PCI), ``memory_bytes``, ``integrated``, ``queues``, ``units``, ``matrix`` (elements
    of one instruction, or None), ``covered`` (what compiles for it ahead of need), ``advice`` (what to do where nothing
    does, else empty). The CPU is always among them, and a driver that finds no device is no error."""
    found: list[dict[str, Any]] = reports.ask("devices")
    installed = compilers() if any(device["kind"] == "gpu" for device in found) else []
    for device in found:
        covering = [c for c in installed if device["target"] in c["products"]] if device["kind"] == "gpu" else []
        built_in = ["the built-in compiler"] if device.pop("built_in") else []
        device["covered"] = built_in or [f"{c['command']} {c['version']}" for c in covering]
        advice = device.pop("advice_on_compilers")
        device["advice"] = "" if device["covered"] else _advice(device, advice)
    return found


def _advice(device: dict[str, Any], compiler: str | None) -> str:
    if device["target"] is None:
        return (
            f"{device['name']} (id 0x{device['device_id']:04x}) is no GPU that this zefuse knows: use a newer zefuse, "
            'or options={"device": "cpu"}'
        )
    return (
        f"no compiler here makes code for {device['target']}: {compiler or 'it has none'}, or make a package elsewhere with "
        f"--targets {device['target']}, "
        'or use options={"device": "cpu"}'
    )


def jit_progress(consent: str, device: str, kernel: str, number: int, count: int) -> None:
    """Told before a GPU's driver compiles a kernel, in a child process: a line on standard error, and for ``jit="warn"`` a
    warning before the first."""
    import sys
    import warnings

    if consent == "warn" and number == 1:
        warnings.warn(
            f"zefuse: no installed compiler covers {device}: its driver compiles {count} kernels, which may take minutes "
            "(`zefuse toolchain install` gets a compiler; jit='allow' hides this)",
            stacklevel=2,
        )
    print(f"zefuse: the driver of {device} compiles kernel {number} of {count}: {kernel}", file=sys.stderr, flush=True)


def describe(device: dict[str, Any]) -> str:
    """A device in a few lines."""
    memory = f"{device['memory_bytes'] / 2**30:.1f} GiB{' shared with the host' if device['integrated'] else ''}"
    matrix = "x".join(map(str, device["matrix"])) if device["matrix"] else "none"
    ident = f", id 0x{device['device_id']:04x}" if device["kind"] == "gpu" else ""
    covered = ", ".join(device["covered"]) or f"nothing; {device['advice']}"
    return (
        f"{device['device']}: {device['name']}{ident}, target {device['target'] or 'unknown'}\n"
        f"  {device['units']} units, memory {memory}, queues {device['queues']}, matrix engines {matrix}\n"
        f"  compiled for by: {covered}"
    )


def markdown() -> str:
    """docs/targets.md: the tables as this version has them, whatever the machine."""
    rows = table()
    lines = [
        "# Targets",
        "",
        "Generated from `common/toolchain/targets.cpp` (`python -m zefuse targets --markdown > docs/targets.md`; a test compares). What is",
        "installed and present on a machine, `zefuse targets` and `zefuse devices` say.",
        "",
        "## x86-64",
        "",
        "Each level runs the code of those above it. `cpu` stands for `avx2` and `avx512`, `host` for this machine's level.",
        "",
        "| target | also | needs |",
        "|---|---|---|",
    ]
    lines += [f"| `{row['name']}` | {_code(row['alias'])} | {row['needs']} |" for row in rows["cpu"]]
    lines += [
        "",
        "## Intel GPUs",
        "",
        "`matrix`: rows, columns and depth of one matrix instruction on 16-bit elements. `ocloc`: versions seen to compile for it.",
        "",
        "| target | also | family | for example | memory | engines x threads | sub-groups | f64 | matrix | ocloc | PCI ids (8086:) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in _of_vendor(rows, INTEL):
        matrix = "x".join(map(str, row["matrix"])) if row["matrix"] else ""
        lines.append(
            f"| `{row['name']}` | {_code(row['alias'])} | {row['family']} | {row['marketing']} "
            f"| {'shared' if row['integrated'] else 'own'} | {row['engines']} x {row['threads_per_engine']} "
            f"| {', '.join(map(str, row['subgroup_sizes']))} | {'yes' if row['f64'] else ''} | {matrix} "
            f"| {', '.join(row['compilers'])} | {' '.join(f'{one:04x}' for one in row['device_ids'])} |"
        )
    lines += [
        "",
        "## NVIDIA GPUs",
        "",
        "By compute capability, through the [driver over CUDA](cuda_driver.md). `ptxas`: versions seen to take our PTX.",
        "",
        "| target | family | for example | multiprocessors x warps | sub-groups | f64 | local memory | ptxas |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row['name']}` | {row['family']} | {row['marketing']} | {row['engines']} x {row['threads_per_engine']} "
        f"| {', '.join(map(str, row['subgroup_sizes']))} | {'yes' if row['f64'] else ''} | {row['local_memory_kib']} KiB "
        f"| {', '.join(row['compilers'])} |"
        for row in _of_vendor(rows, NVIDIA)
    ]
    return "\n".join(lines) + "\n"


def _of_vendor(rows: dict[str, Any], vendor: int) -> list[dict[str, Any]]:
    return [row for row in rows["gpu"] if row["vendor_id"] == vendor]


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


def here() -> str:
    """What can be compiled for, with what this machine has for it."""
    rows = table()
    installed = compilers()
    present = {device["target"] for device in devices()}
    lines = ["x86-64 (compiler built in)"]
    for row in rows["cpu"]:
        mark = "this machine" if row["host"] else "runs here" if row["runs"] else ""
        lines.append(f"  {row['name']:12} {row['alias']:10} {row['needs']:40} {mark}".rstrip())
    names = ", ".join(f"{c['command']} {c['version']}" for c in installed) or "none installed"
    lines.append(f"Intel and NVIDIA GPUs (compilers: {names})")
    for row in rows["gpu"]:
        covering = [c["version"] for c in installed if row["name"] in c["products"]]
        how = f"compiled for by {', '.join(covering)}" if covering else "no compiler here"
        there = "; present" if row["name"] in present else ""
        matrix = f"matrix engines {'x'.join(map(str, row['matrix']))}" if row["matrix"] else "no matrix engines"
        memory = "shared memory" if row["integrated"] else "own memory"
        lines.append(
            f"  {row['name']:8} {row['alias']:8} {row['family']:8} {row['marketing']:27} {memory}, {matrix}; {how}{there}"
        )
        ids = " ".join(f"0x{one:04x}" for one in row["device_ids"])
        lines += textwrap.wrap(ids, 116, initial_indent="    ids ", subsequent_indent="        ")
    return "\n".join(lines)
