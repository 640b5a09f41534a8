"""Configuration: `[tool.memlint]` of the nearest pyproject.toml, or the nearest memlint.toml.

The search starts at the linted file and goes upward; the nearest file that has a memlint section wins alone (memlint.toml before
pyproject.toml in one folder), nothing is merged unless it says `extend = "../pyproject.toml"`. Paths and patterns are
relative to the file they are written in, and patterns match only below it. Comments in the linted file come on top, the command
line on top of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memlint.comments import comments_of
from memlint.source import Source

FILES = ("memlint.toml", "pyproject.toml")
MAX_EXTENDS = 16
EMPTY: Mapping[str, Any] = MappingProxyType({})


class ConfigError(Exception):
    """A setting that memlint cannot accept, with the file and line it is written at."""

    def __init__(self, message: str, path: str = "", line: int = 1) -> None:
        super().__init__(f"{path}:{line}: {message}" if path else message)
        self.message, self.path, self.line = message, path, line


@dataclass(frozen=True, slots=True)
class Pattern:
    """A glob below a folder. Without a slash it names files or folders anywhere below, with one it starts at `root`."""

    root: Path
    glob: str

    def matches(self, path: Path) -> bool:
        """True for the paths it names and everything below them."""
        try:
            parts = path.relative_to(self.root).parts
        except ValueError:
            return False
        wanted = [part for part in self.glob.strip("/").split("/") if part != "."]
        return _match(parts, wanted if "/" in self.glob.rstrip("/") else ["**", *wanted])


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force for one file. Empty `select` means every rule; `set` holds canonical keys and their values."""

    gpu: str | None = None
    gpus: int | None = None
    host_ram: int | None = None
    """Bytes of host memory per node."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    rules: tuple[Path, ...] = ()
    """Folders with a team's own rule pages."""
    fail_on: str = "error"
    models: Mapping[str, str] = EMPTY
    """Model id to a config.json or to the id of a model with the same shape."""
    versions: Mapping[str, str] = EMPTY
    set: Mapping[str, Any] = EMPTY
    per_path: tuple[tuple[Pattern, Mapping[str, Any]], ...] = ()
    """Settings for some files only, already part of what `settings_for` returns."""
    path: Path | None = None
    """The file they come from."""
    origins: Mapping[str, str] = field(default=EMPTY, compare=False)
    """Where each setting is written: "pyproject.toml:12", "train.py:3 comment", "--gpu"."""

    @property
    def root(self) -> Path | None:
        """The folder of the configuration file."""
        return self.path.parent if self.path else None

    def excludes(self, path: str | Path) -> bool:
        """True when an exclude pattern names this file or a folder above it."""
        absolute = Path(path).absolute()
        return any(pattern.matches(absolute) for pattern in self.exclude)

    def origin_of(self, key: str) -> str:
        """Where a setting, or a value under `set`, is written."""
        name = "gpus" if key == "parallel.gpus" and key not in self.set else key
        return self.origins.get(name) or self.origins.get(f"set.{name}") or "configuration"

    def with_options(self, origin: str, **values: Any) -> Settings:
        """These settings with some replaced, e.g. by the command line; `set` is added to, None changes nothing."""
        given = {name: value for name, value in values.items() if value is not None}
        if "set" in given:
            given["set"] = {**self.set, **given["set"]}
        return replace(self, **given, origins={**self.origins, **dict.fromkeys(_flat_names(values), origin)})


@dataclass(slots=True)
class Configs:
    """Finds and caches configuration files during one run of memlint.

    `explicit` (`--config`) replaces the search; `isolated` ignores every configuration file.
    """

    explicit: Path | None = None
    isolated: bool = False
    _cache: dict[Path, Settings | None] = field(default_factory=dict)

    def settings_for(self, path: str | Path) -> Settings:
        """The settings for a file or folder (which need not exist); raises `ConfigError`."""
        absolute = Path(path).absolute()
        settings = self._explicit() if self.explicit or self.isolated else self._nearest(_folder(absolute))
        settings = settings or Settings()
        for pattern, values in settings.per_path:
            if pattern.matches(absolute):
                settings = _with_values(settings, values, f"per-path.{pattern.glob}")
        return settings

    def _explicit(self) -> Settings | None:
        if self.isolated or self.explicit is None:
            return None
        if self.explicit not in self._cache:
            self._cache[self.explicit] = _load(self.explicit.absolute(), required=True)
        return self._cache[self.explicit]

    def _nearest(self, folder: Path) -> Settings | None:
        if folder not in self._cache:
            own = next(filter(None, (_load(folder / name) for name in FILES)), None)
            if own is None and folder.parent != folder:
                own = self._nearest(folder.parent)
            self._cache[folder] = own
        return self._cache[folder]


def settings_for(path: str | Path) -> Settings:
    """The settings in force for one file (see `Configs` to ask for many)."""
    return Configs().settings_for(path)


def with_comments(settings: Settings, source: Source) -> Settings:
    """The settings with what the file's own comments say: `# memlint: gpu=t4`, `gpus=2`, `set key=value`."""
    for comment in comments_of(source):
        verb, _, rest = comment.text.partition(" ")
        assignment = rest if verb == "set" else comment.text
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if verb != "set" and key not in ("gpu", "gpus"):
            continue
        origin = f"{source.path}:{comment.line} comment"
        try:
            if not equals:
                raise ValueError("write `# memlint: set key=value`")
            if verb == "set":
                settings = settings.with_options(origin, set={key: _normalised(key, value)})
            elif key == "gpus":
                settings = settings.with_options(origin, gpus=_positive(int(value) if value.isdecimal() else value))
            else:
                settings = settings.with_options(origin, gpu=_gpu(value))
        except ValueError as error:
            raise ConfigError(str(error), source.path, comment.line) from None
    return settings


def explain(path: str | Path, configs: Configs | None = None) -> list[tuple[str, Any, str]]:
    """Every setting in force for a file as (name, value, where it is written or "default"), for `memlint config show`."""
    settings = (configs or Configs()).settings_for(path)
    rows: list[tuple[str, Any, str]] = []
    for name in _READERS:
        attribute = name.replace("-", "_")
        if attribute in _TABLES:
            table: Mapping[str, Any] = getattr(settings, attribute)
            rows += [(f"{name}.{key}", value, settings.origins.get(f"{name}.{key}", "")) for key, value in table.items()]
        elif attribute != "per_path":
            value = getattr(settings, attribute)
            shown = [p.glob if isinstance(p, Pattern) else str(p) for p in value] if isinstance(value, tuple) else value
            rows.append((name, shown, settings.origins.get(attribute, "default")))
    return rows


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _match(parts: tuple[str, ...], wanted: list[str]) -> bool:
    """Match path parts with glob parts; an exhausted pattern matches everything below."""
    if not wanted:
        return True
    if wanted[0] == "**":
        rest = wanted[1:]
        return any(_match(parts[start:], rest) for start in range(len(parts) + 1 if rest else 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _match(parts[1:], wanted[1:])


# Reading one file


def _load(path: Path, required: bool = False, extended_by: tuple[Path, ...] = ()) -> Settings | None:
    """The settings of one file; None when it is missing or has no memlint section."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise ConfigError("no such configuration file", str(path)) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", str(path)) from None
    if path.name == "pyproject.toml" and "memlint" not in text and not required:
        return None  # Most pyproject.toml files have no section: they are never parsed.
    section = _section(path, _parse(text, path))
    if section is None:
        if required:
            raise ConfigError("has no [tool.memlint] section", str(path))
        return None
    base = Settings()
    if "extend" in section:
        base = _extended(path, text, section["extend"], extended_by)
    values = _read_section(section, path, text, ("tool", "memlint") if path.name == "pyproject.toml" else ())
    return replace(_with_values(base, values, _shown(path)), path=path, origins=_origins(base, values, path, text))


def _parse(text: str, path: Path) -> Mapping[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]
    try:
        parsed: Mapping[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = _number_after("line ", str(error))
        raise ConfigError(f"not valid TOML: {error}", _shown(path), line) from None
    return parsed


def _section(path: Path, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if path.name != "pyproject.toml":
        return data
    tool = data.get("tool")
    section = tool.get("memlint") if isinstance(tool, Mapping) else None
    return section if isinstance(section, Mapping) else None


def _extended(path: Path, text: str, value: Any, extended_by: tuple[Path, ...]) -> Settings:
    line = _line_of(text, ("extend",))
    if not isinstance(value, str):
        raise ConfigError("extend: expected the path of a configuration file", _shown(path), line)
    other = (path.parent / value).resolve()
    if other in extended_by or len(extended_by) >= MAX_EXTENDS:
        raise ConfigError(f"extend = {value!r} goes in a circle", _shown(path), line)
    if not other.is_file():
        raise ConfigError(f"extend: {value!r} does not exist", _shown(path), line)
    settings = _load(other, required=True, extended_by=(*extended_by, path.resolve()))
    return settings or Settings()


def _read_section(section: Mapping[str, Any], path: Path, text: str, prefix: tuple[str, ...]) -> dict[str, Any]:
    """The section's values by Settings attribute; raises `ConfigError` at the line of the first that is wrong."""
    values: dict[str, Any] = {}
    for name, value in section.items():
        if name == "extend":
            continue
        read = _READERS.get(name)
        try:
            if read is None:
                raise ValueError(_unknown_name(name, (*_READERS, "extend")))
            values[name.replace("-", "_")] = read(value, path.parent)
        except ValueError as error:
            place = (*prefix, name, *(getattr(error, "below", ())))
            raise ConfigError(str(error), _shown(path), _line_of(text, place)) from None
    return values


def _with_values(base: Settings, values: Mapping[str, Any], origin: str) -> Settings:
    """`base` with values of a section on top: lists and scalars replace, tables are added to key by key."""
    merged = {name: {**getattr(base, name), **value} if name in _TABLES else value for name, value in values.items()}
    if "per_path" in merged:
        merged["per_path"] = (*base.per_path, *merged["per_path"])
    return replace(base, **merged, origins={**base.origins, **dict.fromkeys(_flat_names(values), origin)})


def _origins(base: Settings, values: Mapping[str, Any], path: Path, text: str) -> dict[str, str]:
    prefix = ("tool", "memlint") if path.name == "pyproject.toml" else ()
    lines = _lines(text)
    written = dict(base.origins)
    for name in _flat_names(values):
        head, _, key = name.partition(".")
        place = (*prefix, head.replace("_", "-"), *((key,) if key else ()))
        written[name] = f"{_shown(path)}:{_nearest_line(lines, place)}"
    return written


def _flat_names(values: Mapping[str, Any]) -> list[str]:
    """The names under which origins are kept: `gpu`, `models.<id>`, `set.<key>`."""
    names: list[str] = []
    for name, value in values.items():
        if value is not None:
            names += [f"{name}.{key}" for key in value] if name in _TABLES else [name]
    return names


def _shown(path: Path) -> str:
    """The path as a person wants to read it: relative to the working directory when it lies below."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


# What each key may be


def _at(error: ValueError, *below: str) -> ValueError:
    """Marks which entry of a table an error is about, so that its line is found."""
    error.below = (*below, *getattr(error, "below", ()))  # type: ignore[attr-defined]
    return error


def _text(value: Any, _: Path | None = None) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a text, got {_described(value)}")
    return value


def _positive(value: Any, _: Path | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"expected a whole number of at least 1, got {_described(value)}")
    return value


def _gpu(value: Any, _: Path | None = None) -> str:
    from memlint.gpus import find

    if find(_text(value)) is None:
        raise ValueError(f"unknown GPU {value!r}: name a card (`memlint gpus` lists them) or a size such as 24GB")
    return str(value)


def _bytes(value: Any, _: Path | None = None) -> int:
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


def _texts(value: Any, _: Path | None = None) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"expected a list of texts, got {_described(value)}")
    return tuple(value)


def _patterns(value: Any, folder: Path) -> tuple[Pattern, ...]:
    return tuple(Pattern(folder, glob) for glob in _texts(value))


def _folders(value: Any, folder: Path) -> tuple[Path, ...]:
    folders = tuple(folder / name for name in _texts(value))
    for name, path in zip(value, folders, strict=True):
        if not path.is_dir():
            raise ValueError(f"rules: there is no folder {name!r}")
    return folders


def _severity(value: Any, _: Path | None = None) -> str:
    if value not in ("error", "warning", "info"):
        raise ValueError(f"expected error, warning or info, got {_described(value)}")
    return str(value)


def _text_table(value: Any, _: Path) -> dict[str, str]:
    return {key: _entry(_text, item, key) for key, item in _table(value).items()}


def _set_table(value: Any, _: Path) -> dict[str, Any]:
    """Canonical keys, dotted or nested as in run.yaml."""
    flat: dict[str, Any] = {}

    def collect(table: Mapping[str, Any], prefix: str) -> None:
        for key, item in table.items():
            name = f"{prefix}{key}"
            if isinstance(item, Mapping) and name != "model.config":
                collect(item, f"{name}.")
            else:
                flat[name] = _entry(lambda item, name=name: _normalised(name, item), item, key)

    collect(_table(value), "")
    return flat


def _per_path(value: Any, folder: Path) -> tuple[tuple[Pattern, Mapping[str, Any]], ...]:
    entries: list[tuple[Pattern, Mapping[str, Any]]] = []
    for glob, table in _table(value).items():
        values: dict[str, Any] = {}
        for name, item in _entry(_table, table, glob).items():
            if name not in _PER_PATH:
                raise _at(ValueError(_unknown_name(name, _PER_PATH)), glob, name)
            try:
                values[name.replace("-", "_")] = _READERS[name](item, folder)
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


def _normalised(key: str, value: Any) -> Any:
    """A canonical key's value in its canonical form; raises ValueError for an unknown key or an impossible value."""
    from memlint.facts.keys import normalise

    return normalise(key, value)


def _described(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return f"{names.get(type(value), type(value).__name__)} ({value!r})" if not isinstance(value, dict) else "a table"


def _unknown_name(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.replace("_", "-"), list(known), n=1, cutoff=0.6)
    return f"unknown key {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")


_READERS: Mapping[str, Callable[[Any, Path], Any]] = {
    "gpu": _gpu,
    "gpus": _positive,
    "host-ram": _bytes,
    "fail-on": _severity,
    "select": _texts,
    "ignore": _texts,
    "exclude": _patterns,
    "rules": _folders,
    "models": _text_table,
    "versions": _text_table,
    "set": _set_table,
    "per-path": _per_path,
}
_TABLES = ("models", "versions", "set")
_PER_PATH = ("gpu", "gpus", "host-ram", "select", "ignore", "models", "versions", "set")


# Lines of keys: tomllib gives values without places, and a person wants the line.


def _line_of(text: str, place: tuple[str, ...]) -> int:
    return _nearest_line(_lines(text), place)


def _nearest_line(lines: Mapping[tuple[str, ...], int], place: tuple[str, ...]) -> int:
    """The line of a key, or of the closest thing above it (an entry of an inline table has its table's line)."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The line of every table header and key, by its path; keys inside multi-line values may add wrong extra entries."""
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
