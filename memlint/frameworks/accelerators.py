"""Accelerate, Fabric and DeepSpeed's engine in hand-written loops: what they decide about a run."""

from __future__ import annotations

from memlint.dialects import deepspeed
from memlint.dialects.derive import derive
from memlint.facts import Fact, Origin, Site, Status, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.frameworks.names import canonical
from memlint.frameworks.native import flat, plain
from memlint.frameworks.optimizers import optimizer_facts
from memlint.frameworks.parallel import ddp_facts, mixed_precision, offload_facts, parallelism_facts, wrap_policy
from memlint.frameworks.state import Collected, Event, instances
from memlint.read.document import flatten
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Instance, Opaque, Table, possible
from memlint.source import Span
from memlint.typed import Any


def complete(
    machine: Machine, collected: Collected, facts: dict[str, Fact], event: Event, steps: list[Event], model: Instance | None
) -> None:
    """Add what the Accelerator, Fabric or engine behind an event decides."""
    owner = event.owner
    if owner is None:
        owner = next((s.owner for s in steps if s.owner is not None), None)
    if owner is None:
        return
    name = canonical(owner.library)[1]
    if name == "Accelerator":
        _accelerate(machine, collected, facts, owner)
    elif name == "Fabric":
        _fabric(facts, owner)
    elif ".engine" in owner.slots:
        _engine(machine, collected, facts, owner)


def accelerated_precision(machine: Machine, accelerator: Instance, span: Span) -> Fact:
    """`Accelerator.mixed_precision` (accelerate 1.15.0 `state.py`): the argument, else what the launch says, else "no"."""
    mixed = accelerator.call.kwargs.get("mixed_precision")
    if mixed is not None and not (mixed.known and mixed.value is None):
        return mixed
    launched = (getattr(machine.launch, "launcher", None) or {}).get("precision")
    if launched is not None:
        return derive(lambda mode: {"bf16-mixed": "bf16", "fp16-mixed": "fp16", "fp32": "no"}.get(str(mode), "no"), launched)
    return default("no", "accelerate without a launch configuration", span)


def _accelerate(machine: Machine, collected: Collected, facts: dict[str, Fact], accelerator: Instance) -> None:
    facts["framework.name"] = fixed("accelerate", accelerator.call.span)
    given = accelerator.call.kwargs
    mixed = given.get("mixed_precision")
    named = plain(mixed) if mixed is not None else None
    if named is not None and not (named.known and named.value is None):
        facts["precision"] = derive(lambda value: normalise("precision", str(value)), named)
    elif facts.get("precision") is not None and facts["precision"].value == "fp32":
        launched = (getattr(machine.launch, "launcher", None) or {}).get("precision")
        note = "accelerate: mixed_precision comes from `accelerate launch` or its configuration, and is off without"
        facts["precision"] = launched or default("fp32", note, accelerator.call.span)
    steps = given.get("gradient_accumulation_steps")
    key = "batch.gradient_accumulation_steps"
    plugin = given.get("gradient_accumulation_plugin")
    for value in instances(plugin):
        steps = value.slots.get("num_steps") or (value.call.args[0] if value.call.args else None)
        every = value.slots.get("sync_each_batch")
        if isinstance(every, Fact):
            facts["parallel.sync_each_batch"] = plain(every)
    manual = facts.get(key)
    if isinstance(steps, Fact) and not (manual is not None and manual.known and manual.value not in (1, None)):
        facts[key] = plain(steps)
    handlers = given.get("kwargs_handlers")
    for handler in handlers.value.items if handlers is not None and isinstance(handlers.value, Array) else ():
        for value in instances(handler):
            if canonical(value.library)[1] == "DistributedDataParallelKwargs":
                facts |= ddp_facts({name: fact for name, fact in value.slots.items() if isinstance(fact, Fact)})
    facts |= parallelism_facts(given.get("parallelism_config"))
    for name in ("fsdp_plugin", "fsdp_plugins"):
        if name in given:
            _fsdp_plugin(facts, given[name], accelerator)
    for name in ("deepspeed_plugin", "deepspeed_plugins"):
        if name in given:
            _deepspeed_plugin(collected, facts, given[name])


def _remaining_factor(config: Table) -> Fact | None:
    """The micro batches a step in `train_batch_size = micro * world_size * steps`, which holds for any number of GPUs."""
    total, micro = config.slots.get("train_batch_size"), config.slots.get("train_micro_batch_size_per_gpu")
    if not isinstance(total, Fact) or total.known or not isinstance(micro, Fact) or not micro.known:
        return None
    factors = [total]
    while any(isinstance(f.value, Opaque) and f.value.operation == "Mult" for f in factors):
        factors = [
            p for f in factors for p in (f.value.parents if isinstance(f.value, Opaque) and f.value.operation == "Mult" else (f,))
        ]
    own = next((f for f in factors if f.known and f.value == micro.value), None)
    world = [f for f in factors if isinstance(f.value, Opaque) and f.value.operation.endswith("get_world_size")]
    rest = [f for f in factors if f is not own and f not in world]
    return plain(rest[0]) if own is not None and len(world) == 1 and len(rest) == 1 and rest[0].known else None


def _fsdp_plugin(facts: dict[str, Fact], plugin: Fact, accelerator: Instance) -> None:
    for value in instances(plugin):
        span = value.call.span
        version = value.slots.get("fsdp_version")
        number = plain(version) if isinstance(version, Fact) else fixed(1)
        facts["parallel.strategy"] = Fact(f"fsdp{2 if number.value in (2, '2') else 1}", Status.FIXED, (Origin(span),))
        facts |= offload_facts(value.slots.get("cpu_offload"), span)
        policy = value.slots.get("auto_wrap_policy")
        facts["parallel.wrap_policy"] = wrap_policy(policy, span)
        facts |= mixed_precision(value.slots.get("mixed_precision_policy"), span)
        checkpointing = value.slots.get("activation_checkpointing")
        if isinstance(checkpointing, Fact) and checkpointing.known and checkpointing.value is True:
            facts["checkpointing.enabled"] = plain(checkpointing)
    if plugin.status is Status.UNKNOWN:
        facts["parallel.strategy"] = unknown(plugin.reason, accelerator.call.span)


def _deepspeed_plugin(collected: Collected, facts: dict[str, Fact], plugin: Fact) -> None:
    for value in instances(plugin):
        config = value.slots.get("hf_ds_config")
        if isinstance(config, Fact):
            added = _config(collected, config)
            facts |= {k: f for k, f in added.items() if k not in {"optimizer.name"} or "optimizer.name" not in facts}
            return
        stage = value.slots.get("zero_stage")
        number = plain(stage) if isinstance(stage, Fact) else default(2, "accelerate's DeepSpeedPlugin")
        facts["parallel.strategy"] = derive(lambda n: f"zero{n}" if n else "ddp", number)
        for key, name in (
            ("parallel.offload_optimizer", "offload_optimizer_device"),
            ("parallel.offload_params", "offload_param_device"),
        ):
            device = value.slots.get(name)
            facts[key] = plain(device) if isinstance(device, Fact) else default("none", "accelerate's DeepSpeedPlugin")
        steps = value.slots.get("gradient_accumulation_steps")
        if isinstance(steps, Fact):
            facts["batch.gradient_accumulation_steps"] = plain(steps)


def _config(collected: Collected, config: Fact) -> dict[str, Fact]:
    """The engine's facts of a DeepSpeed configuration given as a dict or a path."""
    if isinstance(config.value, Table) and config.known:
        native = flat(config.value)
        if "gradient_accumulation_steps" not in native and (steps := _remaining_factor(config.value)) is not None:
            native["gradient_accumulation_steps"] = steps
        return deepspeed.engine_facts(native, collected.context.versions)
    document = collected.context.follow(plain(config))
    if document is None:
        named = f" {config.value!r}" if isinstance(config.value, str) else ""
        reason = config.reason or f"the DeepSpeed configuration{named} was not found"
        return {"parallel.strategy": unknown(reason, config.origin[0].span if config.origin else None)}
    collected.context.sites.append(Site("deepspeed", "json", document.root.span))
    return deepspeed.engine_facts(flatten(document), collected.context.versions)


def _engine_steps(machine: Machine, collected: Collected, config: Fact, added: dict[str, Fact]) -> Fact:
    """Accumulation that a configuration leaves to DeepSpeed: the global batch over micro batch and world size, else 1."""
    whole = _native(collected, config).get("train_batch_size")
    micro = added.get("batch.micro_batch_size")
    if whole is None or micro is None:
        return default(1, "deepspeed default")
    launcher = getattr(machine.launch, "launcher", None) or {}
    gpus, nodes = launcher.get("parallel.gpus"), launcher.get("parallel.nodes") or default(1, "one node")
    if gpus is None:
        return unknown("train_batch_size and the number of GPUs decide it", engine_place(config))
    return derive(lambda total, size, g, n: total // (size * g * n), whole, micro, gpus, nodes)


def engine_place(config: Fact) -> Any:
    """Where an engine configuration is written."""
    return config.origin[0].span if config.origin else None


def _native(collected: Collected, config: Fact) -> dict[str, Fact]:
    if isinstance(config.value, Table) and config.known:
        return flat(config.value)
    document = collected.context.follow(plain(config))
    return flatten(document) if document is not None else {}


def _engine(machine: Machine, collected: Collected, facts: dict[str, Fact], engine: Instance) -> None:
    call = engine.call
    facts["framework.name"] = fixed("deepspeed", call.span)
    config = call.argument("config") or call.argument("config_params")
    if config is None:
        for args in instances(call.argument("args", 0)):
            linked = args.slots.get("deepspeed_config")
            config = linked if isinstance(linked, Fact) and linked.value is not None else None
    if config is None:
        facts["parallel.strategy"] = unknown("DeepSpeed's configuration is left to the launch", call.span)
        if facts.get("optimizer.name") is None or facts["optimizer.name"].status is Status.UNKNOWN:
            facts["optimizer.name"] = unknown("the optimizer may be in DeepSpeed's configuration", call.span)
        return
    added = _config(collected, config)
    own = call.kwargs.get("optimizer")
    keep = own is not None and not (own.known and own.value is None)
    if "batch.gradient_accumulation_steps" not in added:
        added["batch.gradient_accumulation_steps"] = _engine_steps(machine, collected, config, added)
    if keep and own is not None:
        facts |= optimizer_facts(own)
    facts |= {k: f for k, f in added.items() if not (k == "optimizer.name" and keep)}
    facts["parallel.strategy"] = added["parallel.strategy"]


_FABRIC = {"32": "fp32", "32-true": "fp32", "16-mixed": "fp16-mixed", "bf16-mixed": "bf16-mixed", "bf16-true": "bf16-true",
           "16-true": "fp16-true", "16": "fp16-mixed", "bf16": "bf16-mixed", "64": "fp32", "64-true": "fp32",
           "transformer-engine": "bf16-mixed"}  # fmt: skip
"""Lightning's precision flag (lightning 2.x, `fabric/connector.py`)."""

_STRATEGIES = {"ddp": "ddp", "dp": "dp", "fsdp": "fsdp1", "deepspeed": "zero3", "deepspeed_stage_1": "zero1",
               "deepspeed_stage_2": "zero2", "deepspeed_stage_3": "zero3", "deepspeed_stage_2_offload": "zero2",
               "deepspeed_stage_3_offload": "zero3", "auto": "", "ddp_spawn": "ddp", "ddp_notebook": "ddp",
               "ddp_find_unused_parameters_true": "ddp", "ddp_find_unused_parameters_false": "ddp",
               "ddp_fork": "ddp"}  # fmt: skip
"""Lightning's strategy flag."""


def lightning_facts(owner: Instance) -> dict[str, Fact]:
    """`precision` and `parallel.*` of a Lightning Trainer or Fabric."""
    span = owner.call.span
    slots = owner.slots
    facts: dict[str, Fact] = {}
    precision = slots.get("precision")
    if isinstance(precision, Fact):
        facts["precision"] = derive(lambda value: _FABRIC[str(value)], plain(precision))
    else:
        facts["precision"] = default("fp32", "lightning: precision 32-true", span)
    devices = slots.get("devices") or slots.get("gpus")
    if isinstance(devices, Fact):
        count = plain(devices)
        if count.known and isinstance(count.value, (list, str)) and count.value not in ("auto",):
            text = count.value
            number = len(text) if isinstance(text, list) else int(text) if text.lstrip("-").isdigit() else len(text.split(","))
            count = Fact(number, count.status, count.origin)
        if (count.known and isinstance(count.value, int) and count.value > 0) or count.choices:
            facts["parallel.gpus"] = count
        else:
            facts["parallel.gpus"] = unknown(count.reason or "every GPU of the machine", span)
    nodes = slots.get("num_nodes")
    facts["parallel.nodes"] = plain(nodes) if isinstance(nodes, Fact) else default(1, "lightning: num_nodes", span)
    strategy = slots.get("strategy")
    if isinstance(strategy, Fact):
        facts |= _strategy(strategy, span)
    return facts


def _strategy(strategy: Fact, span: Any) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for value in possible(strategy):
        if isinstance(value, str) and _STRATEGIES.get(value):
            facts["parallel.strategy"] = Fact(_STRATEGIES[value], strategy.status, strategy.origin)
            if value.endswith("offload"):
                facts["parallel.offload_optimizer"] = fixed("cpu", span)
                facts["parallel.offload_params"] = fixed("cpu" if "3" in value else "none", span)
        elif isinstance(value, Instance):
            facts |= _strategy_object(value)
    return facts


def _strategy_object(value: Instance) -> dict[str, Fact]:
    name = canonical(value.library)[1]
    span = value.call.span
    if name == "DDPStrategy":
        return {"parallel.strategy": fixed("ddp", span)}
    if name in {"FSDPStrategy", "ModelParallelStrategy"}:
        facts = {"parallel.strategy": fixed("fsdp1" if name == "FSDPStrategy" else "fsdp2", span)}
        facts |= offload_facts(value.slots.get("cpu_offload"), span)
        facts["parallel.wrap_policy"] = wrap_policy(value.slots.get("auto_wrap_policy"), span)
        for option in ("activation_checkpointing_policy", "activation_checkpointing"):
            given = value.slots.get(option)
            if isinstance(given, Fact) and not (given.known and given.value in (None, False)):
                facts["checkpointing.enabled"] = Fact(True, Status.FIXED, given.origin)
        facts |= mixed_precision(value.slots.get("mixed_precision"), span)
        return facts
    if name == "DeepSpeedStrategy":
        stage = value.slots.get("stage")
        number = plain(stage) if isinstance(stage, Fact) else default(2, "lightning's DeepSpeedStrategy", span)
        facts = {"parallel.strategy": derive(lambda n: f"zero{n}" if n else "ddp", number)}
        for key, option in (
            ("parallel.offload_optimizer", "offload_optimizer"),
            ("parallel.offload_params", "offload_parameters"),
        ):
            given = value.slots.get(option)
            on = plain(given) if isinstance(given, Fact) else default(False, "lightning's DeepSpeedStrategy", span)
            facts[key] = derive(lambda flag: "cpu" if flag else "none", on)
        return facts
    return {}


def _fabric(facts: dict[str, Fact], fabric: Instance) -> None:
    facts["framework.name"] = fixed("lightning", fabric.call.span)
    facts |= lightning_facts(fabric)
