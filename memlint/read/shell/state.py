"""The state of a shell at one point of a script: its variables, and why it may have stopped."""

from __future__ import annotations

from dataclasses import dataclass, field

from memlint.read.shell.syntax import Node
from memlint.read.shell.value import Array, Joined, Lines, Value, softened

Text = Lines | Joined
"""The text that is being run: a file, or a string given to `eval`."""


@dataclass(slots=True)
class World:
    """One way in which the script may have come here; an undecided `if` makes two of them."""

    variables: dict[str, Value | Array] = field(default_factory=dict)
    keyed: dict[str, dict[str, Value]] = field(default_factory=dict)
    """Associative arrays (`declare -A`)."""
    exported: set[str] = field(default_factory=set)
    arguments: Array | None = None
    """`$1`, `$2`, ...; None for the arguments of the script itself, which nobody knows."""
    directory: str | None = None
    """Where `cd` went, relative to the start; None when nowhere."""
    functions: dict[str, tuple[Node, Text]] = field(default_factory=dict)
    ended: str = ""
    """`exit`, `return`, `break` or `continue` when the rest of the block is not reached."""
    assumed: bool = False
    """Inside a branch that is only taken by default: what is set here is a default."""
    locals: list[dict[str, Value | Array | None]] = field(default_factory=list)
    wrapper: tuple[Value, ...] = ()
    """The words before `bash -c` (`srun --gres=gpu:8`)."""
    exporting: bool = False
    """After `set -a`: what is assigned is exported."""

    def copy(self) -> World:
        """An independent copy."""
        return World(
            dict(self.variables),
            {name: dict(entries) for name, entries in self.keyed.items()},
            set(self.exported),
            self.arguments,
            self.directory,
            dict(self.functions),
            self.ended,
            self.assumed,
            [dict(frame) for frame in self.locals],
            self.wrapper,
            self.exporting,
        )

    def assign(self, name: str, value: Value | Array) -> None:
        """Assign a variable."""
        if self.assumed:
            value = [softened(v) for v in value] if isinstance(value, list) else softened(value)
        self.variables[name] = value
        if self.exporting:
            self.exported.add(name)

    def soften(self, names: set[str]) -> None:
        """Turn variables into overridable defaults: another branch would have set them."""
        for name in names & self.variables.keys():
            value = self.variables[name]
            self.variables[name] = [softened(v) for v in value] if isinstance(value, list) else softened(value)

    def same(self, other: World) -> bool:
        """Whether the rest of the script runs alike in both."""
        return (
            self.ended == other.ended
            and self.variables == other.variables
            and self.keyed == other.keyed
            and self.directory == other.directory
            and self.exported == other.exported
            and self.arguments == other.arguments
        )
