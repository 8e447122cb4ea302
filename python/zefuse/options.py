"""All options, in one frozen struct. It is part of the cache key and is handed to the compiler whole."""

from __future__ import annotations

import dataclasses
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zefuse.errors import OptionError
from zefuse.suggestions import closest


@dataclass(frozen=True, slots=True)
class Options:
    """``torch.compile(model, backend="zefuse", options={...})`` takes these names.

    Where a default is ``None`` the environment decides (docs/environment.md), then what the text says.
    """

    device: str = "cpu"
    """Where a graph of CPU tensors runs: ``"cpu"``, or ``"gpu:N"`` for the N-th GPU, with the tensors staged over. ``"gpu:N,cpu"``:
    the CPU, with a warning, where that GPU is missing or nothing compiles for it. CUDA and XPU tensors are computed where they lie."""

    strict: bool = False
    """An operator without a lowering is an error instead of a call through ATen."""

    fuse: bool = True
    """``False``: one kernel per operation, to find which fusion makes a wrong result."""

    library_products: str = "auto"
    """Which matrix products on a GPU go to its vendor's library (cuBLASLt) where that is there when they run: ``"auto"``, the
    large ones; ``"never"``; or ``"always"``. Their kernels are in the plan all the same, as native code where they are needed."""

    library_convolutions: str = "auto"
    """Which convolutions on a GPU go to its vendor's library (cuDNN) where that is there when they run: ``"auto"``, large ones of
    16-bit types; ``"never"``; or ``"always"``. Their kernels are in the plan all the same, as native code where they are needed."""

    kept_weights: bool = True
    """Inference: what a graph makes of parameters alone (a weight under weight norm, a table; on a GPU casts, layouts and a batch norm
    folded into a convolution as well) is kept from call to call while their memory, version counters and training steps, on the
    CPU samples of their contents too, say that they are the same; ``False``: it is made in each call. Writes to a CUDA parameter
    that no version counter sees (``.data``) want ``zefuse.invalidate_weights()``."""

    dump_dir: str | None = None
    """A folder for every stage of every kernel (MLIR, LLVM IR, SPIR-V text, assembly, the plan as JSON). Default: no dump."""

    cache_dir: str | None = None
    """The folder of the native-code cache; ``""`` turns it off. Default: ``zefuse`` in the user's cache folder."""

    cache_limit_mb: int | None = None
    """Size of the cache folder in MiB; the least recently used entries go when there is more. Default: 2048."""

    targets: str | None = None
    """Names by commas that ``zefuse targets`` lists (or a list of them): the cache is filled for these too. Default: none."""

    package: str | None = None
    """A package (docs/aot.md) whose plan and native code are taken for each graph that one was made of; others are compiled,
    with a warning that says why. Default: none."""

    package_only: bool = False
    """With ``package``: a graph or native code that it does not hold is an error."""

    tuned: bool = True
    """What ``zefuse tune`` measured on the device decides about schedules; ``False``: the cost model does."""

    fallback_random: bool = False
    """Random numbers of CUDA tensors (dropout) are those of eager, drawn by torch between compiled parts, instead of made in the
    kernels that use them."""

    build_threads: int = 0
    """How many threads build kernels; 0: one per core. Does not change what is built."""

    synchronous: bool = False
    """A call on CUDA tensors waits until its work has ended, and raises its own errors. Does not change what is built."""

    device_timeout_s: int = 60
    """How long one step may take on a GPU before the device counts as lost. Does not change what is built."""

    jit: str | None = None
    """Whether a GPU's driver may compile kernels where no installed compiler covers it, in a child process: ``"never"``,
    ``"warn"`` or ``"allow"``. Default: never."""

    jit_timeout_s: int = 120
    """How long the driver may take for one kernel."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name))
        if not re.fullmatch(r"cpu|gpu(:\d+)?(,cpu)?", self.device):
            raise OptionError(
                f'zefuse option device={self.device!r}: not a device; use "cpu", "gpu:N" for an Intel GPU, or "gpu:N,cpu" for '
                f"the CPU where that GPU cannot be used{_close(self.device, ('cpu', 'gpu', 'gpu:0', 'gpu:0,cpu'))}"
            )
        if self.jit not in (None, "never", "warn", "allow"):
            raise OptionError(
                f'zefuse option jit={self.jit!r}: use "never", "warn" or "allow"{_close(self.jit, ("never", "warn", "allow"))}'
            )
        for name in ("library_products", "library_convolutions"):
            if (word := getattr(self, name)) not in ("auto", "never", "always"):
                raise OptionError(
                    f'zefuse option {name}={word!r}: use "auto", "never" or "always"'
                    f"{_close(word, ('auto', 'never', 'always'))}"
                )
        if self.jit_timeout_s < 1:
            raise OptionError(f"zefuse option jit_timeout_s={self.jit_timeout_s}: use 1 or more")
        if self.cache_limit_mb is not None and self.cache_limit_mb < 1:
            raise OptionError(
                f"zefuse option cache_limit_mb={self.cache_limit_mb}: use 1 or more, or cache_dir='' for none"
            )
        if self.build_threads < 0:
            raise OptionError(f"zefuse option build_threads={self.build_threads}: use 0 (one per core) or more")
        if self.device_timeout_s < 1:
            raise OptionError(f"zefuse option device_timeout_s={self.device_timeout_s}: use 1 or more")

        if self.package_only and not self.package and not os.environ.get("ZEFUSE_PACKAGE"):
            raise OptionError("zefuse option package_only=True: it needs package='model.zefuse' (or ZEFUSE_PACKAGE)")

    @classmethod
    def make(cls, given: Mapping[str, Any] | Options | None) -> Options:
        """From what a user gave. Raises OptionError for an unknown name (with a suggestion) or value."""
        if isinstance(given, Options):
            return given
        given = given or {}
        if not isinstance(given, Mapping):
            raise OptionError(f"zefuse options: expected a dict such as {{'strict': True}}, got {type(given).__name__}")
        for name in given:
            if name not in _TYPES:
                close = closest(str(name), _TYPES)
                hint = f"did you mean {close!r}?" if close else "no name is close."
                raise OptionError(f"zefuse option {name!r}: no such option; {hint} Known: {', '.join(sorted(_TYPES))}")
        values = dict(given)
        if isinstance(values.get("package"), os.PathLike):
            values["package"] = os.fspath(values["package"])
        if isinstance(values.get("targets"), (list, tuple)):
            values["targets"] = ",".join(map(str, values["targets"]))
        return cls(**values)

    def or_cpu(self) -> Options | None:
        """The same for the CPU, where the user named it as the second choice."""
        return dataclasses.replace(self, device="cpu") if self.device.endswith(",cpu") else None

    def target_names(self) -> list[str]:
        """The option ``targets`` or, where it is not set, ZEFUSE_TARGETS."""
        text = os.environ.get("ZEFUSE_TARGETS", "") if self.targets is None else self.targets
        return [name.strip() for name in text.split(",") if name.strip()]

    def to_dict(self) -> dict[str, Any]:
        """As the compiled part takes it: ``None`` where the environment decides."""
        values = dataclasses.asdict(self)
        values["device"] = self.device.partition(",")[0]
        if self.cache_dir is None and "ZEFUSE_CACHE_DIR" not in os.environ:
            values["cache_dir"] = default_cache_dir()
        if self.cache_limit_mb is None and "ZEFUSE_CACHE_LIMIT_MB" in os.environ:
            text = os.environ["ZEFUSE_CACHE_LIMIT_MB"]
            if not text.isdecimal() or int(text) < 1:
                raise OptionError(f"ZEFUSE_CACHE_LIMIT_MB={text!r}: expected a number of MiB")
            values["cache_limit_mb"] = int(text)
        return values


def default_cache_dir() -> str:
    """``zefuse`` in the user's cache folder; empty (no cache) for a user without a home."""
    home = "" if os.environ.get("HOME") == "" else os.path.expanduser("~")  # which makes an empty one the root folder
    return cache_dir_of(os.environ, home)


def cache_dir_of(environment: Mapping[str, str], home: str) -> str:
    """The same for a user with this environment and home folder; ``home`` may be empty."""
    caches = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(caches, "zefuse") if os.path.isabs(caches) else ""


_TYPES: dict[str, Any] = typing.get_type_hints(Options)


def accepted_types(name: str) -> tuple[type, ...]:
    """Of which types an option's value may be; none for a name that is no option."""
    wanted = _TYPES.get(name)
    return typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,) if wanted else ()


def parsed(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` of a command line, the value as the option's type has it; Options says what is wrong with it."""
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"--option {text!r}: expected NAME=VALUE")
    kinds = accepted_types(name)
    if bool in kinds and value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    if int in kinds and re.fullmatch(r"-?\d+", value):
        return name, int(value)
    return name, value


def _check_type(name: str, value: object) -> None:
    accepted = accepted_types(name)
    if type(value) not in accepted:  # exactly: True is no thread count
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in accepted)
        names = names.replace("bool", "true or false") if isinstance(value, str) else names
        raise OptionError(f"zefuse option {name}={value!r}: expected {names}, got {type(value).__name__}")


def _close(value: str, known: tuple[str, ...]) -> str:
    """``; did you mean "allow"?`` or nothing."""
    close = closest(value.lower(), known)
    return f'; did you mean "{close}"?' if close else ""
