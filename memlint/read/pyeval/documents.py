"""YAML and JSON that a script loads, as dicts whose values know their place in the file."""

from __future__ import annotations

from memlint.facts import Fact, Origin, Status, fixed
from memlint.read.document import MappingNode, Node, Scalar, SequenceNode, fact_of
from memlint.read.pyeval.files import is_open_file, source_of
from memlint.read.pyeval.joins import linked, opaque, weaken
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Table
from memlint.source import Kind, ReadError, Source, Span
from memlint.typed import Any


def load_document(machine: Machine, path: Fact, span: Span) -> Fact:
    """The first document of a YAML or JSON file named by a path, an opened file, or given as text."""
    if is_open_file(path.value):
        path = path.value.slots[".path"]
    if path.status is Status.UNKNOWN:
        return opaque(path.reason, "document", (path,), span)
    if path.known and path.origin and path.origin[0].note == "file content" and path.origin[0].span is not None:
        place = path.origin[0].span.path
        kind = Kind.JSON if place.endswith(".json") else Kind.TOML if place.endswith(".toml") else Kind.YAML
        return parse_document(Source(place, kind, str(path.value)), span)
    source = source_of(machine, path)
    if source is None:
        return opaque(f"the file {path.value!r} is not in the project", "document", (path,), span)
    document = parse_document(source, span)
    return weakened(document) if path.status is Status.DEFAULT else document


def weakened(fact: Fact) -> Fact:
    """A document whose file an overridable default names: its values are defaults too."""
    value = fact.value
    if isinstance(value, Table):
        value = Table({key: weakened(item) for key, item in value.entries()})
    elif isinstance(value, Array):
        value = Array([weakened(item) for item in value.items])
    return weaken(Fact(value, fact.status, fact.origin, fact.choices, fact.reason))


def parse_document(source: Source, span: Span) -> Fact:
    """The first document of a source as an abstract value."""
    try:
        if source.kind is Kind.TOML:
            return linked(_toml(source), span, f"loaded from {source.path}")
        if source.kind is Kind.JSON or source.path.endswith((".json", ".conf")):
            from memlint.read.jsondoc import read_json

            root: Node = read_json(source).root
        else:
            from memlint.read.yamldoc import read_yaml

            documents = read_yaml(source)
            if not documents:
                return fixed(None, span)
            root = documents[0].root
    except ReadError as error:
        return opaque(f"{source.path} cannot be read: {error.message}", "document", (), span)
    return linked(convert(root), span, f"loaded from {source.path}")


def _toml(source: Source) -> Fact:
    """A TOML file; its values know the file, not their line. Raises `ReadError`."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]
    try:
        return _plain(tomllib.loads(source.text), (Origin(Span(source.path, 1)),))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ReadError(f"not TOML: {error}", source.path) from None


def written(text: Fact, span: Span) -> Fact:
    """JSON that the script itself holds as text; its values know the text's place."""
    import json

    try:
        return _plain(json.loads(text.value), text.origin[:1] or (Origin(span),))
    except (ValueError, RecursionError):
        return opaque("the text is not JSON", "document", (text,), span)


def written_document(text: Fact, kind: Kind, span: Span) -> Fact:
    """YAML or TOML that the script itself holds as text; its values know the text's place."""
    document = parse_document(Source("", kind, str(text.value)), span)
    return _placed(document, text.origin[:1] or (Origin(span),))


def _placed(fact: Fact, origin: tuple[Origin, ...]) -> Fact:
    value = fact.value
    if isinstance(value, Table):
        value = Table({key: _placed(item, origin) for key, item in value.entries()})
    elif isinstance(value, Array):
        value = Array([_placed(item, origin) for item in value.items])
    return Fact(value, fact.status, origin, fact.choices, fact.reason)


def _plain(value: Any, origin: tuple[Origin, ...]) -> Fact:
    if isinstance(value, dict):
        value = Table({key: _plain(item, origin) for key, item in value.items()})
    elif isinstance(value, list):
        value = Array([_plain(item, origin) for item in value])
    return Fact(value, Status.FIXED, origin)


def convert(node: Node) -> Fact:
    """A document node as an abstract value."""
    if isinstance(node, Scalar):
        return fact_of(node)
    if isinstance(node, SequenceNode):
        return Fact(Array([convert(item) for item in node.items]), Status.FIXED, (Origin(node.span),))
    assert isinstance(node, MappingNode)
    return Fact(Table({entry.key: convert(entry.value) for entry in node.entries}), Status.FIXED, (Origin(node.span),))
