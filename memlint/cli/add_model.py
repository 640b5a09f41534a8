"""`memlint models add ID`: fetch a model's `config.json` into the project and enter it under `[tool.memlint.models]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from memlint.cli.arguments import Parser
from memlint.cli.failure import Failure
from memlint.cli.models import show
from memlint.config import Configs, Settings
from memlint.config_file import ConfigError, line_of, prefix_of
from memlint.fixes.edit import apply
from memlint.fixes.toml_writer import set_key
from memlint.models import hub, lookup
from memlint.models.lookup import HUB_ID
from memlint.paths import shown
from memlint.project import Project
from memlint.report.text import plain

FOLDER = ".memlint/models"
"""Where the configurations go, beside the settings that name them; both are for committing."""


def run(arguments: Sequence[str]) -> int:
    """Fetch, write, enter, show. Nothing is written unless everything can be."""
    parser = Parser("models add", "Fetch the config.json of a model from the Hugging Face hub and make it part of the project.")
    parser.add_argument("model", metavar="ID", help="a repository such as org/name")
    parser.add_argument("--revision", default="main", help="a branch, tag or commit (default: main)")
    parser.add_argument("--config", metavar="FILE", help="the configuration file to enter it in")
    options = parser.parse_args(arguments)
    model_id: str = options.model
    if not re.fullmatch(f"{HUB_ID}|[\\w.-]{{1,96}}", model_id) or ".." in model_id:
        raise Failure(f"{model_id!r} is not the id of a repository on the hub (org/name)")
    if not re.fullmatch(r"[\w./-]{1,100}", options.revision):
        raise Failure(f"{options.revision!r} is not a branch, tag or commit")
    file, settings = _settings(options.config)
    target = file.parent / FOLDER / f"{model_id}.json"
    entry = f"{FOLDER}/{model_id}.json"
    present = settings.models.get(model_id)
    if present and Path(present) != target:
        raise Failure(f"{settings.origin_of(f'models.{model_id}')} says already what {model_id} is: {shown(present)}")
    before = file.read_bytes().decode("utf-8") if file.exists() else ""
    after = _entered(file, before, model_id, entry)
    try:
        config = hub.fetch(model_id, options.revision)
    except hub.NotFetched as error:
        raise Failure(str(error)) from None
    _write(target, config)
    if after != before:
        _write(file, after)
    line = line_of(after, (*prefix_of(str(file)), "models", model_id))
    sys.stdout.write(plain(f"{shown(str(target))} is fetched, {shown(str(file))}:{line} names it") + "\n\n")
    show(model_id, lookup(model_id, base=str(file.parent), overrides={model_id: str(target)}))
    return 0


def _settings(explicit: str | None) -> tuple[Path, Settings]:
    """The configuration file to change, and what it says: the nearest, else the project's pyproject.toml, else a new memlint.toml."""
    try:
        settings = Configs(explicit).settings_for(".")
    except ConfigError as error:
        raise Failure(str(error)) from None
    if settings.path:
        return Path(settings.path), settings
    project = Project.around(str(Path.cwd() / "memlint.toml"))
    root = Path(project.root) if project.marked else Path.cwd()
    return next((file for file in (root / "pyproject.toml",) if file.is_file()), root / "memlint.toml"), settings


def _entered(file: Path, text: str, model_id: str, entry: str) -> str:
    """The configuration with the entry, everything else as it was."""
    table = ".".join((*prefix_of(str(file)), "models"))
    edits = set_key(str(file), text, model_id, entry, table)
    if edits is None:
        raise Failure(f'{shown(str(file))} cannot be extended safely: write "{model_id}" = "{entry}" under [{table}] by hand')
    return apply(text, edits) if text else apply(text, edits).lstrip("\n")


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise Failure(f"cannot write {shown(str(file))}: {error.strerror or error}") from None
