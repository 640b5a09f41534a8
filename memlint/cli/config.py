"""`memlint config show FILE`: the settings in force for a file, and where each is written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from memlint.cli.arguments import Parser
from memlint.cli.failure import Failure
from memlint.config import Configs, explain
from memlint.config_file import ConfigError
from memlint.report.style import for_stream
from memlint.report.text import plain


def run(arguments: Sequence[str]) -> int:
    """Print every setting with its origin."""
    parser = Parser("config", "The settings in force for a file or folder, and where each is written.")
    parser.add_argument("action", choices=["show"])
    parser.add_argument("path", nargs="?", default=".", metavar="FILE")
    parser.add_argument("--config", metavar="FILE", help="use this configuration file only")
    parser.add_argument("--isolated", action="store_true", help="ignore all configuration files")
    parser.add_argument("--format", choices=("full", "json"), default="full")
    options = parser.parse_args(arguments)
    if not os.path.exists(options.path):
        raise Failure(f"{options.path}: no such file or directory")
    try:
        rows = explain(options.path, Configs(options.config, options.isolated))
    except ConfigError as error:
        raise Failure(str(error)) from None
    if options.format == "json":
        document = [{"name": name, "value": value, "origin": origin} for name, value, origin in rows]
        sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")
        return 0
    style = for_stream(sys.stdout)
    widest = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
        sys.stdout.write(f"{name:<{widest}}  {plain(text):<24}  {style.dim(plain(origin))}".rstrip() + "\n")
    return 0
