"""Which library versions are in force for a file: what its repository pins, else the newest known.

The files are read as text, never resolved. A lock file's version is exact; a lower bound (`transformers>=4.40`) leaves the
newest known; an upper bound or a compatible release (`<5`, `~=4.46`) gives the newest version known within it. The nearest
directory that says something about a library wins, in it a lock file before a requirement.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice

from memlint.facts import Fact, default
from memlint.paths import above, text_of
from memlint.typed import NamedTuple


class Pin(NamedTuple):
    """A version and the place that says so (`requirements.txt:3`, `newest known`)."""

    version: str
    where: str


NEWEST = {
    "transformers": "5.24.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "bitsandbytes": "0.50.2",
    "torch": "2.13.0",
}
"""The newest versions whose defaults were read."""


@cache
def version_key(version: str) -> tuple[int, ...]:
    """A version as a comparable tuple of its leading numbers: `4.57.6.dev0` -> `(4, 57, 6)`, `5.0` and `5` -> `(5,)`."""
    return _trimmed(_numbers(version))


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else (0,)


def _trimmed(key: tuple[int, ...]) -> tuple[int, ...]:
    while len(key) > 1 and key[-1] == 0:
        key = key[:-1]
    return key


class Versions(NamedTuple):
    """The versions in force; a library that nothing pins has the newest known one."""

    pins: Mapping[str, Pin] = {}

    def of(self, library: str) -> Pin:
        """The version of a library and where it was read."""
        return self.pins.get(library) or Pin(NEWEST.get(library, "0"), "newest known")

    def at_least(self, library: str, version: str) -> bool:
        """Whether the version in force is this one or newer."""
        return version_key(self.of(library).version) >= version_key(version)

    def note(self, library: str) -> str:
        """`transformers 5.24.0`, for the origin of a default."""
        return f"{library} {self.of(library).version}"

    def fact(self) -> Fact | None:
        """`framework.versions`: what is pinned, with each place; None when nothing is, and the newest known hold."""
        if not self.pins:
            return None
        pins = sorted(self.pins.items())
        where = ", ".join(f"{library} {pin.version} ({pin.where})" for library, pin in pins)
        return default({library: pin.version for library, pin in pins}, where)


def versions_for(path: str, pinned: Mapping[str, str | Pin] | None = None) -> Versions:
    """The versions in force for a file; `pinned` are versions stated by hand (`[tool.memlint]`), or by the file; they win."""
    pins = dict(_pins_of(os.path.dirname(os.path.abspath(path))))
    for library, stated in (pinned or {}).items():
        pins[library] = stated if isinstance(stated, Pin) else Pin(stated, "configuration")
    return Versions(pins)


def pins_in(text: str, where: str) -> dict[str, Pin]:
    """The versions that a requirements text asks for: `pip install` lines, requirements, `pyproject.toml`, a conda file."""
    asked: dict[str, tuple[str, int]] = {}
    for match in re.finditer(_REQUIREMENT, text, re.IGNORECASE):
        library, constraint = match.group(1).lower(), match.group(2).strip()
        exact = constraint.startswith(("==", "=")) and "*" not in constraint
        if library not in asked or (exact and not asked[library][0].startswith("=")):
            asked[library] = (constraint, text.count("\n", 0, match.start()) + 1)
    found = {}
    for library, (constraint, line) in asked.items():
        version = _within(library, constraint)
        if version is not None:
            found[library] = Pin(version, f"{where}:{line}")
    return found


_INSTALLED = r"(?<!#)(?<!# )[!%][ \t]*(?:uv[ \t]+)?pip3?[ \t]+install[^\n]*?(?=\\n|$|\",?$)|^# /// script$.*?^# ///$"
"""`!pip install` of a notebook (also in its JSON), and the inline metadata of a script."""


def pins_inside(text: str) -> dict[str, Pin]:
    """The versions that a notebook installs itself (`!pip install`), or that a script's inline metadata (PEP 723) asks for."""
    if "install" not in text and "# /// script" not in text:
        return {}
    found: dict[str, Pin] = {}
    for match in re.finditer(_INSTALLED, text, re.MULTILINE | re.DOTALL):
        found |= {library: Pin(pin.version, "installed here") for library, pin in pins_in(match.group(), "").items()}
    return found


MAX_FILE = 4_000_000
MAX_PARENTS = 8
MAX_INCLUDES = 20

_LIBRARIES = "|".join(sorted(NEWEST, key=len, reverse=True))
_REQUIREMENT = (
    rf"(?<![\w./-])({_LIBRARIES})(?:\[[\w, -]*\])?[\"']?\s*(?:=\s*[\"{{'](?:version\s*=\s*[\"'])?\s*)?"
    r"((?:===|==|~=|>=|<=|!=|<|>|\^|~|=)?\s*v?\d[\w.*+-]*(?:\s*,\s*(?:==|~=|>=|<=|!=|<|>)\s*\d[\w.*+-]*)*)"
)
_LOCKED = (
    rf"""name\s*=\s*"({_LIBRARIES})"\s*\nversion\s*=\s*"([^"]+)\"|"({_LIBRARIES})":\s*\{{[^{{}}]*?"version":\s*"=*([^"]+)\""""
)
_INCLUDE = r"""(?:^\s*(?:-\s+["']?)?|pip3? install[^\n]*?\s)(?:-r|-c|--requirement|--constraint)[= ]+["']?([^\s"']+)"""
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")
_ASKING = (r"requirements.*\.(?:txt|in)|pyproject\.toml|setup\.(?:py|cfg)|Pipfile|environment.*\.ya?ml|conda.*\.ya?ml"
           r"|(?:.*\.)?Dockerfile(?:\..*)?")  # fmt: skip


@cache
def _pins_of(directory: str) -> Mapping[str, Pin]:
    """The pins in force in a directory: its own, then those of its parents up to the repository's root."""
    pins: dict[str, Pin] = {}
    for folder in islice(above(directory), MAX_PARENTS + 1):
        for library, pin in _pins_here(folder):
            pins.setdefault(library, pin)
        if os.path.exists(os.path.join(folder, ".git")):
            break
    return pins


def _pins_here(folder: str) -> Iterator[tuple[str, Pin]]:
    try:
        names = sorted(os.listdir(folder))  # names only
    except OSError:
        return
    for name in _LOCKS:
        if name in names:
            for match in re.finditer(_LOCKED, _text(os.path.join(folder, name))):
                yield match.group(1) or match.group(3), Pin(match.group(2) or match.group(4), name)
    asking = re.compile(_ASKING, re.IGNORECASE)  # a folder may hold thousands of names
    requirements = [name for name in names if asking.fullmatch(name)]
    # `requirements.txt` before `requirements-dev.txt`, either before pyproject's ranges
    for name in sorted(requirements, key=lambda item: (not item.startswith("requirements"), len(item))):
        file = os.path.join(folder, name)
        yield from _included(file, {file})


def _included(file: str, seen: set[str]) -> Iterator[tuple[str, Pin]]:
    """The pins of a file, then those of the requirements that it includes (`-r`, `-c`; in a conda list or a `pip install`, too)."""
    text = _text(file)
    yield from pins_in(text, os.path.basename(file)).items()
    for match in re.finditer(_INCLUDE, text, re.MULTILINE):
        target = os.path.join(os.path.dirname(file), match.group(1))
        if target not in seen and len(seen) < MAX_INCLUDES and "/.." not in match.group(1):
            seen.add(target)
            yield from _included(target, seen)


def _text(file: str) -> str:
    try:
        return "" if os.stat(file).st_size > MAX_FILE else text_of(file, errors="replace")
    except OSError:
        return ""


def _within(library: str, constraint: str) -> str | None:
    """The newest known version that a constraint allows; None when the constraint excludes nothing we would take."""
    newest = NEWEST[library]
    low: tuple[int, ...] = ()
    allowed = list(_known(library))
    for part in re.split(r"\s*,\s*", constraint):
        match = re.match(r"(===|==|~=|>=|<=|!=|<|>|\^|~|=)?\s*v?(\d[\w.*+-]*)", part)
        if match is None:
            continue
        operator, version = match.group(1) or "==", match.group(2)
        key = version_key(version)
        written = _numbers(version)
        if operator in ("==", "===", "=") and "*" not in version:
            return version
        if operator in ("==", "="):
            allowed = [v for v in allowed if _numbers(v)[: len(written)] == written] or [version.rstrip(".*")]
        elif operator in ("~=", "~", "^"):
            head = written[: max(len(written) - 1, 1)] if operator != "^" else written[:1]
            allowed = [v for v in allowed if _numbers(v)[: len(head)] == head and version_key(v) >= key] or [version]
        elif operator == "<":
            allowed = [v for v in allowed if version_key(v) < key] or [_just_below(key)]
        elif operator == "<=":
            return version if version_key(newest) > key else newest
        else:
            low = max(low, key)
    if not allowed:
        return None
    best = max(allowed, key=version_key)
    return best if version_key(best) >= low else ".".join(map(str, low))


def _known(library: str) -> Iterable[str]:
    """The versions whose defaults were read, the newest known among them."""
    import json

    file = os.path.join(os.path.dirname(__file__), "defaults", f"{library}.json")
    read = json.loads(text_of(file))["read"] if os.path.exists(file) else []
    return [*read, NEWEST[library]]


def _just_below(key: tuple[int, ...]) -> str:
    """A version right below a bound, for a library whose releases are not recorded (`<2.4` -> `2.3`)."""
    *head, last = key
    while last == 0 and head:
        *head, last = head
    return ".".join(map(str, [*head, max(last - 1, 0)]))
