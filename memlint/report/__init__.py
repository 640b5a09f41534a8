"""What people and machines read: one renderer per format, imported only when it is asked for."""

from __future__ import annotations

from memlint.report.result import CheckResult
from memlint.report.style import Style

FORMATS: dict[str, tuple[str, str]] = {
    "full": ("full", "render"),
    "concise": ("concise", "render"),
    "json": ("json", "render"),
    "jsonl": ("json", "render_lines"),
    "sarif": ("sarif", "render"),
    "github": ("ci", "render_github"),
    "gitlab": ("ci", "render_gitlab"),
    "junit": ("ci", "render_junit"),
    "rdjson": ("ci", "render_rdjson"),
    "markdown": ("markdown", "render"),
}
"""Format to (module of this package, function)."""


def render(name: str, result: CheckResult, style: Style) -> str:
    """The result in one of `FORMATS`."""
    from importlib import import_module

    module, function = FORMATS[name]
    text: str = getattr(import_module(f"memlint.report.{module}"), function)(result, style)
    return text
