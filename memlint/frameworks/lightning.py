"""Lightning: `Trainer(...).fit(module)` with the module's optimizers, steps and loaders."""

from __future__ import annotations

from collections.abc import Iterator

from memlint.facts import Fact, Origin, Site, Status, TrainingRun, default, fixed, unknown
from memlint.frameworks.accelerators import lightning_facts
from memlint.frameworks.contexts import without_gradients
from memlint.frameworks.lengths import sequence_length
from memlint.frameworks.loops import LOADERS, loader_facts
from memlint.frameworks.models import is_model, model_facts
from memlint.frameworks.names import canonical
from memlint.frameworks.native import plain
from memlint.frameworks.optimizers import is_optimizer, optimizer_facts
from memlint.frameworks.runs import finish
from memlint.frameworks.state import Collected, instances
from memlint.read.pyeval.annotations import parameter_options
from memlint.read.pyeval.calls import call_function
from memlint.read.pyeval.documents import load_document
from memlint.read.pyeval.hydra import overlay, set_path
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.options import Words, guessed, is_flag, read_words, settle
from memlint.read.pyeval.values import Call, Class, Function, Instance, Opaque, Symbol, Table, possible


def fitted(machine: Machine, collected: Collected, trainer: Instance, call: Call) -> None:
    """`trainer.fit(module, ...)`: the run."""
    collected.add(machine, _run(machine, collected, trainer, call), trainer)


def _run(machine: Machine, collected: Collected, trainer: Instance, call: Call) -> TrainingRun:
    module = next(instances(call.argument("model", 0)), None)
    facts: dict[str, Fact] = {}
    sites: list[Site] = [Site("lightning", "python", trainer.call.span)]
    results: list[Fact] = []
    if module is not None:
        for name in ("configure_model", "setup", "configure_sharded_model"):
            _hook(machine, module, name, call)
        results.append(_hook(machine, module, "training_step", call))
        for model in _models(module, results[-1])[:1]:
            found, more = model_facts(model, collected.context.versions)
            facts |= found
            sites.extend(more)
            head = facts.get("objective")
            if head is not None:
                facts["objective"] = Fact(head.value, Status.FIXED, head.origin)
            if facts.get("model.dtype") is not None and facts["model.dtype"].status is Status.UNKNOWN:
                facts.pop("model.dtype")
        optimizer = _hook(machine, module, "configure_optimizers", call)
        facts |= _optimizer(optimizer, call)
    if "model.id" not in facts and "model.config" not in facts:
        reason = "the module's model is not followed" if module is not None else "the module is not followed"
        facts["model.id"] = unknown(reason, call.span)
    facts |= lightning_facts(trainer)
    _true_precision(facts)
    steps = trainer.slots.get("accumulate_grad_batches")
    facts["batch.gradient_accumulation_steps"] = (
        plain(steps) if isinstance(steps, Fact) else default(1, "lightning: accumulate_grad_batches", trainer.call.span)
    )
    facts |= _batch(machine, module, call, sites)
    facts |= _evaluation(machine, module, trainer, call)
    facts |= sequence_length(collected)
    facts.setdefault("checkpointing.enabled", default(False, "nothing switches checkpointing on"))
    facts["framework.name"] = fixed("lightning", call.span)
    facts.setdefault("reference_model", default("none", "one model is trained"))
    return finish(machine, collected, facts, call.span, sites, [], "Trainer.fit()", collected.context)


def _true_precision(facts: dict[str, Fact]) -> None:
    """`bf16-true` and `16-true` convert the module."""
    mode = facts.get("precision")
    dtype = {"bf16-true": "bfloat16", "fp16-true": "float16"}.get(str(mode.value)) if mode is not None and mode.known else None
    if dtype is not None and mode is not None:
        facts["model.dtype"] = Fact(dtype, mode.status, (*mode.origin, Origin(None, "lightning converts the module")))


def _hook(machine: Machine, owner: Instance, name: str, call: Call) -> Fact:
    found = owner.cls.find(name) if isinstance(owner.cls, Class) else None
    if found is None or not isinstance(found.value, Function):
        return fixed(None)
    loops, machine.loops = machine.loops, []
    try:
        return call_function(machine, found.value, Call(name, (fixed(owner),), {}, call.span, "lightning passes it"))
    finally:
        machine.loops = loops


def _models(module: Instance, loss: Fact) -> list[Instance]:
    """The trained models: those called with gradients in the training step, else those the module holds."""
    called: list[Instance] = []
    for start in possible(loss):
        for value in start.ancestry() if isinstance(start, Opaque) else Opaque("", (loss,)).ancestry():
            if isinstance(value, Opaque) and value.operation == "forward" and not without_gradients(value.contexts):
                called += [m for p in value.parents[:1] for m in possible(p) if is_model(m) and m not in called]
    held = [m for f in module.slots.values() if isinstance(f, Fact) for m in possible(f) if is_model(m)]
    return called or held


def _optimizer(result: Fact, call: Call) -> dict[str, Fact]:
    for value in Opaque("", (result,)).ancestry():
        if is_optimizer(value):
            return optimizer_facts(fixed(value))
    return {"optimizer.name": unknown("configure_optimizers is not followed", call.span)}


def _loaders(machine: Machine, module: Instance | None, call: Call, stage: str, position: int) -> Iterator[Instance]:
    """The DataLoaders of a stage (`train`, `val`): passed to `fit`, of its datamodule, or of the module itself."""
    name = f"{stage}_dataloader"
    sources = [f for f in (call.argument(f"{name}s", position), call.kwargs.get(name)) if f is not None]
    passed = (call.argument("datamodule", 3), call.argument("train_dataloaders", 1))
    for holder in (value for fact in passed for value in instances(fact)):
        if isinstance(holder.cls, Class) and holder.cls.find(name):
            _hook(machine, holder, "setup", call)
            sources.append(_hook(machine, holder, name, call))
    if module is not None:
        sources.append(_hook(machine, module, name, call))
    for fact in sources:
        for value in Opaque("", (fact,)).ancestry():
            if isinstance(value, Instance) and canonical(value.library)[1] in LOADERS:
                yield value


def _batch(machine: Machine, module: Instance | None, call: Call, sites: list[Site]) -> dict[str, Fact]:
    loader = next(_loaders(machine, module, call, "train", 1), None)
    if loader is not None:
        return loader_facts(loader, sites)
    return {"batch.micro_batch_size": unknown("the training DataLoader is not followed", call.span)}


def _evaluation(machine: Machine, module: Instance | None, trainer: Instance, call: Call) -> dict[str, Fact]:
    """Validation runs between the epochs when there is a loader for it and a `validation_step`."""
    step = module.cls.find("validation_step") if module is not None and isinstance(module.cls, Class) else None
    limit = trainer.slots.get("limit_val_batches")
    if step is None or (isinstance(limit, Fact) and limit.known and limit.value == 0):
        return {}
    loader = next(_loaders(machine, module, call, "val", 2), None)
    if loader is None:
        return {}
    size = loader_facts(loader, [])["batch.micro_batch_size"]
    return {"eval.enabled": fixed(True, loader.call.span), "eval.batch_size": size}


def lightning_cli(machine: Machine, collected: Collected, call: Call) -> Fact:
    """`LightningCLI(Model, Data)`: the sub-command `fit` with its YAML and `--trainer.x`, `--model.x`, `--data.x` words."""
    words = list(machine.launch.argv) if machine.launch is not None else []
    command = next((w.value for w in words if not is_flag(w)), "fit")
    if command != "fit":
        return fixed(None, call.span)
    settings = Table()
    for name, given in read_words([], words).extras.items():
        if name == "--config" and given:
            document = load_document(machine, given[0], call.span)
            if isinstance(document.value, Table):
                overlay(settings, document.value)
        elif given:
            set_path(settings, name.lstrip("-").split("."), guessed(given[0]))
    defaults = call.argument("trainer_defaults")
    options = dict(defaults.value.entries()) if defaults is not None and isinstance(defaults.value, Table) else {}
    trainer = Instance(Symbol("lightning.Trainer"), call, {**options, **_section(settings, "trainer")})
    model = _made(machine, call.argument("model_class", 0), _section(settings, "model"), call)
    data = _made(machine, call.argument("datamodule_class", 1), _section(settings, "data"), call)
    given_to_fit = {"model": model, **({"datamodule": data} if data is not None else {})}
    machine.shadow += machine.launch is None
    fitted(machine, collected, trainer, Call("fit", (), {k: f for k, f in given_to_fit.items() if f is not None}, call.span))
    machine.shadow -= machine.launch is None
    return fixed(None, call.span)


def _section(settings: Table, name: str) -> dict[str, Fact]:
    """A section of the configuration; `class_path` with `init_args` means the latter."""
    section = settings.slots.get(name)
    table = section.value if isinstance(section, Fact) and isinstance(section.value, Table) else Table()
    inner = table.slots.get("init_args")
    if isinstance(inner, Fact) and isinstance(inner.value, Table):
        table = inner.value
    return {str(key): fact for key, fact in table.entries()}


def _made(machine: Machine, cls: Fact | None, given: dict[str, Fact], call: Call) -> Fact | None:
    if cls is None or not isinstance(cls.value, Class):
        return None
    init = cls.value.find("__init__")
    if init is not None and isinstance(init.value, Function):
        options = [o for o in parameter_options(init.value, call.span)[1:] if o.default is not None]
        given = {**settle(options, Words(), machine.launch is not None), **given}
    return machine.call(cls, Call(cls.value.name, (), given, call.span))
