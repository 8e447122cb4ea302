"""What zefuse raises. The first line of every message says what is wrong, where, and what to do.

The compiled part raises these too: it picks the class by the status code of ``common/base/status.h``.
"""

from __future__ import annotations


class ZefuseError(RuntimeError):
    """The base class: catch this for anything zefuse refuses or fails at."""


class OptionError(ZefuseError, ValueError):
    """An option with an unknown name or a value it does not take."""


class InvalidArgumentError(ZefuseError, ValueError):
    """The caller passed something wrong, such as an input whose dtype is not the one compiled for."""


class IndexOutOfRangeError(ZefuseError, IndexError):
    """An index inside tensor data is out of range (embedding, gather)."""


class NotFoundError(ZefuseError):
    """A named thing (device, file, operator) does not exist."""


class DamagedError(ZefuseError):
    """A plan, package or SPIR-V module fails its checks: make it again."""


class UnsupportedError(ZefuseError, NotImplementedError):
    """Valid, but this build or device cannot do it; the message says what could."""


class FallbackError(UnsupportedError):
    """``strict=True`` and an operator would have run through ATen."""


class OutOfMemoryError(ZefuseError, MemoryError):
    """A buffer could not be allocated."""


class DeadlineError(ZefuseError, TimeoutError):
    """An outside tool or a wait did not end in time."""


class CancelledError(ZefuseError):
    """Whoever asked for the work asked for its end: a ``progress`` that returned False."""


class DeviceError(ZefuseError):
    """Level Zero or oneDNN returned an error; the message has the call, its code and the device."""


class InstallationError(ZefuseError, ImportError):
    """Something of the installation is missing, or is for another Python, torch or processor; the message says what to do."""

    def __init__(self, message: str = "") -> None:
        ImportError.__init__(self, message)  # sets msg, which torch 2.11's Dynamo takes for text


class InternalError(ZefuseError):
    """A bug in zefuse: please report it with the message and, if possible, a dump (``ZEFUSE_DUMP=dir``)."""


# What the compiled part names (the codes of common/base/status.h, and "fallback") -> what Python raises.
BY_CODE: dict[str, type[ZefuseError]] = {
    "invalid_argument": InvalidArgumentError,
    "index_error": IndexOutOfRangeError,
    "not_found": NotFoundError,
    "damaged": DamagedError,
    "unsupported": UnsupportedError,
    "fallback": FallbackError,
    "out_of_memory": OutOfMemoryError,
    "deadline": DeadlineError,
    "cancelled": CancelledError,
    "device": DeviceError,
    "internal": InternalError,
}


def by_code(code: str) -> type[ZefuseError]:
    """The class for a code of the compiled part. Two are errors of torch's as well, whose classes need torch."""
    if code == "out_of_device_memory":
        from zefuse.graphs.places import DeviceOutOfMemoryError

        return DeviceOutOfMemoryError
    if code == "linear_algebra":
        from zefuse.graphs.linear_algebra import LinearAlgebraError

        return LinearAlgebraError
    return BY_CODE.get(code, InternalError)
