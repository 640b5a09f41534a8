"""The command line: one module per command, imported only when that command runs.

Exit codes: 0 clean, 1 findings, 2 wrong usage, unreadable input or an internal error. A traceback is shown only
when `MEMLINT_DEBUG=1` asks for it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from memlint.cli.failure import Failure

COMMANDS = {
    "check": "lint training scripts, notebooks, launch scripts and configs (also plain `memlint PATH`)",
    "estimate": "what the memory of a run consists of, whether it fits, and what would make it fit",
    "facts": "what memlint understood of a run, and where each value comes from",
    "rule": "the page of a rule, or the list of rules",
    "models": "the models whose shape memlint knows",
    "gpus": "the cards memlint knows and what they really offer",
    "baseline": "record the present findings, so that only new ones count",
    "diff": "how a change moves the memory of each run, as Markdown",
    "config": "the settings in force for a file, and where each is written",
}

INTERRUPTED, BROKEN_PIPE = 130, 141
"""What a shell reports for a process that a signal ended (128 + SIGINT, 128 + SIGPIPE)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except Failure as failure:
        return _say(str(failure))
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output went away (`memlint ... | head`). Python would complain again when it flushes at exit.
        _write_nowhere()
        return BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _say(internal_error(error))
        _write_nowhere()
        return _say("the output cannot be written: no space is left")
    except Exception as error:
        return _say(internal_error(error))


def _write_nowhere() -> None:
    """What standard output still holds cannot be written any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from memlint import __version__

        sys.stdout.write(f"memlint {__version__}\n")
        return 0
    try:
        os.getcwd()
    except FileNotFoundError:
        raise Failure("the folder that memlint was started in no longer exists") from None
    command, rest = (arguments[0], arguments[1:]) if arguments[0] in COMMANDS else ("check", arguments)
    from importlib import import_module

    try:
        code: int = import_module(f"memlint.cli.{command}").run(rest)
    except SystemExit as ended:  # after --help
        return ended.code if isinstance(ended.code, int) else 0
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "memlint: will this training run fit on its GPU, and what is the smallest change that makes it fit?",
            "",
            "usage: memlint [COMMAND] [PATH ...]   (memlint COMMAND --help for its options)",
            "",
            *lines,
            "",
            "Exit codes: 0 clean, 1 findings, 2 wrong usage, unreadable input or an internal error.",
            "",
        ]
    )


def internal_error(error: Exception) -> str:
    """One line about a bug of ours; raises it again where `MEMLINT_DEBUG` is set."""
    if os.environ.get("MEMLINT_DEBUG"):
        raise error
    text = " ".join(str(error).split())[:200]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"internal error: {what}. This is a bug of memlint: please report it with the output of MEMLINT_DEBUG=1"


def _say(text: str) -> int:
    from memlint.report.text import plain

    sys.stdout.flush()
    sys.stderr.write(f"memlint: {plain(text)}\n")
    return 2
