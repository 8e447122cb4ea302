"""Differences that are known: each with its reason. A row of the run that has one counts as expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    reason: str
    operator: str  # an expression for the whole name
    kind: str = ".*"  # of the difference, likewise
    text: str = ""  # an expression that the difference's text holds
    dtype: str = ".*"
    mode: str = ".*"


EXPECTED: list[Expected] = [
    Expected("which of equal elements topk takes is open", "topk", "value", "^outputs 1"),
    Expected("the same: their gradients are elsewhere", "topk", "gradient value"),
    Expected("the order of equal elements in a sort that need not be stable: ours is", "sort", "value", "^outputs 1"),
    Expected("the same: argsort gives the order alone", "argsort", "value"),
    Expected("the same: their gradients are elsewhere", "sort|msort", "gradient value"),
    Expected("which of equal elements kthvalue points at is open", "kthvalue", "value", "^outputs 1"),
    Expected("which of equal elements mode points at is open", "mode", "value", "^outputs 1"),
    Expected("the same: their gradients are elsewhere", "mode", "gradient value"),
    Expected(
        "eager's gradient through the infinite norm of complex numbers is NaN",
        "renorm",
        "gradient value",
        "nan",
        "complex64",
    ),
    Expected(
        "torch's decomposition takes the exponential in f32, where eager's overflows",
        "nn.functional.soft_margin_loss",
        "value",
        "\\binf\\b",
        "float16",
    ),
    Expected(
        "torch 2.11's shape rule of a real transform has not MKL's order, and its conjugate lies by the rule",
        r"fft\.(ifft|ihfft)[2n]?",
        "strides",
        dtype="(?!complex).*",
    ),
    Expected(
        "eager's vectors give NaN where the quotient is beyond the type's range, not the remainder",
        "fmod|remainder",
        "value",
        "difference: nan at",
        "bfloat16",
    ),
    Expected(
        "a pair of complex singular vectors may be turned by any angle: in f64 eager's pair is 1.8e-4 off and ours 1.3e-4",
        "svd_lowrank|pca_lowrank",
        "value",
        dtype="complex64",
    ),
    Expected(
        "oneDNN adds up the 1,320 terms of an element of the weight's gradient in one go: 5e-7 to 2e-6 of it",
        r"nn\.functional\.conv3d",
        "gradient value",
        "^gradients 1.*Mismatched elements: 1 /",
        "float32|complex64",
    ),
]


def expectation(row: Sequence[str], kind: str, text: str) -> Expected | None:
    operator, dtype, mode = row
    for entry in EXPECTED:
        whole = ((entry.operator, operator), (entry.kind, kind), (entry.dtype, dtype), (entry.mode, mode))
        if all(re.fullmatch(pattern, value) for pattern, value in whole) and re.search(entry.text, text):
            return entry
    return None
