"""click and typer: commands, groups with their context, and options that decorators or signatures declare."""

from __future__ import annotations

from memlint.facts import Fact, fixed
from memlint.read.pyeval import hydra
from memlint.read.pyeval.calls import call_function, call_value
from memlint.read.pyeval.environment import variable
from memlint.read.pyeval.joins import constant, merge
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.options import TO_BOOL, TO_FLOAT, TO_INT, Option, Words, read_words, settle, split_at
from memlint.read.pyeval.sequences import sequence
from memlint.read.pyeval.signatures import launched_words, run_signature
from memlint.read.pyeval.values import Array, Call, Function, Instance, Symbol, Table
from memlint.typed import Any

CONTEXT = Symbol("click.Context")


def typer_default(call: Call) -> Fact:
    """`typer.Option(8, "--bs")`: the default and the flags of a parameter."""
    first = call.argument("default", 0)
    required = first is None or first.value is Ellipsis
    flags = tuple(
        a.value.split("/")[0] for a in call.args[1:] if a.known and isinstance(a.value, str) and a.value.startswith("-")
    )
    slots: dict[Any, Any] = {".typer": None if required else first, ".flags": flags}
    return fixed(Instance(Symbol("typer.Option"), call, slots), call.span)


def typer_method(machine: Machine, owner: Fact, app: Instance, name: str, call: Call) -> Fact | None:
    """A method of a `typer.Typer`."""
    if name in {"command", "callback"}:
        return fixed(Instance(Symbol("typer.decorator"), call, {".wraps": "typer", ".app": app, ".role": name}), call.span)
    if name == "add_typer" and call.args:
        _register(machine, app, call, call.args[0], call.args[0])
    if name == "__call__":
        return dispatch(machine, app, call)
    return None


def click_object(machine: Machine, tail: str, call: Call) -> Fact | None:
    """A decorator or a parameter type of click."""
    if tail in {"option", "argument", "command", "group", "version_option", "pass_context", "pass_obj"}:
        variables = call.kwargs.get("envvar")
        named = variables.value if variables is not None and variables.known else None
        given = variable(machine, named, None, call.span) if isinstance(named, str) else None
        slots: dict[Any, Any] = {".wraps": tail, ".environment": given if given is not None and given.known else None}
        return fixed(Instance(Symbol(f"click.{tail}"), call, slots), call.span)
    if tail == "Choice":
        return fixed(Instance(Symbol("click.Choice"), call, {".choices": call.argument("choices", 0)}), call.span)
    if tail in {"IntRange", "FloatRange", "Path", "File"}:
        return fixed(Symbol({"IntRange": "builtins.int", "FloatRange": "builtins.float"}.get(tail, "builtins.str")), call.span)
    return None


def wrapped(machine: Machine, kind: str, target: Fact, decorator: Instance) -> Fact | None:
    """The result of a click, typer or Hydra decorator."""
    call = decorator.call
    if kind in {"option", "argument"}:
        return _with_option(target, call, kind == "argument", decorator.slots.get(".environment"))
    if kind in {"command", "group"}:
        made = Instance(Symbol(f"click.{'Group' if kind == 'group' else 'Command'}"), call, {".function": target})
        parent = call.kwargs.get(".group")
        if parent is not None and isinstance(parent.value, Instance):
            _register(machine, parent.value, call, fixed(made), target)
        return fixed(made, call.span)
    if kind == "typer":
        app = decorator.slots[".app"]
        if decorator.slots[".role"] == "callback":
            machine.write(app, ".callback", target)
        else:
            _register(machine, app, call, target, target)
        return target
    if kind == "hydra":
        return hydra.main(machine, call, target)
    return None


def _with_option(target: Fact, call: Call, positional: bool, environment: Fact | None) -> Fact | None:
    function = target.value
    holder = function.slots[".function"].value if isinstance(function, Instance) and ".function" in function.slots else function
    if not isinstance(holder, Function):
        return None
    texts = [a.value for a in call.args if a.known and isinstance(a.value, str)]
    flags = tuple(part for text in texts if text.startswith("-") for part in [text.split("/")[0].strip()])
    offs = tuple(text.split("/")[1].strip() for text in texts if text.startswith("-") and "/" in text)
    plain = next((text for text in texts if not text.startswith("-")), "")
    longest = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    kind, count = _type(call)
    choices_fact = kind.value.slots.get(".choices") if kind is not None and isinstance(kind.value, Instance) else None
    members = (sequence(choices_fact.value) or []) if isinstance(choices_fact, Fact) and choices_fact.known else []
    default = environment or call.kwargs.get("default")
    value = call.kwargs.get("flag_value")
    action = (
        "const" if value is not None
        else "true" if offs or _says(call, "is_flag")
        else "count" if _says(call, "count")
        else "append" if _says(call, "multiple")
        else "store"
    )  # fmt: skip
    made = Option(
        (plain or longest.lstrip("-")).replace("-", "_").lower(), () if positional else flags, call.span, default,
        required=_says(call, "required") or (positional and default is None),
        convert=_converter(kind, default),
        choices=tuple(m.value for m in members if m.known and constant(m.value)),
        action=action, nargs=count, const=value, off_flags=offs,
    )  # fmt: skip
    holder.decorators = (*holder.decorators, fixed(made))
    return target


def _says(call: Call, name: str) -> bool:
    given = call.kwargs.get(name)
    return given is not None and given.known and given.value is True


def _type(call: Call) -> tuple[Fact | None, int | None]:
    """The type of one word, and how many words the option takes (`type=(int, int)`, `nargs=2`)."""
    kind, nargs = call.kwargs.get("type"), call.kwargs.get("nargs")
    if kind is not None and isinstance(kind.value, Array) and kind.value.items:
        return kind.value.items[0], len(kind.value.items)
    count = nargs.value if nargs is not None and isinstance(nargs.value, int) and nargs.value > 1 else None
    return kind, count


def _converter(kind: Fact | None, default: Fact | None) -> Any:
    if kind is None:
        value = default.value if default is not None and default.known else None
        return (
            TO_INT if isinstance(value, int) and not isinstance(value, bool) else TO_FLOAT if isinstance(value, float) else None
        )
    name = kind.value.name.rpartition(".")[2] if isinstance(kind.value, Symbol) else ""
    return {"int": TO_INT, "INT": TO_INT, "float": TO_FLOAT, "FLOAT": TO_FLOAT, "bool": TO_BOOL, "BOOL": TO_BOOL}.get(name)


def command_method(machine: Machine, owner: Fact, command: Instance, name: str, call: Call) -> Fact | None:
    """A method of a click command or group."""
    if name in {"__call__", "main"}:
        return dispatch(machine, command, call) if _is_group(command) else run_command(machine, command, call)
    if name in {"command", "group"}:
        inner = Call(call.name, call.args, {**call.kwargs, ".group": owner}, call.span)
        return fixed(Instance(Symbol(f"click.{name}"), inner, {".wraps": name}), call.span)
    if name == "add_command" and call.args:
        added = call.args[0]
        function = added.value.slots.get(".function") if isinstance(added.value, Instance) else None
        _register(machine, command, call, added, function or added)
    return None


def _is_group(command: Instance) -> bool:
    return command.library.endswith(("Group", "Typer"))


def _register(machine: Machine, group: Instance, call: Call, command: Fact, target: Fact) -> None:
    named = call.kwargs.get("name") or next((a for a in call.args if isinstance(a.value, str)), None)
    function = target.value
    name = str(named.value) if named is not None and named.known else getattr(function, "name", "").replace("_", "-")
    machine.write(group, f".command:{name}", command)


# --- running --------------------------------------------------------------------------------------------------------


def context_method(machine: Machine, context: Instance, name: str, call: Call) -> Fact | None:
    """A method of `click.Context`."""
    if name in {"ensure_object", "find_object"}:
        held = context.slots["obj"]
        if held.known and held.value is None and name == "ensure_object":
            made = fixed(Table(), call.span)
            kind = call.argument("object_type", 0)
            if kind is not None and not (isinstance(kind.value, Symbol) and kind.value.name == "builtins.dict"):
                made = machine.call(kind, Call("object", (), {}, call.span))
            machine.write(context, "obj", made)
        found: Fact = context.slots["obj"]
        return found
    if name in {"invoke", "forward"} and call.args:
        command = call.args[0].value
        if isinstance(command, Instance) and isinstance(function := _function(command), Function):
            values = settle(_options(function), Words(), machine.launch is not None) | dict(call.kwargs)
            return call_function(machine, function, Call(function.name, _passed(function, context), values, call.span))
        return call_value(machine, call.args[0], Call("invoke", call.args[1:], call.kwargs, call.span))
    return None


def _function(command: Instance) -> Any:
    held = command.slots.get(".function")
    return held.value if isinstance(held, Fact) else None


def _options(function: Function) -> list[Option]:
    return [d.value for d in reversed(function.decorators) if isinstance(d.value, Option)]


def _passed(function: Function, context: Instance) -> tuple[Fact, ...]:
    """What `@pass_context` and `@pass_obj` give as first argument."""
    for decorator in function.decorators:
        value = decorator.value
        name = value.name if isinstance(value, Symbol) else value.library if isinstance(value, Instance) else ""
        if name.endswith("pass_context"):
            return (fixed(context),)
        if name.endswith("pass_obj"):
            held: Fact = context.slots["obj"]
            return (held,)
    return ()


def run_command(
    machine: Machine, command: Instance, call: Call, words: list[Fact] | None = None, context: Instance | None = None
) -> Fact | None:
    """Call a click command's function with its options."""
    function = _function(command)
    if not isinstance(function, Function):
        return None
    given, launched = launched_words(machine) if words is None else (words, machine.launch is not None)
    options = _options(function)
    values = settle(options, read_words(options, given, prefixes=False), launched)
    context = context or Instance(CONTEXT, call, {"obj": call.kwargs.get("obj", fixed(None))})
    first = _passed(function, context)
    return call_function(machine, function, Call(function.name, first, values, call.span, "" if values or first else "click"))


def dispatch(
    machine: Machine, app: Instance, call: Call, words: list[Fact] | None = None, context: Instance | None = None
) -> Fact | None:
    """A group of commands: the one that the command line names, the only one, or each of them."""
    commands = {str(k).removeprefix(".command:"): v for k, v in app.slots.items() if str(k).startswith(".command:")}
    given, launched = launched_words(machine) if words is None else (words, machine.launch is not None)
    context = context or Instance(CONTEXT, call, {"obj": call.kwargs.get("obj", fixed(None))})
    function = _function(app)
    options = _options(function) if isinstance(function, Function) else []
    own, name, rest = split_at(given, options, commands)
    _run_group(machine, app, own if name or launched else [], call, context)
    if name:
        return _invoke(machine, commands[name], call, rest, context)
    if len(commands) == 1 and ".callback" not in app.slots:
        return _invoke(machine, next(iter(commands.values())), call, given, context)
    if launched and given:
        return None
    results = [r for c in commands.values() if (r := _invoke(machine, c, call, [], context)) is not None]
    return merge(results) if results else None


def _run_group(machine: Machine, app: Instance, words: list[Fact], call: Call, context: Instance) -> None:
    callback = app.slots.get(".callback")
    if isinstance(callback, Fact):
        run_signature(machine, callback, call.span, words, repeats=True)
    elif ".function" in app.slots:
        run_command(machine, app, call, words, context)


def _invoke(machine: Machine, command: Fact, call: Call, words: list[Fact], context: Instance) -> Fact | None:
    if isinstance(command.value, Instance) and _is_group(command.value):
        return dispatch(machine, command.value, call, words, context)
    if isinstance(command.value, Instance):
        return run_command(machine, command.value, call, words, context)
    return run_signature(machine, command, call.span, words, repeats=True)
