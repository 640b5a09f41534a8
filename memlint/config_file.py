"""A configuration file as values: what each key may be, and the line of whatever is wrong.

Everything here is about one file; which file counts, and what its settings mean together, is `memlint.config`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial

from memlint.paths import expanded, inside, shown
from memlint.typed import Any, NamedTuple

FILES = ("memlint.toml", "pyproject.toml")


class ConfigError(Exception):
    """A setting that memlint cannot accept, with the file and line it is written at."""

    def __init__(self, message: str, path: str = "", line: int = 1) -> None:
        super().__init__(f"{path}:{line}: {message}" if path else message)
        self.message, self.path, self.line = message, path, line


class Pattern(NamedTuple):
    """A glob below a folder. Without a slash it names files or folders anywhere below, with one it starts at `root`."""

    root: str
    glob: str

    def matches(self, path: str) -> bool:
        """True for the absolute paths it names and everything below them."""
        below = inside(path, self.root)
        if below is None:
            return False
        parts = tuple(below.split("/")) if below != "." else ()
        wanted = [part for part in self.glob.strip("/").split("/") if part != "."]
        return _match(parts, wanted if "/" in self.glob.rstrip("/") else ["**", *wanted])


def _match(parts: tuple[str, ...], wanted: list[str]) -> bool:
    """Match path parts with glob parts; an exhausted pattern matches everything below."""
    if not wanted:
        return True
    if wanted[0] == "**":
        rest = wanted[1:]
        return any(_match(parts[start:], rest) for start in range(len(parts) + 1 if rest else 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _match(parts[1:], wanted[1:])


def read_section(path: str, text: str) -> Mapping[str, Any] | None:
    """The memlint section of a file as TOML has it; None when there is none. Raises `ConfigError` for broken TOML."""
    if os.path.basename(path) == "pyproject.toml" and "memlint" not in text:
        return None  # Most pyproject.toml files have no section: they are never parsed.
    return _section(path, _parse(text, path))


def _parse(text: str, path: str) -> Mapping[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]
    try:
        parsed: Mapping[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = _number_after("line ", str(error))
        raise ConfigError(f"not valid TOML: {error}", shown(path), line) from None
    return parsed


def _section(path: str, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if os.path.basename(path) != "pyproject.toml":
        return data
    tool = data.get("tool")
    section = tool.get("memlint") if isinstance(tool, Mapping) else None
    return section if isinstance(section, Mapping) else None


def read_values(section: Mapping[str, Any], path: str, text: str) -> dict[str, Any]:
    """The section's values by Settings attribute; raises `ConfigError` at the line of the first that is wrong."""
    values: dict[str, Any] = {}
    for name, value in section.items():
        if name == "extend":
            continue
        read = READERS.get(name)
        try:
            if read is None:
                raise ValueError(_unknown_name(name, (*READERS, "extend")))
            values[name.replace("-", "_")] = read(value, os.path.dirname(path))
        except ValueError as error:
            place = (*prefix_of(path), name, *(getattr(error, "below", ())))
            raise ConfigError(str(error), shown(path), line_of(text, place)) from None
    return values


def prefix_of(path: str) -> tuple[str, ...]:
    """Where the section is in its file."""
    return ("tool", "memlint") if os.path.basename(path) == "pyproject.toml" else ()


# What each key may be


def _at(error: ValueError, *below: str) -> ValueError:
    """Marks which entry of a table an error is about, so that its line is found."""
    error.below = (*below, *getattr(error, "below", ()))  # type: ignore[attr-defined]
    return error


def _text(value: Any, _: str | None = None) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a text, got {_described(value)}")
    return value


def positive(value: Any, _: str | None = None) -> int:
    """A whole number of at least 1; `ValueError` says what was given instead."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"expected a whole number of at least 1, got {_described(value)}")
    return value


def gpu_name(value: Any, _: str | None = None) -> str:
    """The name of a card or a size that `memlint.gpus` knows; `ValueError` for another."""
    from memlint.gpus import find

    if find(_text(value)) is None:
        raise ValueError(f"unknown GPU {value!r}: name a card (`memlint gpus` lists them) or a size such as 24GB")
    return str(value)


def size_in_bytes(value: Any, _: str | None = None) -> int:
    """A size as 64GB, 512GiB or a number of bytes; GB means GiB, as it does for memory modules."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    units = {"tb": 2**40, "tib": 2**40, "gb": 2**30, "gib": 2**30, "mb": 2**20, "mib": 2**20}
    text = _text(value).strip().lower().replace(" ", "")
    for unit, factor in units.items():
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdecimal() and float(number) > 0:
            return int(float(number) * factor)
    raise ValueError(f"expected a size such as 256GB, got {value!r}")


def _texts(value: Any, _: str | None = None) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"expected a list of texts, got {_described(value)}")
    return tuple(value)


def _patterns(value: Any, folder: str) -> tuple[Pattern, ...]:
    return tuple(Pattern(folder, glob) for glob in _texts(value))


def _folders(value: Any, folder: str) -> tuple[str, ...]:
    folders = tuple(os.path.normpath(os.path.join(folder, name)) for name in _texts(value))
    for name, path in zip(value, folders, strict=True):
        if not os.path.isdir(path):
            raise ValueError(f"rules: there is no folder {name!r}")
    return folders


def _severity(value: Any, _: str | None = None) -> str:
    if value not in ("error", "warning", "info"):
        raise ValueError(f"expected error, warning or info, got {_described(value)}")
    return str(value)


def _text_table(value: Any, _: str) -> dict[str, str]:
    return {key: _entry(_text, item, key) for key, item in _table(value).items()}


def _models(value: Any, folder: str) -> dict[str, str]:
    """Ids stay as they are; the paths of configurations are relative to the file that says them."""
    return {key: _model(name, folder) for key, name in _text_table(value, folder).items()}


def _model(name: str, folder: str) -> str:
    path = os.path.normpath(os.path.join(folder, expanded(name)))
    is_path = name.startswith((".", "~")) or path.endswith(".json") or os.path.isfile(os.path.join(path, "config.json"))
    return path if is_path else name


def _set_table(value: Any, _: str) -> dict[str, Any]:
    """Canonical keys, dotted or nested as in run.yaml."""
    from memlint.facts.keys import check

    flat: dict[str, Any] = {}

    def collect(table: Mapping[str, Any], prefix: str) -> None:
        for key, item in table.items():
            name = f"{prefix}{key}"
            if isinstance(item, Mapping) and name != "model.config":
                collect(item, f"{name}.")
            else:
                flat[name] = _entry(partial(check, name), item, key)

    collect(_table(value), "")
    return flat


def _per_path(value: Any, folder: str) -> tuple[tuple[Pattern, Mapping[str, Any]], ...]:
    entries: list[tuple[Pattern, Mapping[str, Any]]] = []
    for glob, table in _table(value).items():
        values: dict[str, Any] = {}
        for name, item in _entry(_table, table, glob).items():
            if name not in _PER_PATH:
                raise _at(ValueError(_unknown_name(name, _PER_PATH)), glob, name)
            try:
                values[name.replace("-", "_")] = READERS[name](item, folder)
            except ValueError as error:
                raise _at(error, glob, name) from None
        entries.append((Pattern(folder, glob), values))
    return tuple(entries)


def _entry(read: Callable[[Any], Any], item: Any, key: str) -> Any:
    try:
        return read(item)
    except ValueError as error:
        raise _at(error, key) from None


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a table, got {_described(value)}")
    return value


def _described(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return f"{names.get(type(value), type(value).__name__)} ({value!r})" if not isinstance(value, dict) else "a table"


def _unknown_name(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.replace("_", "-"), list(known), n=1, cutoff=0.6)
    return f"unknown key {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "gpu": gpu_name,
    "gpus": positive,
    "host-ram": size_in_bytes,
    "fail-on": _severity,
    "select": _texts,
    "ignore": _texts,
    "exclude": _patterns,
    "rules": _folders,
    "models": _models,
    "versions": _text_table,
    "set": _set_table,
    "per-path": _per_path,
}
TABLES = ("models", "versions", "set")
_PER_PATH = ("gpu", "gpus", "host-ram", "select", "ignore", "models", "versions", "set")


# Lines of keys: tomllib gives values without places, and a person wants the line.


def line_of(text: str, place: tuple[str, ...]) -> int:
    """The line of a key of a TOML text, 1-based; see `nearest_line`."""
    return nearest_line(lines_of(text), place)


def nearest_line(lines: Mapping[tuple[str, ...], int], place: tuple[str, ...]) -> int:
    """The line of a key, or of the closest thing above it (an entry of an inline table has its table's line)."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line of every table header and key, by its path (and of lines in multi-line texts that look like keys)."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = _key_path(stripped.strip("[").partition("]")[0]) or table
            places = [table]
        else:
            key, equals, _ = stripped.partition("=")
            path = _key_path(key) if equals and not stripped.startswith("#") else ()
            places = [table + path[:end] for end in range(1, len(path) + 1)]
        for place in places:
            found.setdefault(place, number)
            # `set."batch.micro_batch_size"`, `set.batch.micro_batch_size` and nested tables are one key.
            if "set" in place:
                head = place.index("set") + 1
                found.setdefault((*place[:head], ".".join(place[head:])), number)
    return found


def _key_path(key: str) -> tuple[str, ...]:
    """The parts of a dotted TOML key, quotes removed: `per-path."a.b/**"`."""
    parts: list[str] = []
    rest = key.strip()
    while rest:
        if rest[0] in "\"'":
            part, _, rest = rest[1:].partition(rest[0])
        else:
            part, dot, rest = rest.partition(".")
            rest = dot + rest
        parts.append(part.strip())
        rest = rest.strip()
        if not rest.startswith("."):
            break
        rest = rest[1:].strip()
    return tuple(parts)


def _number_after(word: str, text: str) -> int:
    digits = text.rpartition(word)[2].partition(",")[0].strip(" )")
    return int(digits) if digits.isdecimal() else 1
