"""Walks a shell script along every way it may take and notes the commands it would run. Nothing is executed.

An undecided `if` or `case` splits the walk into worlds, which are joined again when they are the same; loops are walked a bounded
number of times. A branch taken only because nothing sets a variable (`[ -z "$1" ]`) makes what it sets a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from memlint.facts import Fact, Status
from memlint.read.shell import builtins
from memlint.read.shell.conditions import NO, UNDECIDED, YES, Truth, both, either, test
from memlint.read.shell.expand import ARGUMENTS, Expander
from memlint.read.shell.outputs import output
from memlint.read.shell.parse import parse
from memlint.read.shell.state import Text, World
from memlint.read.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    Block,
    Case,
    For,
    Function,
    Group,
    If,
    Node,
    Pipeline,
    Redirect,
    ShellError,
    Simple,
    Test,
    While,
)
from memlint.read.shell.value import (
    Array,
    Joined,
    Lines,
    Piece,
    Value,
    fact_of,
    raw_text,
    status_of,
    text_of,
    unknown_value,
)
from memlint.source import Span

MAX_STEPS = 20_000
"""Simple commands walked in one script, over all worlds and loops."""
MAX_WORLDS = 12
MAX_ROUNDS = 12
"""Rounds of a `for` loop; a longer one is walked once with an unknown variable."""
MAX_CALLS = 20
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})

Run = Callable[[World], "list[World]"]


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


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that the script writes with a here-document or echo. `text` maps its characters to the script."""

    path: str
    text: Joined


@dataclass(slots=True)
class Script:
    """What a script does, in the order of the walk."""

    invocations: list[Invocation] = field(default_factory=list)
    written: list[WrittenFile] = field(default_factory=list)
    truncated: bool = False
    """The walk was stopped at its bound."""


def evaluate(
    lines: Lines,
    *,
    path: str,
    environment: Mapping[str, Value] | None = None,
    arguments: Array | None = None,
    follow: Callable[[str, str | None], Lines | None] = lambda link, directory: None,
    script: Script | None = None,
    depth: int = 0,
) -> Script:
    """Walk the script `lines`. `environment` is what surrounds it (SLURM's variables); `follow` opens another script by its link.

    Raises `ShellError` where bash would refuse the text.
    """
    walk = _Walk(path, follow, script or Script(), depth)
    world = World(dict(environment or {}), set(environment or {}), arguments)
    walk.text_in(lines, [world])
    return walk.script


class _Walk:
    def __init__(self, path: str, follow: Callable[[str, str | None], Lines | None], script: Script, depth: int) -> None:
        self.path, self.follow, self.script, self.depth = path, follow, script, depth
        self.expander = Expander(path, self._substitute)
        self._steps = self._calls = self._loops = self._muted = 0

    # Structure -------------------------------------------------------------------------------------------------------

    def text_in(self, text: Text, worlds: list[World]) -> list[World]:
        """Parse and walk a text in the given worlds."""
        return self.block(parse(text.text), worlds, text)

    def block(self, block: Block, worlds: list[World], text: Text) -> list[World]:
        """Walk commands in sequence."""
        for node in block.commands:
            running = [world for world in worlds if not world.ended]
            if not running or self._steps > MAX_STEPS:
                break
            ended = [world for world in worlds if world.ended]
            after = [found for world in running for found in self.node(node, world, text)]
            worlds = _distinct([*ended, *after])
        return worlds

    def node(self, node: Node, world: World, text: Text) -> list[World]:
        """Walk one command; the worlds after it."""
        if isinstance(node, Simple):
            return self._simple(node, world, text)
        if isinstance(node, (Test, ArithmeticCommand)):
            return [found for found, _ in self.condition(node, world, text)]
        if isinstance(node, AndOr):
            return [found for found, _ in self.condition(node, world, text)]
        if isinstance(node, Pipeline):
            return self._pipeline(node, world, text)
        if isinstance(node, Block):
            return self.block(node, [world], text)
        if isinstance(node, Group):
            return self._group(node, world, text)
        if isinstance(node, If):
            return self._if(node, 0, world, text)
        if isinstance(node, For):
            return self._for(node, world, text)
        if isinstance(node, While):
            return self._while(node, world, text)
        if isinstance(node, Case):
            return self._case(node, world, text)
        world.functions[node.name] = (node.body, text)
        return [world]

    def _pipeline(self, node: Pipeline, world: World, text: Text) -> list[World]:
        if len(node.commands) == 1:
            return self.node(node.commands[0], world, text)
        for command in node.commands:
            self.node(command, world.copy(), text)
        return [world]

    def _group(self, node: Group, world: World, text: Text) -> list[World]:
        if node.subshell:
            self.block(node.body, [world.copy()], text)
            return [world]
        if isinstance(node.body.commands[0] if node.body.commands else None, Simple) and node.redirects:
            self._write_group(node, world, text)
        return self.block(node.body, [world], text)

    def _write_group(self, node: Group, world: World, text: Text) -> None:
        """`{ echo a; echo b; } > file`."""
        target = self._target(node.redirects, world, text)
        printed: list[Piece] = []
        for command in node.body.commands:
            shown = self._printed(command, world, text)
            if shown is None:
                return
            printed.extend((*shown, Piece("\n")))
        if target:
            self.script.written.append(WrittenFile(target, Joined(tuple(printed), holes=False)))

    # Conditions ------------------------------------------------------------------------------------------------------

    def condition(
        self, node: Node, world: World, text: Text, *, presume: bool = True
    ) -> list[tuple[World, Truth]]:
        """Walk a command for its truth. Other commands than tests succeed when `presume`, else are undecided."""
        if isinstance(node, Block):
            worlds = self.block(Block(node.commands[:-1]), [world], text)
            if not node.commands:
                return [(found, YES) for found in worlds]
            return [pair for found in worlds for pair in self.condition(node.commands[-1], found, text, presume=presume)]
        if isinstance(node, Test):
            words = [value for word in node.words for value in [self.expander.value(word, world, text)]]
            return [(world, test(words, extended=True))]
        if isinstance(node, ArithmeticCommand):
            return [(world, self._arithmetic(node, world, text))]
        if isinstance(node, Pipeline) and node.negated and len(node.commands) == 1:
            pairs = self.condition(node.commands[0], world, text, presume=presume)
            return [(found, truth.negated()) for found, truth in pairs]
        if isinstance(node, AndOr):
            return self._and_or(node, world, text, presume)
        if isinstance(node, Simple) and node.words and not isinstance(node.words[0], Assignment):
            name = text.text[node.words[0].start : node.words[0].end]
            if name in ("[", "test"):
                words = [value for word in node.words[1:] for value in self._fields(word, world, text)]
                if name == "[" and words and raw_text(words[-1]) == "]":
                    words.pop()
                return [(world, test(words, extended=False))]
            if name in ("true", ":", "false"):
                return [(found, NO if name == "false" else YES) for found in self.node(node, world, text)]
            if name == "getopts":
                return [(world, Truth(False, Status.DEFAULT))]
        return [(found, YES if presume else UNDECIDED) for found in self.node(node, world, text)]

    def _arithmetic(self, node: ArithmeticCommand, world: World, text: Text) -> Truth:
        if builtins.let(self.expander.value(node.expression, world, text), world, self.expander, text):
            return YES
        value = self.expander.arithmetic(node.expression, world, text, node.start, node.end)
        known = text_of(value)
        return UNDECIDED if known is None else Truth(known != "0", status_of(value))

    def _and_or(self, node: AndOr, world: World, text: Text, presume: bool) -> list[tuple[World, Truth]]:
        pairs: list[tuple[World, Truth]] = []
        going = node.operator == "&&"
        combine = both if going else either

        def right(found: World) -> list[tuple[World, Truth]]:
            return self.condition(node.right, found, text, presume=presume)

        for found, truth in self.condition(node.left, world, text):
            if found.ended:
                pairs.append((found, truth))
            elif truth.value is None:
                pairs.append((found.copy(), Truth(not going)))
                pairs.extend(right(found))
            elif truth.status is Status.DEFAULT:
                worlds = self._assume(
                    found,
                    likely=(lambda w: [p[0] for p in right(w)]) if truth.value is going else (lambda w: [w]),
                    unlikely=(lambda w: [w]) if truth.value is going else (lambda w: [p[0] for p in right(w)]),
                )
                pairs.extend((after, truth) for after in worlds)
            elif truth.value is going:
                pairs.extend((after, combine(truth, also)) for after, also in right(found))
            else:
                pairs.append((found, truth))
        return pairs

    def _assume(self, world: World, *, likely: Run, unlikely: Run) -> list[World]:
        """Take a branch that is only taken by default. Where it ends the script (a usage message), the other is meant."""
        before = dict(world.variables)
        assumed = world.assumed
        others = unlikely(world.copy())
        world.assumed = True
        worlds = likely(world)
        for found in worlds:
            found.assumed = assumed
        if others and worlds and all(found.ended in ("exit", "return") for found in worlds):
            return others
        touched = {
            name for other in others for name, value in other.variables.items() if before.get(name) != value
        }
        for found in worlds:
            found.soften(touched)
        return worlds

    def _if(self, node: If, index: int, world: World, text: Text) -> list[World]:
        if index == len(node.branches):
            return self.block(node.otherwise, [world], text) if node.otherwise else [world]
        condition, body = node.branches[index]

        def yes(found: World) -> list[World]:
            return self.block(body, [found], text)

        def no(found: World) -> list[World]:
            return self._if(node, index + 1, found, text)

        worlds: list[World] = []
        for found, truth in self.condition(condition, world, text, presume=False):
            if truth.value is None:
                worlds.extend((*yes(found.copy()), *no(found)))
            elif truth.status is Status.DEFAULT:
                likely, unlikely = (yes, no) if truth.value else (no, yes)
                worlds.extend(self._assume(found, likely=likely, unlikely=unlikely))
            else:
                worlds.extend((yes if truth.value else no)(found))
        return worlds

    # Loops and choices -----------------------------------------------------------------------------------------------

    def _for(self, node: For, world: World, text: Text) -> list[World]:
        span = text.span(node.body.commands[0].start, node.body.commands[0].start) if False else None
        del span
        if node.expression is not None:
            written = raw_text(self.expander.value(node.expression, world, text))
            name = written.partition("=")[0].strip()
            rounds: Array = [unknown_value(f"${name} is a loop counter", f"${name}", None, -1)]
        else:
            name = node.name
            if node.words is None:
                found = self.expander.lookup("@", "@", world)
                rounds = found if isinstance(found, list) else []
            else:
                rounds = [value for word in node.words for value in self._fields(word, world, text)]
            if any(_passes(value) for value in rounds):
                rounds = [unknown_value(ARGUMENTS, f"${name}", None, -1, external=True)]
            elif len(rounds) > MAX_ROUNDS:
                rounds = [unknown_value(f"${name} takes {len(rounds)} values in a loop", f"${name}", None, -1)]
        worlds = [world]
        self._loops += 1
        for value in rounds:
            for found in worlds:
                if not found.ended and name.isidentifier():
                    found.set(name, value)
            worlds = self.block(node.body, worlds, text)
            for found in worlds:
                found.ended = "" if found.ended == "continue" else found.ended
        self._loops -= 1
        for found in worlds:
            found.ended = "" if found.ended == "break" else found.ended
        return worlds

    def _while(self, node: While, world: World, text: Text) -> list[World]:
        def body(found: World) -> list[World]:
            self._loops += 1
            worlds = self.block(node.body, [found], text)
            self._loops -= 1
            for after in worlds:
                after.ended = "" if after.ended in ("break", "continue") else after.ended
            return worlds

        worlds: list[World] = []
        for found, truth in self.condition(node.condition, world, text, presume=False):
            goes = truth.negated() if node.until and truth.value is not None else truth
            if goes.value is False and goes.status is Status.DEFAULT:
                worlds.extend(self._assume(found, likely=lambda w: [w], unlikely=body))
            elif goes.value is False:
                worlds.append(found)
            else:
                worlds.extend(body(found))
        return worlds

    def _case(self, node: Case, world: World, text: Text) -> list[World]:
        subject = self.expander.value(node.word, world, text)
        known = text_of(subject)
        external = bool(subject) and all(p.external for p in subject if p.status is Status.UNKNOWN)
        default = status_of(subject) is Status.DEFAULT
        chosen: Block | None = None
        for patterns, body in node.arms:
            texts = [text_of(self.expander.value(pattern, world, text)) for pattern in patterns]
            if any(p is not None and fnmatchcase(known or "", p) for p in texts):
                chosen = body
                break
        others = [body for _, body in node.arms if body is not chosen]

        def take(found: World) -> list[World]:
            return self.block(chosen, [found], text) if chosen else [found]

        def leave(found: World) -> list[World]:
            return [after for body in others for after in self.block(body, [found.copy()], text)]

        if known is not None and not default:
            return take(world)
        if known is not None or (external and self._loops):
            return self._assume(world, likely=take, unlikely=leave)
        if external and chosen is not None:
            attempt = take(world.copy())
            if not all(after.ended in ("exit", "return") for after in attempt):
                return self._assume(world, likely=take, unlikely=leave)
            return self._arms(node, world, text, skip=chosen)
        return self._arms(node, world, text)

    def _arms(self, node: Case, world: World, text: Text, skip: Block | None = None) -> list[World]:
        """Every arm as a world of its own, in which the tested variable is what the arm says."""
        worlds: list[World] = []
        subject = text.text[node.word.start : node.word.end].strip('"').strip("${}")
        for patterns, body in node.arms:
            if body is skip:
                continue
            branch = world.copy()
            pattern = self.expander.value(patterns[0], world, text)
            literal = text_of(pattern)
            if len(patterns) == 1 and literal and not set(literal) & set("*?[") and subject.isidentifier():
                branch.variables[subject] = pattern
            worlds.extend(self.block(body, [branch], text))
        return worlds or [world]

    # Simple commands -------------------------------------------------------------------------------------------------

    def _fields(self, word: object, world: World, text: Text) -> Array:
        from memlint.read.shell.syntax import Word

        assert isinstance(word, Word)
        return self.expander.fields(word, world, text)

    def assign(self, assignment: Assignment, world: World, text: Text) -> None:
        """Carry out one assignment."""
        name = assignment.name
        held = world.variables.get(name)
        if isinstance(assignment.value, tuple):
            elements = [value for word in assignment.value for value in self._fields(word, world, text)]
            before = held if isinstance(held, list) else [held] if held else []
            world.set(name, [*before, *elements] if assignment.append else elements)
            return
        value = self.expander.value(assignment.value, world, text)
        if assignment.index is not None:
            elements = list(held) if isinstance(held, list) else []
            if assignment.index.isdigit() and int(assignment.index) <= len(elements):
                position = int(assignment.index)
                world.set(name, [*elements[:position], value, *elements[position + 1 :]])
        elif assignment.append and isinstance(held, list):
            world.set(name, [(*held[0], *value), *held[1:]] if held else [value])
        elif assignment.append:
            world.set(name, (*(held or ()), *value))
        else:
            world.set(name, value)

    def _simple(self, node: Simple, world: World, text: Text) -> list[World]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            self.script.truncated = True
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
        words = [v for word in node.words if not isinstance(word, Assignment) for v in self._fields(word, world, text)]
        if not words:
            return [world]
        name = text_of(words[0])
        if node.redirects:
            self._redirected(node, words, world, text)
        if name in world.functions:
            return self._call(name, words[1:], world)
        if name in builtins.DECLARE:
            return builtins.declare(self, name, words[1:], declared, world, text)
        builtin = builtins.TABLE.get(name or "")
        if builtin is not None:
            here = next((r for r in node.redirects if r.operator.startswith("<<")), None)
            given = self._given(here, world, text) if here else None
            return builtin(self, words[1:], given, world, text)
        if self._runs_text(words, scope, text):
            return [world]
        span = text.span(node.start, node.end)
        if span is not None:
            self._note(words, scope, span)
        return [world]

    def _call(self, name: str, arguments: Array, world: World) -> list[World]:
        if self._calls >= MAX_CALLS:
            return [world]
        body, text = world.functions[name]
        outer, shifted = world.arguments, world.shifted
        world.arguments = [value for value in arguments if not _passes(value)]
        if len(world.arguments) < len(arguments) and outer is None:
            world.arguments = None
        world.locals.append({})
        self._calls += 1
        worlds = self.node(body, world, text)
        self._calls -= 1
        for found in worlds:
            found.arguments, found.shifted = outer, shifted
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
        return bool(texts[0]) and texts[0].endswith((".sh", ".bash")) and self._walk_file(texts[0], words[1:], [], world)

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
        lines = self.follow(link, world.directory) if self.depth < 4 else None
        if lines is None:
            return False
        known = None if any(_passes(value) for value in arguments) else arguments
        inner = World({n: v for n, v in world.variables.items() if n in world.exported}, set(world.exported), known)
        inner.wrapper, inner.directory = (*world.wrapper, *wrapper), world.directory
        walk = _Walk(lines.path, self.follow, self.script, self.depth + 1)
        walk._steps = self._steps
        try:
            walk.text_in(lines, [inner])
        except ShellError:
            return False
        finally:
            self._steps = walk._steps
        return True

    def _note(self, words: Array, world: World, span: Span) -> None:
        kept = [word for word in words if not _passes(word)]
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

    # Output ----------------------------------------------------------------------------------------------------------

    def _given(self, redirect: Redirect, world: World, text: Text) -> Value | None:
        """What a here-document or here-string gives."""
        if redirect.heredoc is not None:
            return self.expander.value(redirect.heredoc.body[0], world, text) if redirect.heredoc.body else ()
        return self.expander.value(redirect.target, world, text) if redirect.target else None

    def _target(self, redirects: tuple[Redirect, ...], world: World, text: Text) -> str | None:
        for redirect in redirects:
            if redirect.operator in (">", ">>", ">|") and redirect.target is not None:
                return text_of(self.expander.value(redirect.target, world, text))
        return None

    def _redirected(self, node: Simple, words: Array, world: World, text: Text) -> None:
        """Note a file that the command writes and whose text is known."""
        name = text_of(words[0])
        if name == "tee":
            target = next((t for t in map(text_of, words[1:]) if t and not t.startswith("-")), None)
        else:
            target = self._target(node.redirects, world, text)
        if not target or name not in ("cat", "tee", "echo", "printf"):
            return
        printed = self._printed(replace(node, words=node.words[:1]) if name == "tee" else node, world, text)
        if printed is not None:
            appended = any(r.operator == ">>" for r in node.redirects)
            before = next((w for w in reversed(self.script.written) if w.path == target), None) if appended else None
            whole = (*before.text.pieces(0, len(before.text.text)), *printed) if before else printed
            newline = () if name in ("cat", "tee") else (Piece("\n"),)
            self.script.written.append(WrittenFile(target, Joined((*whole, *newline), holes=False)))

    def _printed(self, node: Node, world: World, text: Text, given: Value | None = None) -> Value | None:
        """What a command prints, when that can be known."""
        if isinstance(node, Pipeline) and not node.negated:
            for command in node.commands:
                given = self._printed(command, world, text, given)
                if given is None:
                    return None
            return given
        if isinstance(node, AndOr) and node.operator == "&&" and isinstance(node.left, Simple):
            inner = world.copy()
            self.node(node.left, inner, text)
            return self._printed(node.right, inner, text, given)
        if not isinstance(node, Simple):
            return None
        words = [v for w in node.words if not isinstance(w, Assignment) for v in self._fields(w, world, text)]
        here = next((r for r in node.redirects if r.operator.startswith("<<")), None)
        if here is not None:
            given = self._given(here, world, text)
        if words and text_of(words[0]) == "tee":
            return given
        return output(words, given, world.directory)

    def _substitute(self, block: Block, world: World, text: Text) -> Value:
        """`$(...)`: the text it is replaced with, without line ends at the end."""
        if len(block.commands) == 1:
            printed = self._printed(block.commands[0], world.copy(), text)
            if printed is not None:
                return _stripped(printed)
        command = _first(block)
        shown = text.text[command.start : command.end].split("\n")[0][:60] if command else "a command"
        return unknown_value(f"the output of `{shown}` is only known when it runs", f"$({shown})", None, -1)


def _first(block: Block) -> Simple | None:
    for node in block.commands[:1]:
        while isinstance(node, (Pipeline, AndOr)):
            node = node.commands[0] if isinstance(node, Pipeline) else node.left
        if isinstance(node, Simple):
            return node
    return None


def _stripped(value: Value) -> Value:
    pieces = list(value)
    while pieces and pieces[-1].status is not Status.UNKNOWN:
        kept = pieces[-1].text.rstrip("\n")
        if kept == pieces[-1].text:
            break
        last = pieces.pop()
        if kept:
            pieces.append(last.cut(0, len(kept)))
    return tuple(pieces)


def _passes(value: Value) -> bool:
    """Whether the word is `"$@"` of the script itself."""
    return len(value) == 1 and value[0].reason == ARGUMENTS and value[0].status is Status.UNKNOWN


def _distinct(worlds: list[World]) -> list[World]:
    """Worlds without repetitions. Past the bound, what differs among the surplus becomes unknown."""
    kept: list[World] = []
    for world in worlds:
        if not any(world.same(other) for other in kept):
            kept.append(world)
    running = [world for world in kept if not world.ended]
    if len(running) <= MAX_WORLDS:
        return [w for w in kept if not w.ended] + [w for w in kept if w.ended][:1]
    first, *others = running
    for name in {n for w in running for n in w.variables}:
        if any(w.variables.get(name) != first.variables.get(name) for w in others):
            first.variables[name] = unknown_value(f"${name} depends on too many conditions", f"${name}", None, -1)
    return [first]


def _each(worlds: list[World]) -> Iterator[World]:
    return (world for world in worlds if not world.ended)
