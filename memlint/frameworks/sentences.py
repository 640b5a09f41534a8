"""sentence-transformers: the older `model.fit(train_objectives=[(loader, loss)])`, which makes a trainer of its own."""

from __future__ import annotations

from memlint.facts import Fact, fixed
from memlint.frameworks.configurations import new_arguments
from memlint.frameworks.loops import LOADERS, loader_facts
from memlint.frameworks.models import load
from memlint.frameworks.names import canonical
from memlint.frameworks.state import Collected
from memlint.frameworks.trainers import new_trainer, trained
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call, Instance, Symbol, Table, possible

FITTED = frozenset({"SentenceTransformer", "CrossEncoder", "SparseEncoder"})


def fit_model(machine: Machine, collected: Collected, model: Instance, call: Call) -> Fact:
    """The run of `fit` (sentence-transformers 5.1 `fit_mixin.py`): the loader's batch size, `fp16=use_amp`, an optimizer of its own."""
    given = call.argument("train_objectives", 0) or call.argument("train_dataloader", 0)
    loaders = [v for fact in _inside(given) for v in possible(fact) if _is_loader(v)]
    kwargs: dict[str, Fact] = {"fp16": call.kwargs.get("use_amp") or fixed(False, call.span)}
    if loaders:
        kwargs["per_device_train_batch_size"] = loader_facts(loaders[0], [])["batch.micro_batch_size"]
    kind = str(model.slots[".class"]).partition(".")[0]
    root = "sentence_transformers"
    arguments = new_arguments(
        machine, f"{root}.{kind}TrainingArguments", Call(call.name, (), kwargs, call.span), collected.context.versions
    )
    chosen = call.kwargs.get("optimizer_class") or fixed(Symbol("torch.optim.AdamW"), call.span)
    optimizer = machine.call(chosen, Call("optimizer_class", (), {}, call.span))
    slots = {"model": fixed(model), "args": arguments, "optimizers": fixed(Array((optimizer, fixed(None)), "tuple"))}
    trainer = Instance(Symbol(f"{root}.{kind}Trainer"), call, {})
    new_trainer(machine, trainer, Call(call.name, (), slots, call.span))
    trained(machine, collected, trainer, call)
    return fixed(None, call.span)


def _inside(fact: Fact | None) -> list[Fact]:
    """The members of nested lists and tuples."""
    if fact is None:
        return []
    if isinstance(fact.value, Array):
        return [inner for item in fact.value.items for inner in _inside(item)]
    return [fact]


def _is_loader(value: object) -> bool:
    return isinstance(value, Instance) and canonical(value.library)[1] in LOADERS


def load_sentences(head: str, call: Call) -> Fact:
    """`SentenceTransformer(name, model_kwargs={"torch_dtype": ...})`: the arguments of `from_pretrained` are in a dict."""
    given = call.kwargs.get("model_kwargs") or call.kwargs.get("automodel_args")
    table = given.value if given is not None and given.known else None
    passed = dict(table.entries()) if isinstance(table, Table) else {}
    return load(head, Call(call.name, call.args, {**passed, **call.kwargs}, call.span, call.open))
