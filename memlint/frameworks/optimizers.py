"""Optimizer constructors to `optimizer.*` facts."""

from __future__ import annotations

from memlint.facts import Fact, Origin, Status, default, fixed, unknown
from memlint.frameworks.names import canonical
from memlint.frameworks.native import place, plain
from memlint.read.pyeval.joins import merge, weaken
from memlint.read.pyeval.values import Call, Instance, Symbol

OPTIMIZERS: dict[tuple[str, str], str] = {
    ("torch", "AdamW"): "adamw_torch", ("torch", "Adam"): "adamw_torch", ("torch", "SGD"): "sgd",
    ("torch", "Adagrad"): "adagrad", ("torch", "RMSprop"): "rmsprop", ("torch", "Adafactor"): "adafactor",
    ("torch", "NAdam"): "adamw_torch", ("torch", "RAdam"): "adamw_torch", ("torch", "Adamax"): "adamw_torch",
    ("torch", "LBFGS"): "lbfgs", ("torch", "Adadelta"): "adadelta", ("torch", "ASGD"): "asgd", ("torch", "Rprop"): "rprop",
    ("torch", "SparseAdam"): "sparse_adam", ("apex", "FusedLAMB"): "lamb", ("apex", "FusedSGD"): "sgd",
    ("apex", "FusedAdagrad"): "adagrad", ("deepspeed", "FusedLamb"): "lamb", ("deepspeed", "FusedLion"): "lion_32bit",
    ("deepspeed", "DeepSpeedCPULion"): "deepspeed_cpu_lion", ("deepspeed", "DeepSpeedCPUAdagrad"): "deepspeed_cpu_adagrad",
    ("transformer_engine", "FusedAdam"): "adamw_apex_fused", ("prodigyopt", "Prodigy"): "prodigy",
    ("adam_mini", "Adam_mini"): "adam_mini", ("lomo_optim", "Lomo"): "lomo", ("lomo_optim", "AdaLomo"): "adalomo",
    ("torch_optimizer", "Lamb"): "lamb", ("bitsandbytes", "LAMB"): "lamb", ("bitsandbytes", "LAMB8bit"): "lamb_8bit",
    ("bitsandbytes", "LARS"): "lars", ("bitsandbytes", "Adagrad8bit"): "adagrad_8bit", ("bitsandbytes", "SGD"): "sgd",
    ("torch", "Muon"): "muon", ("torch", "ZeroRedundancyOptimizer"): "adamw_torch",
    ("transformers", "Adafactor"): "adafactor", ("transformers", "AdamW"): "adamw_hf",
    ("bitsandbytes", "AdamW8bit"): "adamw_bnb_8bit", ("bitsandbytes", "Adam8bit"): "adamw_bnb_8bit",
    ("bitsandbytes", "PagedAdamW8bit"): "paged_adamw_8bit", ("bitsandbytes", "PagedAdam8bit"): "paged_adamw_8bit",
    ("bitsandbytes", "PagedAdamW32bit"): "paged_adamw_32bit", ("bitsandbytes", "PagedAdamW"): "paged_adamw_32bit",
    ("bitsandbytes", "AdamW32bit"): "adamw_torch", ("bitsandbytes", "AdamW"): "adamw_torch",
    ("bitsandbytes", "Adam"): "adamw_torch", ("bitsandbytes", "Lion8bit"): "lion_8bit", ("bitsandbytes", "Lion"): "lion_32bit",
    ("bitsandbytes", "PagedLion8bit"): "paged_lion_8bit", ("bitsandbytes", "PagedLion"): "paged_lion_32bit",
    ("bitsandbytes", "RMSprop8bit"): "rmsprop_bnb_8bit", ("bitsandbytes", "SGD8bit"): "sgd",
    ("bitsandbytes", "AdEMAMix8bit"): "ademamix_8bit", ("bitsandbytes", "AdEMAMix"): "ademamix",
    ("torchao", "AdamW8bit"): "adamw_torch_8bit", ("torchao", "AdamW4bit"): "adamw_torch_4bit",
    ("torchao", "AdamWFp8"): "adamw_torch_fp8", ("torchao", "Adam8bit"): "adamw_torch_8bit",
    ("torchao", "CPUOffloadOptimizer"): "adamw_torch_cpu_offload",
    ("deepspeed", "DeepSpeedCPUAdam"): "deepspeed_cpu_adam", ("deepspeed", "FusedAdam"): "adamw_apex_fused",
    ("apex", "FusedAdam"): "adamw_apex_fused", ("lion_pytorch", "Lion"): "lion_32bit",
    ("galore_torch", "GaLoreAdamW"): "galore_adamw", ("galore_torch", "GaLoreAdamW8bit"): "galore_adamw_8bit",
    ("galore_torch", "GaLoreAdafactor"): "galore_adafactor", ("apollo_torch", "APOLLOAdamW"): "apollo_adamw",
    ("came_pytorch", "CAME"): "came", ("schedulefree", "AdamWScheduleFree"): "schedule_free_adamw",
    ("schedulefree", "SGDScheduleFree"): "schedule_free_sgd", ("optimi", "StableAdamW"): "stable_adamw",
    ("grokadamw", "GrokAdamW"): "grokadamw", ("muon", "Muon"): "muon",
    ("accelerate", "DummyOptim"): "adamw_torch",
}  # fmt: skip
"""(package, class) -> `optimizer.name`. Adam, NAdam and RAdam hold the same two states as AdamW."""


_TIMM = {"adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "adamax": "Adamax", "sgd": "SGD", "nesterov": "SGD",
         "momentum": "SGD", "adadelta": "Adadelta", "adagrad": "Adagrad", "rmsprop": "RMSprop"}  # fmt: skip
"""timm's names of torch's own optimizers (timm 1.0 `optim/_optim_factory.py`)."""


def _by_name(call: Call) -> Fact | None:
    """timm's `create_optimizer_v2(model, opt="adamw")`."""
    named = call.argument("opt", 1) or fixed("sgd", call.span)
    kind = _TIMM.get(str(named.value).lower()) if named.known and not call.open else None
    return fixed(Instance(Symbol(f"torch.optim.{kind}"), call, dict(call.kwargs)), call.span) if kind else None


def new_optimizer(name: str, call: Call) -> Fact | None:
    """An optimizer object, or None when the name is none."""
    if canonical(name) == ("timm", "create_optimizer_v2"):
        return _by_name(call)
    if canonical(name) not in OPTIMIZERS:
        return None
    return fixed(Instance(Symbol(name), call, dict(call.kwargs)), call.span)


def is_optimizer(value: object) -> bool:
    """Whether a value is an optimizer that is modelled."""
    return isinstance(value, Instance) and canonical(value.library) in OPTIMIZERS


def optimizer_facts(optimizer: Fact) -> dict[str, Fact]:
    """`optimizer.name` (and what else is known) of an optimizer object, one of several, that the script has made itself."""
    found: list[Fact] = []
    for value in optimizer.values:
        if not isinstance(value, Instance) or not is_optimizer(value):
            found.append(unknown("an optimizer that is not known", place(optimizer)))
            continue
        found.append(_name(value))
    if not found:
        return {"optimizer.name": unknown(optimizer.reason or "the optimizer is not followed", place(optimizer))}
    name = merge(found, optimizer.decided_by if len(found) == 2 else "")
    facts = {"optimizer.name": weaken(name) if optimizer.status is Status.DEFAULT else name}
    if _library(optimizer) == {"bitsandbytes"} and name.values and all(str(value).endswith("8bit") for value in name.values):
        note = "the Trainer registers embeddings for 32 bits with an optimizer that it makes, not with one that it is given"
        facts["optimizer.wide_embeddings"] = default(False, note, place(optimizer))
    stated = [
        v.slots["foreach"] for v in optimizer.values if isinstance(v, Instance) and isinstance(v.slots.get("foreach"), Fact)
    ]
    if len(stated) == len(found) and not all(fact.known and fact.value is None for fact in stated):
        facts["optimizer.foreach"] = plain(merge(stated))
    return facts


def _library(optimizer: Fact) -> set[str]:
    return {canonical(value.library)[0] for value in optimizer.values if isinstance(value, Instance)}


def _name(optimizer: Instance) -> Fact:
    name = OPTIMIZERS[canonical(optimizer.library)]
    span = optimizer.call.span
    if name == "adamw_torch" and canonical(optimizer.library)[0] == "torch":
        fused = optimizer.slots.get("fused")
        if isinstance(fused, Fact):
            flag = plain(fused)
            if flag.known:
                return Fact("adamw_torch_fused" if flag.value else name, Status.FIXED, (Origin(span), *flag.origin))
            if flag.choices:
                names = tuple("adamw_torch_fused" if v else "adamw_torch" for v in flag.choices)
                return Fact(None, Status.CHOICES, (Origin(span),), names, flag.reason, flag.decided_by)
            return unknown(f"fused: {flag.reason}", span)
        if optimizer.call.open:
            return unknown(optimizer.call.open, span)
    if canonical(optimizer.library)[0] == "bitsandbytes" and name in {"adamw_torch", "lion_32bit"}:
        bits = optimizer.slots.get("optim_bits")
        if isinstance(bits, Fact) and bits.known and bits.value == 8:
            return fixed("adamw_bnb_8bit" if name == "adamw_torch" else "lion_8bit", span)
    return fixed(name, span)
