"""Shell text to its syntax tree. Accepts what bash accepts of the constructs in `syntax`; raises `ShellError` otherwise.

One module: a recursive descent over one position, kept in one class.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from memlint.read.shell import words
from memlint.read.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    Block,
    Case,
    For,
    Function,
    Group,
    Heredoc,
    If,
    Literal,
    Node,
    Pipeline,
    Redirect,
    ShellError,
    Simple,
    Test,
    While,
    Word,
)

MAX_DEPTH = 60
"""Nesting of commands and substitutions; deeper text is refused rather than recursed into."""

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\n]*\])?(\+?)=")
FUNCTION = re.compile(r"(?:function[ \t]+([\w.:-]+)[ \t]*(?:\([ \t]*\))?|([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\))\s*(?=[{(])")
REDIRECT = re.compile(r"(\d*|\{\w+\})(<<<|<<-?|&>>|&>|>>|>&|>\||<&|<>|>|<)")
RESERVED_END = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
DECLARATIONS = frozenset({"export", "local", "declare", "typeset", "readonly"})


def parse(text: str) -> Block:
    """The whole text as a block of commands. `text` has `\\n` line ends only."""
    parser = Parser(text)
    block = parser.block(frozenset())
    parser.blank(newlines=True)
    if parser.position < len(text):
        raise ShellError(f"unexpected {text[parser.position : parser.position + 10].split()[0]!r}", parser.position)
    return block


class Parser:
    """A cursor over the text with one method per grammar rule."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.limit = len(text)
        self.depth = 0
        self._heredocs: list[tuple[str, bool, bool, list[Word]]] = []

    # Cursor ----------------------------------------------------------------------------------------------------------

    def blank(self, *, newlines: bool = False) -> None:
        """Skip blanks, continuations and comments (and line ends with `newlines`)."""
        text = self.text
        while self.position < len(text):
            character = text[self.position]
            if character in " \t":
                self.position += 1
            elif text.startswith("\\\n", self.position):
                self.position += 2
            elif character == "#" and (self.position == 0 or text[self.position - 1] in " \t\n;&|()`"):
                end = text.find("\n", self.position)
                self.position = len(text) if end < 0 else end
            elif character == "\n" and newlines:
                self._newline()
            else:
                break

    def _newline(self) -> None:
        self.position += 1
        for delimiter, literal, strip, slot in self._heredocs:
            slot.append(self._heredoc_body(delimiter, literal, strip))
        self._heredocs.clear()

    def _heredoc_body(self, delimiter: str, literal: bool, strip: bool) -> Word:
        start = line = self.position
        while line < len(self.text):
            end = self.text.find("\n", line)
            end = len(self.text) if end < 0 else end
            content = self.text[line:end]
            if (content.lstrip("\t") if strip else content) == delimiter:
                self.position = min(end + 1, len(self.text))
                return words.read_heredoc(self, start, line, literal=literal)
            line = end + 1
        self.position = len(self.text)
        return words.read_heredoc(self, start, len(self.text), literal=literal)

    def expect(self, token: str) -> None:
        """Move past `token` or raise."""
        self.blank(newlines=True)
        if not self.text.startswith(token, self.position):
            raise ShellError(f"{token!r} expected", min(self.position, max(len(self.text) - 1, 0)))
        self.position += len(token)

    def keyword(self) -> str:
        """The bare word at the cursor, not consumed."""
        match = re.compile(r"[a-z]+(?=[\s;&|()]|$)|[{}!](?=[\s;&|()]|$)|\[\[(?=\s)").match(self.text, self.position)
        return match.group() if match else ""

    def sub(self, start: int, end: int) -> Block:
        """The text `start:end` parsed as a block of its own (backquotes); offsets stay those of the whole text."""
        inner = Parser(self.text[:end])
        inner.position, inner.depth = start, self.depth + 1
        return inner.block(frozenset())

    # Grammar ---------------------------------------------------------------------------------------------------------

    def block_until(self, closing: str) -> Block:
        """Commands up to a closing parenthesis, which is not consumed."""
        return self.block(frozenset(), closing)

    def block(self, ends: frozenset[str], closing: str = "") -> Block:
        """Commands up to one of the reserved words `ends` or the character `closing`; neither is consumed."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ShellError("nested too deeply", self.position)
        commands: list[Node] = []
        while True:
            self.blank(newlines=True)
            if self.position >= len(self.text):
                break
            character = self.text[self.position]
            if closing and character == closing:
                break
            if character in ";&":
                if self.text.startswith(";;", self.position) or self.text.startswith(";&", self.position):
                    break
                self.position += 1
                continue
            word = self.keyword()
            if word in ends or (word in RESERVED_END and not ends and not closing):
                if word not in ends:
                    raise ShellError(f"unexpected {word!r}", self.position)
                break
            before = self.position
            commands.append(self.and_or())
            if self.position == before:
                raise ShellError(f"unexpected {character!r}", before)
        self.depth -= 1
        return Block(tuple(commands))

    def and_or(self) -> Node:
        """Pipelines joined by `&&` and `||`, which bind alike and to the left."""
        left = self.pipeline()
        while True:
            self.blank()
            operator = self.text[self.position : self.position + 2]
            if operator not in ("&&", "||"):
                return left
            self.position += 2
            self.blank(newlines=True)
            left = AndOr(left, operator, self.pipeline())

    def pipeline(self) -> Node:
        """Commands joined by `|`, with `!` and `time` before them."""
        negated = False
        while self.keyword() == "!":
            negated = not negated
            self.position += 1
            self.blank()
        if re.compile(r"time(\s+-p)?\s").match(self.text, self.position):
            self.position += len("time")
            self.blank()
        commands = [self.command()]
        while True:
            self.blank()
            if not self.text.startswith("|", self.position) or self.text.startswith("||", self.position):
                break
            self.position += 2 if self.text.startswith("|&", self.position) else 1
            self.blank(newlines=True)
            commands.append(self.command())
        if len(commands) == 1 and not negated:
            return commands[0]
        return Pipeline(tuple(commands), negated)

    def command(self) -> Node:
        """One command: compound, function, or simple with its redirections."""
        compounds: dict[str, Callable[[], Node]] = {
            "if": self._if,
            "for": self._for,
            "select": self._for,
            "while": self._while,
            "until": self._while,
            "case": self._case,
            "{": self._group,
            "[[": self._test,
        }
        compound = compounds.get(self.keyword())
        if compound is not None:
            node = compound()
            redirects = self._redirects()
            return Group(Block((node,)), redirects, False) if redirects else node
        if self.text.startswith("((", self.position):
            start = self.position
            closing = words.arithmetic_end(self.text, start + 2)
            if closing is not None:
                expression = words.read_heredoc(self, start + 2, closing, literal=False)
                self.position = closing + 2
                return ArithmeticCommand(expression, start, self.position)
        if self.text.startswith("(", self.position):
            self.position += 1
            body = self.block_until(")")
            self.expect(")")
            return Group(body, self._redirects(), True)
        match = FUNCTION.match(self.text, self.position)
        if match:
            self.position = match.end()
            return Function(match.group(1) or match.group(2), self.command())
        return self._simple()

    def _if(self) -> If:
        opened = self.position
        self.position += len("if")
        branches: list[tuple[Block, Block]] = []
        otherwise = None
        while True:
            condition = self.block(frozenset({"then"}))
            self._reserved("then", "if", opened)
            branches.append((condition, self.block(frozenset({"elif", "else", "fi"}))))
            word = self.keyword()
            self.position += len(word)
            if word == "else":
                otherwise = self.block(frozenset({"fi"}))
                self._reserved("fi", "if", opened)
                break
            if word == "fi":
                break
            if word != "elif":
                raise ShellError("'if' without 'fi'", opened)
        return If(tuple(branches), otherwise)

    def _for(self) -> For:
        opened = self.position
        self.position += len(self.keyword())
        self.blank()
        if self.text.startswith("((", self.position):
            closing = words.arithmetic_end(self.text, self.position + 2)
            if closing is None:
                raise ShellError("'for ((' without '))'", opened)
            expression = words.read_heredoc(self, self.position + 2, closing, literal=False)
            self.position = closing + 2
            return For("", (), self._do(opened), expression)
        match = words.NAME.match(self.text, self.position)
        if match is None:
            raise ShellError("'for' without a name", opened)
        self.position = match.end()
        self.blank(newlines=True)
        items: list[Word] | None = None
        if self.keyword() == "in":
            self.position += len("in")
            items = []
            while True:
                self.blank()
                if self.position >= len(self.text) or self.text[self.position] in ";\n&|":
                    break
                items.append(words.read_word(self))
        self.blank()
        if self.text.startswith(";", self.position):
            self.position += 1
        return For(match.group(), None if items is None else tuple(items), self._do(opened))

    def _do(self, opened: int) -> Block:
        self.blank(newlines=True)
        if self.text.startswith(";", self.position):
            self.position += 1
            self.blank(newlines=True)
        self._reserved("do", "loop", opened)
        body = self.block(frozenset({"done"}))
        self._reserved("done", "do", opened)
        return body

    def _while(self) -> While:
        opened = self.position
        word = self.keyword()
        self.position += len(word)
        condition = self.block(frozenset({"do"}))
        return While(condition, self._do(opened), word == "until")

    def _case(self) -> Case:
        opened = self.position
        self.position += len("case")
        self.blank()
        subject = words.read_word(self)
        self.blank(newlines=True)
        self._reserved("in", "case", opened)
        arms: list[tuple[tuple[Word, ...], Block]] = []
        while True:
            self.blank(newlines=True)
            if self.keyword() == "esac":
                self.position += len("esac")
                return Case(subject, tuple(arms))
            if self.position >= len(self.text):
                raise ShellError("'case' without 'esac'", opened)
            if self.text.startswith("(", self.position):
                self.position += 1
            patterns: list[Word] = []
            while True:
                self.blank()
                patterns.append(words.read_word(self))
                self.blank()
                if not self.text.startswith("|", self.position):
                    break
                self.position += 1
            self.expect(")")
            arms.append((tuple(patterns), self.block(frozenset({"esac"}))))
            for terminator in (";;&", ";;", ";&"):
                if self.text.startswith(terminator, self.position):
                    self.position += len(terminator)
                    break

    def _group(self) -> Group:
        opened = self.position
        self.position += 1
        body = self.block(frozenset({"}"}))
        self._reserved("}", "{", opened)
        return Group(body, self._redirects(), False)

    def _test(self) -> Test:
        start = self.position
        self.position += 2
        items: list[Word] = []
        regex = False
        while True:
            self.blank(newlines=True)
            if self.position >= len(self.text):
                raise ShellError("'[[' without ']]'", start)
            if self.text.startswith("]]", self.position):
                self.position += 2
                return Test(tuple(items), start, self.position)
            before = self.position
            for token in ("&&", "||", "(", ")", "<", ">"):
                if self.text.startswith(token, self.position) and not regex:
                    self.position += len(token)
                    items.append(Word((Literal(before, self.position, False),), before, self.position))
                    break
            else:
                items.append(words.read_word(self, pattern=regex))
                if self.position == before:
                    raise ShellError(f"unexpected {self.text[before]!r} in [[ ]]", before)
            regex = self.text[before : self.position] == "=~"

    def _simple(self) -> Simple:
        start = end = self.position
        assignments: list[Assignment] = []
        items: list[Word | Assignment] = []
        redirects: list[Redirect] = []
        declaring = False
        while True:
            self.blank()
            ended = self.position >= len(self.text) or self.text[self.position] in "\n;&|)"
            if ended and not self.text.startswith("&>", self.position):
                break
            redirect = self._redirect()
            if redirect is not None:
                redirects.append(redirect)
                end = self.position
                continue
            match = ASSIGNMENT.match(self.text, self.position)
            if match and (not items or declaring):
                found = self._assignment(match)
                if items:
                    items.append(found)
                else:
                    assignments.append(found)
                end = self.position
                continue
            before = self.position
            word = words.read_word(self)
            if self.position == before:
                break
            items.append(word)
            declaring = declaring or (len(items) == 1 and self.text[word.start : word.end] in DECLARATIONS)
            end = self.position
        return Simple(tuple(assignments), tuple(items), tuple(redirects), start, end)

    def _assignment(self, match: re.Match[str]) -> Assignment:
        start = self.position
        self.position = match.end()
        value: Word | tuple[Word, ...]
        if self.text.startswith("(", self.position):
            self.position += 1
            elements: list[Word] = []
            while True:
                self.blank(newlines=True)
                if self.position >= len(self.text):
                    raise ShellError("array without ')'", start)
                if self.text[self.position] == ")":
                    self.position += 1
                    break
                before = self.position
                elements.append(words.read_word(self))
                if self.position == before:
                    raise ShellError(f"unexpected {self.text[before]!r} in an array", before)
            value = tuple(elements)
        else:
            value = words.read_word(self)
        index = match.group(2)
        return Assignment(match.group(1), value, bool(match.group(3)), start, self.position, index[1:-1] if index else None)

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while True:
            self.blank()
            redirect = self._redirect()
            if redirect is None:
                return tuple(found)
            found.append(redirect)

    def _redirect(self) -> Redirect | None:
        match = REDIRECT.match(self.text, self.position)
        if match is None or (self.text[match.end() : match.end() + 1] == "(" and match.group(2) in "<>"):
            return None
        operator = match.group(2)
        self.position = match.end()
        self.blank()
        if self.text[match.end() : match.end() + 1] == operator[0] and len(operator) > 1:  # a merge conflict's marker
            raise ShellError(f"unexpected {self.text[self.position]!r} after {operator!r}", self.position)
        target = words.read_word(self)
        if not operator.startswith("<<") or operator == "<<<":
            return Redirect(operator, target)
        delimiter = "".join(self.text[p.start : p.end] for p in target.parts)
        literal = any(isinstance(p, Literal) and p.quoted for p in target.parts)
        slot: list[Word] = []
        self._heredocs.append((delimiter, literal, operator == "<<-", slot))
        return Redirect(operator, None, Heredoc(slot))

    def _reserved(self, word: str, opener: str, opened: int) -> None:
        self.blank(newlines=True)
        if self.keyword() != word:
            raise ShellError(f"{opener!r} without {word!r}", opened)
        self.position += len(word)
