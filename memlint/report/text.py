"""Words and numbers as they are shown, and the escaping of text that comes from linted files.

Everything that a linted file can influence (its path, its values, its source lines, messages that quote them) passes
through one of these before it reaches a terminal, Markdown, XML or a CI log command.
"""

from __future__ import annotations

import re

GIB = 1 << 30
MIB = 1 << 20

# C0 and C1 controls, DEL, bidirectional overrides, line separators, zero-width characters and the BOM: all that can
# move the cursor, recolour the screen or make text read differently from what it is.
_UNSAFE = "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
_MARKDOWN = r"([\\`*_{}\[\]()<>#+!|~@])"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def plain(text: str) -> str:
    """One line that is safe on a terminal: control and invisible characters become visible escapes."""
    return text if text.isascii() and text.isprintable() else re.sub(_UNSAFE, _visible, text)


def source_line(text: str) -> str:
    """A source line for an excerpt: tabs become one space each, so that columns stay columns."""
    return plain(text.replace("\t", " "))


def markdown(text: str) -> str:
    """Text that Markdown (and GitHub: no mentions, no HTML) shows as it is written."""
    return re.sub(_MARKDOWN, r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def code(text: str) -> str:
    """A Markdown code span whatever backticks and pipes the text has."""
    shown = plain(text).replace("|", "\\|") or " "
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def github_data(text: str) -> str:
    """The message of a GitHub workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def github_property(text: str) -> str:
    """A property value of a GitHub workflow command."""
    return github_data(text).replace(":", "%3A").replace(",", "%2C")


def xml(text: str) -> str:
    """Text for an XML attribute or element; characters that XML cannot hold become visible escapes."""
    kept = "\n".join(re.sub(_UNSAFE, _visible, line) for line in text.split("\n"))
    return kept.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def size(count: int) -> str:
    """Bytes for people: GiB with one decimal, MiB below one GiB."""
    if abs(count) >= GIB:
        return f"{count / GIB:.1f} GiB"
    if abs(count) >= MIB or count == 0:
        return f"{count / MIB:.0f} MiB"
    return f"{count} B"


def parameters(count: int) -> str:
    """A parameter count as people say it: 6.74B, 355M, 12.3K."""
    for limit, suffix in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= limit:
            return f"{count / limit:.3g}{suffix}"
    return str(count)


def plural(count: int, word: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{count} {word}{'' if count == 1 else 's'}"
