"""Hand-written training loops: raw PyTorch, Accelerate, DeepSpeed's engine, Fabric.

While a script is walked, `backward()` and `step()` leave events in the loop they are in; when the outermost loop ends, its
events become a run. The loss leads back to the model and the batch, the batch to its DataLoader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from memlint.dialects.from_pretrained import load_dtype
from memlint.facts import Fact, Origin, Site, Status, TrainingRun, default, fixed, unknown
from memlint.frameworks import accelerators
from memlint.frameworks.batches import tensor_shape
from memlint.frameworks.contexts import autocast_mode, without_gradients
from memlint.frameworks.freezing import is_frozen, trainable_modules
from memlint.frameworks.lengths import sequence_length
from memlint.frameworks.models import is_model, model_facts, models_in
from memlint.frameworks.names import canonical, class_name
from memlint.frameworks.native import plain
from memlint.frameworks.optimizers import is_optimizer, optimizer_facts
from memlint.frameworks.parallel import wrapping_facts
from memlint.frameworks.runs import finish
from memlint.frameworks.state import Collected, Event, instances
from memlint.read.pyeval.joins import merge
from memlint.read.pyeval.machine import Loop, Machine
from memlint.read.pyeval.values import Class, Instance, Opaque, possible
from memlint.typed import Any

MAX_ACCUMULATION = 4096


def record(machine: Machine, kind: str, target: Fact, span: Any, owner: Instance | None = None) -> None:
    """Leave an event in the innermost loop; outside loops nothing trains."""
    if machine.loops:
        machine.loops[-1].records.append(
            Event(
                kind,
                target,
                span,
                tuple(machine.loops),
                tuple(machine.conditions),
                tuple(machine.contexts),
                machine.shadow > 0,
                owner,
            )
        )


def loop_ended(machine: Machine, collected: Collected, loop: Loop) -> None:
    """The outermost loop ended: what trained inside it is a run."""
    events = [r for r in loop.records if isinstance(r, Event)]
    backwards = [e for e in events if e.kind == "backward"]
    steps = [e for e in events if e.kind == "step"]
    if not backwards or not (steps or any(e.owner is not None for e in backwards)):
        return
    groups: dict[int, list[Event]] = {}
    for event in backwards:
        trained = _trained(event.target, steps)
        groups.setdefault(id(trained[0]) if trained else 0, []).append(event)
    for group in _of_one_job(list(groups.values()), steps):
        run = _run(machine, collected, group, steps, loop)
        machine.shadow += all(e.shadow for e in group)
        collected.add(machine, run)
        machine.shadow -= all(e.shadow for e in group)


def _of_one_job(groups: list[list[Event]], steps: list[Event]) -> list[list[Event]]:
    """A loop is one job: of several losses (a GAN's two) the one that trains a model that is followed, else the first.

    The same backward call with several models (a loop over settings) stays; its facts become choices.
    """
    certain = [group for group in groups if not all(event.shadow for event in group)] or groups
    followed = [g for g in certain if any(is_model(m) for m in _trained(g[0].target, steps))]
    first = (followed or certain)[0]
    return [group for group in certain if group[0].span == first[0].span]


def _ancestors(fact: Fact) -> list[Any]:
    return [v for value in possible(fact) for v in (value.ancestry() if isinstance(value, Opaque) else (value,))]


def _trained(loss: Fact, steps: list[Event]) -> list[Instance]:
    """The models that a loss trains: those in it that an optimizer holds, else those called with gradients."""
    called: list[Instance] = []
    seen: list[Instance] = []
    for value in _ancestors(loss):
        if isinstance(value, Instance):
            seen.extend(m for m in _owned(value) if m not in seen)
        if isinstance(value, Opaque) and value.operation == "forward" and not without_gradients(value.contexts):
            for parent in value.parents[:1]:
                for owner in possible(parent):
                    called.extend(m for m in _owned(owner) if m not in called)
    held = [m for step in steps for m in held_models(step.target)]
    for candidates in (called, seen):
        chosen = [m for m in candidates if m in held]
        if chosen:
            return chosen
    frozen = [m for m in called if not is_frozen(m)]
    return frozen or called or [m for m in held if not is_frozen(m)] or seen


def _owned(value: Any) -> list[Instance]:
    if is_model(value):
        return [value]
    if isinstance(value, Instance) and isinstance(value.cls, Class):
        return models_in(value) or ([value] if _is_module(value) else [])
    return []


def _is_module(value: Instance) -> bool:
    return canonical(value.library)[1].partition(".")[0] in {"Module", "PreTrainedModel", "LightningModule"}


def held_models(optimizer: Fact) -> list[Instance]:
    """The models whose parameters an optimizer holds."""
    found: list[Instance] = []
    for value in instances(optimizer):
        inputs = [*value.call.args, *value.call.kwargs.values()]
        for fact in inputs:
            for ancestor in _ancestors(fact) + _inside(fact):
                for model in _owned(ancestor):
                    if model not in found:
                        found.append(model)
    return found


def _inside(fact: Fact) -> list[Any]:
    return list(Opaque("", (fact,)).ancestry())


# --- the run --------------------------------------------------------------------------------------------------------


def _run(machine: Machine, collected: Collected, backwards: list[Event], steps: list[Event], loop: Loop) -> TrainingRun:
    versions = collected.context.versions
    event = backwards[0]
    sites: list[Site] = []
    facts: dict[str, Fact] = {}
    models = _trained(event.target, steps)
    model = models[0] if models else None
    if model is not None and is_model(model):
        facts, sites = model_facts(model, versions)
        head = facts.get("objective")
        if head is not None:
            facts["objective"] = Fact(head.value, Status.FIXED, head.origin)
        if head is None or head.value not in {"causal_lm", "seq2seq_lm", "masked_lm"}:
            facts.pop("loss.logits", None)
        else:
            facts["loss.logits"] = default("full", "the model's own loss")
        facts |= wrapping_facts(model) | trainable_modules(model)
    else:
        reason = f"the model `{model.cls.name}` is written in the script" if model is not None else "the model is not followed"
        facts["model.id"] = unknown(reason, model.call.span if model is not None else event.span)
        named = _called_class(event.target)
        if re.search(r"GPT|CausalLM|LanguageModel|Llama|Transformer.*LM", named):
            facts["objective"] = default("causal_lm", f"the name of `{named}`")
            facts["loss.logits"] = default("full", "the model's own loss")
        if model is not None:
            facts |= wrapping_facts(model)
            cast = model.slots.get(".cast")
            own = default("float32", "torch's default dtype for a model written in the script")
            facts["model.dtype"] = load_dtype(plain(cast), collected.context.versions) if isinstance(cast, Fact) else own
    calls = [v for v in _ancestors(event.target) if isinstance(v, Opaque) and v.operation == "forward"]
    _precision(facts, calls, event)
    facts.setdefault("checkpointing.enabled", default(False, "nothing switches checkpointing on"))
    _inner_checkpointing(facts, calls, event)
    mine = [s for s in steps if model is None or model in held_models(s.target) or not held_models(s.target)] or steps
    facts |= _optimizer(mine, event)
    facts |= _batch(event, calls, sites)
    facts |= _evaluation(loop, event, models, _loaders(event, calls))
    facts |= _accumulation(event, mine)
    facts |= sequence_length(collected)
    others = {
        id(m): m for c in calls if without_gradients(c.contexts) for p in c.parents[:1] for v in possible(p) for m in _owned(v)
    }
    if any(other is not model for other in others.values()):
        facts["reference_model"] = unknown("another model, without gradients, takes part in the loss", event.span)
    facts.setdefault("reference_model", default("none", "one model is trained"))
    facts["framework.name"] = fixed("pytorch", event.span)
    accelerators.complete(machine, collected, facts, event, mine, model)
    what = f"backward() in the loop at line {loop.span.line}"
    return finish(machine, collected, facts, event.span, sites, _problems(event), what, collected.context)


def _called_class(loss: Fact) -> str:
    """The name of the class, written elsewhere, whose object the loss comes from."""
    for value in _ancestors(loss):
        if isinstance(value, Opaque) and value.call is not None and value.call.name.rpartition(".")[2][:1].isupper():
            return value.call.name.rpartition(".")[2]
        if isinstance(value, Instance) and isinstance(value.cls, Class):
            return value.cls.name
    return ""


def _precision(facts: dict[str, Fact], calls: list[Opaque], event: Event) -> None:
    mode = next((m for call in calls if (m := autocast_mode(call.contexts)) is not None), None)
    mode = mode or autocast_mode(event.contexts)
    wrapped = facts.pop("precision", None)
    facts["precision"] = mode or wrapped or default("fp32", "no autocast is on")
    if mode is None and wrapped is None:
        facts["precision"] = Fact("fp32", Status.FIXED, (Origin(event.span, "no autocast is on"),))


def _inner_checkpointing(facts: dict[str, Fact], calls: list[Opaque], event: Event) -> None:
    """`torch.utils.checkpoint.checkpoint(...)` on the way to the loss."""
    for value in _ancestors(event.target):
        if isinstance(value, Opaque) and value.operation == "checkpoint" and value.call is not None:
            facts["checkpointing.enabled"] = fixed(True, value.call.span)
            reentrant = value.call.kwargs.get("use_reentrant")
            if reentrant is not None:
                facts["checkpointing.use_reentrant"] = plain(reentrant)
            return


def _optimizer(steps: list[Event], event: Event) -> dict[str, Fact]:
    known = [s.target for s in steps if any(is_optimizer(v) for v in possible(s.target))]
    if known:
        return optimizer_facts(known[0])
    for step in steps:
        for value in _ancestors(step.target):
            if is_optimizer(value):
                return optimizer_facts(fixed(value))
    reason = steps[0].target.reason if steps else ""
    return {"optimizer.name": unknown(reason or "the optimizer is not followed", event.span)}


def _loaders(event: Event, calls: list[Opaque]) -> list[Instance]:
    """The DataLoaders that feed a loss: those of the batch, else those that the loops iterate."""
    found: list[Instance] = []
    sources = [event.target, *(loop.iterable for loop in reversed(event.loops) if loop.iterable is not None)]
    for fact in sources:
        for value in _ancestors(fact):
            if isinstance(value, Instance) and canonical(value.library)[1] in LOADERS and value not in found:
                found.append(value)
        if found:
            break
    return found


LOADERS = frozenset({"DataLoader", "StatefulDataLoader"})


def loader_facts(loader: Instance, sites: list[Site]) -> dict[str, Fact]:
    """`batch.micro_batch_size` of a DataLoader."""
    sites.append(Site("dataloader", "python", loader.call.span))
    size = loader.call.argument("batch_size", 1)
    if size is not None and not (size.known and size.value is None):
        return {"batch.micro_batch_size": plain(size)}
    for sampler in instances(loader.call.kwargs.get("batch_sampler")):
        size = sampler.call.argument("batch_size", 1)
        if class_name(sampler) == "BatchSampler" and size is not None:
            return {"batch.micro_batch_size": plain(size)}
    if "batch_sampler" in loader.call.kwargs:
        return {"batch.micro_batch_size": unknown("the batch sampler decides the batch size", loader.call.span)}
    if loader.call.open:
        return {"batch.micro_batch_size": unknown(loader.call.open, loader.call.span)}
    return {"batch.micro_batch_size": default(1, "torch's DataLoader", loader.call.span)}


def _batch(event: Event, calls: list[Opaque], sites: list[Site]) -> dict[str, Fact]:
    loaders = _loaders(event, calls)
    if not loaders:
        return tensor_shape(event.target) or {
            "batch.micro_batch_size": unknown("the batches do not come from a DataLoader", event.span)
        }
    facts = [loader_facts(loader, sites)["batch.micro_batch_size"] for loader in loaders[:2]]
    return {"batch.micro_batch_size": facts[0] if len(facts) == 1 else merge(facts)}


def _evaluation(loop: Loop, event: Event, models: list[Instance], training: list[Instance]) -> dict[str, Fact]:
    """Passes of the trained model that no loss uses, in the same loop: over another DataLoader than the training's, or without
    gradients over batches that the loop makes itself."""
    events = [r for r in loop.records if isinstance(r, Event) and not r.shadow]
    losses = {id(value) for e in events if e.kind == "backward" for value in _ancestors(e.target)}
    sizes: list[Fact] = []
    certain = False
    for passed in events:
        if passed.kind != "forward" or id(passed.target.value) in losses:
            continue
        owners = [m for parent in passed.target.value.parents[:1] for v in possible(parent) for m in _owned(v)]
        if not any(m in models for m in owners):
            continue
        loaders = _loaders(passed, [])
        made = {} if loaders or training or not without_gradients(passed.contexts) else tensor_shape(passed.target)
        if loaders and not any(loader in training for loader in loaders):
            passes = [loader_facts(loader, [])["batch.micro_batch_size"] for loader in loaders]
        else:
            passes = [made["batch.micro_batch_size"]] if made else []
        sizes += passes
        if passes:
            certain = certain or all(c in event.conditions or _recurring(c) for c in passed.conditions)
    if not sizes:
        return {}
    enabled = fixed(True, event.span) if certain else unknown("the loop evaluates under a condition", event.span)
    return {"eval.enabled": enabled, "eval.batch_size": merge(sizes)}


def _recurring(condition: Fact) -> bool:
    """A condition on the position in the loop (`step % 100 == 0`), which holds sooner or later."""
    return any(isinstance(v, Opaque) and v.operation in {"Mod", "loop", "element"} for v in _ancestors(condition))


def _accumulation(event: Event, steps: list[Event]) -> dict[str, Fact]:
    """Micro batches a step: `if (i + 1) % n == 0: step()`, an inner loop of n passes, or `loss / n`."""
    key = "batch.gradient_accumulation_steps"
    for step in steps:
        for condition in step.conditions:
            if condition in event.conditions:
                continue
            period = _period(condition)
            if period is not None:
                return {key: period}
    if steps:
        inner = [loop for loop in event.loops if all(loop not in step.loops for step in steps)]
        counts = [loop.count for loop in inner if loop.count is not None]
        if inner and counts:
            return {key: plain(counts[0])}
        if inner:
            return {key: unknown("the number of micro batches a step is that of an inner loop", inner[0].span)}
    divisor = _divisor(event.target)
    guarded = any(c not in event.conditions for s in steps for c in s.conditions)
    if guarded:
        return {key: divisor or unknown("the optimizer steps under a condition that is not followed", event.span)}
    return {key: default(1, "the optimizer steps after every backward")}


def _period(condition: Fact) -> Fact | None:
    """n of a condition like `(i + 1) % n == 0` or `count == n`."""
    for value in _ancestors(condition):
        if isinstance(value, Opaque) and value.operation == "Mod" and len(value.parents) == 2:
            return _count(value.parents[1])
    for value in _ancestors(condition):
        if isinstance(value, Opaque) and value.operation in {"Eq", "GtE"} and len(value.parents) == 2:
            found = _count(value.parents[1])
            if found is not None and found.known and found.value not in (0, 1):
                return found
    return None


def _count(fact: Fact) -> Fact | None:
    number = plain(fact)
    if number.status is Status.UNKNOWN:
        return number
    valid = all(isinstance(v, int) and not isinstance(v, bool) and 0 < v <= MAX_ACCUMULATION for v in number.values)
    return number if valid else None


def _divisor(loss: Fact) -> Fact | None:
    for value in _ancestors(loss):
        if isinstance(value, Opaque) and value.operation == "Div" and len(value.parents) == 2:
            found = _count(value.parents[1])
            if found is not None and found.known:
                return found
    return None


def _problems(event: Event) -> Iterable[Any]:
    return ()
