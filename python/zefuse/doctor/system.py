"""The operating system: distribution, kernel, C library, WSL, container."""

from __future__ import annotations

import re
import shlex

from zefuse.doctor.finding import AllFacts, Facts, Finding
from zefuse.doctor.machine import Machine
from zefuse.doctor.minimum import GLIBC, GLIBC_WHY, at_least


def collect(machine: Machine) -> Facts:
    release = _release(machine.read("/etc/os-release") or machine.read("/usr/lib/os-release") or "")
    kernel = machine.kernel()
    return {
        "id": release.get("ID", ""),
        "like": release.get("ID_LIKE", "").split(),
        "version": release.get("VERSION_ID", ""),
        "name": release.get("PRETTY_NAME") or release.get("NAME") or "an unknown distribution",
        "kernel": kernel,
        "architecture": machine.machine_name(),
        "libc": machine.libc(),
        "wsl": _wsl(kernel, machine.read("/proc/version") or ""),
        "container": _container(machine),
        "user": machine.user().name,
        "home": bool(machine.home()),
    }


def _release(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            try:
                found[name.strip()] = " ".join(shlex.split(value))
            except ValueError:
                found[name.strip()] = value.strip('"')
    return found


def _wsl(kernel: str, version: str) -> int:
    """0: none; 1 translates Linux's calls, 2 runs a kernel of its own."""
    if re.search(r"microsoft", kernel + version, re.IGNORECASE) is None:
        return 0
    return 1 if kernel.endswith("-Microsoft") else 2


def _container(machine: Machine) -> str:
    """What kind, as far as it tells; empty outside of one."""
    if machine.exists("/run/.containerenv"):
        return "podman"
    if machine.environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if machine.exists("/.dockerenv"):
        return "docker"
    if machine.exists("/.singularity.d"):
        return "apptainer"
    if named := machine.environment.get("container"):
        return named
    groups = machine.read("/proc/1/cgroup") or ""
    found = re.search(r"docker|kubepods|lxc|containerd|libpod", groups)
    return {"libpod": "podman", "kubepods": "kubernetes"}.get(found[0], found[0]) if found else ""


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["system"]
    found = []
    what = f"{mine['name']}, Linux {mine['kernel']}, {mine['architecture']}"
    if mine["libc"]:
        what += f", {mine['libc']}"
    if mine["architecture"] not in ("x86_64", "AMD64"):
        found.append(
            Finding("system.architecture", "problem", f"{what}: zefuse runs on x86-64 alone", "use an x86-64 machine")
        )
    elif not mine["libc"].startswith("glibc"):
        found.append(
            Finding(
                "system.libc",
                "problem",
                f"{what}: its C library is not glibc, which zefuse (and torch) need",
                "use a distribution with glibc, such as Debian, Ubuntu or Fedora",
            )
        )
    elif not at_least(mine["libc"].split()[-1], GLIBC):
        found.append(
            Finding(
                "system.libc",
                "warning",
                f"{what}: zefuse's wheels need glibc {GLIBC} ({GLIBC_WHY})",
                "use a newer distribution, or build zefuse here (docs/install.md, From source)",
            )
        )
    else:
        found.append(Finding("system.distribution", "ok", what))
    if mine["wsl"] == 1:
        found.append(
            Finding(
                "system.wsl",
                "problem",
                "WSL1 has no Linux kernel: no GPU is reached from it, and zefuse was never tried there",
                f"in Windows: wsl --set-version {mine['id'].capitalize() or 'NAME'} 2",
            )
        )
    elif mine["wsl"] == 2:
        found.append(Finding("system.wsl", "ok", "WSL2: GPUs are reached through Windows' driver and /dev/dxg"))
    if mine["container"]:
        found.append(
            Finding(
                "system.container",
                "note",
                f"In a container ({mine['container']}): devices, groups, memory and processors are what it was given",
            )
        )
    return found
