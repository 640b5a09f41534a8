"""`memlint baseline write`: accept the present findings, so that only new ones count."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from memlint.cli.arguments import Parser
from memlint.cli.examine import examine
from memlint.cli.failure import Failure
from memlint.cli.options import add_settings, configs, over_settings
from memlint.cli.session import Session, gather
from memlint.report.text import plain, plural
from memlint.rules import BASELINE
from memlint.rules import baseline as baselines


def run(arguments: Sequence[str]) -> int:
    """Write the baseline of the paths; entries that no longer occur there go."""
    parser = Parser("baseline", "Record the present findings as accepted, so that only new ones count.")
    parser.add_argument("action", choices=["write"])
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATH")
    parser.add_argument("--baseline", metavar="FILE", help=f"where to (default: {BASELINE} at the root)")
    add_settings(parser)
    options = parser.parse_args(arguments)
    session = Session(configs(options), over_settings(options))
    inputs = gather(options.paths, session)
    file = options.baseline or os.path.join(session.root_of(options.paths[0]), BASELINE)
    result = examine(inputs, session, accepted=False)
    for error in result.errors:
        sys.stderr.write(f"memlint: {plain(f'{error.path}:{error.line}: {error.message}')}\n")
    linted = [session.relative(path) for path in inputs.files]
    try:
        written = baselines.write(file, result.findings, session.relative, linted)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror or error}") from None
    sys.stdout.write(f"{plural(len(written.entries), 'accepted finding')} in {plain(file)}\n")
    return 2 if result.errors else 0
