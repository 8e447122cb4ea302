"""Checks a wheel's native files: ``check_wheel.py zefuse-*.whl``. Prints what it holds, or what is wrong (exit code 1).

Nothing may point outside of the wheel (run paths), nothing may be missing (libraries that neither the wheel, torch nor the
system has), nothing of LLVM may show, the whole may not grow past its limit, and each part's licence is there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIMIT = 45_000_000  # bytes of the wheel
# What any Linux with the wheel's glibc has, and what is loaded before us: `import torch`.
SYSTEM = set("libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 libstdc++.so.6 libgcc_s.so.1 ld-linux-x86-64.so.2".split())
TORCH = {"libtorch_python.so", "libtorch_cpu.so", "libc10.so"}
NEWEST_GLIBC = (2, 35)
LICENCES = {
    f"{name}.txt"
    for name in (
        "LLVM oneDNN fdlibm FlatBuffers SPIRV-Tools SPIRV-Headers Level-Zero zlib zstd libgomp pybind11 torch".split()
    )
} | {"README.md"}
EXPECTED = set(
    "libzefuse_core.so.1 libze_zefuse_cpu.so.1 libze_zefuse_cuda.so.1 libzefuse_runtime.so.1 libdnnl_zefuse.so.3 libgomp.so.1"
    " zefuse-spirv-emitter zefuse-jit zefuse-ptx zefuse-try-loader libzefuse_aten.so".split()
)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def problems_of(file: Path, lib: Path) -> list[str]:
    """What is wrong with one ELF file of the unpacked ``lib``."""
    name, found = str(file.relative_to(lib)), []
    dynamic = run("readelf", "-dW", str(file))
    folder = lib.resolve()
    places = []
    for paths in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        for path in paths.split(":"):
            place = Path(path.replace("$ORIGIN", str(file.parent.resolve()))).resolve()
            places.append(place)
            if not path.startswith("$ORIGIN") or not place.is_relative_to(folder):
                found.append(f"{name}: run path {path!r} leads outside of the wheel")
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        of_torch = needed in TORCH and file.parent != lib
        if needed not in SYSTEM and not of_torch and not any((place / needed).exists() for place in places):
            # torch has loaded its libgomp, and libdnnl's own is found beside it
            found.append(f"{name}: needs {needed}, which neither the wheel nor a system has")
    symbols = run("nm", "-D", str(file))
    for version in sorted(set(re.findall(r"@GLIBC_(\d+)\.(\d+)", symbols))):
        if (int(version[0]), int(version[1])) > NEWEST_GLIBC:
            found.append(f"{name}: needs glibc {'.'.join(version)}, newer than {'.'.join(map(str, NEWEST_GLIBC))}")
    if file.name.startswith(("libzefuse", "libze_", "_C.")):
        shown = [line.split()[-1] for line in symbols.splitlines() if re.match(r"[0-9a-f]+ [A-TV-Zi-u] ", line)]
        foreign = [
            symbol
            for symbol in shown
            if not re.match(r"(_Z\w*N?K?6zefuse|zefuse|ze[A-Z]|zes|zet|PyInit__C)", symbol)
            # torch's headers mark what is inline in them as shown, which one copy of in a process is to serve
            and (file.parent == lib or re.search(r"llvm|mlir|LLVM|dnnl|spv", symbol))
        ]
        if foreign:
            found.append(f"{name}: shows {len(foreign)} symbols that are not ours, such as {foreign[0]}")
    return found


def check(wheel: Path) -> list[str]:
    found = []
    if (size := wheel.stat().st_size) > LIMIT:
        found.append(f"the wheel has {size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}")
    with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(wheel) as archive:
        archive.extractall(temporary)
        root = Path(temporary)
        lib = root / "zefuse" / "lib"
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        print(
            f"{wheel.name}: {size / 1e6:.1f} MB, {len(files)} native files of {sum(f.stat().st_size for f in files) / 1e6:.1f} MB"
        )
        for file in files:
            print(f"  {file.stat().st_size / 1e6:6.2f} MB  {file.relative_to(root)}")
            found += (
                problems_of(file, lib) if file.is_relative_to(lib) else [f"{file.relative_to(root)}: not in zefuse/lib"]
            )
        found += [f"{name} is missing" for name in sorted(EXPECTED - {file.name for file in files})]
        if not any(file.name.startswith("_C.") for file in files):
            found.append("the extension module _C is missing")
        # zefuse-0.1.0-cp311.cp313-cp311.cp313-manylinux_2_35_x86_64.whl: each Python of the name, for each torch.
        tag = re.search(r"-(cp\d+(?:\.cp\d+)*)-", wheel.name)
        for python in tag[1].replace("cp", "").split(".") if tag else []:
            for place in sorted(lib.glob("torch-*")):
                if not any(place.glob(f"_C.cpython-{python}-*.so")):
                    found.append(f"{place.relative_to(root)}: no extension module _C for Python {python}")
        licences = {path.name for path in root.rglob("licenses/**/*")}
        found += [f"the licence {name} is missing" for name in sorted(LICENCES - licences)]
    return found


if __name__ == "__main__":
    wrong = [problem for name in sys.argv[1:] for problem in check(Path(name))]
    for problem in wrong:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(1 if wrong or len(sys.argv) < 2 else 0)
