"""Devices: what PCI lists, the kernel's nodes and who may use them, what Level Zero makes of them, and whether there is
native code for each. `why_no_gpu` is what ``zefuse devices`` says as well.
"""

from __future__ import annotations

import stat
from typing import Any

from zefuse.doctor import level_zero, packages
from zefuse.doctor.finding import AllFacts, Facts, Finding, Level
from zefuse.doctor.machine import Machine
from zefuse.doctor.minimum import KERNEL, at_least

_PCI = "/sys/bus/pci/devices"
NVIDIA = "10de"
_VENDORS = {"8086": "Intel", "10de": "NVIDIA", "1002": "AMD"}


def collect(machine: Machine) -> Facts:
    gpus = _gpus(machine)
    nvidia = machine.read("/proc/driver/nvidia/version") or ""
    return {
        "gpus": gpus,
        "intel_gpus": [gpu for gpu in gpus if gpu["vendor"] == "8086"],
        "pci": bool(machine.names(_PCI)),
        "nodes": _nodes(machine),
        "dri": machine.exists("/dev/dri"),
        "dxg": machine.exists("/dev/dxg"),
        "dxg_libraries": machine.exists("/usr/lib/wsl/lib/libdxcore.so"),
        "nvidia": next((word for word in nvidia.split() if word.replace(".", "").isdigit() and "." in word), ""),
        "nvidia_node": machine.exists("/dev/nvidiactl"),
        "user": machine.user().name,
    }


def _gpus(machine: Machine) -> list[dict[str, str]]:
    """Display controllers, as PCI lists them."""
    found = []
    for slot in machine.names(_PCI):
        kind, vendor, device = (
            (machine.read(f"{_PCI}/{slot}/{name}") or "").strip().removeprefix("0x")
            for name in ("class", "vendor", "device")
        )
        if kind.startswith("03"):
            driver = machine.link(f"{_PCI}/{slot}/driver")
            found.append({"slot": slot, "vendor": vendor, "id": device, "driver": driver})
    return found


def _nodes(machine: Machine) -> list[dict[str, Any]]:
    """The kernel's nodes through which programs compute, and whether this user may open them."""
    user = machine.user()
    paths = [f"/dev/dri/{name}" for name in machine.names("/dev/dri") if name.startswith("renderD")]
    found = []
    for path in [*paths, "/dev/dxg"]:
        if (status := machine.status(path)) is None:
            continue
        wanted = stat.S_IROTH | stat.S_IWOTH
        if user.uid == status.uid:
            wanted = stat.S_IRUSR | stat.S_IWUSR
        elif status.gid in user.groups:
            wanted = stat.S_IRGRP | stat.S_IWGRP
        found.append(
            {
                "path": path,
                "mode": stat.S_IMODE(status.mode),
                "gid": status.gid,
                "group": machine.group_name(status.gid),
                "allowed": user.uid == 0 or status.mode & wanted == wanted,
            }
        )
    return found


def judge(facts: AllFacts) -> list[Finding]:
    mine = facts["devices"]
    found = []
    if cpu := facts["build"].get("cpu_device"):
        found.append(Finding("devices.cpu", "ok", f"cpu: {cpu['name']}, code for {cpu['target']}"))
    usable = gpus(facts)
    found += [_device(number, device, facts) for number, device in enumerate(usable)]
    if not usable:
        found.append(_without_repeating(why_no_gpu(facts), facts))
    else:
        found += _other_intel(facts, usable)
    nvidia = mine["nvidia"] or mine["nvidia_node"] or any(gpu["vendor"] == NVIDIA for gpu in mine["gpus"])
    if nvidia and not any(device["vendor"] == NVIDIA for device in usable):
        version = f" (driver {mine['nvidia']})" if mine["nvidia"] else ""
        found.append(
            Finding(
                "devices.nvidia",
                "note",
                f"An NVIDIA GPU is here{version} that zefuse's driver over CUDA does not take; the CPU is used",
                "what is missing (compute capability 8.0 and CUDA 12.0 are the least): ZEFUSE_CUDA_DRIVER_LOG=1 zefuse devices",
            )
        )
    elif any(gpu["vendor"] == "1002" for gpu in mine["gpus"]):
        found.append(Finding("devices.amd", "note", "An AMD GPU is here: zefuse has no code for it"))
    return found


def _without_repeating(finding: Finding, facts: AllFacts) -> Finding:
    """One problem counts once: what Level Zero's section has, with its fix, is only told here."""
    told = any(one.level == "problem" for one in level_zero.judge(facts))
    return Finding(finding.key, "note", finding.text) if told else finding


def gpus(facts: AllFacts) -> list[dict[str, Any]]:
    """The GPUs of Level Zero, in the order of ``gpu:0``, ``gpu:1``: those of our drivers first (the CPU's where it poses as
    one, the one over CUDA), which are found without a loader."""
    without: list[dict[str, Any]] = facts["build"].get("gpus", [])
    over_cuda = any(device["vendor"] == NVIDIA for device in without)
    through = [device for device in level_zero.devices(facts) if device["kind"] == "gpu"]
    return without + [device for device in through if not (over_cuda and device["vendor"] == NVIDIA)]


def product(vendor: str, ident: str, facts: AllFacts) -> dict[str, Any] | None:
    """The row of the table of targets; None for an unknown one, or where the table could not be read."""
    rows = (facts["build"].get("targets") or {}).get("gpu", [])
    return next((row for row in rows if vendor == "8086" and int(ident, 16) in row["device_ids"]), None)


def _device(number: int, device: dict[str, Any], facts: AllFacts) -> Finding:
    key = f"devices.gpu{number}"
    what = f"gpu:{number}: {device['name']}"
    if device["ours"]:
        return Finding(key, "ok", f"{what}, which is the CPU, for tests")
    ident = f"{device['vendor']}:{device['id']}"
    what += f" (PCI {ident}, {device['memory_bytes'] / 2**30:.1f} GiB{' shared' if device['integrated'] else ''})"
    if device["vendor"] == NVIDIA:
        return Finding(key, "ok", f"{what}, through zefuse's driver over CUDA, whose compiler is built in")
    if not facts["build"].get("targets"):
        return Finding(key, "warning", f"{what}: whether there is code for it is not known without zefuse's libraries")
    row = product(device["vendor"], device["id"], facts)
    if row is None:
        return Finding(
            key,
            "warning",
            f"{what}: no GPU that this zefuse knows",
            'use a newer zefuse (pip install -U zefuse), or options={"device": "cpu"}',
        )
    name = row["name"]
    covering = [compiler for compiler in facts["compilers"]["usable"] if name in compiler["products"]]
    if not covering:
        oldest = row["compilers"][0] if row["compilers"] else "?"
        return Finding(
            key,
            "warning",
            f"{what} is {name}, and no compiler here makes native code for it ({row['compiler']} {oldest} or newer does)",
            "zefuse toolchain install, or compile elsewhere: zefuse compile MODEL.pt2 -o MODEL.zefuse "
            f"--targets {name}",
        )
    by = ", ".join(f"{compiler['command']} {compiler['version']}" for compiler in covering)
    return Finding(key, "ok", f"{what} is {name}, native code by {by}")


def _other_intel(facts: AllFacts, usable: list[dict[str, Any]]) -> list[Finding]:
    """Intel GPUs that PCI lists and Level Zero does not."""
    if len(usable) == len(facts["build"].get("gpus", [])):
        return [_without_repeating(why_no_gpu(facts), facts)] if facts["devices"]["intel_gpus"] else []
    seen = {device["id"] for device in usable}
    return [
        Finding(
            f"devices.pci.{gpu['slot']}",
            "note",
            f"The Intel GPU {_named(gpu, facts)} is not among Level Zero's devices",
            "see whether a node of /dev/dri is its own, and whether ZE_AFFINITY_MASK hides it",
        )
        for gpu in facts["devices"]["intel_gpus"]
        if gpu["id"] not in seen
    ]


def _named(gpu: dict[str, str], facts: AllFacts) -> str:
    row = product(gpu["vendor"], gpu["id"], facts)
    ident = f"{gpu['vendor']}:{gpu['id']}"
    return f"{ident} ({row['name']}, as {row['marketing']})" if row else ident


def why_no_gpu(facts: AllFacts) -> Finding:
    """The first reason, from the hardware upwards; only the facts system, devices and level_zero need to be there."""
    mine, system, trial = facts["devices"], facts["system"], facts["level_zero"]
    key = "devices.no_gpu"

    def because(level: Level, reason: str, fix: str = "") -> Finding:
        return Finding(key, level, f"No GPU: {reason}", fix)

    intel = mine["intel_gpus"]
    container = system["container"]
    if system["wsl"] == 1:
        return because("note", "WSL1 reaches none", "in Windows: wsl --set-version NAME 2")
    if system["wsl"] == 2 and not mine["dxg"]:
        return because(
            "note",
            "this WSL2 has no /dev/dxg, through which Windows lends its GPU",
            "install the newest graphics driver in Windows, then there: wsl --update; wsl --shutdown"
            + ("; a container needs --device /dev/dxg -v /usr/lib/wsl:/usr/lib/wsl" if container else ""),
        )
    if system["wsl"] == 2 and not mine["dxg_libraries"]:
        return because(
            "warning",
            "/usr/lib/wsl/lib has no libdxcore.so, by which drivers reach /dev/dxg",
            "a container needs -v /usr/lib/wsl:/usr/lib/wsl -e LD_LIBRARY_PATH=/usr/lib/wsl/lib; else in Windows: wsl --update",
        )
    renders = [node for node in mine["nodes"] if node["path"].startswith("/dev/dri/")]
    if system["wsl"] != 2:
        if not intel and (mine["pci"] or not renders):
            others = sorted({_VENDORS.get(gpu["vendor"], f"vendor {gpu['vendor']}") for gpu in mine["gpus"]})
            listed = f", only of {' and '.join(others)}" if others else ""
            return because("note", f"this machine has no Intel GPU{listed}; the CPU is used")
        if not renders:
            return _no_nodes(intel, facts, because)
    denied = [node for node in mine["nodes"] if not node["allowed"]]
    if denied and len(denied) == len(mine["nodes"]):
        return _denied(denied[0], facts, because)
    loader = trial["loader"]["outcome"]
    if loader == "untried":
        return because("warning", "zefuse-try-loader is not there, so no driver could be tried", "zefuse doctor")
    if loader == "no-library":
        if level_zero.missing_library(trial["loader"]["detail"]) != level_zero.LOADER_NAME:
            return because("problem", f"the Level Zero loader cannot be loaded: {trial['loader']['detail']}")
        return because(
            "problem",
            f"there is no Level Zero loader ({level_zero.LOADER_NAME})",
            packages.install("loader", system),
        )
    return _no_driver(facts, because)


def _no_nodes(intel: list[dict[str, str]], facts: AllFacts, because: Any) -> Finding:
    names = ", ".join(_named(gpu, facts) for gpu in intel) or "an Intel GPU"
    if facts["system"]["container"]:
        return because(
            "problem",
            f"the container was not given /dev/dri, through which {names} is reached",
            "start it with --device /dev/dri --group-add $(stat -c %g /dev/dri/renderD128)",
        )
    driver = next((gpu["driver"] for gpu in intel if gpu["driver"]), "")
    if driver:
        return because(
            "problem",
            f"the kernel's driver {driver} has {names} but made no /dev/dri/renderD*"
            + (": it is lent to a virtual machine" if driver == "vfio-pci" else ""),
            f"look at what it says: sudo dmesg | grep -iE '{driver}|drm'",
        )
    row = next((found for gpu in intel if (found := product(gpu["vendor"], gpu["id"], facts))), None)
    kernel = facts["system"]["kernel"]
    since = KERNEL.get(row["family"], "") if row else ""
    if since and not at_least(kernel, since):
        return because(
            "problem",
            f"Linux {kernel} has no driver for {names}, which came with {since}",
            f"use Linux {since} or newer",
        )
    return because(
        "problem",
        f"no driver of the kernel has taken {names}",
        "sudo modprobe xe || sudo modprobe i915; look for nomodeset or a blacklist in /proc/cmdline and /etc/modprobe.d",
    )


def _denied(node: dict[str, Any], facts: AllFacts, because: Any) -> Finding:
    group = node["group"] or str(node["gid"])
    if facts["system"]["container"]:
        return because(
            "problem",
            f"user {facts['devices']['user']} may not open {node['path']}, which belongs to group {group}",
            f"start the container with --group-add {node['gid']}",
        )
    if node["group"] in ("", "root"):
        return because(
            "problem",
            f"user {facts['devices']['user']} may not open {node['path']}, which belongs to group {group}",
            f"sudo chgrp render {node['path']}, then sudo usermod -aG render $USER and log in again",
        )
    return because(
        "problem",
        f"user {facts['devices']['user']} may not open {node['path']}: not in its group, {group}",
        f"sudo usermod -aG {group} $USER, then log in again",
    )


def _no_driver(facts: AllFacts, because: Any) -> Finding:
    trial, system = facts["level_zero"], facts["system"]
    tried = [one for one in trial["drivers"] if one["name"] in level_zero.FOR_GPUS or trial["alternative"]]
    installed = [one for one in tried if not level_zero.absent(one)]
    if bad := [one for one in installed if one["outcome"] in ("hangs", "crashes", "failed")]:
        verb = {"hangs": "hangs", "crashes": "crashes", "failed": "ends its process"}[bad[0]["outcome"]]
        return because(
            "problem",
            f"the driver {bad[0]['name']} {verb} when it is started ({bad[0]['detail']})",
            f"update it: {packages.install('driver', system)}",
        )
    if trial["alternative"] and not any(name.endswith(level_zero.FOR_GPUS) for name in trial["alternative"]):
        return because(
            "problem" if facts["devices"]["intel_gpus"] else "warning",
            f"ZE_ENABLE_ALT_DRIVERS={','.join(trial['alternative'])} keeps the loader from other drivers",
            "unset ZE_ENABLE_ALT_DRIVERS",
        )
    if not installed:
        return because(
            "problem",
            "a Level Zero loader is there, but no driver for GPUs (libze_intel_gpu.so.1)",
            packages.install("driver", system),
        )
    if broken := [one for one in installed if one["outcome"] == "no-driver-library"]:
        lacks = level_zero.missing_library(broken[0]["detail"])
        return because(
            "problem",
            f"the driver {broken[0]['name']} cannot be loaded: {f'it needs {lacks}' if lacks else broken[0]['detail']}",
            f"install it again: {packages.install('driver', system)}",
        )
    if trial["loader"]["outcome"] in ("hangs", "crashes", "failed"):
        return because(
            "problem",
            f"the Level Zero loader does not start with all drivers at once ({trial['loader']['detail']})",
            "try one of them: export ZE_ENABLE_ALT_DRIVERS=libze_intel_gpu.so.1",
        )
    names = ", ".join(_named(gpu, facts) for gpu in facts["devices"]["intel_gpus"]) or "Windows' GPU"
    return because(
        "problem",
        f"the driver is there and does not take {names}"
        + (" (ZE_AFFINITY_MASK may hide it)" if trial["affinity_mask"] else ""),
        f"a newer driver may: {packages.install('driver', system)}",
    )
