"""DeepSpeed's engine: `initialize`, its methods, its command-line options; and the forward pass of any model."""

from __future__ import annotations

from memlint.facts import Fact, fixed
from memlint.frameworks import loops
from memlint.frameworks.model_methods import model_method
from memlint.frameworks.models import is_model
from memlint.frameworks.state import instances
from memlint.read.pyeval.joins import opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.options import Option
from memlint.read.pyeval.values import Array, Call, Instance, Symbol
from memlint.versions import Versions


def forward_pass(machine: Machine, owner: Fact, call: Call, inner: tuple[Fact, ...] = ()) -> Fact:
    """The output of a model, which remembers its inputs and the contexts it ran in."""
    inputs = (owner, *inner, *call.args, *call.kwargs.values())
    output = opaque("the output of a model", "forward", inputs, call.span, call=call, contexts=tuple(machine.contexts))
    loops.record(machine, "forward", output, call.span)
    return output


def initialize(machine: Machine, call: Call) -> Fact:
    """`deepspeed.initialize`: the engine around the model, the optimizer, the loader and the schedule."""
    model = call.argument("model", 1)
    engine = Instance(
        Symbol("deepspeed.DeepSpeedEngine"), call, {".engine": True, "module": model or opaque("no model", "model")}
    )
    fact = fixed(engine, call.span)
    optimizer = call.kwargs.get("optimizer") or opaque("the optimizer of the engine's configuration", "optimizer", (fact,))
    loader = opaque("the engine's DataLoader", "loader", (fact,))
    return fixed(Array((fact, optimizer, loader, opaque("a schedule", "schedule")), "tuple"), call.span)


def engine_method(machine: Machine, versions: Versions, owner: Fact, value: Instance, name: str, call: Call) -> Fact | None:
    """What a method of the engine does to the model and the loop; None for one without effect on memory."""
    if name in {"__call__", "forward"}:
        return forward_pass(machine, value.slots["module"], call)
    if name == "step":
        loops.record(machine, "step", owner, call.span, value)
        return fixed(None)
    if name == "gradient_checkpointing_enable":
        for model in instances(value.slots["module"]):
            if is_model(model):
                model_method(machine, fixed(model), model, name, call, versions)
        return fixed(None)
    return None


def deepspeed_options(machine: Machine, call: Call) -> Fact | None:
    """`deepspeed.add_config_arguments(parser)` (deepspeed 0.19.8, `__init__._add_core_arguments`)."""
    parser = call.argument("parser", 0)
    for instance in instances(parser):
        config = Option("deepspeed_config", ("--deepspeed_config",), call.span)
        switch = Option("deepspeed", ("--deepspeed",), call.span, fixed(False), action="true")
        machine.write(instance, ".option:deepspeed", switch)
        machine.write(instance, ".option:deepspeed_config", config)
    return parser
