"""Random numbers of CUDA tensors, made in the kernels that use them.

A draw is a seed from torch's generator of the device (``seed``), and numbers that are a function of it and of the element's place:
Philox4x32-10, torch's own algorithm, in another order than torch's kernels take. So a number that is computed again is the same,
forward and backward, and a graph asks the generator once in a call, whatever it draws (``graphs/seeds.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from zefuse.graphs import places

aten = torch.ops.aten
_library: Any = torch.library.Library("zefuse_random", "FRAGMENT")  # type: ignore[no-untyped-call]
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # torch's f64 has 53 random bits


def define(schema: str, eager: Callable[..., Any], fake: Callable[..., Any], **tags: Any) -> Any:
    """An operator of ours that takes a seed."""
    name = schema.partition("(")[0]
    _library.define(schema, **tags)
    _library.impl(name, eager, "CompositeExplicitAutograd")
    torch.library.register_fake(f"zefuse_random::{name}", fake, lib=_library)
    return getattr(torch.ops.zefuse_random, name).default


def _words(seed: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """Of each group of four neighbours the four words, u32 in i64."""
    mask = 0xFFFFFFFF
    group = torch.arange(-(-count // 4), dtype=torch.int64, device=seed.device)
    a, b, c, d = group & mask, group >> 32, torch.zeros_like(group), torch.zeros_like(group)
    key = [seed & mask, (seed >> 32) & mask]
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (
            ((second >> 32) & mask) ^ b ^ key[0],
            second & mask,
            ((first >> 32) & mask) ^ d ^ key[1],
            first & mask,
        )
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return a, b, c, d


def _drawn(seed: torch.Tensor, size: Sequence[int], number: Callable[..., Sequence[torch.Tensor]]) -> torch.Tensor:
    """``number``: of the four words the numbers of the four elements."""
    count = math.prod(size)
    return torch.stack(tuple(number(*_words(seed, count))), -1).flatten()[:count].reshape(tuple(size))


def _uniform(seed: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return _drawn(seed, size, lambda *words: [(word >> 8).float() * 2.0**-24 for word in words])


def _normal(seed: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    def numbers(*words: torch.Tensor) -> list[torch.Tensor]:
        a, b, c, d = (word.float() * 2.0**-32 + 2.0**-33 for word in words)
        return [
            (first.log() * -2).sqrt() * ((turn - back) * (2 * math.pi)).cos()
            for first, turn in ((a, b), (c, d))
            for back in (0, 0.25)
        ]

    return _drawn(seed, size, numbers)


def _integers(seed: torch.Tensor, size: Sequence[int], low: int, high: int) -> torch.Tensor:
    # The product of two numbers of 32 bits may not fit into an i64: it is taken in two.
    span = high - low
    return _drawn(
        seed,
        size,
        lambda *words: [low + (((word >> 16) * span + ((word & 0xFFFF) * span >> 16)) >> 16) for word in words],
    )


def _fake(dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    return lambda seed, size, *_: seed.new_empty(tuple(size), dtype=dtype)


_DRAWS = {"tags": (torch.Tag.nondeterministic_seeded,)}
seeds = define(
    "seeds(int count, Device device) -> Tensor",
    lambda count, device: torch.randint(_LOWEST, _HIGHEST, (count,), dtype=torch.int64, device=device),
    lambda count, device: torch.empty((count,), dtype=torch.int64, device=device),
    **_DRAWS,
)
"""From torch's generator of the device."""
seed = define(
    "seed(Device device) -> Tensor",
    lambda device: seeds(1, device)[0],
    lambda device: torch.empty((), dtype=torch.int64, device=device),
    **_DRAWS,
)
"""Of one draw, until ``graphs/seeds.py`` draws all of a graph's at once."""
uniform = define("uniform(Tensor seed, SymInt[] size) -> Tensor", _uniform, _fake(torch.float32))
"""In [0, 1), multiples of 2^-24."""
normal = define("normal(Tensor seed, SymInt[] size) -> Tensor", _normal, _fake(torch.float32))
integers = define("integers(Tensor seed, SymInt[] size, int low, int high) -> Tensor", _integers, _fake(torch.int64))
"""In [low, high), of which there are 2^32 at most."""


def _is_ours(device: torch.device | None, dtype: torch.dtype | None, generator: Any = None) -> bool:
    """Whether a draw of real numbers is made in kernels; one from a generator of the user's is not."""
    return generator is None and device is not None and device.type in places.NAMES and dtype in _FLOATS


def _in(dtype: torch.dtype, numbers: torch.Tensor, below: float) -> torch.Tensor:
    """Rounded as eager does: what becomes the upper end, which is none of them, is the lower."""
    rounded = numbers.to(dtype)
    return rounded if dtype is torch.float32 else torch.where(rounded == below, 0.0, rounded)


def _rand(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    dtype = dtype or torch.get_default_dtype()
    if not _is_ours(device, dtype):
        return NotImplemented
    return _in(dtype, uniform(seed(device), size), 1.0)


def _randn(size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    dtype = dtype or torch.get_default_dtype()
    if not _is_ours(device, dtype):
        return NotImplemented
    return normal(seed(device), size).to(dtype)


def _like(draw: Callable[..., Any]) -> Callable[..., Any]:
    def decomposition(
        self: torch.Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
        memory_format: Any = None,
    ) -> Any:  # fmt: skip
        return draw(self.shape, dtype=dtype or self.dtype, device=device or self.device)

    return decomposition


def _bernoulli(self: torch.Tensor, p: float | torch.Tensor, generator: Any = None) -> Any:
    # Of a mask, as dropout has it, too.
    if not _is_ours(self.device, self.dtype if self.dtype in _FLOATS else torch.float32, generator):
        return NotImplemented
    return (uniform(seed(self.device), self.shape) < p).to(self.dtype)


def _bernoulli_of_itself(self: torch.Tensor, *, generator: Any = None) -> Any:
    return _bernoulli(self, self, generator)


def _uniform_from(self: torch.Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None) -> Any:
    if not _is_ours(self.device, self.dtype, generator):
        return NotImplemented
    numbers = (uniform(seed(self.device), self.shape) * (to - from_) + from_).to(self.dtype)
    return torch.where(numbers == to, from_, numbers)


def _normal_from(self: torch.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    if not _is_ours(self.device, self.dtype, generator):
        return NotImplemented
    return (normal(seed(self.device), self.shape) * std + mean).to(self.dtype)


def _normal_of(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Any:
    like = mean if isinstance(mean, torch.Tensor) else std
    shape = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        *(each.shape for each in (mean, std) if isinstance(each, torch.Tensor))
    )
    if not _is_ours(like.device, like.dtype, generator):
        return NotImplemented
    return (normal(seed(like.device), shape) * std + mean).to(like.dtype)


def _exponential(self: torch.Tensor, lambd: float = 1.0, *, generator: Any = None) -> Any:
    if not _is_ours(self.device, self.dtype, generator):
        return NotImplemented
    drawn = uniform(seed(self.device), self.shape).clamp_min(2.0**-25)  # no zeros, as in eager
    return (torch.log1p(-drawn) * (-1 / lambd)).to(self.dtype)


def _randint_from(
    low: int, high: int, size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    dtype = dtype or torch.int64
    whole = isinstance(low, int) and isinstance(high, int) and low < high and high - low <= 2**32
    if not (whole and _is_ours(device, torch.float32)) or dtype is torch.float64:
        return NotImplemented
    return integers(seed(device), size, low, high).to(dtype)


def _randint(high: int, size: Any, **given: Any) -> Any:
    return _randint_from(0, high, size, **given)


def _randint_like_from(
    self: torch.Tensor, low: int, high: int, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, memory_format: Any = None,
) -> Any:  # fmt: skip
    return _randint_from(low, high, self.shape, dtype=dtype or self.dtype, device=device or self.device)


def _randint_like(self: torch.Tensor, high: int, **given: Any) -> Any:
    return _randint_like_from(self, 0, high, **given)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """For graphs of CUDA tensors; the others' draws stay as they are, with eager's numbers."""
    return {
        aten.rand.default: _rand,
        aten.randn.default: _randn,
        aten.rand_like.default: _like(_rand),
        aten.randn_like.default: _like(_randn),
        aten.bernoulli.p: _bernoulli,
        aten.bernoulli.default: _bernoulli_of_itself,
        aten.uniform.default: _uniform_from,
        aten.normal_functional.default: _normal_from,
        aten.normal.Tensor_float: _normal_of,
        aten.normal.float_Tensor: _normal_of,
        aten.normal.Tensor_Tensor: _normal_of,
        aten.exponential.default: _exponential,
        aten.randint.default: _randint,
        aten.randint.low: _randint_from,
        aten.randint_like.default: _randint_like,
        aten.randint_like.low_dtype: _randint_like_from,
    }
