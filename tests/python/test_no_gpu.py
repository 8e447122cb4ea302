"""Why a machine has no GPU, in the words of ``zefuse devices`` and ``zefuse doctor``: recorded machines, one for each reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recorded_machine import (
    ARC,
    CRASHES,
    HANGS,
    NO_DEVICE,
    NO_LOADER,
    NVIDIA,
    TARGETS,
    Recorded,
    tried,
    with_gpu,
)

from zefuse import doctor
from zefuse.doctor import graphics
from zefuse.doctor.machine import Ended

WSL = {
    "files": {"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"},
    "kernel": "5.15.167.4-microsoft-standard-WSL2",
}
DXG = {"/dev/dxg": (0o666, 0, 0)}
WSL_LIBRARIES = {"files": {**WSL["files"], "/usr/lib/wsl/lib/libdxcore.so": ""}, "kernel": WSL["kernel"]}  # type: ignore[dict-item]
DOCKER = {"/.dockerenv": ""}
IDLE = {"libze_intel_gpu.so.1": NO_DEVICE}  # a driver with nothing that it may use

WHY = {
    "WSL1": ({"kernel": "4.4.0-19041-Microsoft"}, "WSL1 reaches none", "wsl --set-version"),
    "WSL2 without dxg": (WSL, "WSL2 has no /dev/dxg", "wsl --update"),
    "WSL2 without libraries": ({**WSL, "nodes": DXG}, "has no libdxcore.so", "/usr/lib/wsl"),
    "WSL2 without loader": (
        {**WSL_LIBRARIES, "nodes": DXG, "pci": [], "trials": {"": NO_LOADER}},
        "there is no Level Zero loader",
        "sudo apt install libze1$",
    ),
    "WSL2 without driver": (
        {**WSL_LIBRARIES, "nodes": DXG, "pci": []},
        "no driver for GPUs",
        "sudo apt install libze-intel-gpu1$",
    ),
    "none": ({}, "this machine has no Intel GPU; the CPU is used", "^$"),
    "another vendor's": ({"pci": [NVIDIA]}, "has no Intel GPU, only of NVIDIA", "^$"),
    "container": ({"pci": [ARC], "files": DOCKER}, "container was not given /dev/dri.*dg2-g11", "--device /dev/dri"),
    "old kernel": (
        {"pci": [ARC], "kernel": "5.15.0-100-generic"},
        "Linux 5.15.0-100-generic has no driver for 8086:56a5 .dg2-g11, as Arc A380., which came with 6.2",
        "Linux 6.2 or newer",
    ),
    "no kernel driver": ({"pci": [ARC]}, "no driver of the kernel has taken 8086:56a5", "modprobe"),
    "no permission": (
        with_gpu(groups={1000}, trials=IDLE),
        "user me may not open /dev/dri/renderD128: not in its group, render",
        r"^sudo usermod -aG render \$USER, then log in again$",
    ),
    "no permission in a container": (
        with_gpu(groups={1000}, trials=IDLE, files=DOCKER, nodes={"/dev/dri/renderD128": (0o660, 0, 777)}),
        "belongs to group 777",
        "--group-add 777",
    ),
    "no loader": (with_gpu(trials={"": NO_LOADER}), "there is no Level Zero loader", "sudo apt install libze1$"),
    "no driver": (with_gpu(trials={}), "no driver for GPUs", "sudo apt install libze-intel-gpu1$"),
    "no driver, Debian 12": (
        with_gpu(trials={}, files={"/etc/os-release": "ID=debian\nVERSION_ID=12\n"}),
        "no driver for GPUs",
        "sudo apt install intel-opencl-icd$",
    ),
    "no driver, Debian 13": (
        with_gpu(trials={}, files={"/etc/os-release": "ID=debian\nVERSION_ID=13\n"}),
        "no driver for GPUs",
        "^install libze-intel-gpu1 from Intel's packages",
    ),
    "no driver, Fedora": (
        with_gpu(trials={}, files={"/etc/os-release": "ID=fedora\nVERSION_ID=42\n"}),
        "no driver for GPUs",
        "sudo dnf install intel-level-zero$",
    ),
    "half a driver": (
        with_gpu(
            trials={
                "libze_intel_gpu.so.1": tried(
                    "no-driver-library libigdgmm.so.12: cannot open shared object file: No such file or directory"
                )
            }
        ),
        "driver libze_intel_gpu.so.1 cannot be loaded: it needs libigdgmm.so.12",
        "install it again",
    ),
    "driver that hangs": (
        with_gpu(trials={"": HANGS, "libze_intel_gpu.so.1": HANGS}),
        "libze_intel_gpu.so.1 hangs when it is started .no answer within 10 s",
        "update it",
    ),
    "driver that crashes": (
        with_gpu(trials={"": CRASHES, "libze_intel_gpu.so.1": CRASHES}),
        "libze_intel_gpu.so.1 crashes when it is started .SIGSEGV",
        "update it",
    ),
    "driver too old": (
        with_gpu(trials={"libze_intel_gpu.so.1": NO_DEVICE}),
        "the driver is there and does not take 8086:56a5",
        "newer driver",
    ),
    "another driver only": (
        with_gpu(trials={"/opt/x.so": NO_DEVICE}, environment={"ZE_ENABLE_ALT_DRIVERS": "/opt/x.so"}),
        "ZE_ENABLE_ALT_DRIVERS=/opt/x.so keeps the loader from other drivers",
        "unset ZE_ENABLE_ALT_DRIVERS",
    ),
}


@pytest.mark.parametrize("case", WHY)
def test_why_there_is_no_gpu(case: str, tmp_path: Path) -> None:
    facts, text, fix = WHY[case]
    machine = Recorded(tmp_path, **facts)
    found = doctor.why_no_gpu(machine, TARGETS)  # what `zefuse devices` says
    assert re.search(text, found.text), found
    assert re.search(fix, found.fix), found
    # A GPU that is there and cannot be used is a problem, none at all is not.
    wanted = bool({ARC} & set(facts.get("pci", []))) or "/dev/dxg" in facts.get("nodes", {})
    assert (found.level in ("problem", "warning")) == wanted, found
    # Doctor says it too, and counts each problem once.
    told = {finding.key: finding for finding in doctor.examine(machine).findings()}
    assert re.search(text, told["devices.no_gpu"].text), told["devices.no_gpu"]
    levels = [one.level for key, one in told.items() if key.startswith(("devices.", "level_zero."))]
    assert levels.count("problem") + levels.count("warning") == wanted, told


def test_devices_says_the_same_without_torch(tmp_path: Path) -> None:
    """With the facts that it collects itself, of which the table of GPUs is none."""
    machine = Recorded(tmp_path, **with_gpu(groups={1000}, trials=IDLE), build=Ended(code=-6))
    assert "not in its group, render" in doctor.why_no_gpu(machine).text
    machine = Recorded(tmp_path / "2", pci=[ARC], build=Ended(code=-6))
    assert "no driver of the kernel has taken 8086:56a5" in doctor.why_no_gpu(machine).text


def test_nodes_are_judged_by_owner_group_and_others(tmp_path: Path) -> None:
    nodes = {"/dev/dri/renderD128": (0o660, 1000, 5), "/dev/dri/renderD129": (0o660, 0, 5), "/dev/dxg": (0o666, 0, 0)}
    found = graphics.collect(Recorded(tmp_path, nodes=nodes))["nodes"]
    assert [node["allowed"] for node in found] == [True, False, True]
