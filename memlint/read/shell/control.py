"""The walk through a script's structure: sequences, conditions, loops, and the worlds they split into.

An undecided `if` or `case` splits the walk into worlds, which are joined again when they are the same; loops are walked a bounded
number of times. A branch taken only because nothing sets a variable (`[ -z "$1" ]`) makes what it sets a default.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from memlint.facts import Status
from memlint.read.shell import builtins
from memlint.read.shell.conditions import NO, UNDECIDED, YES, Truth, both, either, test
from memlint.read.shell.expand import ARGUMENTS
from memlint.read.shell.parse import parse
from memlint.read.shell.printing import Printer
from memlint.read.shell.state import Text, World
from memlint.read.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    Block,
    Case,
    For,
    Group,
    If,
    Node,
    Parameter,
    Pipeline,
    Simple,
    Test,
    While,
    Word,
)
from memlint.read.shell.value import Array, Value, raw_text, status_of, text_of, unknown_value

MAX_STEPS = 8_000
"""Simple commands walked in one script, over all worlds and loops; the largest launch of public repositories took 6,500."""
MAX_WORLDS = 12
MAX_ROUNDS = 12
"""Rounds of a `for` loop; a longer one is walked once with an unknown variable."""

Run = Callable[[World], "list[World]"]


class Control:
    """Walks structure; `simple` is the walk of a simple command."""

    def __init__(self, path: str) -> None:
        self.printer = Printer(path)
        self.expander = self.printer.expander
        self.steps = 0
        self._loops = 0

    def simple(self, node: Simple, world: World, text: Text) -> list[World]:
        """Walk a simple command; the worlds after it."""
        raise NotImplementedError

    # Structure -------------------------------------------------------------------------------------------------------

    def text_in(self, text: Text, worlds: list[World]) -> list[World]:
        """Parse and walk a text in the given worlds."""
        return self.block(parse(text.text), worlds, text)

    def block(self, block: Block, worlds: list[World], text: Text) -> list[World]:
        """Walk commands in sequence."""
        for node in block.commands:
            running = [world for world in worlds if not world.ended]
            if not running or self.steps > MAX_STEPS:
                break
            ended = [world for world in worlds if world.ended]
            after = [found for world in running for found in self.node(node, world, text)]
            worlds = _distinct([*ended, *after])
        return worlds

    def node(self, node: Node, world: World, text: Text) -> list[World]:
        """Walk one command; the worlds after it."""
        if isinstance(node, Simple):
            return self.simple(node, world, text)
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
        if node.redirects:
            self.printer.note_group(node, world, text)
        return self.block(node.body, [world], text)

    # Conditions ------------------------------------------------------------------------------------------------------

    def condition(self, node: Node, world: World, text: Text, *, presume: bool = True) -> list[tuple[World, Truth]]:
        """Walk a command for its truth. Other commands than tests succeed when `presume`, else are undecided."""
        if isinstance(node, Block):
            worlds = self.block(Block(node.commands[:-1]), [world], text)
            if not node.commands:
                return [(found, YES) for found in worlds]
            return [pair for found in worlds for pair in self.condition(node.commands[-1], found, text, presume=presume)]
        if isinstance(node, Test):
            return [(world, test([self.expander.value(word, world, text) for word in node.words], extended=True))]
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
                words = self.printer.fields(node, world, text)[1:]
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
                    tested=_tested(node.left),
                )
                pairs.extend((after, truth) for after in worlds)
            elif truth.value is going:
                pairs.extend((after, combine(truth, also)) for after, also in right(found))
            else:
                pairs.append((found, truth))
        return pairs

    def _assume(self, world: World, *, likely: Run, unlikely: Run, tested: frozenset[str] = frozenset()) -> list[World]:
        """Take a branch that is only taken by default. Where it ends the script (a usage message), the other is meant, and
        the variables that were `tested` must be given by the caller."""
        before = dict(world.variables)
        assumed = world.assumed
        others = unlikely(world.copy())
        world.assumed = True
        worlds = likely(world)
        for found in worlds:
            found.assumed = assumed
        if others and worlds and all(found.ended in ("exit", "return") for found in worlds):
            for found in others:
                for name in tested:
                    value = found.variables.get(name)
                    if isinstance(value, tuple) and status_of(value) is Status.DEFAULT and not text_of(value):
                        found.variables[name] = unknown_value(f"${name} must be given", f"${name}", None, -1, external=True)
            return others
        touched = {name for other in others for name, value in other.variables.items() if before.get(name) != value}
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
                worlds.extend(self._assume(found, likely=likely, unlikely=unlikely, tested=_tested(condition)))
            else:
                worlds.extend((yes if truth.value else no)(found))
        return worlds

    # Loops and choices -----------------------------------------------------------------------------------------------

    def _for(self, node: For, world: World, text: Text) -> list[World]:
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
                rounds = [value for word in node.words for value in self.expander.fields(word, world, text)]
            if any(passes(value) for value in rounds):
                rounds = [unknown_value(ARGUMENTS, f"${name}", None, -1, external=True)]
            elif len(rounds) > MAX_ROUNDS:
                rounds = [unknown_value(f"${name} takes {len(rounds)} values in a loop", f"${name}", None, -1)]
        worlds = [world]
        self._loops += 1
        for value in rounds:
            for each in worlds:
                if not each.ended and name.isidentifier():
                    each.assign(name, value)
            worlds = self.block(node.body, worlds, text)
            for each in worlds:
                each.ended = "" if each.ended == "continue" else each.ended
        self._loops -= 1
        for each in worlds:
            each.ended = "" if each.ended == "break" else each.ended
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


def _tested(node: Node) -> frozenset[str]:
    """The variables that a condition looks at."""
    if isinstance(node, (Block, Pipeline)):
        return frozenset().union(*map(_tested, node.commands))
    if isinstance(node, AndOr):
        return _tested(node.left) | _tested(node.right)
    if not isinstance(node, (Simple, Test)):
        return frozenset()
    words = [word for word in node.words if isinstance(word, Word)]
    return frozenset(part.name for word in words for part in word.parts if isinstance(part, Parameter))


def passes(value: Value) -> bool:
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
