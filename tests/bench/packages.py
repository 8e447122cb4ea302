"""What it costs until a model runs: packages through the C interface, and the first call of torch.compile in a new process.

    python tests/bench/packages.py [--models MiniLM,ResNet-18] [--rounds 3]       (make bench-packages)

Every figure is of a process of its own: the smallest of the rounds, as wall time and, since other programs lengthen that, as
processor time of the process' threads. Prints Markdown for docs/aot.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "bench"))

Times = dict[str, list[float]]  # what -> [wall ms, processor ms]


class Clock:
    def __init__(self) -> None:
        self.times: Times = {}

    def measure(self, name: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.times[name] = [(time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3]
        return result


class _LoadOptions(ctypes.Structure):  # zefuse_load_options, its first members
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("cache_dir", ctypes.c_char_p)]


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 2),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


def c_interface(
    library: str, package: str, inputs: list[tuple[list[int], bool]], device: str = "cpu", cache: str = ""
) -> Times:
    """No torch in this process. ``inputs``: sizes, and whether the elements are f32 (else i64); all are zero.

    Loading fails where a kernel has no native code, in the package or in the folder ``cache``, and no compiler is found.
    """
    clock = Clock()
    runtime = clock.measure("the library", lambda: ctypes.CDLL(library))
    runtime.zefuse_error_message.restype = ctypes.c_char_p
    models = []

    def load() -> None:
        model, size = ctypes.c_void_p(), ctypes.sizeof(_LoadOptions)
        options = _LoadOptions(size, device.encode(), cache.encode() or None)
        if runtime.zefuse_model_load_file(package.encode(), ctypes.byref(options), ctypes.byref(model)) != 0:
            raise RuntimeError(runtime.zefuse_error_message().decode())
        models.append(model)

    clock.measure("first load: driver, package", load)
    clock.measure("later load", load)
    tensors, kept = [], []
    for sizes, real in inputs:
        count = 1
        for size in sizes:
            count *= size
        data = ((ctypes.c_float if real else ctypes.c_int64) * count)()
        shape = (ctypes.c_int64 * len(sizes))(*sizes)
        kept += [data, shape]
        kind = (ctypes.c_uint8 * 2)(2, 32) if real else (ctypes.c_uint8 * 2)(0, 64)
        tensors.append(_Tensor(ctypes.addressof(data), (ctypes.c_int32 * 2)(1, 0), len(sizes), kind, 1, shape, None, 0))
    pointers = (ctypes.POINTER(_Tensor) * len(tensors))(*map(ctypes.pointer, tensors))
    outputs = (ctypes.c_void_p * runtime.zefuse_model_num_outputs(models[0]))()

    def call() -> None:
        if runtime.zefuse_model_call(models[0], pointers, len(tensors), outputs, len(outputs)) != 0:
            raise RuntimeError(runtime.zefuse_error_message().decode())

    clock.measure("hash of the weights", lambda: runtime.zefuse_model_check_weights(models[0]))
    clock.measure("first call", call)
    for _ in range(3):
        clock.measure("later call", call)
    return clock.times


def torch_compile(name: str, how: str, package: str) -> Times:
    import torch
    import zoo

    import zefuse

    example = zoo.make(name, "real")
    options = {"package": package, "package_only": True} if how == "attached package" else {}
    if how == "precompiled":
        zefuse.enable_precompile()
    import torch._dynamo.utils

    clock = Clock()
    with torch.no_grad():
        compiled = example.compile("zefuse", options=options)
        clock.measure("first call", lambda: compiled(*example.inputs))
        for _ in range(3):
            clock.measure("later call", lambda: compiled(*example.inputs))
    return clock.times


def make_packages(name: str, folder: str) -> dict[str, Any]:
    import torch
    import zoo

    import zefuse

    example = zoo.make(name, "real")
    start = time.perf_counter()
    with torch.no_grad():
        program = torch.export.export(example.model, example.inputs)
        zefuse.compile_package(program, f"{folder}/exported", standalone=True, options={"cache_dir": ""})
        seconds = time.perf_counter() - start
        captured = zefuse.capture(example.compile("zefuse", options={"cache_dir": ""}), *example.inputs)
        zefuse.compile_package(captured, f"{folder}/captured", options={"cache_dir": ""})
    from zefuse import reports

    sizes: dict[str, int] = {}
    for section, size, _ in reports.ask("package", f"{folder}/exported")["sections"]:
        kind = section.partition("/")[0]
        sizes[kind] = sizes.get(kind, 0) + size
    return {
        "seconds": seconds,
        "sizes": sizes,
        "captured": os.path.getsize(f"{folder}/captured"),
        "inputs": inputs_of(name),
    }


def inputs_of(name: str) -> list[Any]:
    """As c_interface takes them."""
    import torch
    import zoo

    return [[list(value.shape), value.dtype == torch.float32] for value in zoo.make(name, "real").inputs]


def make_gpu_package(name: str, path: str) -> None:
    import intel_driver
    import torch
    import zoo

    import zefuse

    example = zoo.make(name, "real")
    with torch.no_grad():
        program = torch.export.export(example.model, example.inputs)
        zefuse.compile_package(program, path, targets=list(intel_driver.PRODUCTS), standalone=True)


def in_a_process(work: str, *arguments: Any, cwd: str | Path | None = None, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, __file__, "--work", work, json.dumps(arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=cwd,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def least(rounds: list[Times]) -> Times:
    return {name: [min(each[name][i] for each in rounds) for i in (0, 1)] for name in rounds[0]}


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}, load {os.getloadavg()[0]:.1f}"


def report(name: str, rounds: int) -> None:
    library = str(ROOT / "build" / "release" / "lib" / "libzefuse_runtime.so.1")
    with tempfile.TemporaryDirectory() as folder:
        made = in_a_process("make_packages", name, folder)
        megabytes = ", ".join(f"{kind} {size / 1e6:.2f}" for kind, size in sorted(made["sizes"].items()))
        print(
            f"### {name}\n\nPackage for avx2 and avx512 (MB): {megabytes}; torch.compile's graph {made['captured'] / 1e6:.2f}."
        )
        print(f"Exported and compiled without a cache in {made['seconds']:.1f} s.\n")
        print("| | wall ms | processor ms |\n|---|---|---|")

        def rows(prefix: str, times: Times) -> None:
            for what, (wall, cpu) in times.items():
                print(f"| {prefix}{what} | {wall:.1f} | {cpu:.1f} |", flush=True)

        package = f"{folder}/exported"
        rows(
            "C interface: ",
            least([in_a_process("c_interface", library, package, made["inputs"]) for _ in range(rounds)]),
        )
        for how in ("cold cache", "warm cache", "precompiled", "attached package"):
            found = []
            for number in range(rounds + (how == "precompiled")):
                cache = f"{folder}/cache" if how != "cold cache" else f"{folder}/cold{number}"
                if how == "warm cache" and number == 0:
                    in_a_process("torch_compile", name, how, "", ZEFUSE_CACHE_DIR=cache)
                times = in_a_process("torch_compile", name, how, f"{folder}/captured", ZEFUSE_CACHE_DIR=cache)
                found.append(times)
            rows(f"torch.compile, {how}: ", least(found[1:] if how == "precompiled" else found))
        print()


def report_gpus(name: str, rounds: int) -> None:
    """Until the first call has ended, with all native code from the package: Intel's driver without a GPU, and the CPU posing as
    one, which does the work too and takes its own native code from the cache."""
    import intel_driver

    library = str(ROOT / "build" / "release" / "lib" / "libzefuse_runtime.so.1")
    example = in_a_process("inputs_of", name)
    with tempfile.TemporaryDirectory() as folder:
        package = f"{folder}/gpus"
        in_a_process("make_gpu_package", name, package)
        roads = {
            target: intel_driver.environment(target) for target in intel_driver.PRODUCTS if intel_driver.installed()
        }
        roads["the CPU posing as dg2-g11"] = {"ZEFUSE_CPU_DRIVER_AS": "gpu"}
        print(
            "| wall ms (processor ms) | first load | hash of the weights | first call | later call |\n|---|---|---|---|---|"
        )
        for number, (road, environment) in enumerate(roads.items()):
            here = Path(folder) / str(number)
            here.mkdir()
            arguments = (library, package, example, "gpu:0", str(here / "cache") if "posing" in road else "")
            environment = {**environment, "ZEFUSE_OCLOC": "/nonexistent/ocloc", "ZEFUSE_JIT": "never"}
            in_a_process("c_interface", *arguments, cwd=here, **environment)
            intel_driver.discard_captures(here)
            times = least([in_a_process("c_interface", *arguments, cwd=here, **environment) for _ in range(rounds)])
            parts = ("first load: driver, package", "hash of the weights", "first call", "later call")
            figures = " | ".join(f"{times[part][0]:.0f} ({times[part][1]:.0f})" for part in parts)
            print(f"| {name}, {road} | {figures} |", flush=True)
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="MiniLM,ResNet-18")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        functions = (c_interface, torch_compile, make_packages, make_gpu_package, inputs_of)
        work = {function.__name__: function for function in functions}
        print(json.dumps(work[options.work[0]](*json.loads(options.work[1]))))
        return
    print(f"{machine()}; least of {options.rounds} processes.\n")
    for name in options.models.split(","):
        report(name, options.rounds)
        report_gpus(name, options.rounds)


if __name__ == "__main__":
    main()
