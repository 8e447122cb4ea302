"""The folders' floors: what a folder includes and links stands on its own floor or below (docs/design.md, Folders)."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# From the ground up. A folder may know those of its own line and of the lines above it here, of the parts named in KNOWS.
FLOORS = [
    ["common/base"],
    ["common/plan", "common/toolchain", "common/ze_extension"],
    ["drivers/level_zero", "drivers/spirv"],
    ["drivers/cpu", "drivers/cuda"],
    ["runtime/cache", "runtime/primitives/simd", "runtime/sycl", "runtime/ze"],
    ["runtime/primitives/core"],
    ["runtime/primitives/attention", "runtime/primitives/convolution", "runtime/primitives/matmul"],
    ["runtime/primitives"],
    ["runtime/recurrence"],
    ["runtime/executor"],
    ["runtime/aten", "runtime/package"],
    ["runtime/reports"],
    ["runtime/capi"],
    ["lowering/dialect"],
    ["lowering/analysis", "lowering/spirv"],
    ["lowering/schedule/core"],
    ["lowering/schedule/cpu", "lowering/schedule/gpu"],
    ["lowering/schedule/ordered", "lowering/schedule/products"],
    ["lowering/schedule"],
    ["lowering"],
    ["compiler/builder", "compiler/tuning"],
    ["compiler/fuse", "compiler/import"],
    ["compiler/plan"],
    ["compiler"],
    ["core"],
    ["python/import"],
    ["python/csrc"],
]
FLOOR = {folder: number for number, floor in enumerate(FLOORS) for folder in floor}
# The parts that a part may know besides itself: the compiler runs without the runtime, the runtime without the compiler,
# and a driver is a library of its own behind Level Zero.
KNOWS = {
    "common": set(),
    "drivers": {"common"},
    "runtime": {"common"},
    "lowering": {"common"},
    "compiler": {"common", "lowering"},
    "core": {"common", "runtime", "lowering", "compiler"},
    "python": {"common", "runtime", "lowering", "compiler", "core"},
}
# The compiler's doors into lowering/: the schedules behind them are lowering's own business.
DOORS = ("lowering/lower.h", "lowering/passes.h", "lowering/dialect/", "lowering/analysis/")
# What the Python module sees of the compiler: no MLIR, so that it compiles in a minute against any torch.
GLUE_DOORS = (
    "compiler/compilation.h",
    "compiler/disassemble.h",
    "compiler/dump.h",
    "compiler/import/errors.h",
    "compiler/import/fx_graph.h",
    "compiler/import/import_options.h",
    "compiler/import/number_tree.h",
    "compiler/options.h",
)
# Arrows that are known and wait for something: (from, to) and why.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def folder_of(path: str) -> str:
    """The longest folder of FLOORS that holds the file."""
    folder = str(Path(path).parent)
    while folder not in FLOOR:
        folder = str(Path(folder).parent)
        assert folder != ".", f"{path} is in no folder of FLOORS: say on which floor it stands"
    return folder


@cache
def sources() -> list[Path]:
    parts = [ROOT / part for part in KNOWS]
    return sorted(file for part in parts for file in part.rglob("*") if file.suffix in {".cpp", ".h", ".hpp", ".c"})


@cache
def includes(file: Path) -> list[str]:
    own = re.findall(r'^\s*#include "([^"]+)"', file.read_text(), re.MULTILINE)
    return [name for name in own if name.split("/")[0] in KNOWS]


def test_includes_point_down() -> None:
    wrong = []
    for file in sources():
        path = str(file.relative_to(ROOT))
        here = folder_of(path)
        for name in includes(file):
            there = folder_of(name)
            part, other = here.split("/")[0], there.split("/")[0]
            if (path, name) in EXCEPTIONS:
                continue
            if part != other and other not in KNOWS[part]:
                wrong.append(f"{path} includes {name}: {part}/ knows nothing of {other}/")
            elif FLOOR[there] > FLOOR[here]:
                wrong.append(f"{path} includes {name}: {there} stands above {here}")
            elif part == "compiler" and other == "lowering" and not name.startswith(DOORS):
                wrong.append(f"{path} includes {name}: the doors are {', '.join(DOORS)}")
            elif (
                part == "python"
                and other in ("compiler", "lowering")
                and name not in GLUE_DOORS
                and "/testing/" not in path
            ):
                wrong.append(f"{path} includes {name}: the doors are {', '.join(GLUE_DOORS)}")
    assert not wrong, "\n".join(wrong)


def test_includes_are_found() -> None:
    """An include of a file that moved would be found by nobody who reads, and by the compiler only where it is built."""
    generated = ("_generated.h", ".inc")
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sources()
        for name in includes(file)
        if not name.endswith(generated) and not (ROOT / name).is_file()
    ]
    assert not missing, "\n".join(missing)


# --- CMake: who links whom --------------------------------------------------------------------------------------------


@cache
def targets() -> dict[str, tuple[set[str], set[str]]]:
    """Of each library of the parts: the folders of its sources, and the targets that it links."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for lists in sorted(file for part in KNOWS for file in (ROOT / part).rglob("CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", lists.read_text())
        for command, body in re.findall(r"(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
            words = body.split()
            if not words:
                continue
            name = words[0]
            if command in ("zefuse_add_library", "add_library", "add_executable", "Python3_add_library"):
                files = [word for word in words[1:] if word.endswith((".cpp", ".c"))]
                folders = {folder_of(str((lists.parent / file).relative_to(ROOT))) for file in files if "$" not in file}
                if not folders:  # no code of its own: its headers
                    folders = {str(lists.parent.relative_to(ROOT))} & FLOOR.keys()
                links = set(words[words.index("LINK") + 1 :]) if "LINK" in words else set()
                if folders:
                    found[name] = (folders, links)
            elif command == "target_link_libraries" and name in found:
                found[name][1].update(words[1:])
    return {name: (folders, links & found.keys()) for name, (folders, links) in found.items()}


# A link that no include asks for, and what asks for it.
LINKS_WITHOUT_INCLUDE = {
    ("zefuse_import_test", "*"): "a test's module: its sources are in tests",
    ("zefuse_core", "*"): "the compiler and the runtime as a shared library",
    ("zefuse_runtime_shared", "zefuse_reports"): "what its object zefuse_report_entry calls",
    ("zefuse-spirv-emitter", "zefuse_core"): "its LLVM, where that is static",
    ("ze_zefuse_cpu", "zefuse_cpu_driver_core"): "the driver's code as a shared library",
    ("ze_zefuse_cpu", "zefuse_level_zero"): "its exported functions, which nothing of it calls",
    ("ze_zefuse_cuda", "zefuse_cuda_driver_core"): "the driver's code as a shared library",
    ("ze_zefuse_cuda", "zefuse_level_zero"): "its exported functions, which nothing of it calls",
}

# A link between parts that know nothing of each other: the code of both lies in one library, and neither calls the other.
LINKS_ACROSS = {
    ("zefuse_core", "zefuse_cpu_compiler"): "LLVM is in the process once, where it is static",
    ("zefuse_core", "zefuse_cuda_compiler"): "LLVM is in the process once, where it is static",
}


def links() -> list[tuple[str, str]]:
    return [(name, link) for name, (_, linked) in targets().items() for link in sorted(linked)]


def test_targets_are_read() -> None:
    found = targets()
    assert {"zefuse_base", "zefuse_plan", "zefuse_executor", "zefuse_lowering", "zefuse_compiler"} <= found.keys()
    assert ("zefuse_executor", "zefuse_primitives") in links()


@pytest.mark.parametrize(("target", "link"), links())
def test_links_point_down_and_are_needed(target: str, link: str) -> None:
    if (target, link) in LINKS_ACROSS:
        return
    found = targets()
    here, there = found[target][0], found[link][0]
    highest = max(here, key=FLOOR.__getitem__)
    for folder in there:
        part, other = highest.split("/")[0], folder.split("/")[0]
        assert part == other or other in KNOWS[part], f"{target} links {link}: {part}/ knows nothing of {other}/"
        assert FLOOR[folder] <= FLOOR[highest], f"{target} links {link}: {folder} stands above {highest}"
    if (target, link) in LINKS_WITHOUT_INCLUDE or (target, "*") in LINKS_WITHOUT_INCLUDE:
        return
    asked = {
        folder_of(name)
        for file in sources()
        if folder_of(str(file.relative_to(ROOT))) in here
        for name in includes(file)
    }
    assert there & asked, f"{target} links {link}, and no file of {', '.join(sorted(here))} includes anything of it"
