"""An estimate drawn in text: what the peak consists of, and how memory moves through a step."""

from __future__ import annotations

from memlint.memory.result import COMPONENTS, Estimate, Interval
from memlint.report.style import VERDICT_COLOURS, Style
from memlint.report.text import MIB, size

BAR = 36
NAMES = {"optimizer_states": "optimizer states", "context": "CUDA context"}
SHADES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("weights, gradients, optimizer", ("weights", "adapters", "gradients", "optimizer_states")),
    ("activations", ("activations",)),
    ("logits", ("logits",)),
    ("other", ("communication", "workspace")),
)
"""How the timeline groups components, in the order of the shades of a stacked bar."""


def interval(amount: Interval, style: Style) -> str:
    """`31.2 GiB (30.1–33.4)`; the bounds only where they differ as shown."""
    low, high = size(amount.low), size(amount.high)
    if low == high:
        return size(amount.expected)
    if low.endswith(" GiB") and high.endswith(" GiB"):
        low, high = low[:-4], high[:-4]
    return f"{size(amount.expected)} ({low}{style.dash}{high})"


def verdict_words(verdict: str, style: Style) -> str:
    """The verdict as people read it."""
    words = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit"}.get(verdict, "unknown")
    return style.paint(words, VERDICT_COLOURS.get(verdict, "2"))


def components(estimate: Estimate) -> list[tuple[str, int]]:
    """What the peak consists of, by the names people read, in the order of every report; less than a MiB is left out."""
    rows = [(name, estimate.components.get(name, 0)) for name in (*COMPONENTS, "context")]
    rows += [(name, count) for name, count in estimate.components.items() if name not in dict(rows)]
    context = estimate.components.get("context", 0)
    missing = estimate.allocated.expected - (sum(estimate.components.values()) - context)
    if missing > estimate.allocated.expected // 100:
        rows.append(("not attributed", missing))
    return [(NAMES.get(name, name), count) for name, count in rows if count >= MIB]


def component_rows(estimate: Estimate, style: Style) -> list[str]:
    """One line per component with its bar, the largest filling the width."""
    rows = components(estimate)
    largest = max((count for _, count in rows), default=0)
    return [f"{name:<17}{size(count):>10}  {style.stack([count], largest, BAR)}".rstrip() for name, count in rows]


def timeline_rows(estimate: Estimate, capacity: int | None, style: Style) -> list[str]:
    """One stacked bar per phase of a step, with a mark where the card's room for allocations ends."""
    scale = max([instant.peak_bytes for instant in estimate.timeline] + [capacity or 0])
    rows = []
    for instant in estimate.timeline:
        parts = [sum(instant.components.get(name, 0) for name in names) for _, names in SHADES]
        parts[-1] += max(instant.peak_bytes - sum(parts), 0)
        bar = style.stack(parts, scale, BAR + 12)
        if capacity:
            at = min(round(capacity * (BAR + 12) / scale), BAR + 11)
            bar = bar.ljust(at)
            bar = bar[:at] + style.mark + bar[at + 1 :]
        peak = f"  {'←' if style.blocks else '<-'} peak" if instant.phase == estimate.peak_phase else ""
        rows.append(f"{instant.phase.replace('_', ' '):<17}{size(instant.peak_bytes):>10}  {bar}{peak}".rstrip())
    if rows:
        legend = "  ".join(f"{shade} {name}" for shade, (name, _) in zip("█▓▒░" if style.blocks else "#=-.", SHADES, strict=True))
        limit = f"  {style.mark} room on the card" if capacity else ""
        rows.append(style.dim(f"{'':<29}{legend}{limit}"))
    return rows
