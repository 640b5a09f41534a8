"""Options that several commands share, and what they mean for the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from memlint.cli.arguments import BadValue, Parser
from memlint.cli.failure import Failure
from memlint.config import Configs, Settings
from memlint.typed import Any


def add_settings(parser: Parser) -> None:
    """The options that stand for settings; they win over comments and configuration files."""
    group = parser.add_argument_group("target and values")
    group.add_argument("--gpu", metavar="NAME|SIZE", help="the target card: a name such as a100-80gb, or a size such as 24GB")
    group.add_argument("--gpus", type=_positive, metavar="N", help="how many of them per node")
    group.add_argument("--host-ram", type=_size, metavar="SIZE", help="host memory of a node, such as 256GB")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="state a value that the input leaves open (repeatable)",
    )
    group.add_argument("--config", metavar="FILE", help="use this configuration file only")
    group.add_argument("--isolated", action="store_true", help="ignore all configuration files")


def add_formats(parser: Parser, formats: Sequence[str]) -> None:
    """`--format`, repeatable, each to standard output or `format=file`."""
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        type=lambda text: _format(text, formats),
        metavar="FORMAT[=FILE]",
        help=f"{', '.join(formats)}; with =FILE written there (repeatable)",
    )


def _format(text: str, formats: Sequence[str]) -> tuple[str, str | None]:
    name, equals, file = text.partition("=")
    if name not in formats:
        raise BadValue(f"unknown format {name!r}{did_you_mean(name, formats)}; known: {', '.join(formats)}")
    if equals and not file:
        raise BadValue(f"{text!r} names no file")
    return name, file or None


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise BadValue(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _size(text: str) -> int:
    from memlint.config_file import size_in_bytes

    try:
        return size_in_bytes(text)
    except ValueError as error:
        raise BadValue(str(error)) from None


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`; did you mean X?`, or nothing."""
    from difflib import get_close_matches

    written = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), written, n=1, cutoff=0.5)
    return f"; did you mean {written[close[0]]}?" if close else ""


def configs(arguments: SimpleNamespace) -> Configs:
    """The search for configuration files that `--config` and `--isolated` ask for."""
    return Configs(explicit=arguments.config, isolated=arguments.isolated)


def over_settings(arguments: SimpleNamespace) -> Callable[[Settings], Settings]:
    """The command line as a layer over settings; wrong values fail here, before any file is read."""
    if arguments.gpu is not None:
        known_gpu(arguments.gpu)
    values = dict(_assignment(text) for text in arguments.set)
    given: dict[str, Any] = {"gpu": arguments.gpu, "gpus": arguments.gpus, "host_ram": arguments.host_ram, "set": values or None}

    def layer(settings: Settings) -> Settings:
        for name, value in given.items():
            if value is not None:
                settings = settings.with_options(f"--{name.replace('_', '-')}", **{name: value})
        return settings

    return layer


def known_gpu(name: str) -> None:
    """Fail with the nearest names when nobody knows the card."""
    from memlint.gpus import all_gpus, find

    if find(name) is None:
        from difflib import get_close_matches

        names = {_bare(alias): gpu.name for gpu in all_gpus() for alias in (*gpu.aliases, gpu.name)}
        close = get_close_matches(_bare(name), names, n=1, cutoff=0.5)
        hint = f"; did you mean {names[close[0]]}?" if close else ""
        raise Failure(f"unknown GPU {name!r}{hint} (memlint gpus lists them; a size such as 24GB works too)")


def _bare(gpu: str) -> str:
    """A card's name without what people leave out: `NVIDIA GeForce RTX 4090` and `rtx-4090` alike."""
    words = gpu.lower().replace("-", " ").replace("_", " ").split()
    return "".join(word for word in words if word not in ("nvidia", "geforce", "tesla", "amd", "instinct"))


def _assignment(text: str) -> tuple[str, Any]:
    from memlint.facts.keys import parse

    try:
        return parse(text)
    except ValueError as error:
        raise Failure(f"--set {text}: {error}") from None


def write_file(path: str, text: str) -> None:
    """Write a report; a file that cannot be written ends the command."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror or error}") from None
