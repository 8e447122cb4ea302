"""A machine of recorded facts for ``zefuse doctor``: files, environment, device nodes, and what children print."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zefuse.doctor import build
from zefuse.doctor.machine import Ended, Machine, Status, User

ARC, NVIDIA, UNKNOWN = "8086:56a5", "10de:2330", "8086:ffff"

# As native.targets() has them, but for what doctor does not read.
TARGETS = {
    "cpu": [{"name": "avx2", "alias": "x86-64-v3"}, {"name": "amx", "alias": ""}],
    "gpu": [
        {
            "name": "dg2-g11",
            "alias": "acm-g11",
            "family": "Xe-HPG",
            "marketing": "Arc A380",
            "device_ids": [0x56A5],
            "compiler": "ocloc",
            "compilers": ["22.43", "26.27"],
        },
        {
            "name": "bmg-g21",
            "alias": "bmg",
            "family": "Xe2",
            "marketing": "Arc B580",
            "device_ids": [0xE20B],
            "compiler": "ocloc",
            "compilers": ["26.27"],
        },
        {
            "name": "sm_90",
            "alias": "",
            "family": "Hopper",
            "marketing": "H100",
            "device_ids": [],
            "compiler": "zefuse-ptx",
            "compilers": ["13.0"],
        },
    ],
}
OCLOC = [{"command": "ocloc", "version": "22.43.24595", "products": ["dg2-g11"]}]
CPU = {"device": "cpu", "kind": "cpu", "name": "zefuse CPU", "target": "amx", "device_id": 1, "built_in": True}
TORCH = {"version": "2.13.0+cpu", "folder": "/site/torch", "cuda": None, "threads": 4, "cxx11_abi": True}
LIBRARIES = ("libzefuse_core.so.1", "libze_zefuse_cpu.so.1", "libzefuse_runtime.so.1")
FLAGS = {
    "avx2": "fpu sse2 avx avx2 fma bmi2 f16c",
    "avx512": "avx512f avx512bw avx512cd avx512dq avx512vl",
    "avx512_bf16": "avx512_bf16 avx512_vnni",
    "amx": "amx_tile amx_bf16 amx_int8",
}


def said(*lines: Mapping[str, Any]) -> str:
    """What the child of build.py prints."""
    return "".join(f"noise\nzefuse-doctor: {json.dumps(line)}\n" for line in lines)


def tried(*lines: str) -> Ended:
    """What zefuse-try-loader prints."""
    return Ended("".join(f"\nzefuse-try-loader: {line}\n" for line in lines))


LOADER = ("library /usr/lib/libze_loader.so.1", "step zeInit", "component loader 1.8.12 1.4")
NO_DEVICE = tried(*LOADER, "no-driver 0x78000001")
A380 = tried(
    *LOADER,
    "driver 1036013 1.3 136003016f8fea180000000000000000",
    "step zeDeviceGet",
    "device gpu 8086 56a5 6442450944 0 Intel(R) Arc(TM) A380 Graphics",
    "works 0x0",
)
NO_LOADER = tried("no-library libze_loader.so.1: cannot open shared object file: No such file or directory")
HANGS = Ended(NO_DEVICE.output.partition("\nzefuse-try-loader: no-driver")[0], code=None, seconds=10)
CRASHES = Ended(HANGS.output, code=-11)


def not_installed(driver: str) -> Ended:
    return tried(
        "step loading the driver",
        f"no-driver-library {driver}: cannot open shared object file: No such file or directory",
    )


def good_build(**changes: Any) -> Ended:
    lines: dict[str, Any] = {"step": "importing torch", "torch": TORCH, "backends": ["zefuse.backend:zefuse"]}
    loaded = [{"loaded": name} for name in LIBRARIES]
    rest = {"native": {"build_id": "1", "file": "_C.so"}, "targets": TARGETS, "compilers": OCLOC, "devices": [CPU]}
    last = {**rest, **changes, "step": ""}
    return Ended(said(lines, *loaded, {"step": "loading zefuse._C"}, *({key: last[key]} for key in last)))


class Recorded(Machine):
    """A machine of recorded facts: by default Ubuntu 24.04 with four processors, a whole wheel, no GPU."""

    def __init__(self, folder: Path, **facts: Any) -> None:
        site = folder / "site-packages"
        super().__init__(str(folder / "root"), facts.pop("environment", {}), site / "zefuse")
        self.facts = facts
        record = []
        for name in [*LIBRARIES, *build.PROGRAMS, "torch-2.13/_C.cpython-311-x86_64-linux-gnu.so"]:
            file = site / "zefuse" / "lib" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
            record.append(f"zefuse/lib/{name},sha256=x,{len(name)}")
        (site / "zefuse-0.1.0.dist-info").mkdir(exist_ok=True)
        (site / "zefuse-0.1.0.dist-info" / "RECORD").write_text("\n".join(record) + "\n")
        files = {
            "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n',
            "/proc/version": "Linux version 6.8.0-45-generic (buildd@x)",
            "/proc/cpuinfo": f"model name\t: A processor\nflags\t\t: {' '.join(FLAGS.values())}\n",
            "/proc/meminfo": "MemTotal:       16000000 kB\nMemAvailable:   12000000 kB\n",
            "/sys/devices/system/cpu/online": "0-3\n",
            "/home/me/.cache/zefuse/ab/entry": "x" * 1000,
            **facts.get("files", {}),
        }
        for slot, ident in enumerate(facts.get("pci", ["8086:1237"])):
            vendor, device = ident.split(":")
            place = f"/sys/bus/pci/devices/0000:00:{slot:02x}.0"
            files[f"{place}/vendor"], files[f"{place}/device"] = f"0x{vendor}\n", f"0x{device}\n"
            files[f"{place}/class"] = "0x060000\n" if ident == "8086:1237" else "0x030000\n"
        for path in facts.get("nodes", {}):
            files.setdefault(path, "")
        for path, text in files.items():
            if text is not None:
                file = Path(self.place(path))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)

    def place(self, path: str) -> str:
        return path if path.startswith(str(Path(self.root).parent)) else super().place(path)

    def status(self, path: str) -> Status | None:
        if path in (nodes := self.facts.get("nodes", {})):
            mode, uid, gid = nodes[path]
            return Status(stat.S_IFCHR | mode, uid, gid)
        return super().status(path)

    def user(self) -> User:
        return User("me", 1000, frozenset(self.facts.get("groups", {1000})))

    def group_name(self, gid: int) -> str:
        return {0: "root", 44: "video", 992: "render"}.get(gid, "")

    def writable(self, path: str) -> bool:
        return path not in self.facts.get("read_only", ()) and super().writable(path)

    def free_bytes(self, path: str) -> int | None:
        return self.facts.get("free", 50 << 30)

    def home(self) -> str:
        return self.facts.get("home", "/home/me")

    def affinity(self) -> list[int]:
        return self.facts.get("affinity", [0, 1, 2, 3])

    def kernel(self) -> str:
        return self.facts.get("kernel", "6.8.0-45-generic")

    def machine_name(self) -> str:
        return "x86_64"

    def libc(self) -> str:
        return self.facts.get("libc", "glibc 2.39")

    def python(self) -> tuple[str, str, str]:
        return self.facts.get("python", ("CPython", "3.12.3", "/usr/bin/python3"))

    def program(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.facts.get("programs", ("ocloc",)) else None

    def run(
        self, command: Sequence[str], seconds: float, more: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Ended:
        if command[0].endswith("zefuse-try-loader"):
            trials = self.facts.get("trials", {})
            driver = command[3] if len(command) > 3 else ""
            return trials.get(driver) or (not_installed(driver) if driver else NO_DEVICE)
        if command[0] == "sh":
            return self.facts.get("ocloc", Ended("22.43.24595"))
        assert "zefuse.doctor.probe" in command[3]
        return self.facts.get("build", good_build())


def with_gpu(**facts: Any) -> dict[str, Any]:
    """The facts of a machine with an Arc A380 that works, changed by ``facts``."""
    return {
        "pci": [ARC],
        "nodes": {"/dev/dri/renderD128": (0o660, 0, 992)},
        "groups": {1000, 992},
        "trials": {"": A380, "libze_intel_gpu.so.1": A380},
        **facts,
    }
