"""What a script asks about the versions that are installed: those in force for the file."""

from __future__ import annotations

from memlint.facts import Fact, Status, default
from memlint.read.pyeval.values import Array, Call
from memlint.source import Span
from memlint.versions import NEWEST, Versions, version_key

_PARSED = frozenset({"packaging.version.parse", "packaging.version.Version", "pkg_resources.parse_version",
                     "distutils.version.LooseVersion", "distutils.version.StrictVersion"})  # fmt: skip
_ASKED = frozenset({"importlib.metadata.version", "importlib_metadata.version"})


def version_of(name: str, versions: Versions, span: Span) -> Fact | None:
    """`transformers.__version__`, or None for any other name."""
    library, _, attribute = name.rpartition(".")
    return _text(library, versions, span) if attribute == "__version__" else None


def version_asked(name: str, call: Call, versions: Versions) -> Fact | None:
    """`importlib.metadata.version("transformers")`; `packaging.version.parse(text)`, which compares as its numbers do."""
    given = call.args[0] if call.args else None
    if given is None or not given.known or not isinstance(given.value, str):
        return None
    if name in _ASKED:
        return _text(given.value, versions, call.span)
    if name in _PARSED:
        numbers = [default(number, "a version") for number in version_key(given.value)]
        return Fact(Array(numbers, "tuple"), Status.DEFAULT, given.origin)
    return None


def _text(library: str, versions: Versions, span: Span) -> Fact | None:
    if library not in NEWEST and library not in versions.pins:
        return None
    return default(versions.of(library).version, versions.note(library), span)
