"""The transformers Trainer, its relatives in TRL and sentence-transformers, and the runs that their `train()` starts."""

from __future__ import annotations

from collections.abc import Mapping

from memlint.dialects import deepspeed
from memlint.dialects.derive import derive
from memlint.dialects.from_pretrained import load_facts
from memlint.dialects.hf_arguments import problems, training_arguments
from memlint.dialects.trl import OBJECTIVES, TRAINERS, reference_model, string_model_dtype, trl_arguments, within
from memlint.facts import Fact, Origin, Site, Status, TrainingRun, default, fixed, unknown
from memlint.frameworks import unsloth
from memlint.frameworks.companions import companions, held_beside
from memlint.frameworks.configurations import config_class, native_arguments
from memlint.frameworks.configurations import site as arguments_site
from memlint.frameworks.freezing import trainable_modules
from memlint.frameworks.lengths import sequence_length
from memlint.frameworks.models import adapter_of, model_facts, models_in, quantization_of
from memlint.frameworks.names import class_name, root_of
from memlint.frameworks.native import arguments, flat, place, plain
from memlint.frameworks.optimizers import is_optimizer, optimizer_facts
from memlint.frameworks.parallel import parallelism_facts
from memlint.frameworks.runs import finish, join_facts
from memlint.frameworks.state import Collected, instances
from memlint.read.pyeval.argument_parsers import FROM_WORDS
from memlint.read.pyeval.joins import weaken
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import ABSENT, Call, Class, Function, Instance, Symbol, Table, possible
from memlint.typed import Any

_HF = ("model", "args", "data_collator", "train_dataset", "eval_dataset", "processing_class", "model_init")
_ORDERS: dict[str, tuple[str, ...]] = {
    "DPOTrainer": ("model", "ref_model", "args", "data_collator", "train_dataset", "eval_dataset", "processing_class"),
    "KTOTrainer": ("model", "ref_model", "args", "train_dataset", "eval_dataset", "processing_class"),
    "BCOTrainer": ("model", "ref_model", "args", "train_dataset", "eval_dataset", "processing_class"),
    "GRPOTrainer": ("model", "reward_funcs", "args", "train_dataset", "eval_dataset", "processing_class"),
    "RLOOTrainer": ("model", "reward_funcs", "args", "train_dataset", "eval_dataset", "processing_class"),
    "GKDTrainer": ("model", "teacher_model", "args", "data_collator", "train_dataset", "eval_dataset"),
    "PPOTrainer": ("args", "processing_class", "model", "ref_model", "reward_model", "train_dataset", "value_model"),
    "OnlineDPOTrainer": ("model", "ref_model", "reward_funcs", "judge", "args", "data_collator", "train_dataset"),
    "SentenceTransformerTrainer": ("model", "args", "train_dataset", "eval_dataset", "loss"),
    "CrossEncoderTrainer": ("model", "args", "train_dataset", "eval_dataset", "loss"),
}
"""Trainer class -> its positional parameters (trl 1.16.0, sentence-transformers 5); all others as `transformers.Trainer`."""

_TRAINER_NAMES = frozenset(
    {"Trainer", "Seq2SeqTrainer", "SentenceTransformerTrainer", "CrossEncoderTrainer", "SparseEncoderTrainer",
     "UnslothTrainer", *TRAINERS}
)  # fmt: skip
_ON_TRAINER = frozenset({"max_seq_length", "max_length", "packing", "max_prompt_length", "beta", "dataset_num_proc",
                         "padding_free",
                         "precompute_ref_log_probs", "model_init_kwargs"})  # fmt: skip
"""Settings that old TRL versions (and Unsloth's patched ones) take on the trainer."""


def is_trainer(root: str, name: str) -> bool:
    """Whether a library class trains by `train()`."""
    if root == "trl":
        return name.endswith("Trainer")
    return name in _TRAINER_NAMES and root in {"transformers", "unsloth", "sentence_transformers", "optimum"}


_BASE = "_BaseConfig"
"""The base of TRL's configuration classes, which stands for those of its experimental trainers."""


def is_trl(trainer: Instance) -> bool:
    """Whether TRL's defaults hold for a trainer."""
    return class_name(trainer) in TRAINERS or root_of(trainer) == "trl"


def new_trainer(machine: Machine, instance: Instance, call: Call) -> None:
    """Remember what the trainer got."""
    name = class_name(instance)
    for parameter, fact in zip(_ORDERS.get(name, _HF), call.args, strict=False):
        machine.write(instance, parameter, fact)
    for parameter, fact in call.kwargs.items():
        machine.write(instance, parameter, fact)
    if call.open:
        machine.write(instance, ".open", call.open)


def trained(machine: Machine, collected: Collected, trainer: Instance, call: Call) -> None:
    """`trainer.train()`: the run as everything stands now."""
    collected.add(machine, _run(machine, collected, trainer, call), trainer)


def train_loader(trainer: Instance, call: Call) -> Fact | None:
    """`trainer.get_train_dataloader()`: a loader of the size that the arguments say."""
    for config in instances(trainer.slots.get("args")):
        size = config.slots.get("per_device_train_batch_size") or default(8, "TrainingArguments", config.call.span)
        made = Call("torch.utils.data.DataLoader", (), {"batch_size": size}, call.span)
        return fixed(Instance(Symbol("torch.utils.data.DataLoader"), made, dict(made.kwargs)), call.span)
    return None


def _run(machine: Machine, collected: Collected, trainer: Instance, call: Call) -> TrainingRun:
    versions = collected.context.versions
    name = class_name(trainer)
    trl = is_trl(trainer)
    sites: list[Site] = []
    facts, native, cls = _arguments(machine, collected, trainer, name, sites)
    model_part = _model(machine, trainer, native, trl, collected, sites)
    enabled = model_part.pop("checkpointing.enabled", None)
    reentrant = model_part.pop("checkpointing.use_reentrant", None)
    facts |= {
        k: f for k, f in model_part.items() if k not in facts or k.startswith(("model.", "adapter.", "quantization.", "loss."))
    }
    if not trl or facts.get("objective") is None:
        head = model_part.get("objective")
        if head is not None:
            facts["objective"] = head
    _checkpointing(facts, enabled, reentrant)
    _peft_argument(trainer, facts, collected, sites)
    _objective(trainer, facts)
    if trl:
        passed = trainer.slots.get("ref_model")
        facts["reference_model"] = reference_model(
            cls, native, facts.get("adapter.method"), versions, passed=plain(passed) if isinstance(passed, Fact) else None
        )
        if isinstance(trainer.slots.get("teacher_model"), Fact):
            facts["reference_model"] = unknown("a teacher model is on the GPU too", call.span)
        if isinstance(passed, Fact) and list(instances(passed)):
            facts["reference_model"] = _passed_reference(facts["reference_model"], passed)
        facts |= companions(trainer, native, versions)
    else:
        facts |= held_beside(trainer, versions)
        facts.setdefault("reference_model", default("none", "one model is trained"))
    _optimizer(machine, trainer, facts, call)
    _evaluation(trainer, native, facts)
    _length(collected, trainer, facts, trl)
    facts["framework.name"] = _framework(trainer, model_part, call)
    if facts["framework.name"].value == "unsloth":
        facts |= unsloth.patched(facts)
    for config in instances(trainer.slots.get("args")):
        facts |= parallelism_facts(config.slots.get("parallelism_config"))
    notes = collected.context
    if "deepspeed" in native and not (native["deepspeed"].known and native["deepspeed"].value is None):
        facts |= _deepspeed(machine, trainer, native, facts, collected)
        facts |= _zero3_init(trainer, facts, collected)
    facts |= _hidden_states(trainer)
    return finish(machine, collected, facts, call.span, sites, problems(native), f"{name}.train()", notes)


def _arguments(
    machine: Machine, collected: Collected, trainer: Instance, name: str, sites: list[Site]
) -> tuple[dict[str, Fact], dict[str, Fact], str]:
    """Canonical facts of the trainer's arguments, its native arguments, and the configuration class."""
    versions = collected.context.versions
    cls = TRAINERS.get(name, _BASE if is_trl(trainer) else "TrainingArguments")
    given = trainer.slots.get("args")
    extra = {k: f for k, f in trainer.slots.items() if k in _ON_TRAINER and isinstance(f, Fact)}
    options: list[tuple[dict[str, Fact], dict[str, Fact]]] = []
    for config in instances(given if isinstance(given, Fact) else None):
        dialect, span = arguments_site(config)
        sites.append(Site(dialect, "python", span))
        native = native_arguments(config, versions)
        own = {**arguments(extra), **native}
        options.append((_left_open(machine, config, _facts(cls, own, config, versions)), own))
    if options:
        return (
            join_facts([facts for facts, _ in options]),
            options[0][1] if len(options) == 1 else join_facts([n for _, n in options]),
            cls,
        )
    native = arguments(extra)
    facts = _facts(cls, native, None, versions)
    if isinstance(given, Fact) and not (given.known and given.value is None):
        reason = given.reason or "the training arguments are not followed"
        facts = {k: unknown(reason, place(given)) for k in facts if k not in {"objective"}}
    elif ".open" in trainer.slots:
        facts = {k: unknown(str(trainer.slots[".open"]), trainer.call.span) for k in facts if k not in {"objective"}}
    return facts, native, cls


def _left_open(machine: Machine, config: Instance, facts: dict[str, Fact]) -> dict[str, Fact]:
    """Batch sizes that a parser fills: without a launch, nobody has left them at their default yet."""
    if machine.launch is not None or config.call.name.rpartition(".")[2] not in FROM_WORDS:
        return facts
    open_ = {key for key in ("batch.micro_batch_size", "eval.batch_size") if key in facts and facts[key].status is Status.DEFAULT}
    return facts | {key: facts[key].through(config.call.span, "the command line may set it") for key in open_}


def _facts(cls: str, native: dict[str, Fact], config: Instance | None, versions: Any) -> dict[str, Fact]:
    if cls == _BASE:
        return training_arguments(native, versions, library="trl", class_name=_BASE)
    if cls not in OBJECTIVES:
        library, own = config_class(config) if config is not None else ("transformers", "TrainingArguments")
        return training_arguments(native, versions, library=library, class_name=own)
    facts = trl_arguments(cls, native, versions)
    if config is not None and config_class(config)[0] == "transformers":
        facts |= training_arguments(native, versions) | {
            k: f for k, f in facts.items() if k.startswith(("batch.sequence", "batch.packing", "loss.", "objective"))
        }
    return facts


# --- the model ------------------------------------------------------------------------------------------------------


def _model(
    machine: Machine, trainer: Instance, native: dict[str, Fact], trl: bool, collected: Collected, sites: list[Site]
) -> dict[str, Fact]:
    versions = collected.context.versions
    model = trainer.slots.get("model")
    if not isinstance(model, Fact) or (model.known and model.value is None):
        init = trainer.slots.get("model_init")
        if isinstance(init, Fact):
            model = machine.call(init, Call("model_init", (), {}, trainer.call.span))
        else:
            reason = str(trainer.slots.get(".open") or "no model is given to the trainer")
            if isinstance(model, Fact) and model.status is Status.DEFAULT:
                reason = "the model's name is None unless the launch gives one"
            return {"model.id": unknown(reason, trainer.call.span)}
    options: list[dict[str, Fact]] = []
    for value in model.values:
        if value is ABSENT:
            continue
        inner = models_in(value)
        if inner:
            found, more = model_facts(inner[0], versions)
            found |= trainable_modules(inner[0])
            sites.extend(more)
            if ".unsloth" in inner[0].slots:
                found["framework.name"] = fixed("unsloth", inner[0].call.span)
            if ".kernels" in inner[0].slots:
                found |= unsloth.KERNELS
            options.append(found)
        elif isinstance(value, str):
            facts: dict[str, Fact] = {
                "model.id": Fact(value, model.status if model.known else Status.FIXED, model.origin),
                "model.dtype": string_model_dtype(native, versions),
                "adapter.method": default("none", "no adapter is added"),
            }
            facts |= _init_kwargs(native, trainer, sites, versions)
            options.append(facts)
        else:
            options.append({"model.id": unknown(_not_followed(value), place(model)),
                            "adapter.method": default("none", "no adapter is added"),
                            "quantization.method": default("none", "no quantization is asked for")})  # fmt: skip
    if not options:
        return {"model.id": unknown(model.reason or "the model is not followed", place(model))}
    joined = join_facts(options, model.decided_by)
    return {k: weaken(f) for k, f in joined.items()} if model.status is Status.DEFAULT else joined


def _not_followed(value: Any) -> str:
    if isinstance(value, Instance):
        name = value.cls.name.rpartition(".")[2]
        return f"the model is an object of `{name}`, which is not followed"
    return "the model is not followed"


def _init_kwargs(native: dict[str, Fact], trainer: Instance, sites: list[Site], versions: Any) -> dict[str, Fact]:
    """`model_init_kwargs` of a TRL configuration, for a model given by name."""
    prefix = "model_init_kwargs."
    inner = {k[len(prefix) :]: f for k, f in native.items() if k.startswith(prefix) and "." not in k[len(prefix) :]}
    loaded = load_facts("", inner, versions)
    facts = {k: f for k, f in loaded.items() if k not in {"model.id", "model.dtype", "objective"}}
    for config in instances(trainer.slots.get("args")):
        kwargs = config.slots.get("model_init_kwargs")
        table = kwargs.value if isinstance(kwargs, Fact) and isinstance(kwargs.value, Table) else None
        if table is not None and "quantization_config" in table.slots:
            facts |= quantization_of(table.slots["quantization_config"], versions, sites)
        elif isinstance(kwargs, Fact) and kwargs.status is Status.UNKNOWN:
            facts["model.dtype"] = unknown(kwargs.reason, place(kwargs))
    passed = trainer.slots.get("quantization_config")  # trl 1.16.0: for a model that the trainer loads itself
    if isinstance(passed, Fact) and not (passed.known and passed.value is None):
        facts |= quantization_of(passed, versions, sites)
    facts.setdefault("quantization.method", default("none", "no quantization is asked for"))
    return facts


def _checkpointing(facts: dict[str, Fact], enabled: Fact | None, reentrant: Fact | None) -> None:
    """The trainer switches checkpointing on when its arguments say so, and never off."""
    argument = facts.get("checkpointing.enabled")
    if enabled is None or (argument is not None and argument.known and argument.value is True):
        return
    if enabled.known and enabled.value is False:
        return
    if argument is None or (argument.known and argument.value is False):
        facts["checkpointing.enabled"] = enabled
    else:
        facts["checkpointing.enabled"] = derive(lambda a, b: bool(a) or bool(b), argument, enabled)
    if reentrant is not None:
        facts["checkpointing.use_reentrant"] = reentrant


def _peft_argument(trainer: Instance, facts: dict[str, Fact], collected: Collected, sites: list[Site]) -> None:
    config = trainer.slots.get("peft_config")
    if not isinstance(config, Fact):
        return
    found = adapter_of(config, collected.context.versions, sites)
    method = found["adapter.method"]
    if method.values == ("none",) and facts.get("adapter.method") is not None:
        if facts["adapter.method"].values == ("none",):
            facts["adapter.method"] = method
        return
    facts |= found
    quantized = facts.get("quantization.method")
    # trl 0.13.0 `sft_trainer.py` does so under `bf16=True` only, 1.16.0 always.
    casts = collected.context.versions.at_least("trl", "1.0") or "bf16-mixed" in facts["precision"].values
    if is_trl(trainer) and casts and quantized is not None and quantized.value in ("bnb_4bit", "bnb_8bit"):
        note = f"{collected.context.versions.note('trl')} casts adapters of a quantized base"
        facts["adapter.dtype"] = default("bfloat16", note)


def _objective(trainer: Instance, facts: dict[str, Fact]) -> None:
    name = class_name(trainer)
    if name in TRAINERS:
        fact = facts.get("objective")
        if fact is not None and fact.status is Status.DEFAULT:
            facts["objective"] = Fact(fact.value, Status.FIXED, (Origin(trainer.call.span), *fact.origin))
        return
    if is_trl(trainer):
        facts["objective"] = fixed(name.removesuffix("Trainer").lower(), trainer.call.span)
        return
    head = facts.get("objective")
    if head is not None and head.known:
        facts["objective"] = Fact(head.value, Status.FIXED, head.origin)
    if root_of(trainer) == "sentence_transformers":
        facts["objective"] = fixed("sentence_embedding" if name.startswith("Sentence") else "cross_encoder", trainer.call.span)
        # sentence-transformers 5.1.0 `models/Transformer.py`, `tokenize`: truncates at `max_seq_length`, pads to the longest of a batch.
        facts.setdefault("batch.sequence_length_is_cap", default(True, "truncation length: samples are padded to their batch"))
    for collator in instances(trainer.slots.get("data_collator")):
        mlm = collator.slots.get("mlm")
        if class_name(collator) == "DataCollatorForLanguageModeling" and head is None and isinstance(mlm, Fact) and mlm.known:
            facts["objective"] = fixed("masked_lm" if mlm.value else "causal_lm", collator.call.span)
    objective = facts.get("objective")
    if objective is None or objective.value not in {"causal_lm", "seq2seq_lm", "masked_lm"}:
        facts.pop("loss.logits", None)


def _passed_reference(fact: Fact, passed: Fact) -> Fact:
    if fact.known and fact.status is Status.DEFAULT:
        return Fact(fact.value, Status.FIXED, (Origin(place(passed)), *fact.origin))
    return fact


def _optimizer(machine: Machine, trainer: Instance, facts: dict[str, Fact], call: Call) -> None:
    """An optimizer passed as `optimizers=`, or made by an overridden `create_optimizer`."""
    own = trainer.cls.find("create_optimizer") if isinstance(trainer.cls, Class) else None
    if own is not None and isinstance(own.value, Function):
        made = machine.follow(own.value, Call("create_optimizer", (fixed(trainer),), {}, call.span))
        kept = trainer.slots.get("optimizer")
        for fact in (made, kept) if isinstance(kept, Fact) else (made,):
            if any(is_optimizer(value) for value in possible(fact)):
                facts.update(optimizer_facts(fact))
                return
    optimizers = trainer.slots.get("optimizers")
    if not isinstance(optimizers, Fact):
        return
    items = getattr(optimizers.value, "items", ())
    if items and not (items[0].known and items[0].value is None):
        facts.update(optimizer_facts(items[0]))


def _evaluation(trainer: Instance, native: Mapping[str, Fact], facts: dict[str, Fact]) -> None:
    metrics = trainer.slots.get("compute_metrics")
    on = isinstance(metrics, Fact) and not (metrics.known and metrics.value is None)
    if on and isinstance(metrics, Fact):
        facts["eval.compute_metrics"] = fixed(True, place(metrics))
    reduce = trainer.slots.get("preprocess_logits_for_metrics")
    reduced = isinstance(reduce, Fact) and not (reduce.known and reduce.value is None)
    generates = native.get("predict_with_generate")
    if generates is not None and generates.known and generates.value is True:
        # transformers 5.24.0 trainer_seq2seq.py `prediction_step`: what is gathered are the generated tokens
        facts["eval.keeps_logits"] = default(False, "evaluation generates, and keeps tokens only", place(generates))
    elif on and not reduced and isinstance(metrics, Fact):
        facts["eval.keeps_logits"] = fixed(True, place(metrics))
    else:
        facts["eval.keeps_logits"] = default(False, "no metrics over logits are computed")


def _length(collected: Collected, trainer: Instance, facts: dict[str, Fact], trl: bool) -> None:
    length = unsloth.sequence_length(trainer)
    if length is not None:
        facts["batch.sequence_length"] = length
    if trl and "batch.sequence_length" in facts:
        window = unsloth.rollout_window(trainer) if facts["batch.sequence_length"].status is Status.UNKNOWN else None
        if window is not None:
            facts.update(within(window))
        return
    for model in instances(trainer.slots.get("model")):
        length = model.slots.get("max_seq_length")
        if isinstance(length, Fact) and root_of(trainer) == "sentence_transformers":
            facts["batch.sequence_length"] = plain(length)
            return
    found = sequence_length(collected, trainer.slots.get("train_dataset"), trainer.slots.get("data_collator"))
    facts.update(found)


def _framework(trainer: Instance, model: dict[str, Fact], call: Call) -> Fact:
    named = model.get("framework.name")
    if named is not None:
        return named
    root = root_of(trainer)
    name = "trl" if is_trl(trainer) else {"optimum": "transformers"}.get(root, root)
    return fixed(name, call.span)


def _deepspeed(
    machine: Machine, trainer: Instance, native: dict[str, Fact], facts: dict[str, Fact], collected: Collected
) -> dict[str, Fact]:
    for config in instances(trainer.slots.get("args")):
        given = config.slots.get("deepspeed")
        if isinstance(given, Fact) and isinstance(given.value, Table) and given.known:
            added, found = deepspeed.plugin_facts(flat(given.value), facts, collected.context.versions)
            collected.context.note(found)
            return added
    return deepspeed.linked(native["deepspeed"], facts, collected.context)


def _zero3_init(trainer: Instance, facts: dict[str, Fact], collected: Collected) -> dict[str, Fact]:
    """`from_pretrained` shards the model only when the training arguments exist (transformers `integrations/deepspeed.py`)."""
    strategy = facts.get("parallel.strategy")
    given, model = trainer.slots.get("args"), trainer.slots.get("model")
    if strategy is None or strategy.value != "zero3" or not isinstance(given, Fact) or not isinstance(model, Fact):
        return {}
    made = {id(instance): position for position, instance in enumerate(collected.made)}
    built = [made.get(id(instance)) for instance in instances(given)]
    loaded = [(made.get(id(inner)), inner.call.span) for value in possible(model) for inner in models_in(value)]
    if len(built) != 1 or len(loaded) != 1 or built[0] is None or loaded[0][0] is None:
        return {}
    (arguments_at,), ((model_at, span),) = built, loaded
    if model_at is not None and arguments_at is not None and model_at < arguments_at:
        return {"parallel.zero3_init": fixed(False, span, "loaded before the training arguments exist")}
    return {"parallel.zero3_init": default(True, "transformers: the training arguments come first")}


def _hidden_states(trainer: Instance) -> dict[str, Fact]:
    """`output_hidden_states=True` where the library's own trainer uses only the loss; a subclass may need them (distillation)."""
    model = trainer.slots.get("model")
    if not isinstance(trainer.cls, Symbol) or not isinstance(model, Fact):
        return {}
    for value in possible(model):
        for inner in models_in(value):
            for name in ("output_hidden_states", "output_attentions"):
                asked = inner.call.kwargs.get(name)
                if asked is not None and asked.known and asked.value is True:
                    return {"model.output_hidden_states": plain(asked)}
    return {}
