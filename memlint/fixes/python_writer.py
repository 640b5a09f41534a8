"""Write values into Python source by splicing at the positions of the syntax tree.

Two edits exist: keyword arguments of a call are set or added, and a literal (a constant, an argparse default, a value
of a dict) is replaced. Anything else that sets a value (a name, a condition, a function call) stays as it is written.
Every splice is proved: parsed again, the tree is the old one but for that argument or literal.

The standard library's `ast` gives exact positions, and a splice leaves every other character alone, so no concrete
syntax tree is needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from memlint.facts import Site
from memlint.fixes.edit import Edit, apply
from memlint.source import Places, Source, Span
from memlint.typed import Any


def set_arguments(
    path: str, text: str, call: Span, values: Mapping[str, Any], stated_at: Span | None = None
) -> tuple[Edit, ...] | None:
    """The edits that give keywords of the call at a span these values: none when it has them, None when impossible.

    A dotted name (`fsdp_config.version`) is a key of a mapping given as a keyword. None when a keyword's value is not a
    literal, and when one would be added that the call already takes from `**x` or by position (`stated_at` is the place
    that states the value so far).
    """
    module = _parse(text)
    code = _Code(text)
    node = code.call_at(module, call) if module else None
    if module is None or node is None:
        return None
    edits: list[Edit] = []
    missing: dict[str, Any] = {}
    changed: list[tuple[ast.keyword, ast.expr]] = []
    for name, value in _by_keyword(node, values).items():
        keyword = _keyword(node, name)
        if keyword is None:
            missing[name] = value
        elif not _is_literal(keyword.value):
            return None
        elif not _says(keyword.value, value):
            start, end = code.range(keyword.value)
            if isinstance(value, Mapping) and "\n" in text[start:end]:
                return None  # its layout would be lost
            written = render(value, code.text[start:end], code)
            edits.append(Edit(path, start, end, written))
            changed.append((keyword, _expression(written)))
    if missing:
        if any(k.arg is None for k in node.keywords) or _by_position(code, node, stated_at):
            return None
        edits.extend(_insertion(path, code, node, missing))
    for keyword, expression in changed:  # the old positions are not needed any more
        keyword.value = expression
    node.keywords.extend(ast.keyword(name, _expression(render(value, "", code))) for name, value in missing.items())
    return _proved(text, edits, module)


def _by_keyword(node: ast.Call, values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names gathered into the mappings that the call passes, over what these say already."""
    gathered: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if not rest:
            gathered[name] = value
            continue
        keyword = _keyword(node, head)
        old = ast.literal_eval(keyword.value) if keyword and _is_plain_dict(keyword.value) else {}
        gathered[head] = _nested(gathered.get(head, old), rest.split("."), value)
    return gathered


def _nested(mapping: Any, names: list[str], value: Any) -> dict[str, Any]:
    """A mapping with a value under nested names; what stands there already and is no mapping gives way."""
    own = dict(mapping) if isinstance(mapping, Mapping) else {}
    head, *rest = names
    own[head] = _nested(own.get(head), rest, value) if rest else value
    return own


def _by_position(code: _Code, node: ast.Call, place: Span | None) -> bool:
    """Whether a positional argument of the call covers a place."""
    if place is None:
        return False
    at = code.places.offset(place.line, place.column)
    return any(start <= at < end for start, end in map(code.range, node.args))


def _keyword(node: ast.Call, name: str) -> ast.keyword | None:
    return next((k for k in node.keywords if k.arg == name), None)


def set_literal(path: str, text: str, span: Span, value: Any) -> tuple[Edit, ...] | None:
    """The edits that replace the literal at a span; empty when it has the value, None when there is no such literal.

    The new value must be of the old one's type, None apart: a fix does not turn a number into a text.
    """
    module = _parse(text)
    code = _Code(text)
    node = code.literal_at(module, span) if module else None
    if module is None or node is None or not _same_type(node, value):
        return None
    if _says(node, value):
        return ()
    start, end = code.range(node)
    written = render(value, code.text[start:end], code)
    edits = [Edit(path, start, end, written)]
    _replace(module, node, _expression(written))
    return _proved(text, edits, module)


def call_method(source: Source, call: Span, method: str) -> tuple[Edit, ...] | None:
    """The edit that adds `name.method()` after the statement `name = ...` whose value holds the call at a span."""
    module = _parse(source.text)
    code = _Code(source.text)
    node = code.call_at(module, call) if module else None
    found = next(_statements_with(module, node), None) if module and node else None
    if module is None or found is None:
        return None
    body, index = found
    statement = body[index]
    name = statement.targets[0].id if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) else ""
    start = code.places.starts[statement.lineno - 1]
    indent = source.text[start : code.offset(statement.lineno, statement.col_offset)]
    end = code.places.line_end(code.offset(statement.end_lineno or 0, statement.end_col_offset or 0))
    if not name or indent.strip() or (index + 1 < len(body) and body[index + 1].lineno == statement.end_lineno):
        return None
    written = f"{name}.{method}()"
    body.insert(index + 1, ast.Expr(_expression(written)))
    return _proved(source.text, [Edit(source.path, end, end, code.places.newline() + indent + written)], module)


def _statements_with(module: ast.Module, node: ast.Call) -> Iterator[tuple[list[ast.stmt], int]]:
    """The assignments to one name whose value holds a node: the block that each is in, and its place there."""
    for parent in ast.walk(module):
        for block in ("body", "orelse", "finalbody"):
            body: list[ast.stmt] = getattr(parent, block, [])
            for index, statement in enumerate(body if isinstance(body, list) else ()):
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and node in ast.walk(statement.value):
                    yield body, index


def set_value(source: Source, place: Span, value: Any) -> tuple[Edit, ...] | None:
    """The edits that replace the literal at a place; see `set_literal`."""
    return set_literal(source.path, source.text, place, value)


def set_keys(source: Source, site: Site, values: Mapping[str, Any], place: Span | None = None) -> tuple[Edit, ...] | None:
    """The edits that give keywords of the call at a site these values; see `set_arguments`."""
    return set_arguments(source.path, source.text, site.span, values, place)


def states(source: Source, site: Site, name: str) -> bool:
    """Whether the call at a site states a keyword, or a key of a mapping given as one (`fsdp_config.version`)."""
    module = _parse(source.text)
    node = _Code(source.text).call_at(module, site.span) if module else None
    head, *rest = name.split(".")
    keyword = _keyword(node, head) if node else None
    inner: ast.expr | None = keyword.value if keyword else None
    for part in rest:
        pairs = zip(inner.keys, inner.values, strict=True) if isinstance(inner, ast.Dict) else ()
        inner = next((value for key, value in pairs if key is not None and _says(key, part)), None)
    return inner is not None


class _Code:
    """A text with the offsets of its nodes (`ast` counts UTF-8 bytes, we count characters)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places = Places(text)

    def offset(self, line: int, column: int) -> int:
        start = self.places.starts[line - 1]
        if self.text[start : start + column].isascii():
            return start + column
        return start + len(self.text[start : start + column].encode()[:column].decode(errors="ignore"))

    def range(self, node: ast.expr) -> tuple[int, int]:
        """Start and end of an expression, its own parentheses not included."""
        start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)

    def call_at(self, module: ast.Module, span: Span) -> ast.Call | None:
        """The call that starts at a span; of several (`A().b()`) the one that also ends there, else the innermost."""
        start, end = self.places.range(span)
        calls = [
            node
            for node in ast.walk(module)
            if isinstance(node, ast.Call) and node.lineno == span.line and self.range(node)[0] == start
        ]
        exact = [node for node in calls if self.range(node)[1] == end]
        return next(iter(exact or sorted(calls, key=lambda node: self.range(node)[1])), None)

    def literal_at(self, module: ast.Module, span: Span) -> ast.expr | None:
        """The literal that covers exactly a span."""
        wanted = self.places.range(span)
        for node in ast.walk(module):
            if isinstance(node, ast.expr) and node.lineno == span.line and self.range(node) == wanted and _is_literal(node):
                return node
        return None

    def quote(self) -> str:
        """The quote that this file uses for its strings."""
        return "'" if self.text.count("'") > 2 * self.text.count('"') else '"'


def _insertion(path: str, code: _Code, node: ast.Call, values: Mapping[str, Any]) -> Iterator[Edit]:
    """The edits that add keywords at the end of a call, on lines of their own where its last argument is on one."""
    text, places = code.text, code.places
    written = [f"{name}={render(value, '', code)}" for name, value in values.items()]
    close = code.range(node)[1] - 1
    arguments: list[ast.expr] = [*node.args, *(k.value for k in node.keywords)]
    if not arguments:
        opened = text.index("(", code.range(node.func)[1]) + 1
        yield Edit(path, opened, opened, ", ".join(written))
        return
    last = max(arguments, key=lambda argument: code.range(argument)[1])
    end, comma = _after_argument(text, code.range(last)[1], close)
    begin = code.range(last)[0]
    if last in [k.value for k in node.keywords]:
        keyword = next(k for k in node.keywords if k.value is last)
        begin = code.offset(keyword.lineno, keyword.col_offset)
    line_start = places.starts[places.line_of(begin) - 1]
    indent = text[line_start:begin]
    if indent.strip():
        at = comma or end
        yield Edit(path, at, at, " " + ", ".join(written) + "," if comma else ", " + ", ".join(written))
        return
    newline = places.newline() + indent
    line_end = places.line_end(comma or end)
    if line_end > close:  # the call is closed on the line of its last argument
        at = comma or end
        yield Edit(path, at, at, ("" if comma else ",") + newline + ("," + newline).join(written) + ("," if comma else ""))
        return
    if not comma and line_end == end:
        yield Edit(path, end, end, "," + newline + ("," + newline).join(written))
        return
    if not comma:
        yield Edit(path, end, end, ",")
    yield Edit(path, line_end, line_end, newline + ("," + newline).join(written) + ("," if comma else ""))


def _after_argument(text: str, at: int, close: int) -> tuple[int, int]:
    """Where the last argument ends, with the parentheses around its value, and the offset after its comma (0: none)."""
    end, comma = at, 0
    while at < close:
        if text[at] == "#":
            at = Places(text).line_end(at)
            continue
        if text[at] == ")":
            end = at + 1
        elif text[at] == ",":
            comma = at + 1
        at += 1
    return end, comma


def render(value: Any, old: str, code: _Code) -> str:
    """A value as a Python literal in the manner of the text it replaces: its quotes, or `torch.` before a dtype."""
    if isinstance(value, str):
        dtype = re.fullmatch(r"((?:\w+\.)+)(?:float|bfloat|half|double|u?int)\d*", old)
        if dtype and value.isidentifier():
            return dtype.group(1) + value
        quote = old[:1] if old[:1] in ("'", '"') else code.quote()
        body = repr(value)[1:-1]
        if repr(value)[0] != quote:
            body = body.replace("\\'", "'").replace(quote, "\\" + quote)
        return quote + body + quote
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{render(k, '', code)}: {render(v, '', code)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(render(item, "", code) for item in value) + "]"
    return repr(value)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _is_literal(node: ast.expr) -> bool:
    """True for constants, signed numbers, containers of them, and dtypes (`torch.float16`)."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(node.operand, ast.Constant)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(_is_literal(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return all(key is not None and _is_literal(key) for key in node.keys) and all(map(_is_literal, node.values))
    return _is_dtype(node)


def _is_plain_dict(node: ast.expr) -> bool:
    try:
        return isinstance(ast.literal_eval(node), dict)
    except ValueError:
        return False


def _is_dtype(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("torch", "th", "jnp")


def _says(node: ast.expr, value: Any) -> bool:
    """True when a literal already has a value."""
    if isinstance(node, ast.Attribute):
        return bool(node.attr == value)
    try:
        has = ast.literal_eval(node)
    except ValueError:
        return False
    return type(has) is type(value) and bool(has == value)


def _same_type(node: ast.expr, value: Any) -> bool:
    if isinstance(node, ast.Attribute):
        return isinstance(value, str)
    try:
        old = ast.literal_eval(node)
    except ValueError:
        return False
    return old is None or type(old) is type(value) or {type(old), type(value)} == {int, float}


def _replace(module: ast.Module, old: ast.expr, new: ast.expr) -> None:
    """Put one node in the place of another."""
    for parent in ast.walk(module):
        for name, child in ast.iter_fields(parent):
            if child is old:
                setattr(parent, name, new)
            elif isinstance(child, list):
                child[:] = [new if item is old else item for item in child]


def _proved(text: str, edits: list[Edit], expected: ast.Module) -> tuple[Edit, ...] | None:
    """The edits, when the edited text parses to the expected tree."""
    after = _parse(apply(text, edits)) if edits else expected
    return tuple(edits) if after is not None and ast.dump(after) == ast.dump(expected) else None
