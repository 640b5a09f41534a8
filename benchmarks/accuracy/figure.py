"""Predicted against measured as an SVG: both axes logarithmic, one dot per case, a colour per metric."""

from __future__ import annotations

from html import escape
from math import log10

from benchmarks.accuracy.score import Result

WIDTH, HEIGHT, LEFT, TOP, SIDE = 640, 600, 64, 40, 500
LEAST, MOST = 1.0, 256.0
"""GiB at the ends of the axes."""
TICKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COLOURS = {"allocated": "#2563eb", "reserved": "#d97706", "device": "#059669"}


def scatter(results: list[Result]) -> str:
    """The picture of all results that can be compared."""
    points = [r for r in results if r.error is not None and r.predicted is not None]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        'font-size="12" role="img">',
        f"<title>Predicted against measured peak memory, {len(points)} published runs</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15">Predicted against measured peak memory ({len(points)} published runs)</text>',
    ]
    parts += _axes()
    parts += [_dot(result) for result in points]
    for index, (metric, colour) in enumerate(COLOURS.items()):
        x = LEFT + 16 + index * 96
        parts.append(f'<circle cx="{x}" cy="{TOP + 18}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 9}" y="{TOP + 22}" fill="#111827">{metric}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _at(gib: float) -> float:
    share = (log10(min(max(gib, LEAST), MOST)) - log10(LEAST)) / (log10(MOST) - log10(LEAST))
    return share * SIDE


def _axes() -> list[str]:
    bottom = TOP + SIDE
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#9ca3af"/>']
    for tick in TICKS:
        x, y = LEFT + _at(tick), bottom - _at(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e5e7eb"/>')
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + SIDE}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#374151">{tick}</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#374151">{tick}</text>')
    # the diagonal, and the band of 10 % around it
    band = log10(1.1) / (log10(MOST) - log10(LEAST)) * SIDE
    corners = (
        (LEFT, bottom - band), (LEFT + SIDE - band, TOP), (LEFT + SIDE, TOP), (LEFT + SIDE, TOP + band),
        (LEFT + band, bottom), (LEFT, bottom),
    )  # fmt: skip
    parts.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="#2563eb" opacity="0.08"/>')
    parts.append(f'<line x1="{LEFT}" y1="{bottom}" x2="{LEFT + SIDE}" y2="{TOP}" stroke="#6b7280"/>')
    parts.append(f'<text x="{LEFT + SIDE / 2}" y="{bottom + 38}" text-anchor="middle" fill="#111827">measured, GiB</text>')
    parts.append(
        f'<text transform="translate(18 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle" fill="#111827">predicted, GiB</text>'
    )
    return parts


def _dot(result: Result) -> str:
    assert result.predicted is not None
    x = LEFT + _at(result.case.bytes / 2**30)
    y = TOP + SIDE - _at(result.predicted.expected / 2**30)
    label = escape(f"{result.case.id}: {result.error:+.1%}")
    colour = COLOURS[result.case.metric]
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.55"><title>{label}</title></circle>'
