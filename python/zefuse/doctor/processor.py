"""The processor's level and what it costs, memory, threads."""

from __future__ import annotations

import math
import re

from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Machine

# The levels of common/toolchain/targets.cpp, lowest first, by the flags of /proc/cpuinfo: doctor also speaks where the
# library with the table does not load.
LEVELS = {
    "avx2": ("avx2", "fma", "bmi2", "f16c"),
    "avx512": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "avx512_bf16": ("avx512_bf16", "avx512_vnni"),
    "amx": ("amx_tile", "amx_bf16", "amx_int8"),
}
ALIASES = {"x86-64-v3": "avx2", "x86-64-v4": "avx512"}
# What the processor has -> what a lower one costs (figures: docs/cpu_codegen.md, docs/matmul.md).
_COSTS = {
    "avx2": "without AVX-512, exp or tanh on data in the cache takes up to twice the time, and bf16 is widened to f32",
    "avx512": "without bf16 instructions, bf16 is widened to f32: it saves memory, not time",
    "avx512_bf16": "without AMX, large products and convolutions of bf16 and int8 are slower than they could be",
    "amx": "",
}
_GB = 1 << 30


def level_of(flags: set[str]) -> str:
    """The highest level that all flags are there for; empty below AVX2."""
    found = ""
    for level, needed in LEVELS.items():
        if not flags.issuperset(needed):
            break
        found = level
    return found


def collect(machine: Machine) -> Facts:
    cpuinfo = machine.read("/proc/cpuinfo") or ""
    flags = set((re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE) or ["", ""])[1].split())
    name = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    usable = machine.affinity()
    quota = _quota(machine)
    meminfo = dict(re.findall(r"^(\w+):\s+(\d+) kB$", machine.read("/proc/meminfo") or "", re.MULTILINE))
    return {
        "name": name[1] if name else "",
        "level": level_of(flags),
        "flags_known": bool(flags),
        "allowed_level": machine.environment.get("ZEFUSE_CPU_ISA", ""),
        "onednn_level": machine.environment.get("ONEDNN_MAX_CPU_ISA")
        or machine.environment.get("DNNL_MAX_CPU_ISA", ""),
        "processors": len(usable),
        "all_processors": _online(machine) or len(usable),
        "cores": _cores(machine, usable),
        "quota": quota,
        "omp_num_threads": machine.environment.get("OMP_NUM_THREADS", ""),
        "memory_bytes": int(meminfo.get("MemTotal", 0)) * 1024,
        "available_bytes": int(meminfo.get("MemAvailable", 0)) * 1024,
        "memory_limit_bytes": _memory_limit(machine),
    }


def _online(machine: Machine) -> int:
    """``0-3,6`` is five."""
    total = 0
    for part in (machine.read("/sys/devices/system/cpu/online") or "").strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            total += int(last or first) - int(first) + 1
    return total


def _cores(machine: Machine, processors: list[int]) -> int:
    siblings = {
        machine.read(f"/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list") or str(one)
        for one in processors
    }
    return len(siblings)


def _groups(machine: Machine) -> dict[str, str]:
    """Controller -> path of this process' cgroup; the second version's is under ``""``."""
    found = {}
    for line in (machine.read("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def _ancestors(base: str, path: str) -> list[str]:
    """The folders of a group and of those around it; inside a container the path is often of the host, and only the base is
    there."""
    parts = [part for part in path.split("/") if part]
    return [base + "".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def _quota(machine: Machine) -> float | None:
    """Processors' worth of time that the control groups allow; None: all."""
    groups, found = _groups(machine), []
    for folder in _ancestors("/sys/fs/cgroup", groups.get("", "")):
        words = (machine.read(f"{folder}/cpu.max") or "").split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal():
            found.append(int(words[0]) / int(words[1]))
    for folder in _ancestors("/sys/fs/cgroup/cpu", groups.get("cpu", "")):
        quota = (machine.read(f"{folder}/cpu.cfs_quota_us") or "").strip()
        period = (machine.read(f"{folder}/cpu.cfs_period_us") or "").strip()
        if quota.isdecimal() and period.isdecimal() and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found, default=None)


def _memory_limit(machine: Machine) -> int | None:
    groups, found = _groups(machine), []
    for folder in _ancestors("/sys/fs/cgroup", groups.get("", "")):
        found.append(machine.read(f"{folder}/memory.max") or "")
    for folder in _ancestors("/sys/fs/cgroup/memory", groups.get("memory", "")):
        found.append(machine.read(f"{folder}/memory.limit_in_bytes") or "")
    limits = [int(text) for text in found if text.strip().isdecimal()]
    return min((limit for limit in limits if limit < 1 << 60), default=None)


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["processor"]
    return [*_level(mine), *_memory(mine), *_threads(mine, facts["torch"].get("threads"))]


def _level(mine: Facts) -> list[Finding]:
    name = mine["name"] or "this processor"
    if not mine["level"]:
        if not mine["flags_known"]:
            return [Finding("processor.level", "warning", "What this processor has is not known: no /proc/cpuinfo")]
        return [
            Finding(
                "processor.level",
                "problem",
                f"{name} has no AVX2 (with FMA, BMI2, F16C), which zefuse's code needs",
                "use a processor of 2013 or later; in a virtual machine, pass the host's processor through (-cpu host)",
            )
        ]
    names = list(LEVELS)
    best = mine["level"]
    found = []
    cost = _COSTS[best]
    what = f"{name}: level {best}" + (f"; {cost}" if cost else ", the highest that zefuse has")
    found.append(Finding("processor.level", "ok", what))
    if given := mine["allowed_level"]:
        wanted = ALIASES.get(given, given)
        if wanted not in LEVELS:
            found.append(
                Finding(
                    "processor.allowed_level",
                    "warning",
                    f"ZEFUSE_CPU_ISA={given} is ignored: it is none of {', '.join(LEVELS)}",
                    "unset ZEFUSE_CPU_ISA",
                )
            )
        elif names.index(wanted) < names.index(best):
            found.append(
                Finding(
                    "processor.allowed_level",
                    "warning",
                    f"ZEFUSE_CPU_ISA={given} holds kernels back from {best}: {_COSTS[wanted]}",
                    "unset ZEFUSE_CPU_ISA",
                )
            )
        elif names.index(wanted) > names.index(best):
            found.append(
                Finding(
                    "processor.allowed_level",
                    "note",
                    f"ZEFUSE_CPU_ISA={given} asks for more than this processor has: code is made for {best}",
                )
            )
    if mine["onednn_level"]:
        found.append(
            Finding(
                "processor.onednn_level",
                "note",
                f"ONEDNN_MAX_CPU_ISA={mine['onednn_level']} limits matrix products and convolutions, not kernels",
                "unset ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA",
            )
        )
    return found


def _memory(mine: Facts) -> list[Finding]:
    total, available, limit = mine["memory_bytes"], mine["available_bytes"], mine["memory_limit_bytes"]
    if not total:
        return []
    what = f"Memory: {total / _GB:.1f} GiB, {available / _GB:.1f} GiB available"
    if limit is not None and limit < total:
        what += f", limited to {limit / _GB:.1f} GiB by the control group"
        available = min(available, limit)
    if available < 1.5 * _GB:
        return [
            Finding(
                "processor.memory",
                "warning",
                f"{what}: importing torch and compiling a small model takes about 1 GiB",
                "end other programs, or give the container more memory",
            )
        ]
    return [Finding("processor.memory", "ok", what)]


def usable(mine: Facts) -> int:
    """How many threads have a processor each."""
    quota = mine["quota"]
    return int(min(mine["processors"], max(1, math.ceil(quota)) if quota else mine["processors"]))


def _threads(mine: Facts, torch_threads: int | None) -> list[Finding]:
    given = mine["omp_num_threads"]
    first = given.split(",")[0].strip()
    threads = torch_threads or (int(first) if first.isdecimal() and int(first) else mine["processors"])
    have, can = mine["processors"], usable(mine)
    what = f"{_count(threads, 'thread')} on {_count(have, 'processor')}"
    what += f" ({_count(mine['cores'], 'core')})" if mine["cores"] != have else ""
    if have < mine["all_processors"]:
        what += f" of {mine['all_processors']}, by affinity"
    if mine["quota"] is not None and mine["quota"] < have:
        what += f", time for {mine['quota']:.3g} by the control group"
    if given and not first.isdecimal():
        return [
            Finding(
                "processor.threads",
                "warning",
                f"OMP_NUM_THREADS={given} is no number, and libgomp ignores it: {what}",
                f"export OMP_NUM_THREADS={can}",
            )
        ]
    if threads > can:
        return [
            Finding(
                "processor.threads",
                "warning",
                f"{what}: more threads than processors, so that each launch waits for those that have none (8 ms and more)",
                f"export OMP_NUM_THREADS={can}",
            )
        ]
    if threads < can and given:
        return [
            Finding(
                "processor.threads",
                "note",
                f"{what}: OMP_NUM_THREADS={given} leaves {can - threads} unused",
                "unset OMP_NUM_THREADS, or let torch.set_num_threads decide",
            )
        ]
    return [Finding("processor.threads", "ok", what)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
