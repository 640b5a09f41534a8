"""Values and keys as YAML text in the style of a document, and as the events that a parser must find in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from memlint.fixes.yaml_tree import Tree, typed
from memlint.source import Places
from memlint.typed import Any


@dataclass(frozen=True, slots=True)
class Style:
    """How a text writes things, so that what is added looks like the rest."""

    newline: str
    true: str = "true"
    false: str = "false"
    indent: int = 2

    @classmethod
    def of(cls, tree: Tree) -> Style:
        """The style of a text, by what its plain booleans and nested mappings look like."""
        words = re.findall(r":[ \t]+(true|True|false|False)\b", tree.text)
        capital = sum(word[0] in "TF" for word in words) * 2 > len(words)
        steps = re.search(r"^(?P<outer> *)[\w.-]+:[ \t]*(?:#.*)?\r?\n(?P<inner> +)[\w.-]+:", tree.text, re.MULTILINE)
        indent = len(steps["inner"]) - len(steps["outer"]) if steps else 2
        true, false = ("True", "False") if capital else ("true", "false")
        return cls(Places(tree.text).newline(), true, false, indent if 1 <= indent <= 8 else 2)

    def block(self, path: str, value: Any, column: int) -> str:
        """`a.b` and a value as block lines; no line end after the last."""
        *above, leaf = path.split(".")
        lines = []
        for depth, name in enumerate(above):
            lines.append(" " * (column + depth * self.indent) + f"{self.render(name, False)}:")
        pad = " " * (column + len(above) * self.indent)
        lines.append(f"{pad}{self.render(leaf, False)}: {self.render(value, False)}")
        return self.newline.join(lines)

    def flow(self, path: str, value: Any) -> str:
        """`a.b` and a value as they stand in a flow mapping."""
        head, _, rest = path.partition(".")
        inner = f"{{{self.flow(rest, value)}}}" if rest else self.render(value, True)
        return f"{self.render(head, True)}: {inner}"

    def render(self, value: Any, in_flow: bool, quotes: str = "") -> str:
        """A value as YAML text; text takes the `quotes` of the value it replaces, and gets some where it needs them."""
        if isinstance(value, bool):
            return self.true if value else self.false
        if value is None:
            return "null"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            mantissa, e, exponent = repr(value).partition("e")
            return mantissa + (".0" if e and "." not in mantissa else "") + e + exponent
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self.render(k, True)}: {self.render(v, True)}" for k, v in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self.render(item, True) for item in value) + "]"
        text = str(value)
        if quotes == '"' or not text.isprintable():
            return json.dumps(text, ensure_ascii=not text.isprintable())
        plain = re.fullmatch(r"[A-Za-z0-9_./$](?:[\w./+@$=<>()-]| (?=\w))*", text) and typed(text) == text
        if quotes == "'" or not plain or (in_flow and set(text) & set("[]{},")):
            return "'" + text.replace("'", "''") + "'"
        return text


def meaning(value: Any) -> tuple[Any, ...]:
    """The events that a value consists of, to compare with what was parsed."""
    if isinstance(value, Mapping):
        inner = tuple(event for name, item in value.items() for event in (*meaning(name), *meaning(item)))
        return (("MappingStartEvent",), *inner, ("MappingEndEvent",))
    if isinstance(value, (list, tuple)):
        return (("SequenceStartEvent",), *(event for item in value for event in meaning(item)), ("SequenceEndEvent",))
    return (("ScalarEvent", value),)


def nested(path: str, value: Any, wrapped: bool = False) -> tuple[Any, ...]:
    """The events of `a.b: value`; `wrapped` as a mapping of their own."""
    head, _, rest = path.partition(".")
    inner = (("ScalarEvent", head), *(nested(rest, value, wrapped=True) if rest else meaning(value)))
    return (("MappingStartEvent",), *inner, ("MappingEndEvent",)) if wrapped else inner
