"""Hydra and OmegaConf: configurations from YAML files, `a.b=c` words of the launch, and their defaults lists."""

from __future__ import annotations

from memlint.facts import Fact, Status, fixed
from memlint.read.pyeval.calls import call_value
from memlint.read.pyeval.documents import load_document, weakened
from memlint.read.pyeval.environment import variable
from memlint.read.pyeval.joins import linked, opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.objects import copied
from memlint.read.pyeval.options import guessed
from memlint.read.pyeval.values import REST, Array, Call, Class, Instance, Native, Symbol, Table
from memlint.source import Span
from memlint.typed import Any

MAX_GROUPS = 32
"""Entries of a defaults list that are followed."""


def omegaconf(machine: Machine, tail: str, call: Call) -> Fact | None:
    """Functions of `omegaconf.OmegaConf`."""
    first = call.args[0] if call.args else None
    if tail == "load" and first is not None:
        return interpolated(machine, load_document(machine, first, call.span))
    if tail == "structured" and first is not None:
        return _structured(machine, first, call.span)
    if tail in {"create", "to_container", "to_object", "masked_copy"}:
        return interpolated(machine, first) if first is not None else fixed(Table(), call.span)
    if tail == "from_cli":
        words = list(machine.launch.argv) if machine.launch is not None else []
        table = Table()
        apply_overrides(table, words)
        return fixed(table, call.span)
    if tail in {"merge", "unsafe_merge"}:
        made = Table()
        for argument in call.args:
            argument = _structured(machine, argument, call.span)
            if isinstance(argument.value, Table):
                overlay(made, argument.value)
            else:
                for key, fact in list(made.entries()):
                    made.slots[key] = weakened(fact)  # what is not known may set any of them
                made.slots[REST] = argument.reason or "merged with something that is not known"
        return fixed(made, call.span)
    if tail == "from_dotlist" and first is not None and isinstance(first.value, Array) and not first.value.open:
        table = Table()
        apply_overrides(table, list(first.value.items))
        return fixed(table, call.span)
    if tail in {"set_struct", "resolve", "set_readonly", "save", "register_new_resolver"}:
        return fixed(None, call.span)
    return None


def store(machine: Machine, call: Call) -> Fact:
    """`ConfigStore.instance().store(name=..., node=..., group=...)`."""
    group, name, node = call.argument("group", 2), call.argument("name", 0), call.argument("node", 1)
    if name is not None and node is not None and isinstance(name.value, str):
        folder = f"{group.value}/" if group is not None and isinstance(group.value, str) else ""
        machine.flags[f"hydra:{folder}{name.value}"] = node
    return fixed(None, call.span)


def _structured(machine: Machine, node: Fact, span: Span, depth: int = 6) -> Fact:
    """A dataclass (or an object of one) as a configuration; other values as they are."""
    if isinstance(node.value, Class) and node.value.is_record:
        made = call_value(machine, node, Call(node.value.name, (), {}, span))
        return weakened(_structured(machine, made, span, depth - 1)) if depth else made  # a launch may set each of them
    if not isinstance(node.value, Instance) or not isinstance(node.value.cls, Class) or not depth:
        return node
    slots = {k: f for k, f in node.value.slots.items() if isinstance(f, Fact) and isinstance(k, str) and k[:1] != "."}
    return Fact(
        Table({k: _missing(_structured(machine, f, span, depth - 1), k) for k, f in slots.items()}), node.status, node.origin
    )


def _missing(value: Fact, name: str) -> Fact:
    """`MISSING` is what the launch has to give."""
    missing = (isinstance(value.value, Symbol) and value.value.name == "omegaconf.MISSING") or value.value == "???"
    return opaque(f"`{name}` is not given", "missing", (), value.origin[0].span if value.origin else None) if missing else value


def overlay(target: Table, source: Table) -> None:
    """Merge a configuration over another, mappings key by key."""
    for key, fact in source.slots.items():
        old = target.slots.get(key)
        if isinstance(fact, Fact) and isinstance(fact.value, Table) and isinstance(old, Fact) and isinstance(old.value, Table):
            inner = Table(dict(old.value.slots))
            overlay(inner, fact.value)
            target.slots[key] = Fact(inner, Status.FIXED, old.origin)
        else:
            target.slots[key] = fact


def apply_overrides(config: Table, words: list[Fact], folder: str = "") -> list[tuple[str, Fact]]:
    """Apply `a.b=c`, `+a.b=c`, `++a.b=c`, `~a.b`; what names a config group is returned instead."""
    groups: list[tuple[str, Fact]] = []
    for word in words:
        text = word.value
        if not word.known or not isinstance(text, str):
            continue
        if text.startswith("~"):
            continue
        name, sep, value = text.lstrip("+-").partition("=")
        if not sep or not name:
            continue
        fact = guessed(Fact(value.strip("'\""), word.status, word.origin))
        if "." not in name and isinstance(getattr(config.slots.get(name), "value", None), Table):
            groups.append((name, fact))
            continue
        set_path(config, name.replace("/", ".").split("."), fact)
    return groups


def set_path(config: Table, path: list[str], fact: Fact) -> None:
    """Set a dotted key, making the tables on the way."""
    for part in path[:-1]:
        inner = config.slots.get(part)
        if not isinstance(inner, Fact) or not isinstance(inner.value, Table):
            inner = fixed(Table())
            config.slots[part] = inner
        config = inner.value
    config.slots[path[-1]] = fact


def main(machine: Machine, call: Call, target: Fact) -> Fact:
    """`@hydra.main(config_path=..., config_name=...)`: calling the function without arguments gives it the configuration."""

    def invoke(later: Call) -> Fact:
        if later.args or later.kwargs:
            return call_value(machine, target, later)
        return call_value(machine, target, Call(later.name, (configuration(machine, call),), {}, later.span))

    return fixed(Native("hydra.main", invoke), call.span)


def configuration(machine: Machine, call: Call) -> Fact:
    """The composed configuration of a Hydra application."""
    folder, name = call.argument("config_path", 0), call.argument("config_name", 1)
    words = list(machine.launch.argv) if machine.launch is not None else []
    for index, word in enumerate(words):
        if word.value in {"--config-name", "-cn"} and index + 1 < len(words):
            name = words[index + 1]
        elif word.value in {"--config-path", "-cp"} and index + 1 < len(words):
            folder = words[index + 1]
        elif isinstance(word.value, str) and word.value.startswith("--config-name="):
            name = Fact(word.value.partition("=")[2], word.status, word.origin)
    if name is None or not name.known or not isinstance(name.value, str):
        return opaque("the configuration's name is not known", "hydra", (), call.span)
    base = str(folder.value) if folder is not None and folder.known and folder.value else ""
    table = compose(machine, base, name.value, call.span, words)
    if table is None:
        return opaque(f"the Hydra configuration {name.value!r} is not in the project", "hydra", (), call.span)
    apply_overrides(table, words)
    return interpolated(machine, fixed(table, call.span))


def compose(machine: Machine, base: str, name: str, span: Span, words: list[Fact], depth: int = 0) -> Table | None:
    """A configuration with its defaults list."""
    stem = name.removesuffix(".yaml")
    path = f"{base}/{stem}.yaml" if base else f"{stem}.yaml"
    loaded = load_document(machine, fixed(path), span)
    stored = machine.flags.get(f"hydra:{path.removesuffix('.yaml')}") or machine.flags.get(f"hydra:{stem}")
    if not isinstance(loaded.value, Table) and stored is not None:
        loaded = _structured(machine, stored, span)
    if not isinstance(loaded.value, Table):
        return None
    own = Table(dict(loaded.value.slots))
    defaults = own.slots.pop("defaults", None)
    made = Table()
    chosen = {
        w.value.lstrip("+").partition("=")[0]: w.value.partition("=")[2]
        for w in words
        if isinstance(w.value, str) and "=" in w.value
    }
    merged_self = False
    entries = defaults.value.items[:MAX_GROUPS] if isinstance(defaults, Fact) and isinstance(defaults.value, Array) else ()
    for entry in entries if depth < 4 else ():
        if entry.value == "_self_":
            overlay(made, own)
            merged_self = True
        elif isinstance(entry.value, str):
            inner = compose(machine, base, entry.value, span, words, depth + 1)
            if inner is not None:
                overlay(made, inner)
        elif isinstance(entry.value, Table):
            for group, option in entry.value.entries():
                group = str(group).removeprefix("override ").removeprefix("optional ").partition("@")[0]
                picked = chosen.get(group, option.value)
                if not isinstance(picked, str):
                    continue
                inner = compose(machine, f"{base}/{group}" if base else group, picked, span, words, depth + 1)
                if inner is not None:
                    set_path(made, group.split("/"), fixed(inner, span))
    if not merged_self:
        overlay(made, own)
    return made


def interpolated(machine: Machine, config: Fact) -> Fact:
    """The configuration with `${a.b}` resolved from itself and `${oc.env:X,default}` from the environment or its default."""
    if not isinstance(config.value, Table):
        return config
    made = copied(config, deep=True)
    _resolve(machine, made.value, made.value, 6)
    return made


def _resolve(machine: Machine, table: Table, root: Table, depth: int) -> None:
    for key, fact in list(table.slots.items()):
        if not isinstance(fact, Fact):
            continue
        if isinstance(fact.value, Table) and depth:
            _resolve(machine, fact.value, root, depth - 1)
        elif isinstance(fact.value, str) and "${" in fact.value:
            table.slots[key] = _reference(machine, fact, root, 4)


def _reference(machine: Machine, fact: Fact, root: Table, depth: int) -> Fact:
    text = str(fact.value)
    whole = text.startswith("${") and text.endswith("}") and text.count("${") == 1
    if not whole or not depth:
        return opaque(
            f"the interpolation {text} is not resolved", "interpolation", (), fact.origin[0].span if fact.origin else None
        )
    inner = text[2:-1]
    if inner.startswith(("oc.env:", "env:")):
        name, _, otherwise = inner.partition(":")[2].partition(",")
        place = next((origin.span for origin in fact.origin if origin.span is not None), Span("", 1))
        given = Fact(otherwise.strip().strip("'\""), Status.DEFAULT, fact.origin) if otherwise else None
        return guessed(variable(machine, name.strip(), given, place))
    node: Any = Fact(root)
    for part in inner.split("."):
        node = node.value.slots.get(part) if isinstance(node, Fact) and isinstance(node.value, Table) else None
    if not isinstance(node, Fact):
        return opaque(
            f"the interpolation {text} leads nowhere", "interpolation", (), fact.origin[0].span if fact.origin else None
        )
    if isinstance(node.value, str) and "${" in node.value:
        node = _reference(machine, node, root, depth - 1)
    return linked(node, fact.origin[0].span if fact.origin else None, "interpolated here")
