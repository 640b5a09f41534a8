"""Runs a shell script in the mind and notes the commands it would run. Nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memlint.facts import Fact
from memlint.read.shell import builtins
from memlint.read.shell.control import MAX_STEPS, Control, passes
from memlint.read.shell.expand import MAX_FIELDS
from memlint.read.shell.printing import WrittenFile
from memlint.read.shell.state import Text, World
from memlint.read.shell.syntax import Assignment, ShellError, Simple
from memlint.read.shell.value import Array, Joined, Lines, Piece, Value, bounded, fact_of, placed, raw_text, text_of
from memlint.source import Span

MAX_CALLS = 20
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
JOBS = (".sh", ".bash", ".slurm", ".sbatch", ".job")

Follow = Callable[[str, "str | None"], "Lines | None"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One command with its words as the program would receive them."""

    words: tuple[Fact, ...]
    env: Mapping[str, Fact]
    span: Span
    directory: str | None = None
    passthrough: bool = False
    """`"$@"` stood among the words."""
    wrapper: tuple[Fact, ...] = ()
    """The words before `bash -c` (`srun --gres=gpu:8`)."""


@dataclass(slots=True)
class Script:
    """What a script does, in the order of the walk."""

    invocations: list[Invocation] = field(default_factory=list)
    written: list[WrittenFile] = field(default_factory=list)


def evaluate(
    text: Text,
    *,
    path: str,
    environment: Mapping[str, Value] | None = None,
    directory: str | None = None,
    follow: Follow = lambda link, directory: None,
) -> Script:
    """Walk a script. `environment` is what surrounds it (SLURM's variables), `path` is its `$0`; `follow` opens a script by its
    link and the working directory.

    Raises `ShellError` where bash would refuse the text.
    """
    walk = Walk(path, follow, Script(), 0)
    world = World(dict(environment or {}), exported=set(environment or {}), directory=directory)
    walk.text_in(text, [world])
    return walk.script


class Walk(Control):
    """The walk with its simple commands. `depth` counts scripts that run scripts."""

    def __init__(self, path: str, follow: Follow, script: Script, depth: int) -> None:
        super().__init__(path)
        self.follow, self.script, self.depth = follow, script, depth
        self.printer.written = script.written
        self.printer.follow = follow
        self._calls = 0

    def assign(self, assignment: Assignment, world: World, text: Text) -> None:
        """Carry out one assignment."""
        name = assignment.name
        held = world.variables.get(name)
        if name in world.keyed and (isinstance(assignment.value, tuple) or assignment.index is not None):
            self._assign_keyed(assignment, world, text)
            return
        if isinstance(assignment.value, tuple):
            elements = [value for word in assignment.value for value in self.expander.fields(word, world, text)]
            before = held if isinstance(held, list) else [held] if held else []
            world.assign(name, [*before, *elements][:MAX_FIELDS] if assignment.append else elements)
            return
        value = self.expander.value(assignment.value, world, text)
        if assignment.index is not None:
            elements = list(held) if isinstance(held, list) else []
            if assignment.index.isdigit() and int(assignment.index) <= len(elements):
                position = int(assignment.index)
                world.assign(name, [*elements[:position], value, *elements[position + 1 :]])
        elif assignment.append and isinstance(held, list):
            world.assign(name, [bounded([*held[0], *value]), *held[1:]] if held else [value])
        elif assignment.append:
            world.assign(name, bounded([*(held or ()), *value]))
        else:
            world.assign(name, value)

    def _assign_keyed(self, assignment: Assignment, world: World, text: Text) -> None:
        """`M=([a]=1 [b]=2)` and `M[a]=1` of an associative array."""
        entries = dict(world.keyed[assignment.name]) if assignment.append or assignment.index is not None else {}
        if isinstance(assignment.value, tuple):
            for word in assignment.value:
                value = self.expander.value(word, world, text)
                name, bracket, _ = raw_text(value).removeprefix("[").partition("]=")
                if bracket:
                    entries[name] = builtins.after(value, len(name) + 3)
        else:
            index = (assignment.index or "").strip("\"'")
            key = index if "$" not in index else self.expander.index(index, world)
            if key is not None:
                entries[key] = self.expander.value(assignment.value, world, text)
        world.keyed[assignment.name] = entries

    def simple(self, node: Simple, world: World, text: Text) -> list[World]:
        """A command with its assignments; one without words assigns to the shell itself."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            return [world]
        if not node.words:
            for assignment in node.assignments:
                self.assign(assignment, world, text)
            return [world]
        scope = world.copy() if node.assignments else world
        for assignment in node.assignments:
            self.assign(assignment, scope, text)
            scope.exported.add(assignment.name)
        declared = [word for word in node.words if isinstance(word, Assignment)]
        words = [placed(word) for word in self.printer.fields(node, world, text)]
        if not words:
            return [world]
        name = text_of(words[0])
        if node.redirects:
            self.printer.note_file(node, words, world, text)
        if name in world.functions:
            return self._call(name, words[1:], world)
        if name in builtins.DECLARE:
            return builtins.declare(self, name, words[1:], declared, world, text)
        builtin = builtins.TABLE.get(name or "")
        if builtin is not None:
            return builtin(self, words[1:], self.printer.given(node.redirects, world, text), world, text)
        if self._runs_text(words, scope, text):
            return [world]
        span = text.span(node.start, node.end)
        given = self.printer.given(node.redirects, world, text) if (name or "").rpartition("/")[2].startswith("python") else None
        if given is not None and (len(words) == 1 or text_of(words[1]) == "-") and span is not None:
            program = f"heredoc_{span.line}.py"  # `python - <<EOF`: a script of its own
            self.script.written.append(WrittenFile(program, Joined((*given, Piece("\n")), holes=False)))
            words = [words[0], (Piece(program),), *words[2:]]
        if span is not None:
            self._note(words, scope, span)
        return [world]

    def _call(self, name: str, arguments: Array, world: World) -> list[World]:
        if self._calls >= MAX_CALLS:
            return [world]
        body, text = world.functions[name]
        outer = world.arguments
        world.arguments = [value for value in arguments if not passes(value)]
        if len(world.arguments) < len(arguments) and outer is None:
            world.arguments = None
        world.locals.append({})
        self._calls += 1
        worlds = self.node(body, world, text)
        self._calls -= 1
        for found in worlds:
            found.arguments = outer
            for local, value in found.locals.pop().items():
                if value is None:
                    found.variables.pop(local, None)
                else:
                    found.variables[local] = value
            found.ended = "" if found.ended == "return" else found.ended
        return worlds

    def _runs_text(self, words: Array, world: World, text: Text) -> bool:
        """`bash -c TEXT`, `srun ... bash -c TEXT` and `bash FILE`: walk what they run. True when that was done."""
        texts = [text_of(word) for word in words]
        for index, word in enumerate(texts[:64]):
            if word is None or word.rpartition("/")[2] not in SHELLS or texts[0] in builtins.PRINTERS:
                continue
            option = index + 1
            while option < len(texts) and (texts[option] or "").startswith("-"):
                if "c" in (texts[option] or "")[1:] and not (texts[option] or "").startswith("--") and option + 1 < len(words):
                    inner = world.copy()
                    inner.wrapper = (*world.wrapper, *words[:index])
                    inner.arguments = words[option + 3 :]
                    self._walk_joined(words[option + 1], inner)
                    return True
                option += 1
            link = texts[option] if option < len(texts) else None
            return link is not None and self._walk_file(link, words[option + 1 :], words[:index], world)
        first = texts[0] or ""
        if first == "sbatch":
            script = next((i for i, word in enumerate(texts) if (word or "").endswith(JOBS)), 0)
            if script and self._walk_file(texts[script] or "", words[script + 1 :], words[:script], world):
                return True
        if first in ("ssh", "tmux", "sbatch") and (command := _wrapped(first, words)) is not None:
            inner = world.copy()
            inner.wrapper = (*world.wrapper, *words[:-1])
            self._walk_joined(command, inner)
            return True
        return first.endswith((".sh", ".bash")) and self._walk_file(first, words[1:], [], world)

    def _walk_joined(self, value: Value, world: World) -> None:
        if self._calls >= MAX_CALLS:
            return
        self._calls += 1
        try:
            self.text_in(Joined(value), [world])
        except ShellError:
            pass  # text given to `bash -c` that is not shell text fails when it runs, not here
        finally:
            self._calls -= 1

    def walk_eval(self, value: Value, world: World) -> list[World]:
        """`eval`: walk the text in the same world."""
        if self._calls >= MAX_CALLS:
            return [world]
        self._calls += 1
        try:
            return self.text_in(Joined(value), [world])
        except ShellError:
            return [world]
        finally:
            self._calls -= 1

    def walk_source(self, link: str, world: World) -> list[World]:
        """`source FILE`: walk the file in the same world."""
        lines = self.follow(link, world.directory) if self.depth + self._calls < MAX_CALLS else None
        if lines is None:
            return [world]
        self._calls += 1
        try:
            return self.text_in(lines, [world])
        except ShellError:
            return [world]
        finally:
            self._calls -= 1

    def _walk_file(self, link: str, arguments: Array, wrapper: Array, world: World) -> bool:
        """`bash FILE ARGUMENTS` in a shell of its own, which sees what is exported."""
        if self.depth >= 4:
            return False
        lines: Text | None = next((file.text for file in reversed(self.script.written) if file.path == link), None)
        lines = lines or self.follow(link, world.directory)
        if lines is None:
            return False
        known = None if any(passes(value) for value in arguments) else arguments
        passed = {n: v for n, v in world.variables.items() if n in world.exported}
        inner = World(passed, exported=set(world.exported), arguments=known)
        inner.wrapper, inner.directory = (*world.wrapper, *wrapper), world.directory
        walk = Walk(lines.path if isinstance(lines, Lines) else link, self.follow, self.script, self.depth + 1)
        walk.steps = self.steps
        try:
            walk.text_in(lines, [inner])
        except ShellError:
            return False
        finally:
            self.steps = walk.steps
        return True

    def _note(self, words: Array, world: World, span: Span) -> None:
        kept = [word for word in words if not passes(word)]
        if not kept:
            return
        environment: dict[str, Fact] = {}
        for name in sorted(world.exported):
            value = world.variables.get(name)
            if isinstance(value, tuple):
                environment[name] = fact_of(value, span)
        self.script.invocations.append(
            Invocation(
                tuple(fact_of(word, span) for word in kept),
                environment,
                span,
                world.directory,
                len(kept) < len(words),
                tuple(fact_of(word, span) for word in world.wrapper),
            )
        )


def _wrapped(first: str, words: Array) -> Value | None:
    """The command text of `ssh host "..."`, `tmux new -d "..."` and `sbatch --wrap="..."`."""
    if first != "sbatch":
        return words[-1] if len(words) > 2 and " " in raw_text(words[-1]) else None
    for index, word in enumerate(words):
        if raw_text(word).startswith("--wrap="):
            return builtins.after(word, len("--wrap="))
        if raw_text(word) == "--wrap" and index + 1 < len(words):
            return words[index + 1]
    return None
