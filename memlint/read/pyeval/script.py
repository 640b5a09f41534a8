"""The door: walk a script as if it were started."""

from __future__ import annotations

from contextlib import suppress

from memlint.read.pyeval.access import get_attribute, set_attribute
from memlint.read.pyeval.calls import call_function, call_value, evaluate_call
from memlint.read.pyeval.expressions import evaluate
from memlint.read.pyeval.grammar import Text
from memlint.read.pyeval.machine import Files, Halted, Launch, Library, Machine, OutOfFuel, Semantics
from memlint.read.pyeval.statements import assign, define, execute_block
from memlint.source import Source

PYTHON = Semantics(
    evaluate=evaluate,
    execute=execute_block,
    assign=assign,
    define=define,
    call=call_value,
    follow=call_function,
    apply=evaluate_call,
    attribute=get_attribute,
    set_attribute=set_attribute,
)


def run_script(
    source: Source,
    library: Library,
    files: Files | None = None,
    launch: Launch | None = None,
) -> Machine:
    """Walk a script as if it were started; raises `ReadError` when it does not parse. Never executes anything."""
    text = Text(source)
    machine = Machine(PYTHON, library, files, launch)
    machine.root = source.path
    with suppress(Halted, OutOfFuel, RecursionError):  # what was found so far stands
        machine.run_text(text, "__main__")
    return machine
