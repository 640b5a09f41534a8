"""Configuration: `[tool.memlint]` of the nearest pyproject.toml, or the nearest memlint.toml.

The search starts at the linted file and goes upward; the nearest file that has a memlint section wins alone
(memlint.toml before pyproject.toml in one folder), nothing is merged unless it says `extend = "../pyproject.toml"`.
Paths and patterns are relative to the file they are written in, and patterns match only below it. Comments in the
linted file come on top, the command line on top of those.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from memlint.comments import comments_of
from memlint.config_file import (
    FILES,
    READERS,
    TABLES,
    ConfigError,
    Pattern,
    gpu_name,
    line_of,
    lines_of,
    nearest_line,
    positive,
    prefix_of,
    read_section,
    read_values,
)
from memlint.paths import shown, text_of
from memlint.source import Source
from memlint.typed import Any, NamedTuple

__all__ = [
    "ConfigError",
    "Configs",
    "Pattern",
    "Settings",
    "explain",
    "settings_for",
    "verify_comments",
]

MAX_EXTENDS = 16


class Settings(NamedTuple):
    """The settings in force for one file. Empty `select` means every rule; `set` maps canonical keys to values."""

    gpu: str | None = None
    gpus: int | None = None
    host_ram: int | None = None
    """Bytes of host memory per node."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    rules: tuple[str, ...] = ()
    """Folders with a team's own rule pages."""
    fail_on: str = "error"
    models: Mapping[str, str] = {}
    """Model id to the path of a config.json or of its folder, or to the id of a model with the same shape."""
    versions: Mapping[str, str] = {}
    set: Mapping[str, Any] = {}
    per_path: tuple[tuple[Pattern, Mapping[str, Any]], ...] = ()
    """Settings for some files only, already part of what `settings_for` returns."""
    hf: bool = False
    """Ask the installed transformers about configurations (the command line's alone: `--hf`)."""
    path: str | None = None
    """The file they come from."""
    origins: Mapping[str, str] = {}
    """Where each setting is written: "pyproject.toml:12", "train.py:3 comment", "--gpu"."""

    @property
    def root(self) -> str | None:
        """The folder of the configuration file."""
        return os.path.dirname(self.path) if self.path else None

    def excludes(self, path: str) -> bool:
        """True when an exclude pattern names this file or a folder above it."""
        absolute = os.path.abspath(path)
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
        return self._replace(**given, origins={**self.origins, **dict.fromkeys(_flat_names(values), origin)})


class Configs:
    """Finds and caches configuration files during one run of memlint.

    `explicit` (`--config`) replaces the search; `isolated` ignores every configuration file.
    """

    def __init__(self, explicit: str | None = None, isolated: bool = False) -> None:
        self.explicit = explicit
        self.isolated = isolated
        self._cache: dict[str, Settings | None] = {}

    def settings_for(self, path: str) -> Settings:
        """The settings for a file or folder (which need not exist); raises `ConfigError`."""
        absolute = os.path.abspath(path)
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
            self._cache[self.explicit] = _load(os.path.abspath(self.explicit), required=True)
        return self._cache[self.explicit]

    def _nearest(self, folder: str) -> Settings | None:
        if folder not in self._cache:
            own = next(filter(None, (_load(os.path.join(folder, name)) for name in FILES)), None)
            parent = os.path.dirname(folder)
            if own is None and parent != folder:
                own = self._nearest(parent)
            self._cache[folder] = own
        return self._cache[folder]


def settings_for(path: str) -> Settings:
    """The settings in force for one file (see `Configs` to ask for many)."""
    return Configs().settings_for(path)


def verify_comments(source: Source) -> None:
    """Raise `ConfigError` for a comment of the file that states nonsense: `gpu=b47`, `gpus=two`, `set no.key=1`.

    What comments state become facts of the file's runs (`memlint.extract`).
    """
    for comment in comments_of(source):
        verb, _, rest = comment.text.partition(" ")
        key, _, value = (part.strip() for part in comment.text.partition("="))
        try:
            if verb == "set":
                from memlint.facts.keys import parse

                parse(rest)
            elif key == "gpus":
                positive(int(value) if value.isdecimal() else value)
            elif key == "gpu":
                gpu_name(value)
        except ValueError as error:
            raise ConfigError(str(error), source.path, comment.line) from None


def explain(path: str, configs: Configs | None = None) -> list[tuple[str, Any, str]]:
    """Every setting in force for a file, for `memlint config show`: (name, value, where written or "default")."""
    settings = (configs or Configs()).settings_for(path)
    rows: list[tuple[str, Any, str]] = []
    for name in READERS:
        attribute = name.replace("-", "_")
        if attribute in TABLES:
            table: Mapping[str, Any] = getattr(settings, attribute)
            rows += [(f"{name}.{key}", value, settings.origins.get(f"{name}.{key}", "")) for key, value in table.items()]
        elif attribute != "per_path":
            value = getattr(settings, attribute)
            shown = [p.glob if isinstance(p, Pattern) else p for p in value] if isinstance(value, tuple) else value
            rows.append((name, shown, settings.origins.get(attribute, "default")))
    return rows


def _folder(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path)


def _load(path: str, required: bool = False, extended_by: tuple[str, ...] = ()) -> Settings | None:
    """The settings of one file; None when it is missing or has no memlint section."""
    try:
        text = text_of(path, "utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise ConfigError("no such configuration file", path) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", path) from None
    section = read_section(path, text)
    if section is None:
        if required:
            raise ConfigError("has no [tool.memlint] section", shown(path))
        return None
    base = _extended(path, text, section["extend"], extended_by) if "extend" in section else Settings()
    values = read_values(section, path, text)
    return _with_values(base, values, shown(path))._replace(path=path, origins=_origins(base, values, path, text))


def _extended(path: str, text: str, value: Any, extended_by: tuple[str, ...]) -> Settings:
    line = line_of(text, (*prefix_of(path), "extend"))
    if not isinstance(value, str):
        raise ConfigError("extend: expected the path of a configuration file", shown(path), line)
    other = os.path.realpath(os.path.join(os.path.dirname(path), value))
    if other in extended_by or len(extended_by) >= MAX_EXTENDS:
        raise ConfigError(f"extend = {value!r} goes in a circle", shown(path), line)
    if not os.path.isfile(other):
        raise ConfigError(f"extend: {value!r} does not exist", shown(path), line)
    settings = _load(other, required=True, extended_by=(*extended_by, os.path.realpath(path)))
    return settings or Settings()


def _with_values(base: Settings, values: Mapping[str, Any], origin: str) -> Settings:
    """`base` with values of a section on top: lists and scalars replace, tables are added to key by key."""
    merged: dict[str, Any] = {
        name: {**getattr(base, name), **value} if name in TABLES else value for name, value in values.items()
    }
    if "per_path" in merged:
        merged["per_path"] = (*base.per_path, *merged["per_path"])
    return base._replace(**merged, origins={**base.origins, **dict.fromkeys(_flat_names(values), origin)})


def _origins(base: Settings, values: Mapping[str, Any], path: str, text: str) -> dict[str, str]:
    lines = lines_of(text)
    written = dict(base.origins)
    for name in _flat_names(values):
        head, _, key = name.partition(".")
        place = (*prefix_of(path), head.replace("_", "-"), *((key,) if key else ()))
        written[name] = f"{shown(path)}:{nearest_line(lines, place)}"
    return written


def _flat_names(values: Mapping[str, Any]) -> list[str]:
    """The names under which origins are kept: `gpu`, `models.<id>`, `set.<key>`."""
    names: list[str] = []
    for name, value in values.items():
        if value is not None:
            names += [f"{name}.{key}" for key in value] if name in TABLES else [name]
    return names
