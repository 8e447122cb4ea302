"""A roofline as SVG: operations a second over operations a byte, with the machine's two limits and a dot for each step."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zefuse.profiling import Profile

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 820, 520, 80, 60, 30
_COLORS = {"kernel": "#1f77b4", "call": "#2ca02c", "fallback": "#d62728"}


def picture(profile: Profile) -> str:
    """The largest dots take the most time. Steps without operations or bytes have no place in it."""
    points = [step for step in profile.steps if step.flops and step.bytes]
    ridge = profile.arithmetic / profile.bandwidth
    intensities = [step.flops / step.bytes for step in points] + [ridge]
    rates = [step.flops / step.seconds for step in points] + [profile.arithmetic]
    x0, x1 = math.floor(math.log10(min(intensities)) - 0.3), math.ceil(math.log10(max(intensities)) + 0.3)
    y0, y1 = math.floor(math.log10(min(rates)) - 0.3), math.ceil(math.log10(max(rates)) + 0.1)

    def x(value: float) -> float:
        return _LEFT + (math.log10(value) - x0) / (x1 - x0) * (_WIDTH - _LEFT - _EDGE)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(value) - y0) / (y1 - y0) * (_HEIGHT - _BOTTOM - _EDGE)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        "<style>svg{background:#fff;color:#1b1f24}@media(prefers-color-scheme:dark){svg{background:#0d1117;color:#e6edf3}}"
        "text{fill:currentColor}.axis{stroke:currentColor;opacity:.2}.roof{stroke:currentColor;stroke-width:2;fill:none}</style>",
        f"<title>Roofline of {html.escape(profile.name)}</title>",
    ]
    for power in range(x0, x1 + 1):
        at = x(10.0**power)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{_EDGE}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(y0, y1 + 1):
        at = y(10.0**power)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _EDGE}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0 ** (power - 9):g}</text>')
    start = max(10.0**x0, 10.0**y0 / profile.bandwidth)
    roof = [(start, start * profile.bandwidth), (ridge, profile.arithmetic), (10.0**x1, profile.arithmetic)]
    parts.append(f'<polyline class="roof" points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in roof)}"/>')
    at = y(profile.arithmetic)
    parts.append(_text(_WIDTH - _EDGE, at - 6, f"{profile.arithmetic / 1e9:.0f} GFLOP/s", "end"))
    parts.append(_text(x(ridge) - 12, at + 4, f"{profile.bandwidth / 1e9:.1f} GB/s", "end"))
    longest = max((step.seconds for step in points), default=1.0)
    for number, step in enumerate(points):
        a, b = x(step.flops / step.bytes), y(step.flops / step.seconds)
        radius = 4 + 10 * math.sqrt(step.seconds / longest)
        name = html.escape(step.name)
        parts.append(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius:.1f}" fill="{_COLORS[step.kind]}" fill-opacity=".6">'
            f"<title>{name}: {step.seconds * 1e6:.0f} us, held back by {step.bound}</title></circle>"
        )
        if number < 6:
            right = a > _WIDTH * 0.7
            place = a - radius - 4 if right else a + radius + 4
            parts.append(
                f'<text x="{place:.1f}" y="{b + 4:.1f}" text-anchor="{"end" if right else "start"}">{name[:40]}</text>'
            )
    middle = (_LEFT + _WIDTH - _EDGE) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 18}" text-anchor="middle">operations a byte</text>')
    parts.append(f'<text x="{_LEFT}" y="18">GFLOP/s of {html.escape(profile.name)}; larger dots take more time</text>')
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
