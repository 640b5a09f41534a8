"""What commands print, and the files they write with it: here-documents, `echo >`, `tee`, and `$(...)`."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, replace

from memlint.facts import Status
from memlint.read.shell.expand import Expander
from memlint.read.shell.outputs import FILTERS, output
from memlint.read.shell.state import Text, World
from memlint.read.shell.syntax import AndOr, Assignment, Block, Group, Node, Pipeline, Redirect, Simple
from memlint.read.shell.value import Array, Joined, Lines, Piece, Value, text_of, unknown_value

WRITERS = frozenset({"cat", "tee", "echo", "printf"})


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that the script writes with text that is known. `text` maps its characters to the script."""

    path: str
    text: Joined


class Printer:
    """Computes output. `written` collects the files."""

    def __init__(self, path: str) -> None:
        self.expander = Expander(path, self.substitute)
        self.follow: Callable[[str, str | None], Lines | None] | None = None
        """Opens a file that `cat` prints."""
        self.written: list[WrittenFile] = []

    def fields(self, node: Simple, world: World, text: Text) -> Array:
        """The words of a command after expansion, assignments left out."""
        return [
            value for word in node.words if not isinstance(word, Assignment) for value in self.expander.fields(word, world, text)
        ]

    def given(self, redirects: tuple[Redirect, ...], world: World, text: Text) -> Value | None:
        """What a here-document or here-string gives on standard input; None without one."""
        for redirect in redirects:
            if redirect.heredoc is not None:
                return self.expander.value(redirect.heredoc.body[0], world, text) if redirect.heredoc.body else ()
            if redirect.operator == "<<<" and redirect.target is not None:
                return self.expander.value(redirect.target, world, text)
        return None

    def substitute(self, block: Block, world: World, text: Text) -> Value:
        """`$(...)`: the text it is replaced with, without line ends at the end."""
        if not block.commands:
            return ()  # `# a comment` in backquotes, between the options of a long command
        if len(block.commands) == 1:
            printed = self.printed(block.commands[0], world.copy(), text)
            if printed is not None:
                return _stripped(printed)
        command = _first(block)
        shown = text.text[command.start : command.end].split("\n")[0][:60] if command else "a command"
        return unknown_value(f"the output of `{shown}` is only known when it runs", f"$({shown})", None, -1)

    def printed(self, node: Node, world: World, text: Text, given: Value | None = None) -> Value | None:
        """What a command prints, when that can be known."""
        if isinstance(node, Pipeline) and not node.negated:
            for command in node.commands:
                given = self.printed(command, world, text, given)
                if given is None:
                    return None
            return given
        if isinstance(node, AndOr) and node.operator == "&&" and isinstance(node.left, Simple):
            words = self.fields(node.left, world, text)
            target = text_of(words[1]) if len(words) == 2 and text_of(words[0]) == "cd" else None
            if target is None:
                return None
            inner = world.copy()
            inner.directory = posixpath.normpath(posixpath.join(world.directory or "", target))
            return self.printed(node.right, inner, text, given)
        if not isinstance(node, Simple):
            return None
        words = self.fields(node, world, text)
        here = self.given(node.redirects, world, text)
        given = given if here is None else here
        if words and text_of(words[0]) == "tee":
            return given
        name = text_of(words[0]) if words else None
        if name in world.functions:
            return self._printed_function(name, words[1:], world)
        if len(words) == 2 and text_of(words[0]) == "cat" and self.follow is not None:
            link = text_of(words[1])
            lines = self.follow(link, world.directory) if link is not None else None
            return None if lines is None else lines.pieces(0, len(lines.text))
        if given is None and name in FILTERS and len(words) > 2 and self.follow is not None:
            link = text_of(words[-1])
            lines = self.follow(link, world.directory) if link else None
            if lines is not None:
                given, words = lines.pieces(0, len(lines.text)), words[:-1]
        return output(words, given, world.directory)

    def _printed_function(self, name: str, arguments: Array, world: World) -> Value | None:
        """What a function prints whose body only prints: a single `echo` or filter."""
        body, text = world.functions[name]
        commands = body.body.commands if isinstance(body, Group) else ()
        if len(commands) != 1 or len(world.locals) > 8:
            return None
        inner = world.copy()
        inner.arguments = arguments
        inner.locals.append({})
        return self.printed(commands[0], inner, text)

    def note_file(self, node: Simple, words: Array, world: World, text: Text) -> None:
        """Note the file that a command writes, when its text is known."""
        name = text_of(words[0])
        if name not in WRITERS:
            return
        if name == "tee":
            target = next((t for t in map(text_of, words[1:]) if t and not t.startswith("-")), None)
            node = replace(node, words=node.words[:1])
        else:
            target = self._target(node.redirects, world, text)
        printed = self.printed(node, world, text) if target else None
        if target is None or printed is None:
            return
        if any(redirect.operator == ">>" for redirect in node.redirects):
            before = next((file for file in reversed(self.written) if file.path == target), None)
            if before is not None:
                printed = (*before.text.pieces(0, len(before.text.text)), *printed)
        newline = () if name in ("cat", "tee") else (Piece("\n"),)
        self.written.append(WrittenFile(target, Joined((*printed, *newline), holes=False)))

    def note_group(self, node: Group, world: World, text: Text) -> None:
        """`{ echo a; echo b; } > file`."""
        target = self._target(node.redirects, world, text)
        lines: list[Piece] = []
        for command in node.body.commands:
            shown = self.printed(command, world, text)
            if shown is None:
                return
            lines.extend((*shown, Piece("\n")))
        if target and lines:
            self.written.append(WrittenFile(target, Joined(tuple(lines), holes=False)))

    def _target(self, redirects: tuple[Redirect, ...], world: World, text: Text) -> str | None:
        for redirect in redirects:
            if redirect.operator in (">", ">>", ">|") and redirect.target is not None:
                return text_of(self.expander.value(redirect.target, world, text))
        return None


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
